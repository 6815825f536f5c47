"""A task with the user's own loss or metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from aceglt.config.own import name_of
from aceglt.errors import ConfigError
from aceglt.numerics.kernels import PLAIN, Kernels
from aceglt.problems.base import Problem, Soft, Split

Loss = Callable[[Tensor, Problem], Tensor]
"""(outputs [S, N, C], problem) → [S]: the training loss of each run."""
Metric = Callable[[Tensor, Problem, Split], Tensor]
"""(outputs [S, N, C], problem, split) → [S]: higher is better, in [0, 1]."""


def customise(
    problem: Problem, loss: Loss | None = None, metric: Metric | None = None, splits: Sequence[Split] = ("val", "test")
) -> Problem:
    """The same problem with another loss or metric; both are tried out first, on outputs of two runs, and the metric
    on every split that will be read.

    The teacher's signal stays the task's. Raises ConfigError where one of them fails or returns something else.
    """
    if loss is None and metric is None:
        return problem
    if loss is not None and not _tried(loss, problem).requires_grad:
        raise ConfigError(f"{name_of(loss)} has no gradient with respect to the outputs; a loss must be differentiable")
    for split in splits if metric is not None else ():
        assert metric is not None
        tried = _tried(metric, problem.measured(split), split)
        if not bool(((tried >= 0) & (tried <= 1)).all()):
            raise ConfigError(
                f"{name_of(metric)} must be in [0, 1], higher being better; found {tried.tolist()} on {split}"
            )
    return _own(problem, loss, metric)


def _own(problem: Problem, loss: Loss | None, metric: Metric | None) -> Problem:
    kind: Any = type(problem)

    class Own(kind):  # type: ignore[misc]
        @property
        def metric(self) -> str:
            return problem.metric if metric is None else name_of(metric).rpartition(":")[2]

        def reads(self, split: Split) -> Tensor | None:
            own = loss if split == "train" else metric
            return problem.reads(split) if own is None else None

        def loss(self, outputs: Tensor, soft: Soft | None, key: Tensor, kernels: Kernels = PLAIN) -> Tensor:
            if loss is None:
                return problem.loss(outputs, soft, key, kernels)
            labelled = loss(outputs, problem)
            if soft is None:
                return labelled
            return labelled + problem.loss(outputs, soft, key, kernels) - problem.loss(outputs, None, key)

        def measure(self, outputs: Tensor, split: Split) -> Tensor:
            if metric is None:
                return problem.measure(outputs, split)
            return metric(outputs, problem.measured(split), split).double()

        def part(self, nodes: Tensor, edges: Tensor) -> Problem:
            return _own(problem.part(nodes, edges), loss, metric)

    own: Problem = Own(**{field.name: getattr(problem, field.name) for field in fields(problem)})
    return own


def _tried(function: Callable[..., Tensor], problem: Problem, *rest: Any) -> Tensor:
    """What the function returns for two runs, one of which is undecided and the other all for the last output."""
    name = name_of(function)
    outputs = torch.zeros(2, problem.graph.num_nodes, problem.out_features, device=problem.device)
    outputs[1, :, -1] = 1.0
    outputs.requires_grad_()
    try:
        result = function(outputs, problem, *rest)
    except Exception as reason:
        raise ConfigError(
            f"{name} failed on outputs of shape {list(outputs.shape)} (runs, nodes, outputs): "
            f"{type(reason).__name__}: {reason}"
        ) from reason
    if not isinstance(result, Tensor) or result.shape != (2,):
        found = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ConfigError(f"{name} must return one value per run, a tensor of shape [2] for two runs; found {found}")
    if result.is_complex():
        raise ConfigError(f"{name} must return real numbers, found {result.dtype}")
    return result
