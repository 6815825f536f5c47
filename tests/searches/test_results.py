"""results.json: the design's schema and the right numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.nn.functional as F
from search_samples import graph, search
from torch import Tensor

from aceglt.numerics.masks import share
from aceglt.report import RunView
from aceglt.searches.results import check_results
from aceglt.searches.statistics import Readings, winning

# The tiny graph with a GCN of 8 hidden units: 6 features, 2 classes, 24 nodes.
WEIGHTS, NODES = 6 * 8 + 8 * 2, 24
EDGES = graph().edge_index.shape[1] // 2


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a search with a tie to chance: 5 seeds, so that every criterion is decided."""
    run = tmp_path_factory.mktemp("results") / "run"
    search(out=run, seeds=5, levels=3, epochs=12)
    return json.loads(Path(run / "results.json").read_text())  # type: ignore[no-any-return]


def test_the_facts_of_the_search_are_there(results: dict[str, Any]) -> None:
    facts = {
        "format": 1, "finished": True, "dataset": "data", "backbone": "gcn", "method": "ugs", "axis": "joint",
        "metric": "accuracy", "task": "node", "signal": "labels", "preset": "default", "epochs": 12,
        "seeds": [0, 1, 2, 3, 4],
    }  # fmt: skip
    assert {name: results[name] for name in facts} == facts


def test_it_says_whose_teacher_is_as_the_settings_have_it(tmp_path: Path) -> None:
    found = search(out=tmp_path / "run", seeds=2, levels=1, epochs=12, signal="teacher", metric="roc_auc").results
    assert found["teacher"].keys() == {"smoothing", "temperature"}
    assert all(len(runs) == 2 for runs in found["teacher"].values())
    check_results(found)
    assert "teacher" not in search(out=tmp_path / "labels", levels=0, epochs=2).results


@pytest.mark.parametrize("taught", [{"smoothing": [1, 0]}, {"smoothing": [True]}, [True, False], {"smoothing": None}])
def test_what_cannot_be_said_of_teachers_is_refused(results: dict[str, Any], taught: Any) -> None:
    with pytest.raises(ValueError, match=r"teacher|smoothing"):
        check_results({**results, "teacher": taught})


def test_the_schema_is_the_designs(results: dict[str, Any]) -> None:
    assert {"val", "test", "macs"} <= results["dense"].keys()
    names = {"level", "model_sparsity", "graph_sparsity", "val", "test", "macs", "seconds", "winning"}
    assert all(names <= level.keys() for level in results["levels"])
    assert results["highest_winning"].keys() == {"paper", "strict", "significant"}
    assert results["highest_winning_per_seed"].keys() == {"model_sparsity", "graph_sparsity"}


def test_readings_are_fractions_over_seeds(results: dict[str, Any]) -> None:
    nodes = {"val": int(graph().val_mask.sum()), "test": int(graph().test_mask.sum())}
    for entry in (results["dense"], *results["levels"]):
        for split, size in nodes.items():
            assert len(entry[split]) == 5
            assert all(0 <= value <= 1 and (value * size) == pytest.approx(round(value * size)) for value in entry[split])  # noqa: E501  # fmt: skip
        assert all(1 <= epoch <= 12 for epoch in entry["epoch"])


def test_sparsities_are_those_of_exact_counts(results: dict[str, Any]) -> None:
    weights, edges = WEIGHTS, EDGES
    for number, level in enumerate(results["levels"], start=1):
        weights, edges = weights - share(0.2, weights), edges - share(0.05, edges)
        assert level["level"] == number
        assert level["model_sparsity"] == 1 - weights / WEIGHTS
        assert level["graph_sparsity"] == 1 - edges / EDGES


def test_macs_follow_the_papers_formula(results: dict[str, Any]) -> None:
    arcs = 2 * EDGES + NODES
    assert results["dense"]["macs"] == NODES * WEIGHTS + arcs * (8 + 2)
    for level in results["levels"]:
        weights = round((1 - level["model_sparsity"]) * WEIGHTS)
        arcs = 2 * round((1 - level["graph_sparsity"]) * EDGES) + NODES
        assert level["macs"] == NODES * weights + arcs * (8 + 2)


def test_times_are_the_sum_of_their_phases(results: dict[str, Any]) -> None:
    for level in results["levels"]:
        assert level["seconds"] == pytest.approx(sum(level["phases"].values()))
        assert min(level["phases"].values()) > 0
        assert level["epochs"] == {"select": 12, "retrain": 12}


def test_epochs_of_a_training_that_ends_early_are_those_that_were_trained() -> None:
    """A loss is called once an epoch."""
    calls: list[int] = []

    def loss(outputs: Tensor, problem: Any) -> Tensor:
        calls.append(1)
        logits = outputs[:, problem.train].transpose(1, 2)
        return F.cross_entropy(logits, problem.y[problem.train].expand(len(outputs), -1), reduction="none").mean(dim=1)

    early = {"method": "random", "seeds": 1, "epochs": 60, "early_stopping": 3, "loss": loss}
    search(levels=0, **early)
    dense = len(calls)
    (level,) = search(levels=1, **early).results["levels"]
    assert level["epochs"]["retrain"] == len(calls) - 2 * dense < 60


def test_winners_are_those_of_the_three_criteria(results: dict[str, Any]) -> None:
    dense = Readings(results["dense"]["val"], results["dense"]["test"])
    for level in results["levels"]:
        assert level["winning"] == winning(dense, Readings(level["val"], level["test"]))
        assert None not in level["winning"].values()
    for name, highest in results["highest_winning"].items():
        winners = [level for level in results["levels"] if level["winning"][name]]
        assert (highest["level"] if highest else None) == (winners[-1]["level"] if winners else None)


def test_highest_winning_per_seed_compares_each_seed_with_its_own_dense(results: dict[str, Any]) -> None:
    for seed, dense in enumerate(results["dense"]["test"]):
        winners = [level for level in results["levels"] if level["test"][seed] >= dense]
        for name, values in results["highest_winning_per_seed"].items():
            assert values[seed] == (winners[-1][name] if winners else 0.0)


def test_every_level_records_how_decided_its_choice_was(results: dict[str, Any]) -> None:
    for level in results["levels"]:
        for side in ("weights", "edges"):
            found = level["diagnostics"][side]
            assert {"distinct", "ties_at_threshold", "noise_correlation"} <= found.keys()
            assert all(len(values) == 5 for values in found.values())


def test_the_report_reads_what_the_search_writes(results: dict[str, Any]) -> None:
    assert RunView("mine", results, {}, "aceglt search", []).results["levels"] == results["levels"]


def test_results_whose_test_was_read_at_some_levels_alone_are_refused(results: dict[str, Any]) -> None:
    first, *others = results["levels"]
    check_results(results)
    with pytest.raises(ValueError, match="test was read at some levels and not at others"):
        check_results({**results, "levels": [{**first, "test": None}, *others]})
