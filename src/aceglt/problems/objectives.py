"""What nodes are trained towards: one class of several, or several labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.numerics.kernels import PLAIN, Kernels


class OneClass:
    """y [n] int64: cross-entropy.

    An objective's methods take outputs [S, n, C], and the targets y of the same n nodes, to [S].
    """

    metric = "accuracy"
    """Unless the data or the user names another."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The training loss."""
        runs = len(outputs)  # flattened: for three dimensions torch has no deterministic algorithm on a GPU
        y = y.repeat(runs) if runs > 1 else y
        return F.cross_entropy(outputs.flatten(0, 1), y, reduction="none").view(runs, -1).mean(dim=1)

    def soften(self, outputs: Tensor) -> Tensor:
        """A teacher's outputs as soft targets."""
        return outputs.softmax(dim=-1)

    def outputs(self, targets: Tensor) -> Tensor:
        """Outputs that soften to these targets."""
        return targets.clamp(min=torch.finfo(targets.dtype).tiny).log()

    def distil(self, outputs: Tensor, targets: Tensor, kernels: Kernels = PLAIN) -> Tensor:
        """The loss towards soft targets [S, n, C]."""
        return kernels.soft_cross_entropy(outputs, targets)


class ManyLabels:
    """y [n, T] of 0, 1 and NaN for unknown: binary cross-entropy."""

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

    def distil(self, outputs: Tensor, targets: Tensor, kernels: Kernels = PLAIN) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=(1, 2))


Objective = OneClass | ManyLabels
