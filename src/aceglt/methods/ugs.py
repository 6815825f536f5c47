"""UGS (Chen et al., 2021): magnitude pruning of trained scores, Algorithm 1 of the paper. Irreversible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from aceglt.importance import ranks, some
from aceglt.masks import Masks, Scores, prune
from aceglt.methods.base import Level, Selection, require
from aceglt.train import initial_scores


@dataclass(frozen=True)
class Ugs:
    """Train weights and scores together, then drop the lowest-magnitude scores."""

    name: ClassVar[str] = "ugs"

    one_shot: bool = False
    """Cut every level from the dense pair, by scores that were trained on all of it."""
    trainings: int = 1
    """Over how many trainings scores are averaged."""

    def __post_init__(self) -> None:
        require(self, "trainings", self.trainings >= 1, "1 or more")

    def select(self, level: Level) -> Selection:
        level = level.anew() if self.one_shot else level
        scores = self._scores(level)
        ranked = level.importance(scores)
        masks = prune(level.masks, ranked, level.keep, level.key("drop"), level.quotas)
        first = initial_scores(level.key("score"), level.masks)
        decidedness = _decidedness(level.masks, masks, first, scores, ranked)
        return Selection(masks, scores, decidedness, self.cost(level.epochs))

    def _scores(self, level: Level) -> Scores:
        trained = []
        for i in range(self.trainings):
            scores = level.train_scores(level.masks, level.epochs, f"score {i}" if i else "score").scores
            assert scores is not None
            trained.append(scores)
        return trained[0] if self.trainings == 1 else Scores.mean(trained)

    def cost(self, epochs: int) -> int:
        return self.trainings * epochs


def _decidedness(before: Masks, after: Masks, first: Scores, last: Scores, ranked: Scores) -> dict[str, Any]:
    """How decided the choice was, per run: with many ties, or scores that still follow their initial noise, it was
    not."""
    sides = {"weights": [], "edges": []}  # type: dict[str, list[dict[str, float]]]
    for run in range(before.runs):
        for side, rows in sides.items():
            alive = getattr(before, side)[run].nonzero().squeeze(1)
            parts = (getattr(of, side)[run].index_select(0, alive) for of in (first, last, ranked, after))
            rows.append(_side(*parts))
    return {side: {name: [row[name] for row in rows] for name in rows[0]} for side, rows in sides.items()}


def _side(first: Tensor, last: Tensor, ranked: Tensor, kept: Tensor) -> dict[str, float]:
    dropped, magnitude = ranked[~kept], last.abs()
    tied = (ranked == dropped.max()).double().mean() if len(dropped) else torch.zeros(())
    return {
        "distinct": len(torch.unique(magnitude)),
        "ties_at_threshold": float(tied),
        "noise_correlation": _rank_correlation(first, magnitude),
    }


def _rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation, from a sample where there are many elements; 0 where one side is constant."""
    pick = some(len(a), a.device)
    places = torch.stack([ranks(a[pick]), ranks(b[pick])])
    if len(a) < 2 or bool((places.std(dim=1) == 0).any()):
        return 0.0
    return float(torch.corrcoef(places)[0, 1])
