"""The benchmark's parts on small graphs: what they count and print, not how long it takes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from samples import tiny_data, tiny_problem

from aceglt.backbones import build
from aceglt.datasets import save_npz
from aceglt.problems.base import Problem
from benchmarks import __main__ as benchmarks
from benchmarks import deep, dense, epoch, floor, growth, levels
from benchmarks.reference import Reference

RATES = {"bytes_per_s": 1e9, "operations_per_s": 1e9, "products_per_s": 4e9}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in this process, on a tiny graph, and short."""
    monkeypatch.setattr(benchmarks, "alone", lambda work, *args, **options: work(*args, **options))
    monkeypatch.setattr(epoch, "problem_of", lambda name, data_root, device: tiny_problem())
    monkeypatch.setattr(epoch, "HIDDEN", 8)
    monkeypatch.setattr(epoch, "SECONDS", 0.0)
    monkeypatch.setattr("benchmarks.machine.rates", lambda device: RATES)


def test_epochs_and_growth_are_recorded_and_drawn(tiny: None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    record_file = tmp_path / "record.json"
    arguments = ["epoch", "growth", "--datasets", "citeseer", "--backbones", "gcn,gat", "--runs", "1"]
    benchmarks.main([*arguments, "--edges", "2000,4000", "--json", str(record_file), "--plots", str(tmp_path)])
    record = json.loads(record_file.read_text())
    gcn, gat = record["epoch"]["rows"]
    assert {"train_ms", "labels_ms", "teacher_ms", "peak_mib", "floor_ms", "teacher_over_floor"} <= gcn.keys()
    assert gcn["gathers_floor_ms"] >= gcn["teacher_floor_ms"] > 0
    assert "gathers_floor_ms" not in gat
    assert "floor_ms" not in gat
    assert record["epoch"]["reference"][0]["reference_ms"] > 0
    assert [row["edges"] for row in record["growth"]["rows"]] == sorted(
        row["edges"] for row in record["growth"]["rows"]
    )
    assert record["machine"]["rates"] == RATES
    assert {path.name for path in tmp_path.glob("*.svg")} == {"epoch.svg", "growth.svg"}


def test_every_level_of_a_search_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "EPOCHS", 1)
    monkeypatch.setattr(levels, "ROUNDS", {"rounds": 1, "refine_epochs": 1})
    search = levels.aceglt.search
    monkeypatch.setattr(levels.aceglt, "search", lambda **settings: search(**settings, hidden=4, prune_model=0.8))
    measured = levels.measure("ace", "labels", 1, 3, None, "cpu")
    assert [row["start"] for row in measured["levels"]] == pytest.approx([0.0, 0.8, 0.96], abs=1e-3)
    assert all(row["s"] > 0 for row in measured["levels"])
    assert measured["ratio"] > 0


def test_levels_that_remove_units_are_timed(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "EPOCHS", 1)
    search, asked = levels.aceglt.search, []
    monkeypatch.setattr(
        levels.aceglt, "search", lambda **settings: asked.append(settings) or search(**settings, hidden=8)
    )
    benchmarks.main(["levels", "--levels", "2", "--structure", "units"])
    assert [(settings["method"], settings["structure"]) for settings in asked] == [("ugs", "units"), ("ace", "units")]


def test_exponents_are_slopes_from_a_hundred_thousand_edges_on() -> None:
    rows = [{"edges": 10**k, "ms": 2.0 * 10**k, "mib": 3.0 * 10 ** (0.5 * k)} for k in (5, 6, 7)]
    assert growth.exponents([{"edges": 10**4, "ms": 1e9, "mib": 1e9}, *rows]) == {"ms": 1.0, "mib": 0.5}
    assert growth.exponents(rows[:1]) == {}


def test_the_floor_counts_what_is_written_down() -> None:
    problem: Any = tiny_problem()
    backbone = build("gcn", problem.x.shape[1], problem.out_features, 8)
    whole: Any = SimpleNamespace(graph=problem.graph, features=problem.features, reads=lambda split: None)
    nodes, z = problem.graph.num_nodes, problem.x.numel()  # the features are dense
    arcs, out, p = 2 * problem.graph.num_edges + nodes, problem.out_features, backbone.prunable.size
    work = floor.work(whole, backbone)
    assert work.products == 2 * (3 * z * 8 + 4 * nodes * 8 * out)
    assert work.others == 2 * (4 * arcs * 8 + 4 * arcs * out)
    assert work.bytes == 4 * (17 * p + 3 * z + 6 * 2 * (8 + out) * nodes)
    computed = work.products / 4e9 + work.others / 1e9
    assert work.floor_ms(RATES, 2) == pytest.approx(2e3 * max(computed, work.bytes / 1e9))
    assert work.floor_ms(RATES, 2, gathers=3.0) == pytest.approx(2e3 * (17 * 4 * p / 1e9 + 3.0))


def test_with_a_teacher_validation_shares_the_first_layer() -> None:
    problem: Any = tiny_problem()
    backbone = build("gcn", problem.x.shape[1], problem.out_features, 8, layers=3, output="linear")
    whole: Any = SimpleNamespace(**{name: getattr(problem, name) for name in ("graph", "features", "out_features")})
    whole.reads = lambda split: None
    nodes, width, out = problem.graph.num_nodes, problem.x.shape[1], problem.out_features
    arcs = 2 * problem.graph.num_edges + nodes
    work = floor.work(whole, backbone, teacher=True)
    assert work.products == 2 * nodes * (2 * width * 8 + 4 * (2 * 8 * 8 + 8 * out))
    assert work.others == 2 * arcs * 8 * (3 + 2 * 4)
    kept = 2 * 2 * 2 * 8 + 8 + 2 * 3 * (2 * 2 * 8 + out)  # first layer, read once more; two more and the outputs
    assert work.bytes == 4 * (17 * backbone.prunable.size + nodes * (2 * width + kept + out))


def test_the_reference_computes_a_gcn_and_learns() -> None:
    torch.manual_seed(0)
    problem = tiny_problem()
    reference = Reference(problem, hidden=16)
    reference.model.eval()
    backbone = build("gcn", problem.x.shape[1], problem.out_features, 16)
    weights = {f"layer{i}.weight": w.detach().unsqueeze(0) for i, w in enumerate(reference.model.weights)}
    edges = torch.ones(1, problem.graph.num_edges)
    ours = backbone.apply(weights, problem.graph.batch(edges.bool(), True), edges, problem.features)
    torch.testing.assert_close(reference.model().detach(), ours[0], rtol=1e-4, atol=1e-5)
    assert isinstance(problem, Problem)
    assert max(reference.epoch() for _ in range(30)) > 0.5


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmarks.main(["speed"])
    assert "unknown part 'speed'" in capsys.readouterr().err


@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat"])
def test_a_deep_epoch_is_measured_beside_pyg(
    backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deep, "problem_of", lambda name, data_root, device: tiny_problem())
    monkeypatch.setattr("benchmarks.machine.rates", lambda device: RATES)
    file, short = tmp_path / "deep.json", ["--hidden", "8", "--rounds", "1", "--epochs", "1", "--seeds", "2"]
    deep.main(["--backbone", backbone, *short, "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert rows["aceglt"]["seeds"] == 2
    assert rows["PyG, edge_index"]["ms_per_seed"] > 0
    shown = capsys.readouterr().out
    assert "PyG, edge_index" in shown
    assert ("PyG, CSR" in shown) is (backbone == "gcn")
    assert "aceglt, scores with a teacher" in shown
    assert ("floor of" in shown) is (backbone != "gat")


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_dense_models_are_trained_beside_pyg(backbone: str, tmp_path: Path) -> None:
    graph, file = tmp_path / "tiny.npz", tmp_path / "dense.json"
    save_npz(graph, tiny_data())
    seeds = ["--seeds", "3-4", "--pyg-seeds", "1", "--epochs", "2"]
    dense.main([str(graph), "--backbone", backbone, "--device", "cpu", *seeds, "--json", str(file)])
    ours, pyg = json.loads(file.read_text())
    assert (ours["kind"], ours["seeds"], len(ours["test"])) == ("ours", [3, 4], 2)
    assert (pyg["kind"], pyg["seeds"], len(pyg["epoch"])) == ("pyg", [0], 1)
