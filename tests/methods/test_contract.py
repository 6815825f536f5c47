"""What every method promises, on every axis, and every method with every backbone on every task.

A new method, backbone or task joins by adding a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from samples import labels_data, sparse_split_data, tiny_data, tiny_problem
from torch_geometric.nn import SAGEConv

from aceglt.backbones import BACKBONES, GAT, GCN, Backbone, Params, ResGCN
from aceglt.backbones.module import ModuleBackbone
from aceglt.config import AXES, Config
from aceglt.methods import METHODS, Method
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems import TASKS
from aceglt.problems.base import Problem
from aceglt.runs import checkpoint
from aceglt.searches.levels import Search, State, outputs


@dataclass(frozen=True)
class Row:
    """A method, quick, and what is particular about it."""

    options: Mapping[str, Any] = field(default_factory=dict)
    irreversible: bool | None = True  # None: drawn anew, so it may bring elements back and need not
    diagnostics: tuple[str, ...] = ()
    may_stop_early: bool = False


ROWS = {
    "random": Row(),
    "ugs": Row(diagnostics=("weights", "edges")),
    "gebt": Row({"max_epochs": 8}, irreversible=None, diagnostics=("gebt",), may_stop_early=True),
    "ace": Row({"rounds": 2, "refine_epochs": 3}, irreversible=False, diagnostics=("weights", "edges", "ace")),
}


class OwnSage(torch.nn.Module):
    """A user's own model: layers without edge weights, a norm and dropout of its own."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.first = SAGEConv(in_features, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.second = SAGEConv(6, out_features)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(x, edge_index)))
        result: torch.Tensor = self.second(torch.dropout(hidden, 0.5, self.training), edge_index)
        return result


BACKBONE_ROWS: dict[str, Callable[[Problem], Backbone]] = {
    "gcn": lambda problem: GCN(problem.x.shape[1], problem.out_features, 6),
    "gin": lambda problem: BACKBONES["gin"](problem.x.shape[1], problem.out_features, 6),
    "gat": lambda problem: GAT(problem.x.shape[1], problem.out_features, 4, heads=2),
    "resgcn": lambda problem: ResGCN(problem.x.shape[1], problem.out_features, 6, layers=3),
    "own:Sage": lambda problem: ModuleBackbone(OwnSage, problem.graph, problem.x, problem.out_features),
}
TASK_ROWS: dict[str, tuple[str, Callable[[], Any]]] = {
    "node": ("node", tiny_data),
    "node, several labels": ("node", labels_data),
    "inductive": ("inductive", sparse_split_data),
    "link": ("link", tiny_data),
}
EPOCHS = 5
LEVELS = 3
SEEDS = (3, 8)
CARRIED = {"model": ("weights",), "graph": ("edges",), "joint": ("weights", "edges")}

each_method = pytest.mark.parametrize("name", ROWS)
each_backbone = pytest.mark.parametrize("backbone", BACKBONE_ROWS)
each_task = pytest.mark.parametrize("task", TASK_ROWS)
each_axis = pytest.mark.parametrize("axis", AXES)


@dataclass(frozen=True)
class Step:
    """One level, as it went."""

    start: Masks
    keep: Counts
    masks: Masks
    diagnostics: Mapping[str, Any]
    epochs: int
    trained: int  # epochs of all runs, as an observer counted them


class Counter:
    def __init__(self) -> None:
        self.epochs = 0

    def on_phase(self, level: int, phase: str) -> None: ...

    def on_test(self, level: int) -> None: ...

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self.epochs += runs


def make_search(name: str, axis: str, seeds: tuple[int, ...]) -> Search:
    problem = tiny_problem()
    method = METHODS[name](**ROWS[name].options)
    config = Config(method=name, axis=axis, seeds=seeds, epochs=EPOCHS, hidden=6)
    return Search(problem, GCN(problem.x.shape[1], problem.num_classes, 6), method, config, Counter())


@cache
def steps(name: str, axis: str, seeds: tuple[int, ...] = SEEDS) -> tuple[Step, ...]:
    search = make_search(name, axis, seeds)
    counter = search.observer
    assert isinstance(counter, Counter)
    state, done = search.train_dense(State()), []
    for _ in range(LEVELS):
        start, keep, before = search.start_masks(state), search.keep(state), counter.epochs
        state = search.select(state)
        chosen = state.selected
        assert chosen is not None
        done.append(Step(start, keep, chosen.masks, chosen.diagnostics, chosen.epochs, counter.epochs - before))
        state, _ = search.retrain(state)
    return tuple(done)


def equal(a: Masks, b: Masks) -> bool:
    return torch.equal(a.weights, b.weights) and torch.equal(a.edges, b.edges)


def test_every_method_has_a_row() -> None:
    assert set(ROWS) == set(METHODS)


@each_method
def test_a_method_is_a_frozen_dataclass_with_a_name(name: str) -> None:
    method = METHODS[name]()
    assert isinstance(method, Method)
    assert is_dataclass(method)
    assert method.name == name
    assert METHODS[name]() == method
    with pytest.raises((FrozenInstanceError, TypeError)):
        method.rounds = 3  # type: ignore[attr-defined]


@each_axis
@each_method
def test_counts_are_exact_at_every_level(name: str, axis: str) -> None:
    total = steps(name, axis)[0].start.total
    weights, edges = total.weights, total.edges
    for step in steps(name, axis):
        weights = round(0.8 * (weights if axis != "graph" else total.weights))
        edges = round(0.95 * (edges if axis != "model" else total.edges))
        assert step.keep == Counts(weights, edges)
        assert step.masks.weights.sum(dim=1).tolist() == [weights] * len(SEEDS)
        assert step.masks.edges.sum(dim=1).tolist() == [edges] * len(SEEDS)


@each_axis
@each_method
def test_the_same_seeds_choose_the_same_masks(name: str, axis: str) -> None:
    again = steps.__wrapped__(name, axis)
    assert all(equal(a.masks, b.masks) for a, b in zip(steps(name, axis), again, strict=True))


@each_axis
@each_method
def test_a_seed_chooses_the_same_masks_alone_as_in_a_batch(name: str, axis: str) -> None:
    for run, seed in enumerate(SEEDS):
        alone = steps(name, axis, (seed,))
        for together, single in zip(steps(name, axis), alone, strict=True):
            assert equal(together.masks[run : run + 1], single.masks)


@each_method
def test_seeds_choose_different_masks(name: str) -> None:
    masks = steps(name, "joint")[0].masks
    assert not torch.equal(masks.weights[0], masks.weights[1])
    assert not torch.equal(masks.edges[0], masks.edges[1])


@each_axis
@each_method
def test_the_axis_decides_which_masks_carry_over(name: str, axis: str) -> None:
    for last, following in pairwise(steps(name, axis)):
        for side in ("weights", "edges"):
            expected = getattr(last.masks, side)
            if side not in CARRIED[axis]:
                expected = torch.ones_like(expected)
            assert torch.equal(getattr(following.start, side), expected)


@each_axis
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.irreversible is True])
def test_irreversible_methods_only_ever_drop(name: str, axis: str) -> None:
    for step in steps(name, axis):
        assert not bool((step.masks.weights & ~step.start.weights).any())
        assert not bool((step.masks.edges & ~step.start.edges).any())


@each_axis
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.irreversible is False])
def test_other_methods_bring_dead_elements_back(name: str, axis: str) -> None:
    for side in CARRIED[axis]:
        assert any(bool((getattr(s.masks, side) & ~getattr(s.start, side)).any()) for s in steps(name, axis)[1:])


@each_axis
@each_method
def test_the_stated_cost_is_what_was_trained(name: str, axis: str) -> None:
    method = METHODS[name](**ROWS[name].options)
    for step in steps(name, axis):
        if ROWS[name].may_stop_early:
            assert step.epochs <= method.cost(EPOCHS)
            assert step.epochs <= step.trained <= len(SEEDS) * step.epochs
        else:
            assert step.epochs == method.cost(EPOCHS)
            assert step.trained == len(SEEDS) * step.epochs


@each_axis
@each_method
def test_diagnostics_are_there_for_every_run(name: str, axis: str) -> None:
    for step in steps(name, axis):
        assert set(step.diagnostics) == set(ROWS[name].diagnostics)
        for side in {"weights", "edges"} & set(step.diagnostics):
            measured = step.diagnostics[side]
            assert set(measured) == {"distinct", "ties_at_threshold", "noise_correlation"}
            alive = getattr(step.start.alive, side)
            assert all(len(values) == len(SEEDS) for values in measured.values())
            assert all(1 <= distinct <= alive for distinct in measured["distinct"])
            assert all(0 < tied <= 1 for tied in measured["ties_at_threshold"])
            assert all(-1 <= r <= 1 for r in measured["noise_correlation"])


@each_axis
@each_method
def test_the_masks_that_a_level_starts_from_are_left_alone(name: str, axis: str) -> None:
    search = make_search(name, axis, SEEDS)
    state = search.select(search.train_dense(State()))
    state, _ = search.retrain(state)
    assert state.masks is not None
    before = Masks(state.masks.weights.clone(), state.masks.edges.clone())
    search.select(state)
    assert equal(state.masks, before)


@dataclass(frozen=True)
class Found:
    """Two levels of a joint search, and where its state was saved in between."""

    search: Search
    state: State
    selected: State  # the second level's masks, before they are trained
    params: Params


def combine(name: str, backbone: str, task: str, seeds: tuple[int, ...]) -> Search:
    kind, data = TASK_ROWS[task]
    problem = Problem.from_data(data(), "tiny", kind)
    network = BACKBONE_ROWS[backbone](problem)
    config = Config(method=name, backbone=backbone, task=kind, axis="joint", seeds=seeds, epochs=EPOCHS)
    return Search(problem, network, METHODS[name](**ROWS[name].options), config)


@cache
def find(name: str, backbone: str, task: str, seeds: tuple[int, ...] = SEEDS) -> Found:
    search = combine(name, backbone, task, seeds)
    state, _ = search.retrain(search.select(search.train_dense(State())))
    selected = search.select(state)
    state, params = search.retrain(selected)
    return Found(search, state, selected, params)


def test_every_backbone_and_task_has_a_row() -> None:
    assert set(BACKBONE_ROWS) == {*BACKBONES, "own:Sage"}
    assert {kind for kind, _ in TASK_ROWS.values()} == set(TASKS)


@each_task
@each_backbone
@each_method
def test_everywhere_counts_are_exact_and_the_dead_stay_dead(name: str, backbone: str, task: str) -> None:
    found = find(name, backbone, task)
    masks, total = found.state.masks, found.search.total
    assert masks is not None
    weights, edges = (round(f * round(f * n)) for f, n in ((0.8, total.weights), (0.95, total.edges)))
    assert masks.weights.sum(dim=1).tolist() == [weights] * len(SEEDS)
    assert masks.edges.sum(dim=1).tolist() == [edges] * len(SEEDS)
    assert not bool(found.params.prunable[~masks.weights].any())
    changed = found.params.prunable != found.search.start.prunable
    assert bool(changed[masks.weights].any())


@each_task
@each_backbone
@each_method
def test_everywhere_a_dead_edge_is_a_deleted_edge(name: str, backbone: str, task: str) -> None:
    found = find(name, backbone, task)
    search, masks = found.search, found.state.masks
    assert masks is not None
    given = outputs(search.problem, search.backbone, found.params, masks, "test")
    view = search.problem.view("test")
    place = view or search.problem
    alive = masks.edges if view is None else view.spread(masks.edges)
    for run in range(len(SEEDS)):
        kept = Graph(place.graph.num_nodes, place.graph.edges[:, alive[run]], place.graph.directed)
        ones = torch.ones(1, kept.num_edges)
        batch = kept.batch(ones.bool(), search.backbone.self_loops)
        weights = search.backbone.weights(found.params[run : run + 1])
        deleted = search.backbone.apply(weights, batch, ones, place.features)
        torch.testing.assert_close(given[run : run + 1], deleted)


@each_task
@each_backbone
@each_method
def test_everywhere_a_seed_ends_alone_as_in_a_batch(name: str, backbone: str, task: str) -> None:
    together, alone = find(name, backbone, task), find(name, backbone, task, SEEDS[1:])
    assert together.state.masks is not None
    assert alone.state.masks is not None
    assert equal(together.state.masks[1:2], alone.state.masks)
    assert torch.equal(together.params.prunable[1:], alone.params.prunable)
    for a, b in zip(together.state.records, alone.state.records, strict=True):
        assert a.outcome.val[1:] == b.outcome.val
        assert a.outcome.test is not None
        assert a.outcome.test[1:] == b.outcome.test


@each_task
@each_backbone
@each_method
def test_everywhere_a_search_continues_from_a_file_to_the_same_end(
    name: str, backbone: str, task: str, tmp_path: Path
) -> None:
    found = find(name, backbone, task)
    checkpoint.save(tmp_path / "state", found.selected)
    search = combine(name, backbone, task, SEEDS)
    state, params = search.retrain(checkpoint.load(tmp_path / "state", search.total, len(SEEDS)))
    assert torch.equal(params.prunable, found.params.prunable)
    assert torch.equal(params.other, found.params.other)
    assert state.records[-1].outcome.test == found.state.records[-1].outcome.test


@each_task
@each_backbone
def test_everywhere_evaluation_changes_nothing(backbone: str, task: str) -> None:
    found = find("ugs", backbone, task)
    problem, masks = found.search.problem, found.state.masks
    assert masks is not None
    before = (found.params.prunable.clone(), found.params.other.clone(), problem.fingerprint)
    first = problem.measure(outputs(problem, found.search.backbone, found.params, masks, "test"), "test")
    again = problem.measure(outputs(problem, found.search.backbone, found.params, masks, "test"), "test")
    assert torch.equal(first, again)
    assert first.tolist() == found.state.records[-1].outcome.test
    assert torch.equal(before[0], found.params.prunable)
    assert torch.equal(before[1], found.params.other)
    assert problem.fingerprint == before[2]
