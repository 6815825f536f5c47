"""Random pruning: the baseline that every method must beat."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import ClassVar

from torch import Tensor

from aceglt.config.methods import RandomOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics import rng
from aceglt.numerics.masks import Masks, Scores


@dataclass(frozen=True)
class Random(RandomOptions):
    """Uniform choice of the elements to drop."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        return Selection(drop_at_random(level, level.key("drop")))

    def cost(self, epochs: int) -> int:
        return 0


def drop_at_random(level: Level, key: Tensor) -> Masks:
    """A level's masks after a uniform choice by keys [S]."""
    counts = astuple(level.elements(level.masks).total)
    return level.cut(Scores(*(rng.uniform(rng.fold(key, side), n) for side, n in enumerate(counts))), key)
