"""FastGLT (Yue et al., 2025): masks cut in one step, then denoised by dropping and growing elements in training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config.methods import FastgltOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import SIDES, Masks, Scores
from aceglt.pruning.ranking import lowest, prune

GRADIENTS = 2
"""Steps before an exchange whose gradients say what grows."""


@dataclass(frozen=True)
class Fastglt(FastgltOptions):
    """Train the dense pair briefly and cut it in one step by magnitude; go on training, and every few steps drop the
    smallest elements and grow as many by their gradients. Every level is cut anew from the dense pair."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        full = level.anew().masks
        dense = self._pretrained(level, full)
        cut = prune(full, dense, level.keep, level.key("drop"), level.quotas)  # the one-shot masks
        denoising = partial(_Denoised, level=level, method=self, values=dense, cut=cut)
        fit = level.train_elements(denoising, full, level.epochs, "denoise")
        assert fit.scores is not None
        alive = Masks(fit.scores.weights > 0, fit.scores.edges > 0)  # of the epoch that was best on validation
        changed = [[int((now & ~then).sum()) for now, then in zip(alive.of(s), cut.of(s), strict=True)] for s in SIDES]
        grown = dict(zip(SIDES, changed, strict=True))
        return Selection(alive, diagnostics={"fastglt": {"grown": grown}}, epochs=self.cost(level.epochs))

    def _pretrained(self, level: Level, full: Masks) -> Scores:
        """Weights and values of edges; where no edge goes, as its authors do, these are 1."""
        if level.prunes_edges:
            scores = level.train_scores(full, self.pretrain_epochs, "pretrain", weights=False).scores
            assert scores is not None
            return scores
        params = level.train(full, self.pretrain_epochs, "pretrain", by_signal=True).params
        assert params is not None
        return Scores(params.prunable, full.edges.to(params.prunable))

    def cost(self, epochs: int) -> int:
        return self.pretrain_epochs + epochs


def degree_term(graph: Graph, alive: Tensor) -> Tensor:
    """[S, E] (d_u · d_v)^(-3/2), by the degrees among alive edges [S, E]; a node without any counts as one with 0.9."""
    (source, target), ones = graph.edges, alive.to(torch.get_default_dtype())
    degree = ones.new_zeros(len(ones), graph.num_nodes).index_add_(1, source, ones).index_add_(1, target, ones)
    degree = degree.clamp(min=0.9)
    return (degree[:, source] * degree[:, target]) ** -1.5


def exchanged(alive: Tensor, magnitude: Tensor, growth: Tensor, count: int, key: Tensor) -> Tensor:
    """[S, n] the alive elements but for `count` of the lowest magnitude, and as many of the others with the highest
    growth, among which those that were dropped may be."""
    kept = alive & ~lowest(magnitude, alive, count, rng.fold(key, 0))
    return kept | lowest(-growth, ~kept, count, rng.fold(key, 1))


class _Denoised(PlainElements):
    """Weights and values of edges, of which some are alive. The dead are 0 and have gradients, by which they grow."""

    def __init__(
        self, backbone: Backbone, start: Start, runs: slice, level: Level, method: Fastglt, values: Scores, cut: Masks
    ) -> None:
        super().__init__(backbone, start)
        self._level, self._method, self._key = level, method, level.key("exchange")[runs]
        self._matrices = [quota.part for quota in level.quotas] or [slice(None)]  # within which weights change places
        self._mask, self._steps = cut[runs], 0
        self._summed = Scores(*(torch.zeros_like(values.of(side)[runs]) for side in SIDES))
        for name, part in backbone.prunable.split(values.weights[runs]).items():
            self.weights[name].copy_(part)
        self.edge_values.copy_(values.edges[runs])
        self._clear()

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        assert edges is not None
        self._steps += 1
        if any(self._due(ahead) for ahead in range(GRADIENTS)):
            flat = self._flat([grads[name] for name in self.weights])
            self._summed = Scores(self._summed.weights + flat, self._summed.edges + edges)
        if self._due(0):
            self._exchange()  # instead of a step, as its authors do
        else:
            alive = self.backbone.prunable.split(self._mask.weights)
            masked = {name: grads[name] * alive[name] for name in self.weights}
            super().update({**grads, **masked}, edges * self._mask.edges if self._level.prunes_edges else None)
        self._clear()

    def _due(self, ahead: int) -> bool:
        """Whether elements change places so many steps from this one."""
        return (self._steps + ahead) % self._method.interval == 0 and self._steps + ahead < self._level.epochs

    def _exchange(self) -> None:
        now = self._steps / self._level.epochs
        share = self._method.share / 2 * (1 + math.cos(math.pi * now))  # falls to 0
        key = rng.fold(self._key, self._steps)
        before, values = self._mask, Scores(self._flat(list(self.weights.values())).abs(), self.edge_values.abs())
        weights = before.weights.clone()
        for number, part in enumerate(self._matrices):
            alive, count = before.weights[:, part], int(share * int(before.weights[0, part].sum()))
            growth, draw = self._summed.weights[:, part].abs(), rng.fold(key, number)
            weights[:, part] = exchanged(alive, values.weights[:, part], growth, count, draw)
        growth = self._summed.edges.abs() / GRADIENTS + degree_term(self._level.graph, before.edges)
        count = int(share * int(before.edges[0].sum()))
        edges = exchanged(before.edges, values.edges, growth, count, rng.fold(key, len(self._matrices)))
        mean = self.edge_values.sum(dim=1, keepdim=True) / before.edges.sum(dim=1, keepdim=True)
        self.edge_values.copy_(torch.where(edges & ~before.edges, mean, self.edge_values))  # grown weights start at 0
        self._mask = Masks(weights, edges)
        self._summed = Scores(torch.zeros_like(self._summed.weights), torch.zeros_like(self._summed.edges))

    def _clear(self) -> None:
        """The dead are 0."""
        for name, alive in self.backbone.prunable.split(self._mask.weights).items():
            self.weights[name].mul_(alive)
        self.edge_values.mul_(self._mask.edges)

    def scores(self) -> Scores:
        """1 where alive, 0 where dead: what a training is about are its masks."""
        return Scores(*(self._mask.of(side).to(self.edge_values) for side in SIDES))

    def _current(self) -> list[Tensor]:
        now = self.scores()
        return [*self.backbone.prunable.split(now.weights).values(), now.edges]
