"""The study's bookkeeping: what is kept of searches, and how methods are compared."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_samples import without_processes

import aceglt
from aceglt.config import Scoring, resolve
from aceglt.config.own import take
from aceglt.datasets import load
from aceglt.errors import ConfigError
from aceglt.methods import Ace
from aceglt.methods.build import build_method
from aceglt.reproduction import Cell, Scale, exhibit, reproduce
from aceglt.searches.state import State
from study import cells, measure, page, tune
from study.__main__ import main
from study.compare import Group, groups, paired, pooled

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results"
TINY: dict[str, Any] = {"levels": 2, "epochs": 2, "hidden": 4, "device": "cpu"}


def result(method: str, tests: list[list[float]], axis: str = "model", variant: str = "") -> dict[str, Any]:
    """Levels of 20, 36, 49 … % model or 5, 10, 14 … % graph sparsity, with these test metrics of each seed."""
    name = f"cora/gcn/{axis}/{method}" + (f"/{variant}" if variant else "")
    levels = [
        {
            "level": i + 1, "model_sparsity": 1 - 0.8 ** (i + 1), "graph_sparsity": 1 - 0.95 ** (i + 1), "val": test,
            "test": test, "epochs": {"select": 60, "retrain": 200}, "seconds": 1.0,
        }
        for i, test in enumerate(tests)
    ]  # fmt: skip
    seeds = list(range(len(tests[0])))
    dense = {"val": [0.8] * len(seeds), "test": [0.8] * len(seeds), "seconds": 1.0}
    return {
        "cell": name, "dataset": "cora", "backbone": "gcn", "axis": axis, "method": method, "seeds": seeds,
        "dense": dense, "levels": levels, "epochs": 200,
    }  # fmt: skip


def group_of(*results: dict[str, Any]) -> Group:
    (group,) = groups(results)
    return group


def test_means_are_over_the_sparse_levels_alone() -> None:
    group = group_of(result("ugs", [[0.1, 0.2], [0.5, 0.6], [0.7, 0.6]]))
    assert group.compared == [1, 2]
    assert group.means("ugs") == [pytest.approx(0.6), pytest.approx(0.6)]
    assert group_of(result("ugs", [[0.1]] * 4, "graph")).compared == [2, 3]


def test_the_best_is_the_highest_mean_and_a_star_needs_consistency() -> None:
    level = [0.70, 0.71, 0.72, 0.73, 0.74]
    better = [value + 0.02 + 0.001 * i for i, value in enumerate(level)]
    mixed = [0.9, 0.6, 0.9, 0.6, 0.9]
    group = group_of(
        result("ugs", [level] * 3), result("ace", [mixed] * 3), result("ugs", [better] * 3, variant="default")
    )
    assert list(group.results) == ["ugs", "ace", "default"]
    assert group.best == "ace"
    assert [group.star(method) for method in group.results] == [False, False, True]
    assert group.below() == []


def test_levels_below_another_method_are_found_after_correction() -> None:
    low = [0.60, 0.61, 0.62, 0.63, 0.64]
    high = [0.70 + 0.001 * i for i in range(5)]
    close = [value + (0.001 if i else 0.01) for i, value in enumerate(low)]  # p is below 0.05, but not twice as high
    group = group_of(result("ugs", [low, high, close]), result("ugs", [low, low, low], variant="default"))
    assert group.below() == ["ugs at level 2"]


def test_methods_are_compared_on_the_seeds_that_both_have() -> None:
    few, many = result("ugs", [[0.5], [0.5]]), result("ugs", [[0.6, 0.1], [0.6, 0.1]], variant="default")
    group = group_of(few, many)
    assert group.means("default") == [pytest.approx(0.6)]
    assert group.results["default"]["dense"]["test"] == [0.8]


def test_finished_searches_are_kept_with_their_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["citeseer/gcn/model/random", "citeseer/gcn/model/ugs/teacher"]
    table1 = replace(cells.TABLE1, scales=[Scale(levels=2, epochs=2, settings={"hidden": 4})])
    kept = tmp_path / "kept"
    reproduce("table1", cells=names, out=tmp_path / "out", seeds=1, **TINY)
    assert cells.collect(table1, tmp_path / "out", "abc", kept) == names
    assert cells.collect(table1, tmp_path / "out", "abc", kept) == []
    reproduce("table1", cells=names[1], out=tmp_path / "out", seeds=2, **TINY)
    assert cells.collect(table1, tmp_path / "out", "def", kept) == names[1:]
    random, taught = cells.load(table1, kept)
    assert (random["seeds"], taught["seeds"], random["code"], taught["code"]) == ([0], [0, 1], "abc", "def")
    assert taught["command"] == "aceglt reproduce table1 --cell citeseer/gcn/model/ugs/teacher --seeds 0,1"
    assert [set(level["diagnostics"]) for level in (random["levels"][0], taught["levels"][0])] == [set(), set()]
    pytest.importorskip("matplotlib")
    page.write(kept, tmp_path / "docs")
    text = (tmp_path / "docs" / "table1.md").read_text()
    assert "### citeseer/gcn/model\n\n1 seeds; dense " in text
    assert (tmp_path / "docs" / "gcn.svg").read_text().startswith("<?xml")
    kept.rename(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    main(["levels", "table1"])
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * 3


def test_a_part_is_searched_at_every_scale_and_pooled_over_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"levels": 1, "epochs": 2}
    scales = [Scale(**few, settings={"hidden": 4, "split": f"random:{seed}"}) for seed in (1, 2)]
    part = replace(cells.SPLITS, scales=scales)
    names = ["citeseer/gcn/graph/random", "citeseer/gcn/graph/ugs"]

    without_processes(monkeypatch)
    monkeypatch.setitem(cells.SELECTIONS, "splits", ((part, ()),))
    wanted = cells.missing("splits", [*names, "citeseer/gcn/graph/ace"], 2, tmp_path)
    assert len(wanted) == 3 * 2
    wanted.pop()  # of ace, one of the splits alone
    assert cells.search(wanted, tmp_path / "out", "abc", tmp_path, device="cpu") == {}
    (left,) = cells.missing("splits", [*names, "citeseer/gcn/graph/ace"], 2, tmp_path)
    assert (left[1].name, left[2].settings["split"]) == ("citeseer/gcn/graph/ace", "random:2")
    once = replace(part, scales=scales[:1])
    kept = list(cells.load(part, tmp_path))
    assert kept[0]["command"].endswith("--cell citeseer/gcn/graph/random --seeds 0,1 --split random:1")
    assert {cell.name: len(found["levels"]) for cell, found in cells.by_cell(part, tmp_path).items()} == {
        "citeseer/gcn/graph/ace/random:1": 1,
        **{f"{name}/random:{seed}": 1 for name in names for seed in (1, 2)},
    }
    (group,) = groups(pooled(kept, splits=2))
    assert list(group.results) == ["random", "ugs"]
    for name, method in zip(names, group.results, strict=True):
        tests = [result["levels"][0]["test"] for result in kept if result["cell"] == name]
        assert group.tests(method, 0) == [pytest.approx(sum(test) / 2) for test in tests]
    assert pooled(list(cells.load(once, tmp_path))[:1], splits=2) == []
    with pytest.raises(ConfigError, match="splits has no cell 'cora/gat'"):
        cells.missing("splits", ["cora/gat"])
    assert cells.collect(cells.EQUAL_COST, tmp_path / "out", "abc", tmp_path) == []


def test_a_finished_search_is_kept_and_never_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = without_processes(monkeypatch)
    cell = Cell("citeseer", "gcn", "graph", "random", settings={"split": "random:3", "hidden": 4})
    part = replace(cells.OTHERS, cells=[cell], scales=[Scale(levels=1, epochs=2)], seeds=1)
    monkeypatch.setitem(cells.SELECTIONS, "graphs", ((part, ()),))
    for _ in range(2):
        wanted = cells.missing("graphs", folder=tmp_path / "kept")
        cells.search([*wanted, *wanted], tmp_path / "out", "abc", tmp_path / "kept", device="cpu")
        (kept,) = cells.load(part, tmp_path / "kept")
        assert kept["command"] == "python -m study search graphs --cell citeseer/gcn/graph/random --seeds 0"
        (tmp_path / "kept" / "graphs" / "citeseer-gcn-graph.json").unlink()  # as if killed before it was written
    assert len(engine.started) == 1


@pytest.mark.parametrize("arguments", [["page"], ["collect", "out"], ["measure"], ["tune", "cora", "graph"]])
def test_what_is_kept_is_looked_for_in_the_root_of_the_repository(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^error: no results here; run it in the root"):
        main(arguments)
    assert not list(tmp_path.iterdir())


def test_at_equal_cost_methods_have_about_the_epochs_of_ace() -> None:
    ace = next(cell.config(Scale()) for cell in cells.TABLE1.cells if cell.name == "cora/gcn/model/ace")
    budget = build_method(ace).cost(ace.scoring_epochs)
    for cell in cells.EQUAL_COST.cells:
        config = cell.config(Scale())
        method = build_method(config, take({"method": config.method})[1])
        assert budget <= method.cost(config.scoring_epochs) < 1.1 * budget


def test_the_studys_own_methods_are_searched_and_kept_under_the_names_of_their_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_processes(monkeypatch)
    part = replace(cells.EQUAL_COST, scales=[Scale(levels=1, epochs=2, settings={"hidden": 4})])
    monkeypatch.setitem(cells.SELECTIONS, "equal-cost", ((part, ()),))
    names = ["citeseer/gcn/graph/random/draws", "citeseer/gcn/graph/ugs/one-shot"]
    cells.search(cells.missing("equal-cost", names, 1, tmp_path), tmp_path / "out", "abc", tmp_path, device="cpu")
    assert cells.missing("equal-cost", names, 1, tmp_path) == []
    kept = list(cells.load(part, tmp_path))
    assert [result["method"] for result in kept] == ["study.methods:RandomDraws", "study.methods:OneShot"]
    assert [result["levels"][0]["epochs"]["select"] for result in kept] == [6, 6]


@pytest.mark.skipif(not KEPT.exists(), reason="results are in the repository, not in the package")
def test_what_is_kept_is_of_the_study_as_it_is_now() -> None:
    """Committed results have a cell each, all their levels, and the settings that the study has today."""
    assert list(cells.load(cells.TABLE1, KEPT))
    for part in cells.PARTS.values():
        known = [(cell.name, cell.config(scale).to_dict()) for cell, scale in product(part.cells, part.scales)]
        expected = json.loads(
            json.dumps([(name, {k: v for k, v in config.items() if k != "seeds"}) for name, config in known])
        )
        for kept in cells.load(part, KEPT):
            assert [kept["cell"], kept["config"]] in expected
            assert len(kept["levels"]) == kept["config"]["levels"]
            fewest = 2 if part is cells.SPLITS else 3
            assert all(len(level["test"]) == len(kept["seeds"]) >= fewest for level in kept["levels"])


@pytest.mark.skipif(not KEPT.exists(), reason="results are in the repository, not in the package")
def test_pages_are_made_of_what_is_kept() -> None:
    assert (ROOT / "docs/science/study/table1.md").read_text() == page.table1_page(KEPT)
    pages = ("docs/science/study.md", "docs/science/study/appendix.md")
    text = "".join((ROOT / name).read_text() for name in pages)
    tables = page.tables(KEPT, ROOT / tune.RECORD)
    assert {"accuracy", "winners", "folds"} <= set(tables)
    for name, table in tables.items():
        assert f"<!-- {name} -->\n{table}\n<!-- end of {name} -->" in text


@pytest.mark.skipif(not KEPT.exists(), reason="results are in the repository, not in the package")
def test_further_tables_and_figures_have_pages_of_what_is_kept() -> None:
    """Of those with searches; some are those of Table 1."""
    kept = cells.of_exhibits(page.EXHIBITS, KEPT)
    assert len(kept["tableS8"]) == 24
    for name, found in kept.items():
        path = ROOT / "docs/science/study" / f"{name}.md"
        plots = [f"{name}.svg"] if exhibit(name).plot else []
        assert path.read_text() == page.exhibit_page(exhibit(name), found, plots) if found else not path.exists()


def test_tables_of_a_page_are_refreshed_between_their_comments(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n")
    for table in ("new", "newer"):
        page.refresh(path, {"a": table})
        assert path.read_text() == f"before\n<!-- a -->\n{table}\n<!-- end of a -->\nafter\n"


def test_the_overview_counts_complete_cells_and_names_the_exceptions() -> None:
    low, high = [0.70 + 0.001 * i for i in range(5)], [0.80 + 0.001 * i for i in range(5)]
    others = [result(method, [low] * 3) for method in ("random", "ugs", "gebt", "ace")]
    first = page.page(groups([*others, result("ugs", [high] * 3, variant="default")]))
    assert "highest mean in 1 of the 1 cells that it and the four published methods have searched. Levels" in first
    last = page.page(groups([*others[:3], result("ace", [high] * 3), result("ugs", [low] * 3, variant="default")]))
    assert "in 0 of the 1 cells that it and the four published methods have searched. Another has it in cora" in last
    assert "cora/gcn/model: ace at level 2, ace at level 3." in last


def test_folds_train_on_nodes_that_the_split_trains_or_validates_on() -> None:
    data = load("citeseer")
    assert tune.folded(data, 0) is data
    folds = [tune.folded(data, fold) for fold in (1, 2)]
    known = data.train_mask | data.val_mask
    for fold in folds:
        assert torch.equal(fold.train_mask | fold.val_mask, known)
        assert not (fold.train_mask & fold.val_mask).any()
        assert torch.bincount(data.y[fold.train_mask]).tolist() == [20] * 6
    assert not torch.equal(folds[0].train_mask, folds[1].train_mask)


def test_settings_in_the_place_of_the_default() -> None:
    assert tune.settings([])["teacher_temperature"] == Scoring.teacher_temperature
    made = tune.settings(["teacher_temperature=0.5", "rounds=3", "balance=0"])
    assert (made["teacher_temperature"], made["balance"]) == (0.5, 0)
    assert made["method_options"]["rounds"] == 3
    assert tune.settings(["method=random", "signal=labels"])["method_options"] == {}


def test_a_search_for_tuning_never_reads_the_test_set() -> None:
    data = load("citeseer")
    few = {"levels": 2, "epochs": 2, "hidden": 4, "seeds": 2, "method": "ugs", "signal": "teacher", "device": "cpu"}
    results = tune.search_fold(data, **few)
    assert [reading["test"] for reading in (results["dense"], *results["levels"])] == [None] * 3
    usual = aceglt.search(data, dataset="data", preset="paper", test=False, tickets="none", **few).results
    assert [level["val"] for level in results["levels"]] == [level["val"] for level in usual["levels"]]
    prototyped = tune.search_fold(data, prototype="averaged-edge-scores", **few)
    assert prototyped["dense"]["val"] == usual["dense"]["val"]
    assert prototyped["levels"][0]["excerpt"] != usual["levels"][0]["excerpt"]


def test_tuning_is_recorded_line_by_line(tmp_path: Path) -> None:
    searched: list[dict[str, Any]] = []

    def search(data: Any, **settings: Any) -> dict[str, Any]:
        searched.append(settings)
        levels = [{"val": [0.5 + i / 100, 0.7 + i / 100]} for i in range(tune.STEPS)]
        return {"dense": {"val": [0.6, 0.7]}, "levels": levels}

    tuned = partial(tune.tune, seeds=2, record=tmp_path / "record.csv", device="cpu", search=search)
    lines = tuned("citeseer", "graph", [0, 1], ["beta=3"])
    assert [line["mean"] for line in lines] == ["64.50", "64.50"]
    assert [(s["axis"], s["beta"], s["lr"]) for s in searched] == [("graph", 3, 0.01)] * 2
    assert tuned("citeseer", "graph", [1, 2], ["beta=3"])[0] == lines[1]
    assert len(searched) == 3
    tuned("citeseer", "model", [0], ["beta=3"])
    record = tmp_path / "record.csv"
    assert tune.means(tune.read(record), (0, 1, 2)) == ([""], [])  # none has the usual number of seeds
    heads, rows = tune.means(tune.read(record), (0, 1, 2), seeds=2)
    assert heads == ["", "citeseer graph", "citeseer model"]
    assert rows == [["dense", "65.00", "…"], ["`beta=3`", "64.50", "…"]]
    assert tune.means([]) == ([""], [])
    with pytest.raises(ConfigError, match="levels, lr is the same in all searches"):
        tune.tune("citeseer", "model", [0], ["lr=0.5", "levels=3"], record=record)


def test_lines_of_another_default_are_not_taken_for_todays(tmp_path: Path) -> None:
    levels = [{"val": [0.5]}] * tune.STEPS
    found, record = {"dense": {"val": [0.6]}, "levels": levels}, tmp_path / "record.csv"
    for default in (tune.DEFAULT_SCORES, {**tune.DEFAULT_SCORES, "beta": 3.0}):
        tune.tune("citeseer", "graph", [0], record=record, search=lambda data, **_: found, default=default)
    assert len({line["config"] for line in tune.read(record)}) == 2


def test_a_page_without_a_place_for_a_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("nothing\n")
    with pytest.raises(ConfigError, match=r"page.md has no place for the table of a: <!-- a -->"):
        page.refresh(path, {"a": "table"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["search", "equal-cost", "--cell", "nonsense"], "error: equal-cost has no cell 'nonsense'"),
        (["collect", "nowhere"], "error: nowhere has no runs"),
        (["tune", "nodata", "graph"], "error: unknown dataset 'nodata'"),
        (["tune", "citeseer", "graph", "--set", "lr=1"], "error: lr is the same in all searches"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert str(ended.value).startswith(said)


def test_pairs_say_whether_the_exchange_pays() -> None:
    low = [0.70, 0.71, 0.72, 0.73, 0.74]
    high = [value + 0.01 + 0.001 * i for i, value in enumerate(low)]
    better = [result("ugs", [low] * 3, variant="teacher"), result("ace", [high] * 3, variant="default")]
    worse = [{**pair, "dataset": "wordnet"} for pair in (
        result("ugs", [high] * 3, variant="teacher"), result("ace", [low] * 3, variant="default"),
    )]  # fmt: skip
    alone = {**result("ugs", [low] * 3, variant="teacher"), "dataset": "tolokers"}
    found = paired(groups([*better, *worse, alone]))
    assert [pair.group.dataset for pair in found] == ["cora", "wordnet"]
    assert [pair.gain for pair in found] == [pytest.approx(0.012), pytest.approx(-0.012)]
    assert found[0].p_holm == pytest.approx(2 * found[0].p)
    text = page.pairs(found)
    assert "| cora, gcn, model | 5 | 72.00 | 73.20 | +1.20 |" in text
    assert "above in 1 of 2 pairs. The mean difference is +0.00 points (p = 1 over the pairs)." in text
    assert text.endswith("Significantly below after Holm's correction: wordnet, gcn, model.")


def test_methods_are_summed_up_by_what_choosing_costs_and_what_it_gains_over_dense() -> None:
    same = [0.80] * 5  # as dense
    results = [result("ugs", [same] * 3), result("ugs", [same, [0.85] * 5, [0.83] * 5], variant="default")]
    heads, _, ugs, default = page.cost(groups(results)).splitlines()
    assert heads == "|  | epochs of choosing | model axis | graph axis |"
    assert ugs == "| UGS | 180 | +0.00 | … |"
    assert default == "| ACE, teacher (default) | 180 | +4.00 | … |"  # of the levels above 30 %


def test_a_method_with_few_cells_does_not_narrow_the_summary_of_the_others() -> None:
    same, better = [0.80] * 5, [0.84] * 5
    both = [result("ugs", [same, better, better], axis) for axis in ("model", "graph")]
    found = groups([*both, result("ace", [same, same, same], variant="code")])
    assert [line.split(" | ")[0] for line in page.cost(found).splitlines()[2:]] == ["| UGS"]
    assert page.cost(found).endswith("| UGS | 180 | +4.00 | +4.00 |")


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["method=ugs", "rounds=3"], "rounds is for the method ace; found method ugs"),
        (["test=true"], "test is no setting to tune"),
        (["preset=ugs"], "preset is no setting to tune"),
        (["levels=3"], "levels is the same in all searches for tuning"),
        (
            ["prototype=averaged-teacher", "signal=labels"],
            "'averaged-teacher' needs method=ugs or ace and signal=teacher",
        ),
        (["prototype=averaged-scores", "method=gebt"], "'averaged-scores' needs method=ugs"),
        (["prototype=nothing"], "no prototype 'nothing'; there are none, averaged-teacher, edges-by-effect"),
    ],
)
def test_settings_that_cannot_be_tuned_are_refused(assignments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        tune.tune("cora", "model", assignments=assignments, record=tmp_path / "record.csv")


@pytest.mark.parametrize("variant", ["", "teacher"])
def test_the_spread_is_of_the_scores_that_a_round_draws_by(variant: str) -> None:
    (cell,) = (cell for cell in measure.SCORED if (cell.dataset, cell.variant) == ("citeseer", variant))
    cell = replace(cell, settings={**cell.settings, "hidden": 4, "epochs": 2})
    heads, *rows = csv.reader(measure.score_quantiles(cells=[cell], seeds=1).splitlines())
    assert heads[:4] == ["dataset", "scores", "side", "seeds"]
    config = cell.config(Scale(seeds=1)).replace(test=False)
    assert config.scoring.signal == ("teacher" if variant else "labels")
    search = tune.build_search(load("citeseer"), config)
    level = search.level(search.train_dense(State()))
    scores = level.train_scores(level.masks, Ace.refine_epochs, "refine 1").scores
    for row, side in zip(rows, ("weights", "edges"), strict=True):
        values = getattr(scores, side).abs()
        assert row[:4] == ["citeseer", variant or "labels", side, "1"]
        assert [float(row[i]) for i in (4, 6, 8)] == pytest.approx(
            [float(values.min()), float(values.quantile(0.5, interpolation="nearest")), float(values.max())], abs=1e-4
        )


def test_teachers_are_measured_on_validation_nodes() -> None:
    small: dict[str, Any] = {"epochs": 5, "hidden": 16, "seeds": 1}
    found = measure.teachers(names=["citeseer"], folds=[0], **small)
    _, (*place, plain, smoothed) = csv.reader(found.splitlines())
    assert place == ["citeseer", "0", "1"]
    data = load("citeseer")
    for shown, smoothing in ((plain, 0.0), (smoothed, Scoring.teacher_smoothing)):
        taught = {"signal": "teacher", "teacher_smoothing": smoothing, "test": False}
        soft = (
            tune.build_search(data, resolve("paper", dataset="citeseer", **taught, **small)).train_dense(State()).soft
        )
        assert soft is not None
        right = (soft[0].argmax(dim=1) == data.y)[data.val_mask].double().mean()
        assert float(shown) == pytest.approx(100 * float(right), abs=0.01)
