"""UGS (Chen et al., 2021): magnitude pruning of trained scores, Algorithm 1 of the paper. Irreversible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from aceglt.config.methods import UgsOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics.masks import Masks, Scores, count, places
from aceglt.pruning.importance import ranks, sample_indices
from aceglt.training.scores import initial_scores, initial_scores_at


@dataclass(frozen=True)
class Ugs(UgsOptions):
    """Train weights and scores together, then drop the lowest-magnitude scores."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        level = level.anew() if self.one_shot else level
        scores = level.train_scores(level.masks, level.epochs, "score").scores  # lines 1 to 4
        assert scores is not None
        ranked = level.per_element(level.importance(scores))
        masks = level.cut(ranked, level.key("drop"))  # lines 5 and 6
        decidedness = _decidedness(level, masks, scores, ranked)
        return Selection(masks, scores, decidedness, level.epochs, level.masks)

    def cost(self, epochs: int) -> int:
        return epochs


def _decidedness(level: Level, after: Masks, last: Scores, ranked: Scores) -> dict[str, Any]:
    """How decided the choice was, per run: with many ties, or scores that still follow their initial noise, it was
    not."""
    whole = [slice(None)]
    parts: dict[str, Sequence[slice]] = {"weights": level.parts or whole, "edges": whole}  # cut by themselves
    start, after, last, first = (
        level.elements(level.masks),
        level.elements(after),
        level.per_element(last),
        _first(level),
    )
    rows: dict[str, list[dict[str, float]]] = {side: [] for side in parts}
    for run, side in product(range(after.runs), parts):
        before, kept, end, rank = (of.of(side)[run] for of in (start, after, last, ranked))
        alive = places(before)
        magnitude = end.index_select(0, alive).abs()
        rows[side].append(
            {
                # numpy takes a third of torch's time
                "distinct": len(torch.unique(magnitude) if magnitude.is_cuda else np.unique(magnitude.numpy())),
                "ties_at_threshold": sum(_ties(before[p], kept[p], rank[p]) for p in parts[side]) / max(1, len(alive)),
                "noise_correlation": _rank_correlation(partial(first, run, side), end, alive),
            }
        )
    return {side: {name: [row[name] for row in of] for name in of[0]} for side, of in rows.items()}


def _ties(alive: Tensor, kept: Tensor, ranked: Tensor) -> int:
    """How many alive elements are as important as the most important one that goes."""
    dropped = alive & ~kept
    if not count(dropped):
        return 0
    return count(alive & (ranked == ranked.masked_fill(~dropped, -torch.inf).max()))


def _first(level: Level) -> Callable[[int, str, Tensor], Tensor]:
    """What gives the first scores of some elements of a run."""
    key = level.key("score")
    if level.units is None:
        return lambda run, side, places: initial_scores_at(key[run : run + 1], side, places)
    scores = level.per_element(initial_scores(key, level.masks))
    return lambda run, side, places: scores.of(side)[run, places]


def _rank_correlation(first: Callable[[Tensor], Tensor], last: Tensor, alive: Tensor) -> float:
    """Spearman's correlation of elements' first scores and their last magnitudes, from a sample of the alive ones
    where there are many; 0 where one side is constant."""
    pick = alive[sample_indices(len(alive), alive.device)]
    places = torch.stack([ranks(first(pick)), ranks(last[pick].abs())])
    if len(alive) < 2 or bool((places.std(dim=1) == 0).any()):
        return 0.0
    return float(torch.corrcoef(places)[0, 1])
