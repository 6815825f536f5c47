"""A search from a graph to results, tickets and a report."""

from __future__ import annotations

import gc
import itertools
import json
import os
import stat
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from search_samples import TINY, Breaks, events, files, graph, npz, outcome, search, timeless

import aceglt
from aceglt import runner
from aceglt.errors import ConfigError, DataError, RunError, TrainingError
from aceglt.methods import Random
from aceglt.problems.base import Problem
from aceglt.problems.node import NodeProblem
from aceglt.runs import checkpoint
from aceglt.searches.levels import Search
from aceglt.searches.state import Outcome, State
from aceglt.tickets.ticket import Ticket
from aceglt.training.setup import build_backbone


def _results(run: Path) -> dict[str, Any]:
    return json.loads((run / "results.json").read_text())  # type: ignore[no-any-return]


def _ticket_names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "tickets").iterdir())


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the readings of dense and of each level by given ones: lists over seeds of (val, test)."""

    def script(*readings: list[tuple[float, float]]) -> None:
        real = Search.train

        def train(self: Search, level: int, masks: Any, **more: Any) -> Any:
            found, params = real(self, level, masks, **more)
            val, test = (list(part) for part in zip(*readings[level], strict=True))
            return Outcome(val, test, found.epoch, found.seconds), params

        monkeypatch.setattr(Search, "train", train)

    return script


# What is written


def test_a_run_directory_holds_what_the_design_says(tmp_path: Path) -> None:
    search(out=tmp_path / "run", tickets="all", report=True)
    tickets = {f"tickets/level_{level:02d}_seed_{seed}.safetensors" for level in (1, 2) for seed in (0, 1)}
    known = {"config.json", "environment.json", "results.json", "events.jsonl", "report.html", "final", ".lock"}
    assert files(tmp_path / "run") == {"tickets", *known, *tickets}


def test_the_checkpoint_is_there_only_while_the_search_is_unfinished(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(out=tmp_path / "run", observer=Breaks(15, KeyboardInterrupt))
    assert (tmp_path / "run" / "checkpoint").exists()
    assert not _results(tmp_path / "run")["finished"]
    search(out=tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()
    assert _results(tmp_path / "run")["finished"]


def test_the_environment_is_recorded(tmp_path: Path) -> None:
    search(out=tmp_path / "run", levels=0)
    recorded = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert recorded["aceglt"] == aceglt.__version__
    assert recorded["torch"] == torch.__version__
    assert recorded["device"] == "cpu"


def test_zero_levels_train_dense_alone(tmp_path: Path) -> None:
    result = search(out=tmp_path / "run", levels=0)
    assert result.results["levels"] == []
    assert len(result.results["dense"]["val"]) == 2
    assert result.best is None
    assert _ticket_names(tmp_path / "run") == []
    assert [e["phase"] for e in events(tmp_path / "run", "phase")] == ["dense"]


def test_the_report_names_the_tickets_and_the_command(tmp_path: Path) -> None:
    search(out=tmp_path / "run", tickets="all", report=True, command="aceglt search --my-command")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "tickets/level_02_seed_1.safetensors" in page
    assert "aceglt search --my-command" in page


def test_the_log_has_levels_in_their_order(tmp_path: Path) -> None:
    search(out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    levels = [line["level"] for line in lines if "level" in line]
    assert levels == sorted(levels)
    assert [event["level"] for event in events(tmp_path / "run", "level")] == [1, 2]


def test_what_an_observer_does_to_its_results_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, save, written = Event(), checkpoint.save, []

    class Notes(aceglt.Observer):
        def on_level(self, results: Any) -> None:
            results["note"] = "mine"
            told.set()

    def saved(path: Path, state: State) -> None:
        assert told.wait(60)  # results.json is written after it
        save(path, state)

    def write(path: Path, value: Any) -> None:
        written.extend(value if path.name == "results.json" else ())

    monkeypatch.setattr(checkpoint, "save", saved)
    monkeypatch.setattr(runner, "write_checked_json", write)
    with suppress(RunError):  # nothing is there to be read
        search(out=tmp_path / "run", levels=0, observer=Notes())
    assert "dense" in written
    assert "note" not in written


def test_without_plotly_a_search_ends_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    result = search(out=tmp_path / "run", report=True)
    assert len(result.notes) == 1
    assert "pip install plotly" in result.notes[0]
    assert not (tmp_path / "run" / "report.html").exists()
    assert _results(tmp_path / "run")["finished"]


def test_without_out_nothing_is_written_or_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = search(method="ace", method_options={"rounds": 1, "refine_epochs": 1})
    assert files(tmp_path) == set()
    assert capfd.readouterr() == ("", "")
    assert result.path is None
    assert len(result.results["levels"]) == 2


def test_with_out_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    search(out=tmp_path / "run")
    assert capfd.readouterr() == ("", "")


def test_a_search_gives_the_same_with_and_without_out(tmp_path: Path) -> None:
    kept, written = search(tickets="all"), search(tickets="all", out=tmp_path / "run")
    assert timeless(kept.results) == timeless(written.results) == timeless(_results(tmp_path / "run"))
    for one, other in zip(kept.tickets, written.tickets, strict=True):
        assert one.masks.weights.equal(other.masks.weights)
        assert one.trained.prunable.equal(other.trained.prunable)
        assert one.metrics == other.metrics


def test_the_data_of_the_caller_are_not_changed() -> None:
    data = graph()
    search(data)
    assert all(data[name].equal(graph()[name]) for name in ("x", "edge_index", "y", "train_mask"))


def test_a_graph_in_a_file_gives_what_the_same_graph_in_memory_gives(tmp_path: Path) -> None:
    path = str(npz(tmp_path))
    from_file = aceglt.search(device="cpu", **{**TINY, "dataset": path}).results
    in_memory = search(dataset=path).results
    assert timeless(from_file) == timeless(in_memory)


# Tickets


@pytest.mark.parametrize("out", [False, True])
def test_all_tickets_are_kept_on_demand(out: bool, tmp_path: Path) -> None:
    result = search(tickets="all", out=tmp_path / "run" if out else None)
    assert [(t.level, t.seed) for t in result.tickets] == [(1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("out", [False, True])
def test_no_ticket_is_kept_on_demand(out: bool, tmp_path: Path, scripted: Any) -> None:
    scripted(*[[(0.5, 0.5), (0.5, 0.5)]] * 3)
    result = search(tickets="none", out=tmp_path / "run" if out else None)
    assert list(result.tickets) == []
    assert result.best is None


@pytest.mark.parametrize("out", [False, True])
def test_best_is_the_seed_that_validates_best_of_the_sparsest_strict_winner(
    out: bool, tmp_path: Path, scripted: Any
) -> None:
    dense = [(0.5, 0.9), (0.5, 0.9)]
    scripted(dense, [(0.9, 1.0), (0.8, 1.0)], [(0.2, 0.1), (0.8, 0.0)], [(0.4, 1.0), (0.5, 1.0)])
    result = search(levels=3, out=tmp_path / "run" if out else None)
    assert {(t.level, t.seed) for t in result.tickets} == {(2, 0), (2, 1)}, "only the winning level's are kept"
    assert result.best is not None
    assert (result.best.level, result.best.seed) == (2, 1)
    assert result.best.metrics == {"val": 0.8, "test": 0.0, "dense_val": 0.5, "dense_test": 0.9}


@pytest.mark.parametrize("out", [False, True])
def test_without_a_winner_there_is_no_best_but_the_best_validating_level_is_kept(
    out: bool, tmp_path: Path, scripted: Any
) -> None:
    scripted([(0.9, 0.0), (0.9, 0.0)], [(0.1, 1.0), (0.1, 1.0)], [(0.3, 0.0), (0.3, 0.0)], [(0.2, 1.0), (0.2, 1.0)])
    result = search(levels=3, out=tmp_path / "run" if out else None)
    assert result.best is None
    assert {t.level for t in result.tickets} == {2}


def test_a_ticket_says_where_it_comes_from_and_what_it_has() -> None:
    result = search(tickets="all", seeds=[4, 7])
    ticket, level = result.tickets[3], result.results["levels"][1]
    assert (ticket.level, ticket.seed) == (2, 7)
    assert ticket.model_sparsity == level["model_sparsity"]
    assert ticket.graph_sparsity == level["graph_sparsity"]
    assert ticket.metrics["val"] == level["val"][1]
    assert ticket.metrics["dense_test"] == result.results["dense"]["test"][1]
    assert ticket.sizes == {"in_features": 6, "out_features": 2, "macs": level["macs"], "dense_macs": result.results["dense"]["macs"]}  # noqa: E501  # fmt: skip
    assert ticket.config == result.config
    dead = ~ticket.masks.weights
    assert dead.any()
    assert not ticket.initial.prunable[dead].any()
    assert not ticket.trained.prunable[dead].any()


def test_the_trained_weights_of_a_ticket_reach_its_metrics() -> None:
    """A ticket's test metric is that of its trained weights on its pruned graph."""
    data = graph()
    for ticket in search(data, tickets="all", epochs=8).tickets:
        problem = Problem.from_data(ticket.apply(data))
        backbone = build_backbone(ticket.config, problem)
        full = torch.ones(1, problem.graph.num_edges)
        batch = problem.graph.batch(full.bool(), backbone.self_loops)
        logits = backbone.apply(backbone.weights(ticket.trained), batch, full, problem.features)
        assert problem.measure(logits, "test").item() == ticket.metrics["test"]
        assert problem.measure(logits, "val").item() == ticket.metrics["val"]


# When a search stops


def test_levels_stop_a_search() -> None:
    assert [level["level"] for level in search(method="random", levels=3).results["levels"]] == [1, 2, 3]


def test_a_target_model_sparsity_stops_a_search() -> None:
    levels = search(method="random", target_model=0.4, levels=9).results["levels"]
    assert levels[-1]["model_sparsity"] >= 0.4 > levels[-2]["model_sparsity"]


def test_a_target_graph_sparsity_stops_a_search() -> None:
    levels = search(method="random", target_graph=0.12, levels=9).results["levels"]
    assert levels[-1]["graph_sparsity"] >= 0.12 > levels[-2]["graph_sparsity"]


def test_a_target_alone_gives_as_many_levels_as_it_needs() -> None:
    settings = {**TINY, "method": "random", "epochs": 1, "levels": None}
    levels = aceglt.search(graph(), device="cpu", **{**settings, "target_model": 0.9}).results["levels"]
    assert levels[-1]["model_sparsity"] >= 0.9 > levels[-2]["model_sparsity"]


def test_patience_stops_after_that_many_losing_levels_in_a_row(scripted: Any) -> None:
    win, lose = [(0.5, 0.0), (0.5, 0.0)], [(0.4, 1.0), (0.4, 1.0)]
    scripted([(0.5, 0.5), (0.5, 0.5)], lose, win, lose, lose, win, win)
    for patience, levels in ((2, 4), (1, 1), (3, 6)):
        found = search(method="random", epochs=1, levels=6, patience=patience)
        assert len(found.results["levels"]) == levels


@pytest.mark.parametrize("axis", ["model", "graph", "joint"])
def test_a_search_stops_when_its_axis_has_nothing_left_to_prune(axis: str) -> None:
    result = search(method="random", axis=axis, levels=400, epochs=1, seeds=1, hidden=1, prune_graph=0.3, prune_model=0.3)  # noqa: E501  # fmt: skip
    levels = result.results["levels"]
    assert 2 <= len(levels) < 100
    side = {"model": "model_sparsity", "graph": "graph_sparsity", "joint": "model_sparsity"}[axis]
    other = "graph_sparsity" if axis == "joint" else side
    for before, after in itertools.pairwise(levels):
        assert after[side] > before[side] or after[other] > before[other]


# Continuing


@pytest.mark.parametrize("settings", [{"axis": "joint"}, {"axis": "model", "signal": "teacher"}, {"test": False}])
def test_a_finished_run_continues_to_more_levels_and_equals_one_made_in_one_go(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    for levels in (0, 1, 3):
        search(out=tmp_path / "steps", levels=levels, tickets="all", **settings)
    search(out=tmp_path / "once", levels=3, tickets="all", **settings)
    results, tickets = outcome(tmp_path / "steps")
    assert results == outcome(tmp_path / "once")[0]
    # Tickets record the configuration, in which `levels` differs; all else is equal.
    for name in tickets:
        one, other = (Ticket.load(tmp_path / run / "tickets" / name) for run in ("steps", "once"))
        assert one.masks.weights.equal(other.masks.weights), name
        assert one.masks.edges.equal(other.masks.edges), name
        assert one.trained.prunable.equal(other.trained.prunable), name
        assert one.metrics == other.metrics, name


def test_continuing_trains_only_the_new_levels(tmp_path: Path) -> None:
    search(out=tmp_path / "run", levels=1)
    search(out=tmp_path / "run", levels=2)
    phases = [(e["level"], e["phase"]) for e in events(tmp_path / "run", "phase")]
    assert phases == [(0, "dense"), (1, "score"), (1, "retrain"), (2, "score"), (2, "retrain")]


def test_a_finished_run_repeated_trains_nothing_and_changes_nothing(tmp_path: Path) -> None:
    search(out=tmp_path / "run")
    before = outcome(tmp_path / "run"), (tmp_path / "run" / "results.json").read_bytes()
    observer = Breaks(None)
    search(out=tmp_path / "run", observer=observer)
    assert observer.calls == 0
    assert (outcome(tmp_path / "run"), (tmp_path / "run" / "results.json").read_bytes()) == before


def test_other_data_in_the_same_run_directory_are_refused(tmp_path: Path) -> None:
    search(out=tmp_path / "run", levels=0)
    with pytest.raises(RunError, match="data: "):
        search(graph(seed=1), out=tmp_path / "run", levels=0)
    relabelled = graph()
    relabelled.x = relabelled.x * 2
    with pytest.raises(RunError, match="data: "):
        search(relabelled, out=tmp_path / "run", levels=0)


def test_other_settings_in_the_same_run_directory_are_refused(tmp_path: Path) -> None:
    search(out=tmp_path / "run", levels=0)
    with pytest.raises(RunError, match="epochs: 3 → 4"):
        search(out=tmp_path / "run", levels=0, epochs=4)


def test_a_run_directory_in_use_is_refused(tmp_path: Path) -> None:
    class Nested(Breaks):
        def on_phase(self, level: int, phase: str) -> None:
            search(out=tmp_path / "run")

    with pytest.raises(RunError, match="another process"):
        search(out=tmp_path / "run", observer=Nested(None))


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    search(out=tmp_path / "run", levels=1)
    final = tmp_path / "run" / "final"
    final.write_bytes(final.read_bytes()[:-1])
    with pytest.raises(RunError, match="final"):
        search(out=tmp_path / "run", levels=2)


# The test set


@pytest.mark.parametrize("method", ["random", "ugs"])
def test_the_test_set_is_read_exactly_once_per_retraining(method: str, tmp_path: Path) -> None:
    search(out=tmp_path / "run", method=method)
    assert [e["level"] for e in events(tmp_path / "run", "test read")] == [0, 1, 2]


def test_tuning_never_reads_the_test_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = set()
    real = NodeProblem.measure

    def measure(self: Problem, logits: torch.Tensor, split: Any) -> torch.Tensor:
        measured.add(split)
        return real(self, logits, split)

    monkeypatch.setattr(NodeProblem, "measure", measure)
    result = search(out=tmp_path / "run", test=False, tickets="all")
    assert measured == {"val"}
    assert events(tmp_path / "run", "test read") == []
    results = _results(tmp_path / "run")
    assert results["dense"]["test"] is None
    assert [level["test"] for level in results["levels"]] == [None, None]
    assert results["highest_winning_per_seed"] is None
    assert all(level["winning"]["paper"] is level["winning"]["significant"] is None for level in results["levels"])
    assert all(ticket.metrics["test"] is ticket.metrics["dense_test"] is None for ticket in result.tickets)


def test_masks_do_not_depend_on_the_labels_of_test_nodes() -> None:
    data = graph()
    other = data.clone()
    other.y = torch.where(data.test_mask, 1 - data.y, data.y)
    for one, two in zip(search(data, tickets="all").tickets, search(other, tickets="all").tickets, strict=True):
        assert one.masks.weights.equal(two.masks.weights)
        assert one.masks.edges.equal(two.masks.edges)
        assert one.metrics["val"] == two.metrics["val"]


# What goes wrong


def test_divergence_is_reported_and_the_run_can_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(out=tmp_path / "whole")
    real, losses = NodeProblem.loss, []

    def loss(self: Problem, *arguments: Any) -> torch.Tensor:
        losses.append(real(self, *arguments))
        return losses[-1] * float("nan") if len(losses) > 20 else losses[-1]

    with monkeypatch.context() as patch:
        patch.setattr(NodeProblem, "loss", loss)
        with pytest.raises(TrainingError, match=r"^level 2, score: the loss .* at epoch 3 in 1 run"):
            search(out=tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint").exists()
    search(out=tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_the_log_has_the_call_to_repeat(tmp_path: Path) -> None:
    given = {"preset": "ugs", "method": Random, "levels": 1, "lr": None, "epochs": 2, "hidden": 4, "seeds": [3]}
    aceglt.search(graph(), out=tmp_path / "run", device="cpu", tickets="none", **given)
    [start] = events(tmp_path / "run", "start")
    assert start["command"] == (
        "aceglt.search(data, preset='ugs', method='random', levels=1, epochs=2, hidden=4, seeds=[3])"
    )


def test_a_full_disk_leaves_the_run_resumable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(out=tmp_path / "whole")
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            calls.append(handle)
        if len(calls) == failing:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    for failing in range(1, 40):  # noqa: B007
        calls.clear()
        try:
            search(out=tmp_path / "run")
        except RunError:
            continue
        break
    else:
        pytest.fail("the search did not end")
    assert failing > 4
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert not [name for name in files(tmp_path / "run") if "/." in f"/{name}" and name != ".lock"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tickets": "some"}, "unknown choice of tickets 'some'"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"levles": 3}, "did you mean 'levels'"),
        ({"method_options": {"rounds": 1}}, "method ugs has no option 'rounds'; its options are one_shot"),
        ({"method": "ace", "method_options": {"round": 1}}, "its options are reading, rounds"),
        ({"method": "ace", "method_options": {"rounds": 2.5}}, "rounds must be a whole number, found 2.5"),
        ({"method": "ace", "method_options": {"rounds": "two"}}, "rounds must be a whole number"),
        ({"method": "ace", "method_options": {"resample": 1}}, "resample must be true or false"),
        ({"method": "ace", "method_options": {"temperature": float("inf")}}, "temperature must be finite"),
        ({"method": "ace", "method_options": {"keep": "worst"}}, "ace: unknown keep 'worst'; known are last, best"),
        ({"target_model": 0.5, "prune_model": 1e-300, "lr": -1}, "lr must be above 0"),
        ({"seeds": 10**9}, "seeds must be 1000 or fewer"),
        ({"seeds": []}, "at least one seed"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arguments = {**TINY, "device": "cpu", "out": tmp_path / "run", **settings}
    with pytest.raises(ConfigError) as caught:
        aceglt.search(graph(), **arguments)
    assert message in str(caught.value)
    assert files(tmp_path) == set()


def test_wrong_data_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = graph()
    data.x[3, 0] = float("nan")
    with pytest.raises(DataError, match="the first is node 3"):
        search(data, out=tmp_path / "run")
    assert files(tmp_path) == set()


def test_runs_at_once_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="runs_at_once must be 1 or more, found 0"):
        search(dataset="citeseer", runs_at_once=0)


def test_a_finished_search_is_not_kept_by_a_cycle() -> None:
    """Its graph and features may be large, and garbage is collected late."""
    kept: list[Any] = []

    build = runner.build_problem

    def seen(*given: Any) -> Any:
        problem = build(*given)
        kept.append(weakref.ref(problem))
        return problem

    gc.collect()
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runner, "build_problem", seen)
            search(levels=1)
        assert [reference() for reference in kept] == [None]
    finally:
        gc.enable()
