"""What every method promises, with every backbone on every task, as checks of rows.

A row says how a method, a backbone or a task is made, quickly, and what is particular about it. The rows here are of
what is built in (`methods/test_contract.py`); `test_adding.py` checks one that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, is_dataclass
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from samples import labels_data, sparse_split_data, tiny_data, tiny_problem
from torch_geometric.nn import SAGEConv

from aceglt.backbones import BACKBONES, GAT, GCN, Backbone, Params, ResGCN
from aceglt.backbones.module import ModuleBackbone
from aceglt.config import Config
from aceglt.methods import (
    Ace,
    Adaglt,
    Cgp,
    Dspar,
    Fastglt,
    Gebt,
    Icpg,
    Magnitude,
    Method,
    Neighbours,
    Random,
    Sgcn,
    Teddy,
    Ugs,
    Ugts,
)
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import SIDES, Counts, Masks
from aceglt.problems.base import Problem
from aceglt.runs import checkpoint
from aceglt.searches.levels import Search, outputs
from aceglt.searches.state import State

EPOCHS = 2
LEVELS = 3
SEEDS = (3, 8)
CARRIED = {"model": ("weights",), "graph": ("edges",), "joint": SIDES}


@dataclass(frozen=True, eq=False)
class MethodRow:
    kind: type[Method]
    options: Mapping[str, Any] = field(default_factory=dict)
    irreversible: bool | None = True  # None: drawn anew, so it may bring elements back and need not
    diagnostics: tuple[str, ...] = ()
    may_stop_early: bool = False
    edges_by_seed: bool = True  # False: the graph alone decides, but for ties
    trains_as: str = ""  # another row that trains the same; combined with the first backbone alone

    def make(self) -> Method:
        return self.kind(**self.options)


@dataclass(frozen=True, eq=False)
class BackboneRow:
    make: Callable[[Problem], Backbone]


@dataclass(frozen=True, eq=False)
class TaskRow:
    task: str
    data: Callable[[], Any]

    def make(self) -> Problem:
        return Problem.from_data(self.data(), "tiny", self.task)


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


METHOD_ROWS = {
    "random": MethodRow(Random),
    "ugs": MethodRow(Ugs, diagnostics=SIDES),
    "gebt": MethodRow(Gebt, {"max_epochs": 5}, irreversible=None, diagnostics=("gebt",), may_stop_early=True),
    "ace": MethodRow(
        Ace,
        {"rounds": 2, "refine_epochs": 1, "exchange": 0.2, "keep": "last"},
        irreversible=False,
        diagnostics=(*SIDES, "ace"),
    ),
    "magnitude": MethodRow(Magnitude),
    "dspar": MethodRow(Dspar, trains_as="magnitude"),
    "neighbours": MethodRow(Neighbours, trains_as="magnitude"),
    "teddy": MethodRow(Teddy, irreversible=None, edges_by_seed=False),
    "ugts": MethodRow(Ugts, irreversible=None),
    "sgcn": MethodRow(Sgcn, {"interval": 2}),
    "icpg": MethodRow(Icpg),
    "adaglt": MethodRow(Adaglt, irreversible=None),
    "cgp": MethodRow(Cgp, {"interval": 1, "features": 0.0}, irreversible=None, diagnostics=("cgp",)),
    "fastglt": MethodRow(Fastglt, {"pretrain_epochs": 2, "interval": 2}, irreversible=None, diagnostics=("fastglt",)),
}
BACKBONE_ROWS = {
    "gcn": BackboneRow(lambda problem: GCN(problem.x.shape[1], problem.out_features, 6)),
    "gin": BackboneRow(lambda problem: BACKBONES["gin"](problem.x.shape[1], problem.out_features, 6)),
    "gat": BackboneRow(lambda problem: GAT(problem.x.shape[1], problem.out_features, 4, heads=2)),
    "sage": BackboneRow(
        lambda problem: BACKBONES["sage"](
            problem.x.shape[1], problem.out_features, 6, layers=3, norm="batch", skip="linear"
        )
    ),
    "resgcn": BackboneRow(lambda problem: ResGCN(problem.x.shape[1], problem.out_features, 6, layers=3)),
    "own:Sage": BackboneRow(lambda problem: ModuleBackbone(OwnSage, problem.graph, problem.x, problem.out_features)),
}
TASK_ROWS = {
    "node": TaskRow("node", tiny_data),
    "node, several labels": TaskRow("node", labels_data),
    "inductive": TaskRow("inductive", sparse_split_data),
    "link": TaskRow("link", tiny_data),
}


def equal(a: Masks, b: Masks) -> bool:
    unseen = [torch.zeros(0) if of.unseen is None else of.unseen for of in (a, b)]
    return torch.equal(a.weights, b.weights) and torch.equal(a.edges, b.edges) and torch.equal(*unseen)


# A method by itself


def is_a_frozen_dataclass_with_a_name(row: MethodRow) -> None:
    method = row.make()
    assert isinstance(method, Method)
    assert is_dataclass(method)
    assert row.make() == method
    with pytest.raises((FrozenInstanceError, TypeError)):
        method.name = "another"  # type: ignore[misc]


def seeds_choose_different_masks(row: MethodRow) -> None:
    masks = steps(row, "joint")[0].masks
    assert not torch.equal(masks.weights[0], masks.weights[1])
    assert not row.edges_by_seed or not torch.equal(masks.edges[0], masks.edges[1])


METHOD_CHECKS = (is_a_frozen_dataclass_with_a_name, seeds_choose_different_masks)


# A method on an axis


@dataclass(frozen=True)
class Step:
    """One level, as it went."""

    start: Masks
    keep: Counts
    masks: Masks
    diagnostics: Mapping[str, Any]
    epochs: int
    trained: int  # epochs of all runs, as an observer counted them
    left_alone: bool  # the last level's masks are as they were


class Counter:
    def __init__(self) -> None:
        self.epochs = 0

    def on_phase(self, level: int, phase: str) -> None: ...

    def on_test(self, level: int) -> None: ...

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self.epochs += runs


def search_on(axis: str, row: MethodRow, seeds: tuple[int, ...]) -> tuple[Search, Counter]:
    problem, counter = tiny_problem(), Counter()
    config = Config(axis=axis, seeds=seeds, epochs=EPOCHS, hidden=6)
    return Search(problem, BACKBONE_ROWS["gcn"].make(problem), row.make(), config, counter), counter


@cache
def _dense_on(axis: str, seeds: tuple[int, ...]) -> State:
    """The same for every method."""
    return search_on(axis, METHOD_ROWS["random"], seeds)[0].train_dense(State())


@cache
def steps(row: MethodRow, axis: str, seeds: tuple[int, ...] = SEEDS) -> tuple[Step, ...]:
    search, counter = search_on(axis, row, seeds)
    state, done = _dense_on(axis, seeds), []
    for _ in range(LEVELS):
        start, keep, before, last = search.start_masks(state), search.keep(state), counter.epochs, state.masks
        copied = None if last is None else Masks(last.weights.clone(), last.edges.clone())
        state = search.select(state)
        chosen, trained = state.selected, counter.epochs - before
        assert chosen is not None
        left_alone = last is None or copied is None or equal(last, copied)
        done.append(Step(start, keep, chosen.masks, chosen.diagnostics, chosen.epochs, trained, left_alone))
        state, _ = search.retrain(state)
    return tuple(done)


def counts_are_exact_at_every_level(row: MethodRow, axis: str) -> None:
    total = steps(row, axis)[0].start.total
    weights, edges = total.weights, total.edges
    for step in steps(row, axis):
        weights = round(0.8 * (weights if axis != "graph" else total.weights))
        edges = round(0.95 * (edges if axis != "model" else total.edges))
        assert step.keep == Counts(weights, edges)
        assert step.masks.weights.sum(dim=1).tolist() == [weights] * len(SEEDS)
        assert step.masks.edges.sum(dim=1).tolist() == [edges] * len(SEEDS)


def a_seed_chooses_the_same_masks_again_and_alone_as_in_a_batch(row: MethodRow, axis: str) -> None:
    for together, alone in zip(steps(row, axis), steps(row, axis, SEEDS[1:]), strict=True):
        assert equal(together.masks[1:], alone.masks)


def the_axis_decides_which_masks_carry_over(row: MethodRow, axis: str) -> None:
    for last, following in pairwise(steps(row, axis)):
        for side in SIDES:
            expected = last.masks.of(side)
            if side not in CARRIED[axis]:
                expected = torch.ones_like(expected)
            assert torch.equal(following.start.of(side), expected)


def nothing_dead_comes_back(row: MethodRow, axis: str) -> None:
    for step in steps(row, axis):
        for side in SIDES:
            assert not bool((step.masks.of(side) & ~step.start.of(side)).any())


def something_dead_comes_back(row: MethodRow, axis: str) -> None:
    for side in CARRIED[axis]:
        assert any(bool((step.masks.of(side) & ~step.start.of(side)).any()) for step in steps(row, axis)[1:])


def the_stated_cost_is_what_was_trained(row: MethodRow, axis: str) -> None:
    cost = row.make().cost(EPOCHS)
    for step in steps(row, axis):
        if row.may_stop_early:
            assert step.epochs <= cost
            assert step.epochs <= step.trained <= len(SEEDS) * step.epochs
        else:
            assert step.epochs == cost
            assert step.trained == len(SEEDS) * step.epochs


def diagnostics_are_there_for_every_run(row: MethodRow, axis: str) -> None:
    for step in steps(row, axis):
        assert set(step.diagnostics) == set(row.diagnostics)
        for side in set(SIDES) & set(step.diagnostics):
            measured = step.diagnostics[side]
            assert set(measured) == {"distinct", "ties_at_threshold", "noise_correlation"}
            alive = getattr(step.start.alive, side)
            assert all(len(values) == len(SEEDS) for values in measured.values())
            assert all(1 <= distinct <= alive for distinct in measured["distinct"])
            assert all(0 < tied <= 1 for tied in measured["ties_at_threshold"])
            assert all(-1 <= r <= 1 for r in measured["noise_correlation"])


def the_masks_that_a_level_starts_from_are_left_alone(row: MethodRow, axis: str) -> None:
    assert all(step.left_alone for step in steps(row, axis))


AxisCheck = Callable[[MethodRow, str], None]


def axis_checks(row: MethodRow) -> tuple[AxisCheck, ...]:
    """Those that apply to a method."""
    comes_back: dict[bool | None, tuple[AxisCheck, ...]] = {
        True: (nothing_dead_comes_back,), False: (something_dead_comes_back,), None: (),
    }  # fmt: skip
    return (
        counts_are_exact_at_every_level,
        a_seed_chooses_the_same_masks_again_and_alone_as_in_a_batch,
        the_axis_decides_which_masks_carry_over,
        *comes_back[row.irreversible],
        the_stated_cost_is_what_was_trained,
        diagnostics_are_there_for_every_run,
        the_masks_that_a_level_starts_from_are_left_alone,
    )


# A method with a backbone on a task


@dataclass(frozen=True, eq=False)
class Combination:
    """A method with a backbone on a task; each is searched once, whatever is checked."""

    method: MethodRow
    backbone: BackboneRow
    task: TaskRow

    def search(self, seeds: tuple[int, ...] = SEEDS) -> Search:
        config = Config(task=self.task.task, axis="joint", seeds=seeds, epochs=EPOCHS)
        return Search(*_network(self.backbone, self.task), self.method.make(), config)

    def found(self, seeds: tuple[int, ...] = SEEDS) -> Found:
        return _found(self.method, self.backbone, self.task, seeds)


@dataclass(frozen=True)
class Found:
    """Two levels of a joint search, and where its state was saved in between."""

    search: Search
    state: State
    selected: State  # the second level's masks, before they are trained
    params: Params

    @property
    def masks(self) -> Masks:
        assert self.state.masks is not None
        return self.state.masks


@cache
def _network(backbone: BackboneRow, task: TaskRow) -> tuple[Problem, Backbone]:
    problem = task.make()
    return problem, backbone.make(problem)


@cache
def _dense(backbone: BackboneRow, task: TaskRow, seeds: tuple[int, ...]) -> State:
    """The same for every method."""
    return Combination(METHOD_ROWS["random"], backbone, task).search(seeds).train_dense(State())


@cache
def _found(method: MethodRow, backbone: BackboneRow, task: TaskRow, seeds: tuple[int, ...]) -> Found:
    search = Combination(method, backbone, task).search(seeds)
    state, _ = search.retrain(search.select(_dense(backbone, task, seeds)))
    selected = search.select(state)
    state, params = search.retrain(selected)
    return Found(search, state, selected, params)


def counts_are_exact_and_the_dead_stay_dead(combined: Combination, tmp_path: Path) -> None:
    found = combined.found()
    masks, total = found.masks, found.search.total
    weights, edges = (round(f * round(f * n)) for f, n in ((0.8, total.weights), (0.95, total.edges)))
    assert masks.weights.sum(dim=1).tolist() == [weights] * len(SEEDS)
    assert masks.edges.sum(dim=1).tolist() == [edges] * len(SEEDS)
    assert not bool(found.params.prunable[~masks.weights].any())
    changed = found.params.prunable != found.search.start.prunable
    assert bool(changed[masks.weights].any()) is not getattr(found.search.method, "untrained", False)


def a_dead_edge_is_a_deleted_edge(combined: Combination, tmp_path: Path) -> None:
    found = combined.found()
    search, masks = found.search, found.masks
    given = outputs(search.problem, search.backbone, found.params, masks, "test")
    view = search.problem.view("test")
    place = view or search.problem
    alive = masks.edges if view is None else view.scatter(masks.edges, masks.unseen)
    for run in range(len(SEEDS)):
        kept = Graph(place.graph.num_nodes, place.graph.edges[:, alive[run]], place.graph.directed)
        ones = torch.ones(1, kept.num_edges)
        batch = kept.batch(ones.bool(), search.backbone.self_loops)
        weights = search.backbone.weights(found.params[run : run + 1])
        deleted = search.backbone.apply(weights, batch, ones, place.features)
        torch.testing.assert_close(given[run : run + 1], deleted)


def a_seed_ends_alone_as_in_a_batch(combined: Combination, tmp_path: Path) -> None:
    together, alone = combined.found(), combined.found(SEEDS[1:])
    assert equal(together.masks[1:2], alone.masks)
    assert torch.equal(together.params.prunable[1:], alone.params.prunable)
    for a, b in zip(together.state.records, alone.state.records, strict=True):
        assert a.outcome.val[1:] == b.outcome.val
        assert a.outcome.test is not None
        assert a.outcome.test[1:] == b.outcome.test


def a_search_continues_from_a_file_to_the_same_end(combined: Combination, tmp_path: Path) -> None:
    found, search = combined.found(), combined.search()
    checkpoint.save(tmp_path / "state", found.selected)
    state, params = search.retrain(checkpoint.load(tmp_path / "state", search.total, len(SEEDS)))
    assert torch.equal(params.prunable, found.params.prunable)
    assert torch.equal(params.other, found.params.other)
    assert state.records[-1].outcome.test == found.state.records[-1].outcome.test


def evaluation_changes_nothing(combined: Combination, tmp_path: Path) -> None:
    found = combined.found()
    problem, backbone, params = found.search.problem, found.search.backbone, found.params
    before = (params.prunable.clone(), params.other.clone(), problem.fingerprint)
    first, again = (problem.measure(outputs(problem, backbone, params, found.masks, "test"), "test") for _ in range(2))
    assert torch.equal(first, again)
    assert first.tolist() == found.state.records[-1].outcome.test
    assert torch.equal(before[0], params.prunable)
    assert torch.equal(before[1], params.other)
    assert problem.fingerprint == before[2]


COMBINATION_CHECKS = (
    counts_are_exact_and_the_dead_stay_dead,
    a_dead_edge_is_a_deleted_edge,
    a_seed_ends_alone_as_in_a_batch,
    a_search_continues_from_a_file_to_the_same_end,
    evaluation_changes_nothing,
)


def combinations(methods: Iterable[str] = METHOD_ROWS, backbones: Iterable[str] = BACKBONE_ROWS) -> list[Any]:
    """The names of methods, backbones and tasks that are checked together: any two of them quickly, tasks by turns, all
    three in the slow tests. Methods that train like another go with the first backbone alone."""
    first, made = next(iter(BACKBONE_ROWS)), []
    for (m, method), (b, backbone), (t, task) in product(*map(enumerate, (methods, backbones, TASK_ROWS))):
        row = METHOD_ROWS.get(method)
        alike = row is not None and bool(row.trains_as)
        if backbone == first or not alike:
            quick = alike or (m + b + t) % len(TASK_ROWS) == 0
            made.append(pytest.param(method, backbone, task, marks=() if quick else pytest.mark.slow))
    return made


def name_of(value: object) -> str:
    """How a check is called in the name of a test."""
    return str(getattr(value, "__name__", value))
