"""A method in a file of its own, as a contributor would add it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aceglt.methods.base import Level, Selection, require
from aceglt.numerics import rng
from aceglt.numerics.masks import Scores
from aceglt.pruning.ranking import prune


@dataclass(frozen=True)
class Magnitude:
    """Iterative magnitude pruning (Frankle and Carbin, 2019): weights go by their trained magnitude, edges at
    random."""

    name: ClassVar[str] = "magnitude"

    share: float = 0.5
    """Of the epochs that scores would be trained for."""

    def __post_init__(self) -> None:
        require(self, "share", 0 < self.share <= 1, "in (0, 1]")

    def select(self, level: Level) -> Selection:
        epochs = self.cost(level.epochs)
        trained = level.train(level.masks, epochs, "weights").params
        assert trained is not None
        drawn = Scores(trained.prunable, rng.uniform(level.key("edges"), level.masks.total.edges))
        return Selection(prune(level.masks, drawn, level.keep, level.key("drop"), level.quotas), epochs=epochs)

    def cost(self, epochs: int) -> int:
        return max(1, round(self.share * epochs))
