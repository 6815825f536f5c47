"""The contract for everything that is built in: a new method, backbone or task joins by a row in `contract.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
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

from aceglt.backbones import BACKBONES
from aceglt.config import AXES
from aceglt.methods import METHODS
from aceglt.problems import TASKS


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
