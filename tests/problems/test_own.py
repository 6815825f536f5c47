"""The user's own loss and metric."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from samples import tiny_problem
from torch import Tensor

from aceglt.errors import ConfigError
from aceglt.problems.base import Problem, Soft
from aceglt.problems.own import customise


def squared(outputs: Tensor, problem: Any) -> Tensor:
    target = F.one_hot(problem.y, problem.out_features).to(outputs.dtype)
    return (outputs - target)[:, problem.train].square().mean(dim=(1, 2))


def share_of_first(outputs: Tensor, problem: Any, split: str) -> Tensor:
    return (outputs[:, getattr(problem, split)].argmax(dim=-1) == 0).float().mean(dim=1)


def random_outputs(problem: Problem) -> Tensor:
    shape = (2, problem.graph.num_nodes, problem.out_features)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_without_own_parts_the_problem_is_returned_as_it_is() -> None:
    problem = tiny_problem()
    assert customise(problem) is problem


def test_own_loss_and_metric_take_the_place_of_the_tasks() -> None:
    problem = tiny_problem()
    own, outputs, key = customise(problem, squared, share_of_first), random_outputs(problem), torch.zeros(2).long()
    assert torch.equal(own.loss(outputs, None, key), squared(outputs, problem))
    assert torch.equal(own.measure(outputs, "test"), share_of_first(outputs, problem, "test").double())
    assert own.metric == "share_of_first"
    assert own.fingerprint == problem.fingerprint
    assert type(own.to("cpu")) is type(own)


def test_one_of_the_two_leaves_the_other() -> None:
    problem = tiny_problem()
    outputs, key = random_outputs(problem), torch.zeros(2).long()
    assert torch.equal(customise(problem, squared).measure(outputs, "val"), problem.measure(outputs, "val"))
    assert customise(problem, squared).metric == "accuracy"
    measured = customise(problem, metric=share_of_first)
    assert torch.equal(measured.loss(outputs, None, key), problem.loss(outputs, None, key))


def test_the_teachers_signal_is_added_to_an_own_loss() -> None:
    problem = tiny_problem()
    outputs, key = random_outputs(problem), torch.zeros(2).long()
    soft = Soft(random_outputs(problem).flip(1).softmax(dim=-1), 0.7)
    taught = -0.7 * (soft.targets * outputs.log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)
    torch.testing.assert_close(customise(problem, squared).loss(outputs, soft, key), squared(outputs, problem) + taught)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda outputs, problem: outputs.mean(), r"one value per run.*found \[\]"),
        (lambda outputs, problem: 3.0, "found float"),
        (lambda outputs, problem: outputs.argmax(-1).double().mean(1), "has no gradient"),
        (lambda outputs, problem: problem.nothing, "failed on outputs of shape .*AttributeError"),
        (lambda outputs: outputs, "TypeError"),
    ],
)
def test_a_loss_that_cannot_work_is_refused(loss: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        customise(tiny_problem(), loss)


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (lambda outputs, problem, split: 100 + outputs.mean((1, 2)), r"must be in \[0, 1\]"),
        (lambda outputs, problem, split: outputs.mean((1, 2)) / 0, r"must be in \[0, 1\]"),
        (lambda outputs, problem, split: outputs.mean(1), "one value per run"),
        (lambda outputs, problem, split: torch.full((len(outputs),), 0.5 + 0.1j), "must return real numbers"),
        (lambda outputs, problem: outputs, "TypeError"),
    ],
)
def test_a_metric_that_cannot_work_is_refused(metric: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        customise(tiny_problem(), metric=metric)
