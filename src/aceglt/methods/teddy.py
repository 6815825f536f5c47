"""TEDDY (Seo et al., 2024): edges by the degrees around them, weights by projected gradient descent on the l0 ball."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config.methods import TeddyOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Scores
from aceglt.pruning.ranking import prune


@dataclass(frozen=True)
class Teddy(TeddyOptions):
    """Drop the edges with the lowest degree score; then train all weights, of which every step keeps the largest.

    Edges never come back. Weights are chosen anew from the dense network at every level.
    """

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        start = level.all_weights(edge_scores(level.graph).expand_as(level.masks.edges))
        fit = level.train_elements(partial(_Projected, level=level), start, level.epochs, "project")
        assert fit.scores is not None
        return Selection(prune(start, fit.scores, level.keep, level.key("drop"), level.quotas), epochs=level.epochs)

    def cost(self, epochs: int) -> int:
        return epochs


def edge_scores(graph: Graph) -> Tensor:
    """[E] float64: g(u) · g(v) / (d_u · d_v) with g(v) the mean of 1/√d over v's neighbours."""
    source, target = graph.edges
    degree = torch.bincount(graph.edges.flatten(), minlength=graph.num_nodes).double()
    around = torch.zeros_like(degree).index_add_(0, source, degree[target].rsqrt())
    around.index_add_(0, target, degree[source].rsqrt())
    share = around / degree.clamp(min=1) ** 2  # g(v) / d_v
    return share[source] * share[target]


class _Projected(PlainElements):
    """Weights that are set to zero after each step, but for as many of the largest as the level keeps; they may come
    back at the next. Edges stay at 1."""

    def __init__(self, backbone: Backbone, start: Start, runs: slice, level: Level) -> None:
        super().__init__(backbone, start)
        self.edge_values = start.masks.edges.to(start.params.prunable.dtype)
        self._masks, self._key, self._level = start.masks, level.key("drop")[runs], level

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        super().update(grads, None)
        scores = Scores(self._flat(list(self.weights.values())), self.edge_values)
        kept = prune(self._masks, scores, self._level.keep, self._key, self._level.quotas).weights
        for name, alive in self.backbone.prunable.split(kept).items():
            self.weights[name].mul_(alive)
