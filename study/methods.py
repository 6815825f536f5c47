"""Methods that exist for one comparison: what others get for about the epochs of ACE's rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from aceglt.config.methods import complete
from aceglt.methods import Ace, Level, Selection, Ugs
from aceglt.methods.base import TrainScores, best_of, require
from aceglt.methods.random import drop_at_random
from aceglt.numerics.masks import SIDES, Masks, Scores
from aceglt.training.fit import Fit, Watch


@dataclass(frozen=True)
class RandomDraws:
    """Random pruning that draws several times, trains each choice, and takes the best on validation."""

    name: ClassVar[str] = "random-draws"

    draws: int = 3

    def __post_init__(self) -> None:
        require(self, "draws", self.draws >= 1, "1 or more")

    def select(self, level: Level) -> Selection:
        drawn = [drop_at_random(level, key) for key in level.key("drop", self.draws).chunk(self.draws)]
        tried = [(level.train(masks, level.epochs, f"draw {i}").val, masks) for i, masks in enumerate(drawn)]
        return Selection(best_of(tried), epochs=self.cost(level.epochs))

    def cost(self, epochs: int) -> int:
        return self.draws * epochs


@dataclass(frozen=True)
class OneShot:
    """UGS in one shot, by the mean scores of several trainings."""

    name: ClassVar[str] = "one-shot"

    trainings: int = 3

    def __post_init__(self) -> None:
        require(self, "trainings", self.trainings >= 1, "1 or more")

    def select(self, level: Level) -> Selection:
        averaging = replace(level, train_scores=repeated(level.train_scores, self.trainings))
        return replace(Ugs(one_shot=True).select(averaging), epochs=self.cost(level.epochs))

    def cost(self, epochs: int) -> int:
        return self.trainings * epochs


def repeated(train_scores: TrainScores, times: int) -> TrainScores:
    """Trainings of scores whose scores are the mean of several."""

    def train(masks: Masks, epochs: int, phase: str, *, weights: bool = True, watch: Watch | None = None) -> Fit:
        phases = [f"{phase} {i}" if i else phase for i in range(times)]
        fits = [train_scores(masks, epochs, each, weights=weights, watch=watch) for each in phases]
        return replace(fits[0], scores=mean([fit.scores for fit in fits if fit.scores is not None]))

    return train


def mean(scores: list[Scores]) -> Scores:
    """Of several trainings, element by element."""
    return Scores(*(torch.stack([each.of(side) for each in scores]).mean(dim=0) for side in SIDES))


@dataclass(frozen=True)
class Carried:
    """ACE with top-K, whose scores are carried from round to round: an element's is the mean of this round's and of
    what it had, while it stays in its part."""

    name: ClassVar[str] = "carried"
    batches: ClassVar[int] = 2

    def select(self, level: Level) -> Selection:
        return self._ace().select(replace(level, train_scores=carried(level.train_scores)))

    def cost(self, epochs: int) -> int:
        return self._ace().cost(epochs)

    def _ace(self) -> Ace:
        return Ace(**complete("ace", {"reading": "topk"}))


def carried(train_scores: TrainScores) -> TrainScores:
    """Trainings of scores that remember, from the second batch of the same masks' size on."""
    last: dict[int, tuple[Masks, Scores]] = {}

    def train(masks: Masks, epochs: int, phase: str, *, weights: bool = True, watch: Watch | None = None) -> Fit:
        fit = train_scores(masks, epochs, phase, weights=weights, watch=watch)
        assert fit.scores is not None
        scores = fit.scores
        if masks.runs in last:
            before, old = last[masks.runs]
            stayed = {side: masks.of(side) & before.of(side) for side in SIDES}
            scores = Scores(*(torch.where(stayed[s], (scores.of(s) + old.of(s)) / 2, scores.of(s)) for s in SIDES))
        last[masks.runs] = masks, scores
        return replace(fit, scores=scores)

    return train
