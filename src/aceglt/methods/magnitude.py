"""Iterative magnitude pruning with rewinding (Frankle and Carbin, 2019). It chooses weights; edges go at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.config.methods import MagnitudeOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics import rng
from aceglt.numerics.masks import Scores


@dataclass(frozen=True)
class Magnitude(MagnitudeOptions):
    """Train the weights, drop those with the lowest magnitude, and rewind the others."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        return with_magnitudes(level, rng.uniform(level.key("edges"), level.masks.total.edges))

    def cost(self, epochs: int) -> int:
        return epochs


def with_magnitudes(level: Level, edges: Tensor) -> Selection:
    """A level's masks by the magnitudes of trained weights and by the importance [S, E] of edges.

    Nothing is trained where the level keeps all weights that it starts with.
    """
    weights, epochs = torch.ones_like(level.masks.weights, dtype=torch.get_default_dtype()), 0
    if level.keep.weights < level.masks.alive.weights:
        fit, epochs = level.train(level.masks, level.epochs, "weights", by_signal=True), level.epochs
        assert fit.params is not None
        weights = fit.params.prunable
    return Selection(level.prune(Scores(weights, edges), level.key("drop")), epochs=epochs)
