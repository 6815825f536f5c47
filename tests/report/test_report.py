"""The report is one inert, self-contained page whose tables say what results.json says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_samples import EDGES, view, with_diagnostics

from aceglt.errors import AcegltError
from aceglt.report import ReportUnavailable, RunView, distinct_names, write_report
from aceglt.report.charts import fluctuation_figure, sparsity_figure, time_figure
from aceglt.report.excerpt import arrange, scenes
from aceglt.report.page import headline, render
from aceglt.report.terminal import sweep_tables
from aceglt.searches.sketch import PALETTE
from aceglt.searches.statistics import mean_std
from aceglt.searches.wording import duration, percent, plus_minus, quantity, text_table

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">&amp;\'$title'
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects tags, tables by caption, script bodies and visible text; checks that tags nest."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self._caption = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag == "caption":
            self._caption = ""
        if tag == "tr":
            self.tables.setdefault(self._caption, []).append([])
        if tag in ("th", "td"):
            self.tables[self._caption][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif "style" not in self.open:
            self.texts.append(data)
            if "caption" in self.open:
                self._caption += data
            elif {"th", "td"} & set(self.open):
                self.tables[self._caption][-1][-1] += data

    @property
    def text(self) -> str:
        return plain("".join(self.texts))

    @property
    def figures(self) -> list[dict[str, Any]]:
        return list(json.loads(next(body for attrs, body in self.scripts if attrs.get("id") == "figures")))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def page(*runs: RunView) -> Page:
    return Page(render(runs, "/* plotly */"))


def rows(found: Page, caption: str) -> list[dict[str, str]]:
    head, *body = [[plain(cell) for cell in row] for row in found.tables[caption]]
    return [dict(zip(head, row, strict=True)) for row in body]


def hostile_view() -> RunView:
    run = with_diagnostics(view(dataset=HOSTILE, method=HOSTILE, backbone=HOSTILE, axis="model", metric=HOSTILE))
    return RunView(HOSTILE, run.results, {HOSTILE: HOSTILE}, HOSTILE, [f"javascript:{HOSTILE}"])


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(c * w for c, w in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def test_the_file_is_self_contained_and_small(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report([with_diagnostics(view()), with_diagnostics(view("ugs", method="ugs"))], path)
    assert path.stat().st_size < 6_000_000
    source = path.read_text(encoding="utf-8")
    assert source.count("plotly.js v") == 1
    found = Page(source)
    links = [attrs.get(key) or "" for _, attrs in found.tags for key in ("src", "href") if key in attrs]
    assert links
    assert not [link for link in links if link.startswith(("http:", "https:", "//"))]
    assert [link for link in links if not link.startswith("tickets/")] == ["data:,"]


def test_writing_replaces_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report([view()], path)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("aceglt.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report([view()], path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_plotly_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ReportUnavailable, match="pip install plotly") as caught:
        write_report([view()], tmp_path / "report.html")
    assert isinstance(caught.value, AcegltError)
    assert list(tmp_path.iterdir()) == []


def test_no_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path / "report.html")


def test_the_page_is_made_for_phones_dark_mode_and_paper() -> None:
    source = render([view()], "")
    found = Page(source)
    viewports = [attrs["content"] for tag, attrs in found.tags if attrs.get("name") == "viewport"]
    assert viewports == ["width=device-width, initial-scale=1"]
    assert "prefers-color-scheme: dark" in source
    assert "@media print" in source
    assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
    charts = [attrs for _, attrs in found.tags if attrs.get("class") == "chart"]
    ids = {attrs.get("id") for _, attrs in found.tags}
    assert charts
    assert all(attrs["aria-labelledby"] in ids for attrs in charts)
    assert any(tag == "noscript" for tag, _ in found.tags)


def test_the_level_table_matches_the_results() -> None:
    run = view()
    table = rows(page(run), "ace: levels")
    assert [row["Level"] for row in table] == ["dense", *(str(n) for n in range(1, 11))]
    for row, level in zip(table[1:], run.results["levels"], strict=True):
        for column, key in (("Validation accuracy", "val"), ("Test accuracy", "test")):
            mean, std = mean_std(level[key])
            assert row[column] == f"{100 * mean:.2f} ± {100 * std:.2f}"
        assert row["Weights pruned"] == f"{100 * level['model_sparsity']:.2f} %"
        assert row["Edges pruned"] == f"{100 * level['graph_sparsity']:.2f} %"
        assert row["MACs"] == f"{level['macs'] / 1e9:.3f} G"
        assert row["Time"] == f"{level['seconds']:.1f} s"
        for criterion, verdict in level["winning"].items():
            assert row[f"Wins: {criterion}"] == ("yes" if verdict else "no")


def test_the_winners_table_matches_the_results() -> None:
    run = view(seeds=3)
    (row,) = rows(page(run), "Sparsest winning level")
    strict = run.results["highest_winning"]["strict"]
    assert row["Strict"].startswith(f"level {strict['level']}: {100 * strict['model_sparsity']:.2f} % of weights")
    assert row["Significant"] == "undetermined"
    mean, std = mean_std(run.results["highest_winning_per_seed"]["model_sparsity"])
    assert row["Per seed (paper's tables)"] == f"{100 * mean:.2f} ± {100 * std:.2f} % of weights"


def test_the_headline_says_what_was_searched_and_what_came_of_it() -> None:
    run = view()
    best = run.best
    assert best is not None
    sentence = plain(headline(run))
    mean, std = mean_std(run.results["dense"]["test"])
    assert f"dense reaches {100 * mean:.2f} ± {100 * std:.2f} % test accuracy" in sentence
    assert f"level {best['level']}, {100 * best['model_sparsity']:.2f} % of the weights" in sentence
    assert f"saves {100 * (1 - best['macs'] / run.results['dense']['macs']):.2f} %" in sentence
    assert sentence in page(run).text


def test_the_headline_admits_that_nothing_wins() -> None:
    run = view()
    lost = [{**level, "winning": dict.fromkeys(level["winning"], False)} for level in run.results["levels"]]
    none = dict.fromkeys(run.results["highest_winning"])
    beaten = replace(run, results={**run.results, "levels": lost, "highest_winning": none})
    assert "no level keeps dense's validation accuracy" in headline(beaten)
    assert rows(page(beaten), "Sparsest winning level")[0]["Strict"] == "none"


def test_a_dense_model_that_is_not_finished_is_warned_of_once_with_the_runs_it_concerns() -> None:
    fine, *others = view("ugs", method="ugs"), view("ace"), view("random", method="random")
    warned = [replace(run, results={**run.results, "warnings": ["dense is not finished"]}) for run in others]
    assert "Warning: dense is not finished." in page(warned[0]).text
    assert "Warning: dense is not finished." in page(*warned).text
    assert "Warning: ace, random: dense is not finished." in page(fine, *warned).text
    assert page(fine, *warned).text.count("Warning") == 1
    assert "Warning" not in page(fine).text


def test_hostile_text_stays_inert() -> None:
    tame, found = page(with_diagnostics(view())), page(hostile_view())
    assert len(found.scripts) == len(tame.scripts) == 3
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
    assert HOSTILE in found.text
    hrefs = [attrs["href"] or "" for tag, attrs in found.tags if tag == "a"]
    assert hrefs
    assert all(href.startswith("javascript%3A") for href in hrefs)
    assert all("<" not in trace["name"] for figure in found.figures for trace in figure["traces"] if "name" in trace)


def test_plotly_source_cannot_close_its_script() -> None:
    found = Page(render([view()], 'x = "</SCRIPT><b>"'))
    assert found.scripts[0][1] == 'x = "<\\/SCRIPT><b>"'


def test_without_test_readings_validation_is_shown() -> None:
    found = page(view(test=False))
    first = rows(found, "ace: levels")[1]
    assert (first["Test accuracy"], first["Wins: paper"], first["Wins: significant"]) == (
        "not read",
        "undetermined",
        "undetermined",
    )
    assert first["Wins: strict"] in ("yes", "no")
    assert found.figures[0]["readings"] == [["val", "Validation"]]
    assert "% validation accuracy" in found.text
    assert rows(found, "Sparsest winning level")[0]["Paper"] == "undetermined"


def test_dense_alone_makes_a_page_without_charts() -> None:
    found = page(view(levels=0, seeds=1))
    assert found.figures == []
    assert [row["Level"] for row in rows(found, "ace: levels")] == ["dense"]
    assert "no levels were searched" in found.text
    assert "No ticket was saved" in found.text


def test_diagnostics_are_shown_when_present() -> None:
    assert "How decided" not in page(view()).text
    run = with_diagnostics(view())
    first = rows(page(run), "ace: how decided the choices were")[0]
    weights = run.results["levels"][0]["diagnostics"]["weights"]
    assert first["Weights: distinct scores"] == f"{mean_std(weights['distinct'])[0]:,.0f}"
    assert first["Weights: ties at the threshold"] == f"{100 * mean_std(weights['ties_at_threshold'])[0]:.2f} %"
    assert first["Weights: rank correlation with noise"] == f"{mean_std(weights['noise_correlation'])[0]:.2f}"


def test_diagnostics_may_be_incomplete() -> None:
    run = view(levels=1)
    run.results["levels"][0]["diagnostics"] = {"weights": {"distinct": [None, 4], "noise_correlation": []}}
    assert list(rows(page(run), "ace: how decided the choices were")[0].values()) == ["1", "4", *"–" * 5]


def test_cost_is_summed_over_levels() -> None:
    run = with_diagnostics(view(levels=2))
    (row,) = rows(page(run), "Cost of all levels")
    seconds = [level["phases"] for level in run.results["levels"]]
    assert row["Choosing masks"] == plain(duration(sum(s["select"] for s in seconds)))
    assert row["In all"] == plain(duration(sum(s["select"] + s["retrain"] for s in seconds)))
    assert (row["Epochs, choosing"], row["Epochs, retraining"]) == ("1,120", "400")


def test_the_cost_stands_beside_what_came_of_it() -> None:
    run = with_diagnostics(view())
    (row,) = rows(page(run), "Cost of all levels")
    assert run.best is not None
    assert row["Strict winner"] == percent(run.best["model_sparsity"])
    assert row["Its MACs"] == quantity(run.best["macs"], beside=run.dense["macs"])
    assert row["Dense MACs"] == quantity(run.dense["macs"])


def test_levels_that_patience_would_have_spared_are_said_beside_the_winners() -> None:
    run = with_diagnostics(view(levels=6))
    for level in run.results["levels"]:
        level["winning"]["strict"] = level["level"] <= 2
    spared = plain(duration(sum(level["seconds"] for level in run.results["levels"][3:])))
    assert f"--patience 1 would have found the same winner with 3 levels and {spared} less" in page(run).text
    for level in run.results["levels"]:
        level["winning"]["strict"] = True
    assert "--patience" not in page(run).text


@pytest.mark.parametrize(
    ("taught", "told"),
    [
        ({"smoothing": [True, False, False], "temperature": [True, True, True]}, "without smoothing in 2 of 3 runs"),
        ({"temperature": [False, False, False]}, "at temperature 1 in 3 of 3 runs"),
    ],
)
def test_what_teachers_were_better_without_is_said(taught: dict[str, list[bool]], told: str) -> None:
    run = view(seeds=3)
    run.results["teacher"] = taught
    assert f"the teacher is {told}: it was worse on validation otherwise." in page(run).text
    run.results["teacher"] = {"smoothing": [True] * 3}
    assert "the teacher is" not in page(run).text


def test_tickets_are_listed_with_links_and_readings() -> None:
    run = view()
    found = page(run)
    last = run.results["levels"][-1]
    row = rows(found, "ace: tickets")[1]
    assert (row["File"], row["Level"], row["Seed"]) == ("level_10_seed_1.safetensors", "10", "1")
    assert row["Test, %"] == f"{100 * last['test'][1]:.2f}"
    assert row["Weights pruned"] == percent(last["model_sparsity"])
    links = [attrs["href"] for tag, attrs in found.tags if tag == "a"]
    assert links == ["tickets/level_10_seed_0.safetensors", "tickets/level_10_seed_1.safetensors"]


def test_a_ticket_of_an_unknown_level_or_without_test_readings_is_listed() -> None:
    run = replace(
        view(test=False), tickets=["tickets/level_99_seed_0.safetensors", "tickets/level_10_seed_9.safetensors"]
    )
    first, second = rows(page(run), "ace: tickets")
    assert (first["Weights pruned"], first["Validation, %"]) == ("–", "–")
    assert (second["Weights pruned"], second["Validation, %"], second["Test, %"]) == ("89.26 %", "–", "–")


# Importance


def test_fluctuation_is_drawn_and_listed_from_the_level_that_has_it() -> None:
    run = with_diagnostics(view())
    figure = fluctuation_figure([run], [0])
    assert figure is not None
    edges = next(t for t in figure["traces"] if t.get("name") == "ace, edges")
    known = [level for level in run.results["levels"] if level["fluctuation"]]
    assert edges["y"] == pytest.approx([100 * mean_std(level["fluctuation"]["edges"])[0] for level in known])
    assert {t["meta"] for t in figure["traces"] if t["visible"]} == {"edges"}
    table = rows(page(run), "ace: change of ranks")
    assert [row["Level"] for row in table] == [str(n) for n in range(2, 11)]
    assert table[0]["Weights: change, %"] == plus_minus(known[0]["fluctuation"]["weights"])


@pytest.mark.parametrize("value", [None, {}, {"weights": [None], "edges": []}])
def test_without_fluctuation_there_is_no_such_section(value: Any) -> None:
    run = view(levels=2)
    for level in run.results["levels"]:
        level["fluctuation"] = value
    assert "Importance fluctuation" not in page(run).text


def test_the_excerpt_shows_importance_and_what_is_pruned() -> None:
    run = with_diagnostics(view(levels=3))
    found = page(run)
    lines = Counter(attrs["class"] for tag, attrs in found.tags if tag == "line" and attrs["x1"] != "0")
    assert lines == {"shade-0": 2, "dead shade-0": 1, "shade-2": 3, "shade-4": 6, "dead unscored": 3}
    pictures = [attrs for tag, attrs in found.tags if attrs.get("class") == "graph" and tag == "svg"]
    assert len(pictures) == 3
    assert "0 – 1: alive, more important than 10 % of the edges (score 0.5)" in found.text
    assert "7 – 9: pruned" in found.text


def test_an_excerpt_of_many_levels_keeps_the_first_and_the_last() -> None:
    for runs, kept in ((1, 8), (3, 8), (6, 4), (50, 2)):
        numbers = [scene.level for scene in scenes(with_diagnostics(view(levels=20)), runs)]
        assert len(numbers) == kept
        assert (numbers[0], numbers[-1]) == (1, 20)


def test_without_scores_an_excerpt_shows_what_is_alive() -> None:
    run = with_diagnostics(view(levels=1))
    run.results["levels"][0]["excerpt"] = {"alive": [True] * 5, "importance": None, "rank": None}
    assert {edge.rank for edge in scenes(run)[0].edges} == {None}
    assert page(run).text.count(": alive") == 5


def test_nodes_of_an_excerpt_lie_apart_and_inside_the_picture() -> None:
    places = list(arrange([(a, b) for a, b in EDGES]).values())
    assert all(0 < z.real < 360 and 0 < z.imag < 270 for z in places)
    assert min(abs(a - b) for i, a in enumerate(places) for b in places[:i]) > 20
    assert len(arrange([(3, 4)])) == 2


def test_time_is_left_out_when_it_was_not_recorded() -> None:
    run = view()
    for level in run.results["levels"]:
        del level["seconds"]
    found = page(run)
    assert "Where the time went" not in found.text
    assert len(found.figures) == 1


def test_the_chart_draws_means_bands_dense_and_winner() -> None:
    run = view()
    figure = sparsity_figure([run], [0])
    line = next(t for t in figure["traces"] if t.get("name") == "ace, test")
    levels = run.results["levels"]
    assert line["x"] == pytest.approx([100 * level["model_sparsity"] for level in levels])
    assert line["y"] == pytest.approx([100 * mean_std(level["test"])[0] for level in levels])
    assert "%" in line["hovertext"][0]
    band = next(t for t in figure["traces"] if t.get("fill") == "toself" and t["meta"] == "test")
    mean, std = mean_std(levels[0]["test"])
    assert (band["y"][0], band["y"][-1]) == pytest.approx((100 * (mean + std), 100 * (mean - std)))
    dense = next(t for t in figure["traces"] if t.get("name") == "dense, test")
    assert dense["y"] == pytest.approx([100 * mean_std(run.results["dense"]["test"])[0]] * len(dense["x"]))
    winner = next(t for t in figure["traces"] if t["line"].get("dash") == "dot")
    assert winner["x"][0] == pytest.approx(100 * run.results["highest_winning"]["strict"]["model_sparsity"])
    assert {t["meta"] for t in figure["traces"] if t["visible"]} == {"test", "always"}


def test_runs_of_one_setting_share_a_chart_and_its_dense_line() -> None:
    found = page(view(), view("ugs", method="ugs"), view("edges", axis="graph"))
    model, graph, _ = found.figures
    assert [t["name"] for t in model["traces"] if t.get("name", "").endswith("test")] == [
        "dense, test",
        "ace, test",
        "ugs, test",
    ]
    assert graph["layout"]["xaxis"]["title"]["text"] == "edges pruned (%)"


def test_different_baselines_get_a_line_each() -> None:
    other = view("other", method="ugs")
    other.results["dense"]["test"] = [value + 0.01 for value in other.results["dense"]["test"]]
    names = [t.get("name") for t in sparsity_figure([view(), other], [0, 1])["traces"]]
    assert "dense of ace, test" in names
    assert "dense of other, test" in names


def test_readings_that_are_not_finite_leave_a_gap() -> None:
    run = view(levels=2)
    run.results["levels"][1]["test"] = [float("nan")] * 5
    line = next(t for t in page(run).figures[0]["traces"] if t.get("name") == "ace, test")
    assert line["y"][1] is None


def test_time_bars_follow_the_phases() -> None:
    split, whole = with_diagnostics(view(levels=3)), view(levels=3)
    figure = time_figure([split], [0])
    assert figure is not None
    assert [t["name"] for t in figure["traces"]] == ["ace, choosing masks", "ace, retraining tickets"]
    figure = time_figure([whole], [0])
    assert figure is not None
    assert figure["traces"][0]["y"] == [level["seconds"] for level in whole.results["levels"]]


def test_every_colour_stands_out_from_both_pages() -> None:
    white, dark = 1.0, luminance("#14171c")
    for colour in PALETTE:
        assert (white + 0.05) / (luminance(colour) + 0.05) >= 2.9
        assert (luminance(colour) + 0.05) / (dark + 0.05) >= 2.9


@pytest.mark.parametrize(("seconds", "text"), [(None, "–"), (3.14, "3.1 s"), (150, "2 min 30 s"), (7300, "2 h 01 min")])
def test_durations_read_well(seconds: float | None, text: str) -> None:
    assert plain(duration(seconds)) == text


def test_quantities_keep_the_prefix_of_what_they_stand_beside() -> None:
    assert plain(quantity(6_324_600_000)) == "6.325 G"
    assert plain(quantity(632_460_000, beside=6_324_600_000)) == "0.632 G"
    assert quantity(12) == "12"


def test_the_command_and_config_are_there_to_repeat_it() -> None:
    run = view()
    text = page(run).text
    assert run.command in text
    assert json.dumps(run.config, indent=2) in text


def test_importing_the_report_is_cheap() -> None:
    code = "import sys, aceglt; before = set(sys.modules); import aceglt.report; "
    code += "print(*{'torch', 'plotly', 'scipy', 'numpy'} & (set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# For a scientist and a manager


def _measured(variant: str, factor: float) -> dict[str, Any]:
    latency = {"median": 10 * factor, "p95": 11 * factor}
    sizes = {"macs": round(1e9 * factor), "file_bytes": round(4e6 * factor), "memory_bytes": round(8e6 * factor)}
    return {"variant": variant, **sizes, "full": latency, "first": latency, "node": latency}


def with_facts(run: RunView) -> RunView:
    split = {"train": 120, "val": 500, "test": 1000}
    graph = {"nodes": 3327, "edges": 4552, "features": 3703, "outputs": 6, "split": split}
    rows = [_measured("pyg", 2.0), _measured("dense", 1.0), _measured("ticket", 0.25)]
    return replace(
        run,
        results={**run.results, "graph": graph},
        environment={"started": "2026-11-16 13:14", "aceglt": "0.1.0", "torch": "2.13.0", "device": "cpu"},
        savings={"level": 8, "seed": 2, "device": "a machine", "rows": rows},
    )  # fmt: skip


def test_the_graph_the_split_and_the_machine_are_named() -> None:
    found = page(with_facts(view()))
    (row,) = rows(found, "What was searched")
    assert (row["Nodes"], row["Edges"], row["Classes"]) == ("3,327", "4,552", "6")
    assert row["Train / validation / test"] == "120 / 500 / 1,000 nodes"
    where = {row[""]: row["1 run"] for row in rows(found, "Where it ran")}
    assert (where["Begun"], where["torch"], where["Device"]) == ("2026-11-16 13:14", "2.13.0", "cpu")


def test_the_measured_saving_stands_beside_the_macs() -> None:
    table = {row[""]: row for row in rows(page(with_facts(view())), "ace: level 8, seed 2, on a machine")}
    assert table["MACs"]["Saved, of dense"] == "75.0 %"
    assert (table["Size on disk"]["Ticket"], table["Size on disk"]["Dense"]) == ("1.00 MB", "4.00 MB")
    assert table["Latency, full graph"]["PyG"] == "20.00 ms"
    several = rows(
        page(with_facts(view()), with_facts(view("ugs", method="ugs"))), "Saved by the best ticket, of dense"
    )
    assert [row["MACs"] for row in several] == ["75.0 %", "75.0 %"]


def test_without_facts_there_are_no_such_sections() -> None:
    text = page(view()).text
    assert "What the best ticket saves" not in text
    assert "The search" not in text


def test_levels_stand_beside_each_other_whether_they_win_or_not() -> None:
    losing = view("random", method="random", fall=0.5)
    table = rows(page(view(), losing), "citeseer, gcn, node task, model axis: test accuracy, %")
    assert [row["Level"] for row in table] == ["dense", *(str(n) for n in range(1, 11))]
    last = losing.results["levels"][-1]
    assert not last["winning"]["strict"]
    assert table[-1]["random"] == plus_minus(last["test"])
    won = [row["ace"].endswith("✓") for row in table[1:]]
    assert won == [level["winning"]["strict"] for level in view().results["levels"]]


def test_a_method_has_one_colour_whatever_else_is_on_the_page() -> None:
    from aceglt.report.view import colours, distinct_names

    def colour(*runs: RunView) -> dict[str, int]:
        named = distinct_names(list(runs))
        return dict(zip([run.name for run in named], colours(named), strict=True))

    ace, ugs, random = (view(method, method=method) for method in ("ace", "ugs", "random"))
    alone, all_three = colour(random), colour(random, ace, ugs)
    assert alone["random"] == all_three["random"]
    assert len(set(all_three.values())) == 3
    elsewhere = view("ugs", method="ugs", dataset="cora")
    assert len(set(colour(ugs, elsewhere).values())) == 1
    slow, fast = (replace(ugs, config={"lr": lr}) for lr in (0.01, 0.1))
    assert len(set(colour(slow, fast).values())) == 2


def test_both_sparsities_are_on_the_joint_axis() -> None:
    run = view(axis="joint")
    axis = sparsity_figure([run], [0])["layout"]["xaxis"]
    level = run.results["levels"][0]
    text = f"{100 * level['model_sparsity']:.1f}<br>{100 * level['graph_sparsity']:.1f}"
    assert axis["ticktext"][1] == text
    assert axis["title"]["text"] == "weights pruned (%)<br>edges pruned (%)"


def test_an_axis_fits_the_reading_that_is_shown() -> None:
    run = view()
    for level in run.results["levels"]:
        level["val"] = [value - 0.3 for value in level["val"]]
    figure = sparsity_figure([run], [0])
    assert figure["layout"]["yaxis"]["range"] == list(figure["ranges"]["test"])
    assert figure["ranges"]["test"][0] > 60 > figure["ranges"]["val"][0] >= figure["ranges"]["Both"][0]


@pytest.mark.parametrize("axes", [("model", "joint"), ("model",)])
def test_names_of_searches_fit_80_columns(axes: tuple[str, ...]) -> None:
    labels = ("ace (teacher, 2 rounds)", "magnitude (labels, edges at random)")
    runs = distinct_names([view(label, method=label[:4], axis=axis) for axis in axes for label in labels])
    tables = sweep_tables(runs)
    assert [[row[0] for row in rows[1:]] for _, *rows in tables] == [list(labels)] * len(axes)
    assert max(len(line) for heading, *rows in tables for line in (*heading, *text_table(rows))) <= 80


def test_searches_of_which_no_two_share_a_setting_are_in_one_table() -> None:
    runs = distinct_names([view("ugs", axis=axis) for axis in ("model", "graph", "joint")])
    ((heading, head, *rows),) = sweep_tables(runs)
    assert heading[0].startswith("ugs: dense ")
    assert head[0] == "search"
    assert [row[0] for row in rows] == ["model", "graph", "joint"]


def test_a_best_epoch_near_the_last_is_noted() -> None:
    run = view(levels=3)
    run.results["dense"]["epoch"] = [50] * 5
    for level, epoch in zip(run.results["levels"], (100, 195, 199), strict=True):
        level["epoch"] = [epoch] * 5
    assert "The best epoch is among the last 5 %" in page(run).text
    assert "at levels of ace (2, 3 of 3)." in page(run).text
    assert "best epoch" not in page(view()).text
