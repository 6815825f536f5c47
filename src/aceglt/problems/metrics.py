"""Metrics that are more than a mean, for a batch of runs, on the device and without a host synchronisation."""

from __future__ import annotations

import torch
from torch import Tensor


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
