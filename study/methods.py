"""Methods that exist for one comparison: what others get for about the epochs of ACE's rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from aceglt.methods import Level, Selection, Ugs
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
