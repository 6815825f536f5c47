"""What nodes are trained towards and measured by: one class of several, or several labels."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.problems.metrics import roc_auc


class Objective(Protocol):
    """Functions of outputs [S, n, C] and the targets y of the same n nodes, each to [S]."""

    metric: str

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The training loss."""

    def soften(self, outputs: Tensor) -> Tensor:
        """A teacher's outputs as soft targets."""

    def outputs(self, targets: Tensor) -> Tensor:
        """Outputs that soften to these targets."""

    def distil(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss towards soft targets [S, n, C]."""

    def measure(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The metric, in [0, 1]."""


class OneClass:
    """y [n] int64: cross-entropy and accuracy."""

    metric = "accuracy"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        runs = len(outputs)  # flattened: for three dimensions torch has no deterministic algorithm on a GPU
        return F.cross_entropy(outputs.flatten(0, 1), y.repeat(runs), reduction="none").view(runs, -1).mean(dim=1)

    def soften(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=-1)

    def outputs(self, targets: Tensor) -> Tensor:
        return targets.clamp(min=torch.finfo(targets.dtype).tiny).log()

    def distil(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -(targets * outputs.log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)

    def measure(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs.argmax(dim=-1) == y).double().mean(dim=1)


class ManyLabels:
    """y [n, T] of 0, 1 and NaN for unknown: binary cross-entropy, and ROC-AUC averaged over the labels that have both
    answers."""

    metric = "roc_auc"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        known = ~y.isnan()
        losses = F.binary_cross_entropy_with_logits(
            outputs, y.nan_to_num().expand_as(outputs), weight=known.to(outputs.dtype), reduction="none"
        )
        return losses.sum(dim=(1, 2)) / known.sum().clamp(min=1)

    def soften(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def outputs(self, targets: Tensor) -> Tensor:
        return targets.logit(eps=torch.finfo(targets.dtype).eps)

    def distil(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=(1, 2))

    def measure(self, outputs: Tensor, y: Tensor) -> Tensor:
        answers = y.t()
        return roc_auc(outputs.transpose(1, 2), answers == 1, ~answers.isnan()).nanmean(dim=1)
