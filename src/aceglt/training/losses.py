"""The loss of a training pass, and its gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from aceglt.backbones.base import Dropout, Weights
from aceglt.backends.fields import Step
from aceglt.numerics import rng
from aceglt.numerics.kernels import Kernels
from aceglt.problems.base import Problem, Soft

LossGradients = tuple[dict[str, Tensor], "Tensor | None"]
"""Of the weights by name, and of the edge values where they are trained."""

_DRAWS = 1 << 20  # of a step's random draws, those of the loss; layers count from 0


def training_loss(
    problem: Problem,
    soft: Soft | None,
    step: Step,
    weights: Weights,
    key: Tensor,
    kernels: Kernels,
    at: Tensor | None = None,
) -> Tensor:
    """[S] the problem's, plus the teacher's signal; or a contrastive one (Graph InfoClust), which tells outputs from
    those on permuted features, noise enough, so that nothing is dropped. `at` [n] are the nodes of the pass that the
    problem is about; None is all."""
    if problem.contrast is None:
        outputs = step.outputs(Dropout(key))
        return problem.loss(outputs if at is None else outputs[:, at], soft, kernels.fold(key, _DRAWS), kernels)
    order = rng.permutation(rng.fold(key, _DRAWS), problem.graph.num_nodes)
    return problem.contrast.loss(step.outputs(None), step.outputs(None, order), weights)


def gradients(loss: Tensor, weights: Mapping[str, Tensor], edge_values: Tensor) -> LossGradients:
    """Of a loss, summed over the runs, which do not influence each other."""
    wanted = [*weights.values(), *([edge_values] if edge_values.requires_grad else [])]
    grads = torch.autograd.grad(loss, wanted, materialize_grads=True)
    return dict(zip(weights, grads, strict=False)), grads[-1] if edge_values.requires_grad else None
