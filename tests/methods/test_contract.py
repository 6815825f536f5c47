"""The contract for everything that is built in: a new method, backbone or task joins by a row in `contract.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from contract import (
    BACKBONE_ROWS,
    COMBINATION_CHECKS,
    METHOD_CHECKS,
    METHOD_ROWS,
    TASK_ROWS,
    AxisCheck,
    Combination,
    MethodRow,
    axis_checks,
    combinations,
    name_of,
)
from samples import tiny_problem

from aceglt.backbones import BACKBONES
from aceglt.config import AXES, Config, resolve
from aceglt.config.methods import METHOD_OPTIONS
from aceglt.methods import METHODS
from aceglt.problems import TASKS
from aceglt.searches.levels import Search
from aceglt.searches.state import State


def test_everything_built_in_has_a_row() -> None:
    assert {name: row.kind for name, row in METHOD_ROWS.items()} == METHODS
    assert all(row.kind.name == name for name, row in METHOD_ROWS.items())
    assert set(BACKBONE_ROWS) == {*BACKBONES, "own:Sage"}
    assert {row.task for row in TASK_ROWS.values()} == set(TASKS)


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=name_of)
@pytest.mark.parametrize("method", METHOD_ROWS)
def test_a_method(method: str, check: Callable[[MethodRow], None]) -> None:
    check(METHOD_ROWS[method])


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(
    ("method", "check"), [(name, check) for name, row in METHOD_ROWS.items() for check in axis_checks(row)], ids=name_of
)
def test_a_method_on_an_axis(method: str, check: AxisCheck, axis: str) -> None:
    check(METHOD_ROWS[method], axis)


@pytest.mark.parametrize("check", COMBINATION_CHECKS, ids=name_of)
@pytest.mark.parametrize(("method", "backbone", "task"), combinations())
def test_a_method_with_a_backbone_on_a_task(
    method: str, backbone: str, task: str, check: Callable[[Combination, Path], None], tmp_path: Path
) -> None:
    check(Combination(METHOD_ROWS[method], BACKBONE_ROWS[backbone], TASK_ROWS[task]), tmp_path)


@pytest.mark.parametrize("method", [name for name in METHOD_ROWS if METHOD_OPTIONS[name].scored])
def test_a_method_takes_either_signal_and_the_published_one_is_usual(method: str) -> None:
    problem, row, chosen = tiny_problem(), METHOD_ROWS[method], {}
    for signal in ("labels", "teacher"):
        config = resolve(method=method, signal=signal, axis="joint", seeds=(3,), epochs=6, lr=0.1, prune_model=0.5)
        search = Search(problem, BACKBONE_ROWS["gcn"].make(problem), row.make(), config)
        chosen[signal] = row.make().select(search.level(search.train_dense(State()))).masks.weights
    assert not torch.equal(chosen["labels"], chosen["teacher"])
    ours = ("ace", "ugs", "teddy")  # of these, TEDDY's is published with it
    assert resolve(method=method).scoring.signal == ("teacher" if method in ours else "labels")
    assert resolve("ugs", method=method).scoring.signal == "labels"


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["node", "inductive"])
@pytest.mark.parametrize("method", METHOD_ROWS)
def test_a_method_on_a_gpu(method: str, task: str) -> None:
    problem = TASK_ROWS[task].make().to("cuda")
    config = Config(task=TASK_ROWS[task].task, axis="joint", seeds=(3, 8), epochs=5)
    search = Search(problem, BACKBONE_ROWS["gcn"].make(problem), METHOD_ROWS[method].make(), config)
    state = search.train_dense(State())
    for _ in range(2):
        keep = search.keep(state)
        state, params = search.retrain(search.select(state))
        assert state.masks is not None
        assert state.masks.alive == keep
        assert params.prunable.is_cuda
        assert bool(params.prunable.isfinite().all())
