"""Aids for graphs that are large for the machine, as backbones around another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aceglt import rng
from aceglt.backbones.base import Backbone, Dropout, Params, Weights
from aceglt.graph import GraphBatch
from aceglt.ops import Features


class Around(Backbone):
    """A backbone that behaves like another one."""

    def __init__(self, inner: Backbone) -> None:
        self.inner = inner
        for attribute in Backbone.__annotations__:
            if hasattr(inner, attribute):  # backbones without a compact form have no coefficients
                setattr(self, attribute, getattr(inner, attribute))

    def init(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> Params:
        return self.inner.init(seeds, device)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        return self.inner.stem(weights, graph, edge_values, x)

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        return self.inner.head(weights, graph, state, dropout)


class InPrecision(Around):
    """Computes in another type of number; weights, their gradients and the outputs keep theirs."""

    def __init__(self, inner: Backbone, dtype: torch.dtype) -> None:
        super().__init__(inner)
        self.dtype = dtype

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        return self.inner.stem(self._cast(weights), graph, edge_values, x)

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        outputs = self.inner.head(self._cast(weights), graph, state, dropout)
        return outputs.to(next(iter(weights.values())).dtype)

    def _cast(self, weights: Weights) -> Weights:
        """All but the buffers, which are updated in place."""
        return {name: w if name in self.buffers else w.to(self.dtype) for name, w in weights.items()}


class InPartitions(Around):
    """Predicts part by part: nodes are cut into `count` parts at random, and edges between parts do not count.

    So does DeeperGCN where a graph is too large to be evaluated at once. The parts are the same for all runs and
    evaluations. Training is on the whole graph.
    """

    def __init__(self, inner: Backbone, count: int) -> None:
        super().__init__(inner)
        self.count = count
        self.reach = None
        self._cut: tuple[GraphBatch, list[_Part]] | None = None  # the last graph, which validation comes back to

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        return self.inner.stem(weights, graph, edge_values, x), edge_values, x

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        inner_state, edge_values, x = state
        if torch.is_grad_enabled():  # not by dropout: an objective may train on a pass without
            return self.inner.head(weights, graph, inner_state, dropout)
        return self.apply(weights, graph, edge_values, x)

    def apply(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Tensor:
        if torch.is_grad_enabled():
            return self.inner.apply(weights, graph, edge_values, x)
        parts = self._parts(graph, x)
        outputs = torch.cat([self.inner.apply(weights, p.graph, edge_values, p.x) for p in parts], dim=1)
        return outputs[:, torch.cat([p.nodes for p in parts]).argsort()]

    def _parts(self, graph: GraphBatch, x: Features) -> list[_Part]:
        if self._cut is None or self._cut[0] is not graph:
            draws = rng.uniform(rng.keys([0], "partition", self.count, device=graph.row.device), graph.num_nodes)
            groups = [part.sort().values for part in draws[0].argsort().tensor_split(self.count)]
            self._cut = graph, [_Part(nodes, graph, x) for nodes in groups if len(nodes)]
        return self._cut[1]


class _Part:
    """Some nodes and what is among them."""

    def __init__(self, nodes: Tensor, graph: GraphBatch, x: Features) -> None:
        self.nodes, self.graph, self.x = nodes, graph.induced(nodes), Features(x.dense[nodes])
