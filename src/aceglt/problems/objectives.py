"""What nodes are trained towards and measured by: one class of several, or several labels.

Metrics are for a batch of runs, on the device and without a host synchronisation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class OneClass:
    """y [n] int64: cross-entropy and accuracy.

    An objective's methods take outputs [S, n, C], and the targets y of the same n nodes, to [S].
    """

    metric = "accuracy"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The training loss."""
        runs = len(outputs)  # flattened: for three dimensions torch has no deterministic algorithm on a GPU
        return F.cross_entropy(outputs.flatten(0, 1), y.repeat(runs), reduction="none").view(runs, -1).mean(dim=1)

    def soften(self, outputs: Tensor) -> Tensor:
        """A teacher's outputs as soft targets."""
        return outputs.softmax(dim=-1)

    def outputs(self, targets: Tensor) -> Tensor:
        """Outputs that soften to these targets."""
        return targets.clamp(min=torch.finfo(targets.dtype).tiny).log()

    def distil(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss towards soft targets [S, n, C]."""
        return -(targets * outputs.log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)

    def measure(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The metric, in [0, 1]."""
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


Objective = OneClass | ManyLabels


def roc_auc(scores: Tensor, positive: Tensor, known: Tensor | None = None) -> Tensor:
    """[…] area under the ROC curve of scores […, n]; float64, NaN unless both classes occur.

    The share of (positive, negative) pairs that are in the right order, equal scores counting one half. `positive` is
    [n] bool, or [k, n] for k questions about scores [S, k, n]; what is not `known` (likewise) is left out.
    """
    if known is not None:
        scores, positive = scores.masked_fill(~known, torch.inf), positive & known  # above all ranks that count
    ordered = scores.sort(dim=-1).values
    scores = scores.contiguous()
    # Twice the rank from 1, the mean one among equals: whole numbers, so the result is exact.
    ranks = torch.searchsorted(ordered, scores) + torch.searchsorted(ordered, scores, right=True) + 1
    count = known.sum(dim=-1) if known is not None else scores.shape[-1]
    positives = positive.sum(dim=-1)
    in_order = (ranks * positive).sum(dim=-1) - positives * (positives + 1)  # Mann and Whitney's U, twice
    return in_order.double() / (2 * positives * (count - positives))


def hits_at(k: int, positives: Tensor, negatives: Tensor) -> Tensor:
    """[S] share of positives [S, p] above the k-th best of the negatives [S, q], as OGB counts; 1 below k negatives."""
    if negatives.shape[1] < k:
        return positives.new_ones(len(positives), dtype=torch.float64)
    threshold = negatives.topk(k, dim=1).values[:, -1:]
    return (positives > threshold).double().mean(dim=1)
