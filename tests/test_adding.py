"""A method is added by one file and one row: the whole contract holds for one that the package does not know."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from adding.my_method import Magnitude
from contract import (
    BACKBONE_ROWS,
    COMBINATION_CHECKS,
    METHOD_CHECKS,
    TASK_ROWS,
    AxisCheck,
    Combination,
    MethodRow,
    axis_checks,
    name_of,
)
from search_samples import search

from aceglt.config import AXES

ROW = MethodRow(Magnitude, {"share": 0.6})


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=name_of)
def test_an_added_method(check: Callable[[MethodRow], None]) -> None:
    check(ROW)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("check", axis_checks(ROW), ids=name_of)
def test_an_added_method_on_an_axis(check: AxisCheck, axis: str) -> None:
    check(ROW, axis)


@pytest.mark.parametrize("check", COMBINATION_CHECKS, ids=name_of)
@pytest.mark.parametrize(("backbone", "task"), list(product(BACKBONE_ROWS, TASK_ROWS)))
def test_an_added_method_with_a_backbone_on_a_task(
    backbone: str, task: str, check: Callable[[Combination, Path], None], tmp_path: Path
) -> None:
    check(Combination(ROW, BACKBONE_ROWS[backbone], TASK_ROWS[task]), tmp_path)


@pytest.mark.parametrize("method", ["adding.my_method:Magnitude", Magnitude, Magnitude(share=0.5)], ids=str)
def test_an_added_method_is_searched_with_by_name_class_or_instance(method: object) -> None:
    result = search(method=method)
    assert result.config.method == "adding.my_method:Magnitude"
    assert [level["epochs"]["select"] for level in result.results["levels"]] == [2, 2]
