"""Random pruning: the baseline that every method must beat."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import ClassVar

from torch import Tensor

from aceglt.methods.base import Level, Selection, best_of, require
from aceglt.numerics import rng
from aceglt.numerics.masks import Masks, Scores, prune


@dataclass(frozen=True)
class Random:
    """Uniform choice of the elements to drop."""

    name: ClassVar[str] = "random"
    batches: ClassVar[int] = 1

    draws: int = 1
    """How many choices are drawn; of several, each is trained, and the best on validation is taken."""

    def __post_init__(self) -> None:
        require(self, "draws", self.draws >= 1, "1 or more")

    def select(self, level: Level) -> Selection:
        drawn = [_draw(level, key) for key in level.key("drop", self.draws).chunk(self.draws)]
        if self.draws == 1:
            return Selection(drawn[0])
        tried = [(level.train(masks, level.epochs, f"draw {i}").val, masks) for i, masks in enumerate(drawn)]
        return Selection(best_of(tried), epochs=self.cost(level.epochs))

    def cost(self, epochs: int) -> int:
        return self.draws * epochs if self.draws > 1 else 0


def _draw(level: Level, key: Tensor) -> Masks:
    drawn = Scores(*(rng.uniform(rng.fold(key, side), n) for side, n in enumerate(astuple(level.masks.total))))
    return prune(level.masks, drawn, level.keep, key, level.quotas)
