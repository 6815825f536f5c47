"""A method or a backbone is added by one file and one row: the whole contract holds for those that are not built in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from adding.my_backbone import MeanSage
from adding.my_method import Magnitude
from contract import (
    BACKBONE_ROWS,
    COMBINATION_CHECKS,
    METHOD_CHECKS,
    METHOD_ROWS,
    TASK_ROWS,
    AxisCheck,
    BackboneRow,
    Combination,
    MethodRow,
    axis_checks,
    combinations,
    name_of,
)
from samples import tiny_problem
from search_samples import search
from torch_geometric.nn import SAGEConv

from aceglt.config import AXES

ROW = MethodRow(Magnitude, {"share": 0.6})
BACKBONE_ROW = BackboneRow(lambda problem: MeanSage(problem.x.shape[1], problem.out_features, 6))


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=name_of)
def test_an_added_method(check: Callable[[MethodRow], None]) -> None:
    check(ROW)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("check", axis_checks(ROW), ids=name_of)
def test_an_added_method_on_an_axis(check: AxisCheck, axis: str) -> None:
    check(ROW, axis)


@pytest.mark.parametrize("check", COMBINATION_CHECKS, ids=name_of)
@pytest.mark.parametrize(("method", "backbone", "task"), combinations(methods=["added"]))
def test_an_added_method_with_a_backbone_on_a_task(
    method: str, backbone: str, task: str, check: Callable[[Combination, Path], None], tmp_path: Path
) -> None:
    check(Combination(ROW, BACKBONE_ROWS[backbone], TASK_ROWS[task]), tmp_path)


@pytest.mark.parametrize("method", ["adding.my_method:Magnitude", Magnitude, Magnitude(share=0.5)], ids=str)
def test_an_added_method_is_searched_with_by_name_class_or_instance(method: object) -> None:
    result = search(method=method)
    assert result.config.method == "adding.my_method:Magnitude"
    assert [level["epochs"]["select"] for level in result.results["levels"]] == [2, 2]


@pytest.mark.parametrize("check", COMBINATION_CHECKS, ids=name_of)
@pytest.mark.parametrize(("method", "backbone", "task"), combinations(backbones=["added"]))
def test_an_added_backbone_with_a_method_on_a_task(
    method: str, backbone: str, task: str, check: Callable[[Combination, Path], None], tmp_path: Path
) -> None:
    check(Combination(METHOD_ROWS[method], BACKBONE_ROW, TASK_ROWS[task]), tmp_path)


@pytest.mark.parametrize("backbone", ["adding.my_backbone:MeanSage", MeanSage], ids=str)
def test_an_added_backbone_is_searched_with_by_name_or_class(backbone: object) -> None:
    result = search(backbone=backbone, hidden=8)
    assert result.config.backbone == "adding.my_backbone:MeanSage"
    assert result.tickets[0].trained.other.shape[1] == 8 + 2


def test_an_added_backbone_is_that_of_pyg() -> None:
    """One layer of SAGEConv's is (mean of the neighbours) · W + x · R + b."""
    problem = tiny_problem()
    backbone = MeanSage(problem.x.shape[1], problem.out_features, 6)
    params = backbone.init((3,))
    weights = {name: part[0] for name, part in backbone.weights(params).items()}
    arcs = torch.cat([problem.graph.edges, problem.graph.edges.flip(0)], dim=1)
    expected = problem.x
    for layer in range(2):
        conv = SAGEConv(*weights[f"layer{layer}.weight"].shape)
        with torch.no_grad():
            conv.lin_l.weight.copy_(weights[f"layer{layer}.weight"].t())
            conv.lin_r.weight.copy_(weights[f"layer{layer}.root"].t())
            conv.lin_l.bias.copy_(weights[f"layer{layer}.bias"][0])
            expected = conv(expected, arcs).relu() if layer == 0 else conv(expected, arcs)
    ones = torch.ones(1, problem.graph.num_edges)
    batch = problem.graph.batch(ones.bool(), backbone.self_loops)
    torch.testing.assert_close(backbone.apply(backbone.weights(params), batch, ones, problem.features)[0], expected)
