"""Random pruning: the baseline that every method must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from aceglt.masks import Scores, prune
from aceglt.methods.base import Level, Selection


@dataclass(frozen=True)
class Random:
    """Uniform choice of the elements to drop."""

    name: ClassVar[str] = "random"

    def select(self, level: Level) -> Selection:
        equal = Scores(
            torch.ones_like(level.masks.weights, dtype=torch.float32),
            torch.ones_like(level.masks.edges, dtype=torch.float32),
        )
        return Selection(prune(level.masks, equal, level.keep, level.key("drop"), level.quotas))

    def cost(self, epochs: int) -> int:
        return 0
