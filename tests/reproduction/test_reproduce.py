"""Tables and figures from end to end, scaled down."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import ogb_samples
import pytest
from reproduction_samples import TINY, Reproduce
from typer.testing import CliRunner

from aceglt import cli, datasets
from aceglt.cli import shell
from aceglt.datasets.planetoid import load_citeseer
from aceglt.errors import ConfigError, DataError
from aceglt.reproduction import EXHIBITS, Reproduction, cost
from aceglt.reproduction.cells import Scale
from aceglt.reproduction.summary import FIRED
from aceglt.searches.statistics import mean_std

WRITERS = (ogb_samples.arxiv, ogb_samples.proteins, ogb_samples.collab)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def check_files(result: Reproduction, folder: Path) -> None:
    """All named files are there, with the numbers of the results in them."""
    name, figure = result.name, bool(EXHIBITS[result.name].plot)
    suffixes = [".md", ".csv", ".tex", "-runs.csv", "-levels.csv", *([".png", ".svg"] if figure else [])]
    assert [path.name for path in result.files] == [name + suffix for suffix in suffixes]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in result.files)
    shown = [e.text for line in result.table.lines if line.labels[-1] == "here" for e in line.entries if e.text]
    assert shown, "nothing of ours in the table"
    page, tex = (folder / f"{name}.md").read_text(), (folder / f"{name}.tex").read_text()
    assert all(text in page and text.replace("±", "$\\pm$").replace("·", "$\\cdot$") in tex for text in shown)
    assert "ECAI 2023" in page
    runs = rows_of(folder / f"{name}-runs.csv")
    assert [row["search"] for row in runs] == list(result.results)
    assert all(float(row["epochs"]) > 0 and float(row["MACs dense"]) > 0 for row in runs)
    levels = rows_of(folder / f"{name}-levels.csv")
    assert len(levels) == sum(1 + len(r["levels"]) for r in result.results.values())
    dense = {row["search"]: float(row["test"]) for row in levels if row["level"] == "0"}
    assert dense == {n: pytest.approx(mean_std(r["dense"]["test"])[0]) for n, r in result.results.items()}
    if figure:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len((folder / f"{name}.png").read_bytes()) > 10_000
        assert "<svg" in (folder / f"{name}.svg").read_text()


@pytest.mark.parametrize(
    ("name", "cells", "seeds"),
    [("table1", "cora/gcn/model", 1), ("figureS1", (), 1), ("figureS2", "cora/gin/graph", 1),
     ("tableS8", "citeseer/gcn", 2), ("figureS6", "gcn/graph/model-40", 2)],
)  # fmt: skip
def test_a_part_of_a_table_or_figure(name: str, cells: Any, seeds: int, tiny: Reproduce, tmp_path: Path) -> None:
    check_files(tiny(name, cells=cells, levels=1, seeds=seeds), tmp_path / "out" / name)


def test_the_table_shows_what_the_runs_found(tiny: Reproduce, tmp_path: Path) -> None:
    result = tiny("table1", cells="cora/gcn/ugs", seeds=3)
    line = next(line for line in result.table.lines if line.labels == ("GCN", "UGS", "here"))
    runs = {axis: result.results[f"cora/gcn/{axis}/ugs"] for axis in ("model", "graph")}
    for axis, entry in zip(runs, (line.entries[0], line.entries[3]), strict=True):
        won = runs[axis]["highest_winning_per_seed"][f"{axis}_sparsity"]
        assert entry.text == "-" if not any(won) else entry.mean == pytest.approx(100 * sum(won) / 3)
    best = [max(level["test"][i] for run in runs.values() for level in run["levels"]) for i in range(3)]
    assert line.entries[6].mean == pytest.approx(100 * sum(best) / 3)
    on_disk = json.loads(next((tmp_path / "out" / "runs").glob("cora-gcn-model-ugs-*/*/results.json")).read_text())
    assert on_disk["dense"]["test"] == runs["model"]["dense"]["test"]


def test_cost_counts_every_epoch(tiny: Reproduce) -> None:
    results = tiny("table1", cells="cora/gcn/model/ace").results["cora/gcn/model/ace"]
    # Dense, then per level 2 epochs of scores, 6 rounds of both parts for one epoch each, and 2 epochs of retraining.
    assert results["cost"]["epochs"] == [2 + 2 * (2 + 12 + 2)] * 2
    assert all(seconds > 0 for seconds in results["cost"]["seconds"])


def test_the_ablation_says_how_often_its_switches_acted(tiny: Reproduce, tmp_path: Path) -> None:
    result = tiny("table2", cells="cora/gcn", method_options={"threshold": 0.0, "exchange": 1.0})
    check_files(result, tmp_path / "out" / "table2")
    rows = {row["search"].split("/")[-1]: row for row in rows_of(tmp_path / "out" / "table2" / "table2-runs.csv")}
    acted = {name: [float(row[f"fired {part}"]) > 0 for part in FIRED] for name, row in rows.items()}
    assert acted == {"neither": [0, 0], "resample": [0, 1], "adaptive": [1, 0], "both": [1, 1]}


def test_the_same_results_give_the_same_files(tiny: Reproduce, tmp_path: Path) -> None:
    def content() -> dict[str, bytes]:
        result = tiny("figure1")  # of two levels: it is about changes from level to level
        check_files(result, tmp_path / "out" / "figure1")
        return {path.name: path.read_bytes() for path in result.files}

    assert content() == content()


def test_ogb_graphs_are_asked_for_where_they_are_missing(tiny: Reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("ogb.utils.url.download_url", no_network)
    with pytest.raises(DataError, match=r"ogbn-arxiv is not on this machine .* --data-root"):
        tiny("figure3")
    result = tiny("tableS5", cells=["cora/gcn", "resgcn"])
    assert list(result.results) == ["cora/gcn/model/random/inductive"]
    assert [note.split()[2] for note in result.notes if note.startswith("Left out")] == ["ogbn-arxiv", "ogbn-proteins"]


def test_ogb_graphs_are_searched_where_they_are_there(tiny: Reproduce, tmp_path: Path) -> None:
    for write in WRITERS:
        write(tmp_path / "data")
    options = {"data_root": tmp_path / "data", "layers": 2, "levels": 1}
    check_files(tiny("figureS4", cells="ugs", **options), tmp_path / "out" / "figureS4")
    proteins = tiny("figure3", cells="ogbn-proteins/random/model", **options)
    check_files(proteins, tmp_path / "out" / "figure3")
    assert proteins.results["ogbn-proteins/resgcn/model/random"]["metric"] == "roc_auc"


def test_figures_without_matplotlib_are_refused_at_once(
    tiny: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"static plots need matplotlib: pip install 'aceglt\[plots\]'"):
        tiny("figure1")
    assert not (tmp_path / "out").exists()
    tiny("table1", cells="cora/gcn/model/random")  # tables do not need it


@pytest.mark.slow
def test_every_table_and_figure(tiny: Reproduce, tmp_path: Path) -> None:
    for write in WRITERS:
        write(tmp_path / "data")
    for name in EXHIBITS:
        shallow = {"layers": 2} if {cell.backbone for cell in EXHIBITS[name].cells} == {"resgcn"} else {}
        result = tiny(name, data_root=tmp_path / "data", seeds=1, **shallow)
        check_files(result, tmp_path / "out" / name)
        assert len(result.results) == len(EXHIBITS[name].cells)
        assert not [note for note in result.notes if note.startswith("Left out")]


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli.app, ["reproduce", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are printed unfolded, whatever the terminal."""
    monkeypatch.setattr(shell.console, "width", 250)


SMALL = [f"--{name}={value}" for name, value in TINY.items()]


def test_the_command_prints_the_table_and_where_it_is(tmp_path: Path) -> None:
    outcome = invoke("table1", "--cell", "cora/gcn/model/ace", "--out", tmp_path / "out", *SMALL, "--levels=1")
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"GCN +ACE +paper +89.64 ± 0.45\*", outcome.output)
    assert "GIN" not in outcome.output  # not begun
    assert str(tmp_path / "out" / "table1" / "table1.md") in outcome.output
    assert "GIN" in (tmp_path / "out" / "table1" / "table1.md").read_text()
    again = invoke("table1", "--no-search", "--out", tmp_path / "out", *SMALL, "--levels=1")
    assert again.exit_code == 0
    assert "level 1" not in again.output


def test_the_command_can_draw_another_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "read", lambda name, root: load_citeseer())  # the tiny graph has too few nodes
    cell = ("table1", "--cell", "citeseer/gcn/model/random", "--out", tmp_path / "out", *SMALL)
    for split in ([], ["--split", "random:1"]):
        assert invoke(*cell, *split).exit_code == 0
    configs = [json.loads(path.read_text()) for path in (tmp_path / "out" / "runs").glob("*/*/config.json")]
    assert sorted(config["split"] for config in configs) == ["given", "random:1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tabel1"], "error: the paper has no 'tabel1' to reproduce; did you mean table1?; known are table1, table2"),
        (["table1", "--cell", "cora/mlp"], "error: table1 has no cell 'cora/mlp'; join any of cora, gcn"),
        ([], "error: which table or figure? aceglt reproduce --list names them"),
        (["table1", "--seeds", "x"], "error: --seeds takes a number"),
        (["nope", "--list"], "error: the paper has no 'nope'"),
        (["table1", "--split", "mine"], "error: split must be given, a number, random:SEED"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(arguments: list[str], said: str, tmp_path: Path) -> None:
    outcome = invoke(*arguments, "--out", tmp_path / "out")
    assert outcome.exit_code == 2
    assert outcome.output.startswith(said)


def test_the_list_has_every_name_its_cost_and_missing_data() -> None:
    outcome = invoke("--list", "--device", "cpu")
    assert outcome.exit_code == 0, outcome.output
    rows = {line.split()[0]: line for line in outcome.output.splitlines()[1 : 1 + len(EXHIBITS)]}
    assert list(rows) == list(EXHIBITS)
    assert re.search(r" 144 +4,536,000 +[\d,]+ (s|min|h|days) *$", rows["table1"])
    assert rows["figure3"].rstrip().endswith("ogbn-arxiv, ogbn-proteins")
    assert "3 datasets × 3 backbones × 2 axes × 8 methods" in rows["table1"]
    assert "cora/gcn/model/ace/neither …" in rows["table2"]
    assert "`aceglt reproduce NAME --list` lists the cells" in outcome.output
    assert "--data-root or $ACEGLT_DATA" in outcome.output


def test_the_list_of_a_name_has_its_cells_and_what_is_left(tiny: Reproduce, tmp_path: Path) -> None:
    tiny("table2", cells="cora/gcn/both")
    outcome = invoke("table2", "--list", "--out", tmp_path / "out", *SMALL)
    assert re.search(r"cora/gcn/model/ace/both +2 +2 +0 +0 s +here", outcome.output)
    assert re.search(r"citeseer/gin/model/ace/neither +0 +2 +68 +\S+ \w+ +here", outcome.output)


@pytest.mark.parametrize("name", cost.NONZERO_FEATURES)
def test_estimates_grow_with_seeds_and_levels(name: str) -> None:
    cell = EXHIBITS["table1"].pick([f"{name}/gcn/model/ugs"])[0]
    few, many = cell.config(Scale(levels=1)), cell.config(Scale(levels=3))
    assert cost.epochs_per_seed(few) == 200 + 400
    assert cost.epochs_per_seed(many) == 200 + 3 * 400
    one = cost.seconds_to_search(few, 1, 1e9, on_gpu=False)
    assert cost.seconds_to_search(few, 3, 1e9, on_gpu=False) == pytest.approx(3 * one)
    assert cost.seconds_to_search(few, 1, 1e15, on_gpu=True) == pytest.approx(600 * 2e-3)


def test_known_numbers_of_features_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    from aceglt.datasets.planetoid import load_citeseer

    assert cost.NONZERO_FEATURES["citeseer"] == int((load_citeseer().x != 0).sum())
    assert set(cost.NONZERO_FEATURES) <= set(datasets.KNOWN)
