"""The graph convolutional network of Kipf and Welling (paper, Equation 1), and what GIN shares with it."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Convolution, Dropout, Footprint, Layout, Weights
from aceglt.backbones.portable import LayerSpec
from aceglt.numerics import ops
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Block, GraphBatch

_Stem = tuple[Tensor, Tensor]  # the hidden layer, the adjacency


class TwoLayers(Backbone):
    """Two convolutions with one weight matrix each, ReLU and dropout between them.

    A layer's weight comes before the aggregation: linear maps commute, and both widths get smaller.
    """

    def __init__(self, in_features: int, out_features: int, hidden: int = 512, dropout: float = 0.5) -> None:
        self.dropout = dropout
        self.prunable = Layout((("layer0.weight", (in_features, hidden)), ("layer1.weight", (hidden, out_features))))
        self.other = Layout(())
        self.aggregation_widths = (hidden, out_features)

    @abstractmethod
    def adjacency(self, graph: GraphBatch, edge_values: Tensor) -> Tensor:
        """[A] what the message of each arc is multiplied by."""

    @abstractmethod
    def aggregate(self, weights: Weights, layer: int, block: Block, adjacency: Tensor, z: Tensor) -> Tensor:
        """The rest of a layer after its weight, z [S, N, H]."""

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> _Stem:
        adjacency = self.adjacency(graph, edge_values)
        hidden = self.aggregate(weights, 0, graph.layer(0), adjacency, x.matmul(weights["layer0.weight"]))
        return torch.relu(hidden), adjacency

    def head(self, weights: Weights, graph: GraphBatch, state: _Stem, dropout: Dropout | None) -> Tensor:
        hidden, adjacency = state
        if dropout is not None:
            hidden = dropout(hidden, graph.layer(0).nodes, 0, self.dropout)
        z = graph.kernels.linear(hidden, weights["layer1.weight"])
        return self.aggregate(weights, 1, graph.layer(1), adjacency, z)

    def layers(self, weights: Weights) -> list[LayerSpec]:
        specs = []
        for layer, activation in (("layer0", "relu"), ("layer1", "none")):
            weight, bias = weights[f"{layer}.weight"], weights.get(f"{layer}.bias")
            epsilon = weights.get(f"{layer}.epsilon")
            own = None if epsilon is None else (1.0 + epsilon).reshape(())
            bias_vector = None if bias is None else bias[0]
            specs.append(LayerSpec(weight, (weight.shape[1],), activation, own=own, bias=bias_vector))
        return specs


class GCN(TwoLayers):
    """No bias; the normalisation follows the alive edges' values."""

    name = "gcn"
    self_loops = True
    chain = (Convolution(("layer0.weight",)), Convolution(("layer1.weight",)))
    footprint = Footprint(6.0, 38.0)
    coefficients = "symmetric"

    def adjacency(self, graph: GraphBatch, edge_values: Tensor) -> Tensor:
        return ops.normalise(graph, edge_values)

    def aggregate(self, weights: Weights, layer: int, block: Block, adjacency: Tensor, z: Tensor) -> Tensor:
        return ops.spmm(block, ops.pick(block, adjacency), z, symmetric=True)
