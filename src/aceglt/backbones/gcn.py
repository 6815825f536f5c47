"""The graph convolutional network of Kipf and Welling (paper, Equation 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Layout, Weights
from aceglt.backbones.portable import LayerSpec
from aceglt.backends.cpu import gcn as cpu_gcn
from aceglt.numerics import ops
from aceglt.numerics.features import Features
from aceglt.numerics.graph import GraphBatch


class GCN(Backbone):
    """Two layers, no bias, ReLU, dropout on the hidden layer; the normalisation follows the alive edges' values.

    Where `cpu_gcn` serves, `stem` has the gradient of units that are 0 from `head`: they go together.
    """

    name = "gcn"
    self_loops = True
    reach = 2
    capturable = True
    reads_features = "layer0.weight"
    reads_units = "layer1.weight"
    coefficients = "symmetric"

    def __init__(self, in_features: int, out_features: int, hidden: int = 512, dropout: float = 0.5) -> None:
        self.dropout = dropout
        self.prunable = Layout((("layer0.weight", (in_features, hidden)), ("layer1.weight", (hidden, out_features))))
        self.other = Layout(())
        self.aggregation_widths = (hidden, out_features)

    def prepared(self, x: Features, graph: GraphBatch, trained: bool) -> Features:
        width = self.aggregation_widths[0] if self.units is None else int(self.units.sum())
        return cpu_gcn.gathered(x, graph, width, trained)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Tensor, Tensor]:
        if self._compiled(graph, weights):
            return cpu_gcn.stem(weights["layer0.weight"], graph, edge_values, x)
        adjacency = ops.normalise(graph, edge_values)
        first = graph.layer(0)
        hidden = ops.spmm(first, ops.pick(first, adjacency), x.matmul(weights["layer0.weight"]), symmetric=True)
        return torch.relu(hidden), adjacency

    def head(
        self, weights: Weights, graph: GraphBatch, state: tuple[Tensor, Tensor], dropout: Dropout | None
    ) -> Tensor:
        if self._compiled(graph, weights):
            return self._compiled_head(weights["layer1.weight"], graph, state, dropout)
        hidden, adjacency = state
        if dropout is not None:
            hidden = dropout(hidden, graph.layer(0).nodes, 0, self.dropout, self.units)
        second = graph.layer(1)
        return ops.spmm(
            second, ops.pick(second, adjacency), ops.linear(hidden, weights["layer1.weight"]), symmetric=True
        )

    def _compiled(self, graph: GraphBatch, weights: Weights) -> bool:
        return cpu_gcn.serves(graph, weights["layer0.weight"])

    def _compiled_head(
        self, weight: Tensor, graph: GraphBatch, state: tuple[Tensor, Tensor], dropout: Dropout | None
    ) -> Tensor:
        if dropout is None:
            return cpu_gcn.head(weight, graph, state)
        nodes, p = graph.layer(0).nodes, self.dropout
        return cpu_gcn.head(weight, graph, state, lambda h: dropout(h, nodes, 0, p, self.units), 1.0 / (1.0 - p))

    def layers(self, weights: Weights) -> list[LayerSpec]:
        first, second = weights["layer0.weight"], weights["layer1.weight"]
        return [LayerSpec(first, (first.shape[1],), "relu"), LayerSpec(second, (second.shape[1],))]
