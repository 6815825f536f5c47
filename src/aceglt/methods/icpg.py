"""ICPG (Sui et al., 2023): a small network masks edges by the features around their ends, so it prunes graphs that it
never saw. Weights go by magnitude."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Params
from aceglt.backbones.gcn import GCN
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config.methods import IcpgOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics import rng
from aceglt.numerics.adam import TorchAdam
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks, Scores, share
from aceglt.pruning.ranking import lowest, prune

WIDTH = 128
"""Units of the masker's layers."""


@dataclass(frozen=True)
class Icpg(IcpgOptions):
    """Train weights and the masker together; drop the weights of lowest magnitude and the edges of lowest mask, and as
    large a share of the edges that training does not see."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        maskers: dict[int, _Masker] = {}  # of runs that train together, by the first

        def made(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            maskers[runs.start] = _Masker(backbone, start, runs, level)
            return maskers[runs.start]

        start = Masks(level.anew().masks.weights, level.masks.edges)
        scores = level.train_elements(made, start, level.epochs, "masker").scores
        assert scores is not None
        masks = prune(level.masks, scores, level.keep, level.key("drop"), level.quotas)
        parts = [maskers[first].unseen(masks) for first in sorted(maskers)] if level.views else []
        return Selection(replace(masks, unseen=torch.cat(parts) if parts else None), epochs=level.epochs)

    def cost(self, epochs: int) -> int:
        return epochs


def masked(embedded: Tensor, graph: Graph, out: Tensor) -> Tensor:
    """[S, E] how strongly edges are kept, in (0, 1), by the embeddings [S, N, H] of their ends side by side times out
    [S, 2, H], plus a bias, the last of out [S, 3, H]; the mean of both orders of an undirected edge."""
    node = torch.einsum("snh,skh->kns", embedded, out[:, :2]).transpose(1, 2)  # [2, S, N]
    if not graph.directed:
        node = node.mean(dim=0, keepdim=True).expand(2, -1, -1)
    source, target = graph.edges
    return torch.sigmoid(node[0][:, source] + node[1][:, target] + out[:, 2, :1])


class _Masker(PlainElements):
    """Weights under the level's mask, and values of edges that a two-layer GCN and a linear map give them."""

    def __init__(self, backbone: Backbone, start: Start, runs: slice, level: Level) -> None:
        assert level.features is not None
        self._level, self._runs, self._edges = level, runs, start.masks.edges
        self._gcn = GCN(level.features.shape[1], WIDTH, WIDTH, dropout=0.0)
        self._graph = level.graph.batch(start.masks.edges, self._gcn.self_loops)
        super().__init__(backbone, start)
        self.alive = backbone.prunable.split(level.masks.weights[runs])
        for name, weight in self.weights.items():
            weight.mul_(self.alive[name])
        self._mask()

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        key = rng.fold(self._level.key("masker")[self._runs], 0)
        begun = self._gcn.init(key.tolist(), key.device)
        drawn = 2 * rng.uniform(key, 3 * WIDTH) - 1
        out = (drawn * WIDTH**-0.5).to(begun.prunable).view(-1, 3, WIDTH)
        out[:, 2] = 0.0
        self._parameters = [begun.prunable, out]
        groups = [
            {"params": [*self.weights.values(), *self.others.values()], "weight_decay": decay},
            {"params": self._parameters, "weight_decay": score_decay},
        ]
        self.optimiser = TorchAdam(groups, lr=start.training.lr)

    def _said(self, parameters: list[Tensor], graph: Graph, arcs: GraphBatch, features: Features) -> Tensor:
        weights = self._gcn.weights(Params(parameters[0], parameters[0].new_zeros(len(parameters[0]), 0)))
        ones = torch.ones(len(parameters[0]), graph.num_edges, dtype=parameters[0].dtype, device=parameters[0].device)
        return masked(self._gcn.apply(weights, arcs, ones, features), graph, parameters[1])

    def _mask(self) -> None:
        assert self._level.features is not None
        with torch.enable_grad():
            parameters = [part.requires_grad_() for part in self._parameters]
            self._soft = self._said(parameters, self._level.graph, self._graph, self._level.features) * self._edges
        self.edge_values = self._soft.detach()

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        assert edges is not None
        of_masker = torch.autograd.grad(self._soft, self._parameters, edges)
        for part, grad in zip(self._parameters, of_masker, strict=True):
            part.grad = grad
        super().update(grads, None)
        self._mask()

    def _current(self) -> list[Tensor]:
        return [*self.weights.values(), *(part.detach() for part in self._parameters), self.edge_values]

    def best_scores(self) -> Scores:
        return Scores(self._flat(self._best[: len(self.weights)]), self._best[-1])

    @torch.no_grad()
    def unseen(self, masks: Masks) -> Tensor:
        """[S, U] the edges of the level's views that stay, as large a share as of those that training sees."""
        last = self.scoring is not None and self.scoring.epoch == "last"
        parameters = [part.detach() for part in self._parameters] if last else self._best[len(self.weights) : -1]
        edges, key, kept = masks.edges[self._runs], self._level.key("unseen")[self._runs], []
        gone = 1 - self._level.keep.edges / masks.total.edges
        for number, view in enumerate(self._level.views):
            arcs, there = view.graph.batch(view.scatter(edges), self._gcn.self_loops), view.unseen
            said = self._said(parameters, view.graph, arcs, view.features)[:, there]
            count = len(there) - share(gone, len(there))
            kept.append(lowest(-said, torch.ones_like(said, dtype=torch.bool), count, rng.fold(key, number)))
        return torch.cat(kept, dim=1)
