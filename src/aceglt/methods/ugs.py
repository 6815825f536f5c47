"""UGS (Chen et al., 2021): magnitude pruning of trained scores, Algorithm 1 of the paper. Irreversible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from aceglt import rng
from aceglt.masks import Masks, Scores, prune
from aceglt.methods.base import Level, Selection
from aceglt.train import initial_scores

_SAMPLE = 100_000  # elements that the rank correlation is estimated from


@dataclass(frozen=True)
class Ugs:
    """Train weights and scores together, then drop the lowest-magnitude scores."""

    name: ClassVar[str] = "ugs"

    def select(self, level: Level) -> Selection:
        scores = level.train_scores(level.masks, level.epochs, "score").scores
        assert scores is not None
        masks = prune(level.masks, scores, level.keep, level.key("drop"))
        first = initial_scores(level.key("score"), level.masks)
        return Selection(masks, scores, _decidedness(level.masks, masks, first, scores), level.epochs)

    def cost(self, epochs: int) -> int:
        return epochs


def _decidedness(before: Masks, after: Masks, first: Scores, last: Scores) -> dict[str, Any]:
    """How decided the choice was, per run: with many ties, or scores that still follow their initial noise, it was
    not."""
    sides = {"weights": [], "edges": []}  # type: dict[str, list[dict[str, float]]]
    for run in range(before.runs):
        for side, rows in sides.items():
            alive = getattr(before, side)[run]
            kept = getattr(after, side)[run][alive]
            rows.append(_side(getattr(first, side)[run][alive], getattr(last, side)[run][alive].abs(), kept))
    return {side: {name: [row[name] for row in rows] for name in rows[0]} for side, rows in sides.items()}


def _side(first: Tensor, last: Tensor, kept: Tensor) -> dict[str, float]:
    dropped = last[~kept]
    tied = (last == dropped.max()).double().mean() if len(dropped) else torch.zeros(())
    return {
        "distinct": len(torch.unique(last)),
        "ties_at_threshold": float(tied),
        "noise_correlation": _rank_correlation(first, last),
    }


def _rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation, from a sample where there are many elements; 0 where one side is constant."""
    if len(a) > _SAMPLE:
        pick = (rng.uniform(rng.keys([0], "sample", device=a.device), _SAMPLE)[0] * len(a)).long()
        a, b = a[pick], b[pick]
    ranks = torch.stack([_ranks(a), _ranks(b)])
    if len(a) < 2 or bool((ranks.std(dim=1) == 0).any()):
        return 0.0
    return float(torch.corrcoef(ranks)[0, 1])


def _ranks(values: Tensor) -> Tensor:
    """[n] float64 ranks; equal values share their mean rank."""
    _, group, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = (counts.cumsum(0) - (counts - 1) / 2).double()
    return ranks[group]
