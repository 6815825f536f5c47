"""GEBT (You et al., 2022): early-bird tickets. Masks are drawn while a dense model trains, until they settle."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.config.methods import GebtOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics.masks import SIDES, Masks, Scores


@dataclass(frozen=True)
class Gebt(GebtOptions):
    """Train all weights and edge values, draw masks by magnitude at every epoch, and take them once they settle.

    Every level is drawn anew from the dense pair at its own sparsity.
    """

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        flocks: dict[int, _Birds] = {}  # runs that train together, by the first

        def watch(runs: slice, epoch: int, scores: Scores) -> bool:
            if epoch == 1:
                flocks[runs.start] = _Birds(level, runs, self)
            return flocks[runs.start].see(epoch, scores)

        level.train_scores(level.anew().masks, self.max_epochs, "early bird", weights=False, watch=watch)
        birds = [flocks[first] for first in sorted(flocks)]
        diagnostics = {
            name: torch.cat([getattr(each, name) for each in birds]).tolist()
            for name in ("epoch", "distance", "settled")
        }
        masks = Masks.cat([each.masks for each in birds])
        return Selection(masks, None, {"gebt": diagnostics}, max(diagnostics["epoch"]))

    def cost(self, epochs: int) -> int:
        return self.max_epochs


class _Birds:
    """The masks of some runs while they train."""

    def __init__(self, level: Level, runs: slice, gebt: Gebt) -> None:
        self._level, self._gebt = level, gebt
        self._key = level.key("drop")[runs]  # one for all epochs: edges that tie must not change places by chance
        self.masks = Masks.full(len(self._key), level.masks.total, self._key.device)
        self._full, self._drawn = self.masks, deque[Masks](maxlen=gebt.window)
        self.epoch = torch.zeros_like(self._key)
        self.distance = torch.ones_like(self._key, dtype=torch.float64)
        self._first = {side: torch.zeros_like(self.distance) for side in SIDES}
        self.settled = torch.zeros_like(self._key, dtype=torch.bool)

    def see(self, epoch: int, scores: Scores) -> bool:
        """Draw this epoch's masks for runs that have not settled, which train on with the others; whether all have."""
        masks = self._level.prune(scores, self._key, self._full)
        going = ~self.settled
        if len(self._drawn) == self._gebt.window:
            self.distance = torch.where(going, self._distance(masks), self.distance)
        self._drawn.append(masks)
        self.masks = Masks(*(torch.where(going[:, None], masks.of(s), self.masks.of(s)) for s in SIDES))
        self.epoch = torch.where(going, epoch, self.epoch)
        if epoch >= self._gebt.min_epochs:
            self.settled |= self.distance < self._gebt.threshold
        return bool(self.settled.all())

    def _distance(self, masks: Masks) -> Tensor:
        """[S] the mean over the two sides of the largest Hamming distance to the window's masks, in units of its first
        non-zero value."""
        total = torch.zeros_like(self.distance)
        for side, first in self._first.items():
            differ = [(masks.of(side) != last.of(side)).double().mean(dim=1) for last in self._drawn]
            largest = torch.stack(differ).amax(dim=0)
            self._first[side] = first = torch.where(first > 0, first, largest)
            total += largest / torch.where(first > 0, first, 1.0)
        return total / len(SIDES)
