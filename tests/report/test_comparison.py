"""Methods on the same seeds and levels, tests between them against scipy's, and ranks over settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report_samples import view
from scipy import stats

from aceglt.errors import RunError
from aceglt.report import RunView
from aceglt.report.comparison import compare_runs
from aceglt.report.comparison_page import headline, render_comparison
from aceglt.searches.statistics import mean_std

METHODS = ("ace", "ugs", "random")
GRAPHS = ("cora", "citeseer", "pubmed", "a", "b")


def runs(*graphs: str, **fields: Any) -> list[RunView]:
    return [view(method, method=method, dataset=graph, **fields) for graph in graphs for method in METHODS]


def scores(run: RunView) -> list[float]:
    """Of each seed, the mean test over levels."""
    return [mean_std(column)[0] for column in zip(*(level["test"] for level in run.levels), strict=True)]


def test_means_are_over_levels_and_deviations_over_seeds() -> None:
    found = compare_runs(runs("cora"))
    records = {record["method"]: record for record in found.records()}
    for run in runs("cora"):
        assert (records[run.name]["mean"], records[run.name]["std"]) == pytest.approx(mean_std(scores(run)))
    best = max(records.values(), key=lambda record: record["mean"])
    assert best["rank"] == 1
    assert best["below_best"] == 0
    cells = {row[0]: row[1] for row in found.means_rows()}
    assert cells[best["method"]].endswith(" ↑")
    assert "dense" in cells


def test_pairs_are_scipys_paired_t_tests_with_holms_correction() -> None:
    found = compare_runs(runs("cora")).contests[0]
    by_name = {run.name: run for run in runs("cora")}
    raw = {pair: stats.ttest_rel(scores(by_name[pair[0]]), scores(by_name[pair[1]])).pvalue for pair in found.pairs}
    assert {pair: test.p for pair, test in found.pairs.items()} == pytest.approx(raw)
    smallest = min(raw, key=lambda pair: raw[pair])
    assert found.pairs[smallest].p_holm == pytest.approx(min(1.0, 3 * raw[smallest]))


def test_a_pair_without_a_test_has_no_p_value_in_the_table() -> None:
    (alone,) = compare_runs([view("ace", seeds=1), view("ugs", method="ugs", seeds=1)]).pair_records()
    assert (alone["p"], alone["p_holm"]) == (None, None)


def test_ranks_are_of_settings_where_there_are_enough_and_of_seeds_where_not() -> None:
    many, few = compare_runs(runs(*GRAPHS)), compare_runs(runs("cora"))
    assert (many.by_seed, few.by_seed) == (False, True)
    assert many.test is not None
    assert few.test is not None
    assert (many.test.blocks, few.test.blocks) == (5, 5)
    placed = [stats.rankdata([-value for value in row]) for row in zip(*map(scores, runs("cora")), strict=True)]
    expected = {name: sum(row[i] for row in placed) / 5 for i, name in enumerate(METHODS)}
    assert few.mean_ranks == pytest.approx(expected)
    assert list(few.names) == sorted(few.names, key=lambda name: expected[name])


def test_what_not_all_runs_have_is_left_out_and_said() -> None:
    short = [view("ace", levels=4, seeds=5), view("ugs", method="ugs", levels=6, seeds=7)]
    found = compare_runs(short)
    (contest,) = found.contests
    assert (list(contest.seeds), list(contest.levels)) == ([0, 1, 2, 3, 4], [1, 2, 3, 4])
    assert [note.partition(": ")[2] for note in found.notes] == [
        "compared on the 5 seeds that all runs have", "compared on the 4 levels that all runs have",
    ]  # fmt: skip


def test_a_setting_without_a_method_gives_no_ranks_and_a_method_in_few_settings_has_none() -> None:
    some = [run for run in runs(*GRAPHS) if not (run.name == "ugs" and run.results["dataset"] == "a")]
    found = compare_runs([*some, view("gebt", method="gebt", dataset="cora")])
    assert sorted(found.ranked) == sorted(METHODS)
    assert any(note.startswith("gebt has no rank") for note in found.notes)
    assert any(note.startswith("a, gcn") for note in found.notes)
    assert found.test is not None
    assert next(row for row in found.means_rows() if row[0] == "ugs")[4] == "–"


def test_baselines_that_differ_are_said() -> None:
    ace, ugs = view("ace"), view("ugs", method="ugs")
    ugs.results["dense"]["test"] = [value - 0.1 for value in ugs.results["dense"]["test"]]
    assert any("do not share a dense baseline" in note for note in compare_runs([ace, ugs]).notes)
    assert compare_runs(runs("cora")).notes == []


def test_below_five_seeds_it_says_why_no_tie_is_marked() -> None:
    (note,) = compare_runs(runs("cora", seeds=3)).notes
    assert note == "no methods are told apart, and none is marked ≈: a test takes 5 seeds"
    (note,) = compare_runs([*runs("cora", seeds=3), *runs("citeseer")]).notes
    assert note.startswith("in 1 of 2 settings no methods are told apart")


def test_the_headline_says_who_is_in_front_and_who_shares_it() -> None:
    one, worse = view("one"), view("worse", method="ugs", fall=0.9)
    assert headline(compare_runs([one, worse])) == (
        "one has the highest mean in 1 of 1 setting, and the best mean rank, 1.00 of 2."
    )
    same = replace(one, name="same")
    assert headline(compare_runs([one, same, worse])).endswith("one and same share the best mean rank, 1.50 of 3.")


def test_two_methods_are_needed() -> None:
    with pytest.raises(RunError, match="it takes two methods"):
        compare_runs([view("ace"), view("ace", dataset="cora")])


def test_the_page_has_every_part_and_escapes_names() -> None:
    evil = "<script>alert(1)</script>"
    page = render_comparison(compare_runs([*runs("cora"), view(evil, method=evil, dataset="cora")]), "/* plotly */")
    assert evil not in page
    for part in ("Side by side", "Mean ranks", "Pair by pair", "Highest winning sparsity", "Cost of a level"):
        assert part in page
    assert "critical difference" in page
    assert page.count("data-figure") == 2  # one chart, and the script that looks for it
