"""The graph isomorphism network of Xu et al., with the mean in place of the sum."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Convolution, Dropout, Footprint, Layout, Weights
from aceglt.backbones.portable import LayerSpec
from aceglt.numerics import ops
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Block, GraphBatch


class GIN(Backbone):
    """Two layers W·((1 + ε)·x + mean of the alive neighbours' s·x) + b, ReLU, dropout on the hidden layer.

    The mean divides by the number of alive neighbours, whatever their scores. One linear map per layer with a bias,
    as PyG's `Linear` has; ε and biases start at 0 and are not pruned.
    """

    name = "gin"
    self_loops = False
    chain = (Convolution(("layer0.weight",), ("layer0.bias",)), Convolution(("layer1.weight",), ("layer1.bias",)))
    footprint = Footprint(8.0, 30.0)
    coefficients = "mean"

    def __init__(self, in_features: int, out_features: int, hidden: int = 512, dropout: float = 0.5) -> None:
        self.dropout = dropout
        self.prunable = Layout((("layer0.weight", (in_features, hidden)), ("layer1.weight", (hidden, out_features))))
        self.other = Layout(
            (
                ("layer0.epsilon", (1, 1)),
                ("layer1.epsilon", (1, 1)),
                ("layer0.bias", (1, hidden)),
                ("layer1.bias", (1, out_features)),
            )
        )
        self.aggregation_widths = (hidden, out_features)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Tensor, Tensor]:
        adjacency = ops.arc_values(graph, edge_values) / graph.in_degree
        hidden = _layer(weights, 0, graph.layer(0), adjacency, x.matmul(weights["layer0.weight"]))
        return torch.relu(hidden), adjacency

    def head(
        self, weights: Weights, graph: GraphBatch, state: tuple[Tensor, Tensor], dropout: Dropout | None
    ) -> Tensor:
        hidden, adjacency = state
        if dropout is not None:
            hidden = dropout(hidden, graph.layer(0).nodes, 0, self.dropout)
        z = graph.kernels.linear(hidden, weights["layer1.weight"])
        return _layer(weights, 1, graph.layer(1), adjacency, z)

    def layers(self, weights: Weights) -> list[LayerSpec]:
        return [_spec(weights, 0, "relu"), _spec(weights, 1, "none")]


def _spec(weights: Weights, layer: int, activation: str) -> LayerSpec:
    weight, bias = weights[f"layer{layer}.weight"], weights[f"layer{layer}.bias"]
    own = 1.0 + weights[f"layer{layer}.epsilon"]
    return LayerSpec(weight, (weight.shape[1],), activation, own=own.reshape(()), bias=bias[0])


def _layer(weights: Weights, layer: int, block: Block, adjacency: Tensor, z: Tensor) -> Tensor:
    """The rest of a layer after its weight, z [S, N, H]: linear maps commute, and both widths get smaller."""
    targets = z if block.targets == block.sources else z[:, : block.targets]
    own = torch.addcmul(weights[f"layer{layer}.bias"], targets, 1.0 + weights[f"layer{layer}.epsilon"])
    return own + ops.spmm(block, ops.pick(block, adjacency), z)
