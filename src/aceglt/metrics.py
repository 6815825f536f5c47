"""Metrics that are more than a mean, for a batch of runs, on the device."""

from __future__ import annotations

from torch import Tensor, searchsorted


def roc_auc(scores: Tensor, positive: Tensor) -> Tensor:
    """[S] area under the ROC curve of scores [S, n]; positive [n] bool. Float64; NaN unless both classes occur.

    The share of (positive, negative) pairs that are in the right order, equal scores counting one half.
    """
    positives, negatives = scores[:, positive].contiguous(), scores[:, ~positive].sort(dim=1).values
    below = searchsorted(negatives, positives)
    not_above = searchsorted(negatives, positives, right=True)
    pairs = positives.shape[1] * negatives.shape[1]
    return (below + not_above).sum(dim=1).double() / (2 * pairs)
