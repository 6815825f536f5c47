"""GEBT (You et al., 2022): early-bird tickets. Masks are drawn while a dense model trains, until they settle."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from aceglt.masks import Counts, Masks, Scores, prune
from aceglt.methods.base import Level, Selection, require

_SIDES = ("weights", "edges")


@dataclass(frozen=True)
class Gebt:
    """Train all weights and edge values, draw masks by magnitude at every epoch, and take them once they settle.

    Every level is drawn anew from the dense pair at its own sparsity.
    """

    name: ClassVar[str] = "gebt"

    max_epochs: int = 100
    """Epochs after which the last masks are taken, settled or not."""
    min_epochs: int = 5
    """Masks are not taken before this epoch."""
    window: int = 3
    """How many of the last epochs' masks an epoch's are compared with."""
    threshold: float = 0.1
    """The distance under which masks have settled."""

    def __post_init__(self) -> None:
        require(self, "max_epochs", self.max_epochs >= 1, "1 or more")
        require(self, "window", self.window >= 1, "1 or more")
        require(self, "min_epochs", self.min_epochs > self.window, f"above the window, {self.window}")
        require(self, "threshold", self.threshold > 0, "above 0")

    def select(self, level: Level) -> Selection:
        full = Masks.full(level.masks.runs, level.masks.total, level.masks.weights.device)
        key = level.key("drop")  # one key for all epochs: edges that tie must not change places by chance
        birds = [_Bird(full[i : i + 1], level.keep, key[i : i + 1], self) for i in range(full.runs)]

        def watch(runs: slice, epoch: int, scores: Scores) -> bool:
            for i, bird in enumerate(birds[runs]):
                bird.see(epoch, scores[i : i + 1])
            return all(bird.settled for bird in birds[runs])

        level.train_scores(full, self.max_epochs, "early bird", weights=False, watch=watch)
        masks = Masks.cat([bird.drawn[-1] for bird in birds])
        diagnostics = {name: [getattr(bird, name) for bird in birds] for name in ("epoch", "distance", "settled")}
        return Selection(masks, None, {"gebt": diagnostics}, max(diagnostics["epoch"]))

    def cost(self, epochs: int) -> int:
        return self.max_epochs


class _Bird:
    """The masks of one run while it trains."""

    def __init__(self, full: Masks, keep: Counts, key: Tensor, gebt: Gebt) -> None:
        self._full, self._keep, self._key, self._gebt = full, keep, key, gebt
        self._first: dict[str, float] = {}  # by side
        self.drawn: deque[Masks] = deque(maxlen=gebt.window)
        self.epoch = 0
        self.distance = 1.0
        self.settled = False

    def see(self, epoch: int, scores: Scores) -> None:
        """Draw this epoch's masks, unless the run has settled (in a batch it trains on with the others)."""
        if self.settled:
            return
        masks = prune(self._full, scores, self._keep, self._key)
        self.epoch = epoch
        if len(self.drawn) == self._gebt.window:
            self.distance = self._distance(masks)
        self.drawn.append(masks)
        self.settled = epoch >= self._gebt.min_epochs and self.distance < self._gebt.threshold

    def _distance(self, masks: Masks) -> float:
        """The mean over the two sides of the largest Hamming distance to the window's masks."""
        largest = {side: max(_hamming(masks, last, side) for last in self.drawn) for side in _SIDES}
        return sum(self._relative(side, distance) for side, distance in largest.items()) / len(_SIDES)

    def _relative(self, side: str, distance: float) -> float:
        """A distance in units of its first non-zero value."""
        if distance > 0:
            self._first.setdefault(side, distance)
        return distance / self._first.get(side, 1.0)


def _hamming(a: Masks, b: Masks, side: str) -> float:
    """Share of the elements on which masks of one run differ."""
    return float((getattr(a, side) != getattr(b, side)).double().mean())
