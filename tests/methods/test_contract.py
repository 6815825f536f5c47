"""What every method promises, on every axis. A new method joins by adding a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.config import AXES, Config
from aceglt.levels import Search, State
from aceglt.masks import Counts, Masks
from aceglt.methods import METHODS, Method


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
EPOCHS = 5
LEVELS = 3
SEEDS = (3, 8)
CARRIED = {"model": ("weights",), "graph": ("edges",), "joint": ("weights", "edges")}

each_method = pytest.mark.parametrize("name", ROWS)
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
