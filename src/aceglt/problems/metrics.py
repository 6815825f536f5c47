"""Metrics by name, for a batch of runs: on the device, and without a host synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from aceglt.config import METRICS as NAMES
from aceglt.errors import DataError
from aceglt.files.schema import shortened

Measure = Callable[[Tensor, Tensor], Tensor]
"""(outputs [S, n, C], y [n], or [n, T] of 0, 1 and NaN for several labels) → [S] float64 in [0, 1]."""


def accuracy(outputs: Tensor, y: Tensor) -> Tensor:
    """Share of nodes of which the largest output is their class; of several labels, of the known answers."""
    if y.dim() == 1:
        return (outputs.argmax(dim=-1) == y).double().mean(dim=1)
    known = ~y.isnan()
    return ((outputs > 0) == (y == 1)).logical_and(known).double().sum(dim=(1, 2)) / known.sum()


def macro_f1(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean F1 of the classes (or labels) that occur among the nodes or the predictions."""
    if y.dim() == 1:
        classes = torch.arange(outputs.shape[-1], device=y.device)
        truth, predicted = y.unsqueeze(-1) == classes, outputs.argmax(dim=-1, keepdim=True) == classes
    else:
        truth, predicted = y == 1, (outputs > 0) & ~y.isnan()
    both = (truth & predicted).sum(dim=1)  # [S, C]
    return (2 * both.double() / (truth.sum(dim=0) + predicted.sum(dim=1))).nanmean(dim=1)


def _of_answers(area: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> Measure:
    """A metric of scores for yes-no answers: of the second of two classes, or the mean over labels that it is defined
    for."""

    def measure(outputs: Tensor, y: Tensor) -> Tensor:
        if y.dim() == 1:
            return area(outputs[..., 1] - outputs[..., 0], y == 1, None)
        answers = y.t()
        return area(outputs.transpose(1, 2), answers == 1, ~answers.isnan()).nanmean(dim=1)

    return measure


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


def average_precision(scores: Tensor, positive: Tensor, known: Tensor | None = None) -> Tensor:
    """[…] mean over the positives of the precision at their score, for scores […, n]; NaN without a positive.

    That is the area under the precision-recall curve in steps; the arguments are those of `roc_auc`.
    """
    if known is not None:
        scores, positive = scores.masked_fill(~known, -torch.inf), positive & known
    scores = scores.contiguous()

    def at_least(those: Tensor) -> Tensor:
        """How many of those are at or above each score."""
        return scores.shape[-1] - torch.searchsorted(those.sort(dim=-1).values, scores)

    hits = at_least(scores.masked_fill(~positive, -torch.inf))
    precision = hits.double() / at_least(scores)
    return (precision * positive).sum(dim=-1) / positive.sum(dim=-1)


def hits_at(k: int, positives: Tensor, negatives: Tensor) -> Tensor:
    """[S] share of positives [S, p] above the k-th best of the negatives [S, q], as OGB counts; 1 below k negatives."""
    if negatives.shape[1] < k:
        return positives.new_ones(len(positives), dtype=torch.float64)
    threshold = negatives.topk(k, dim=1).values[:, -1:]
    return (positives > threshold).double().mean(dim=1)


METRICS: Mapping[str, Measure] = dict(
    zip(NAMES, (accuracy, _of_answers(roc_auc), macro_f1, _of_answers(average_precision)), strict=True)
)
"""Of nodes; those of pairs of nodes are the task's own."""


def check_metric(metric: str, y: Tensor, splits: Mapping[str, Tensor], name: str) -> None:
    """Raise DataError where a metric is unknown, or not defined for these classes or labels on one of the splits."""
    if metric not in METRICS:
        raise DataError(f"{name}: has the metric {shortened(metric)}; known are {', '.join(METRICS)}")
    if y.dim() == 2 or metric in ("accuracy", "macro_f1"):
        return
    if (classes := int(y.max()) + 1) > 2:
        raise DataError(f"{name}: the metric {metric} is for two classes or several labels, found {classes} classes")
    for split, nodes in splits.items():
        if len(y[nodes].unique()) < 2:
            raise DataError(f"{name}: all {split} nodes are of one class; the metric {metric} is not defined")
