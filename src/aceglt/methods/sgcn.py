"""SGCN (Li et al., 2020): the adjacency is sparsified by ADMM. It chooses edges; weights go by magnitude."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Params
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config.methods import SgcnOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics.masks import Masks, Scores
from aceglt.pruning.ranking import lowest, prune


@dataclass(frozen=True)
class Sgcn(SgcnOptions):
    """Train the weights; then, with these fixed, train the values of edges towards their own sparsest likeness."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        trained = level.train(level.masks, level.epochs, "weights", by_signal=True).params
        assert trained is not None
        start = Masks(level.anew().masks.weights, level.masks.edges)
        multipliers = partial(_Multipliers, level=level, method=self, trained=trained)
        fit = level.train_elements(multipliers, start, level.epochs, "multipliers")
        assert fit.scores is not None
        scores = Scores(trained.prunable, fit.scores.edges)
        masks = prune(level.masks, scores, level.keep, level.key("drop"), level.quotas)
        return Selection(masks, epochs=self.cost(level.epochs))

    def cost(self, epochs: int) -> int:
        return 2 * epochs


class _Multipliers(PlainElements):
    """Values of edges A, with weights that are trained and stay so. Z has as many edges as the level keeps, and the
    multipliers U add up how far A is from it; A follows the gradient of the loss + ρ/2 · |A - Z + U|²."""

    def __init__(
        self, backbone: Backbone, start: Start, runs: slice, level: Level, method: Sgcn, trained: Params
    ) -> None:
        started = Start(trained[runs], start.masks, start.training, start.scoring, start.scores, start.extra)
        super().__init__(backbone, started)
        self._method, self._level, self._alive, self._steps = method, level, start.masks.edges, 0
        self._key = level.key("nearest")[runs]
        self._u = torch.zeros_like(self.edge_values)
        self._z = self._nearest()

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        assert edges is not None
        pull = self._method.rho * (self.edge_values - self._z + self._u)
        self.edge_values.grad = (edges + pull) * self._alive
        self.optimiser.step()  # nothing else has a gradient
        self._steps += 1
        if self._steps % self._method.interval == 0:
            self._z = self._nearest()
            self._u += self.edge_values - self._z

    def _nearest(self) -> Tensor:
        """[S, E] A + U where it is largest, 0 elsewhere: the nearest of all with so many edges."""
        values = self.edge_values + self._u
        return values * lowest(-values.abs(), self._alive, self._level.keep.edges, self._key)
