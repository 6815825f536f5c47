"""The graph convolutional network of Kipf and Welling (paper, Equation 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Convolution, Dropout, Footprint, Layout, Weights
from aceglt.backbones.portable import LayerSpec
from aceglt.numerics import ops
from aceglt.numerics.features import Features
from aceglt.numerics.graph import GraphBatch


class GCN(Backbone):
    """Two layers, no bias, ReLU, dropout on the hidden layer; the normalisation follows the alive edges' values."""

    name = "gcn"
    self_loops = True
    chain = (Convolution(("layer0.weight",)), Convolution(("layer1.weight",)))
    footprint = Footprint(6.0, 38.0)
    coefficients = "symmetric"

    def __init__(self, in_features: int, out_features: int, hidden: int = 512, dropout: float = 0.5) -> None:
        self.dropout = dropout
        self.prunable = Layout((("layer0.weight", (in_features, hidden)), ("layer1.weight", (hidden, out_features))))
        self.other = Layout(())
        self.aggregation_widths = (hidden, out_features)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Tensor, Tensor]:
        adjacency = ops.normalise(graph, edge_values)
        first = graph.layer(0)
        hidden = ops.spmm(first, ops.pick(first, adjacency), x.matmul(weights["layer0.weight"]), symmetric=True)
        return torch.relu(hidden), adjacency

    def head(
        self, weights: Weights, graph: GraphBatch, state: tuple[Tensor, Tensor], dropout: Dropout | None
    ) -> Tensor:
        hidden, adjacency = state
        if dropout is not None:
            hidden = dropout(hidden, graph.layer(0).nodes, 0, self.dropout)
        second, z = graph.layer(1), graph.kernels.linear(hidden, weights["layer1.weight"])
        return ops.spmm(second, ops.pick(second, adjacency), z, symmetric=True)

    def layers(self, weights: Weights) -> list[LayerSpec]:
        first, second = weights["layer0.weight"], weights["layer1.weight"]
        return [LayerSpec(first, (first.shape[1],), "relu"), LayerSpec(second, (second.shape[1],))]
