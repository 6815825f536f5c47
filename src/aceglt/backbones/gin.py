"""The graph isomorphism network of Xu et al., with the mean in place of the sum."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.backbones.base import Convolution, Footprint, Layout, Weights
from aceglt.backbones.gcn import TwoLayers
from aceglt.numerics import ops
from aceglt.numerics.graph import Block, GraphBatch


class GIN(TwoLayers):
    """Layers W·((1 + ε)·x + mean of the alive neighbours' s·x) + b.

    The mean divides by the number of alive neighbours, whatever their scores. One linear map per layer with a bias,
    as PyG's `Linear` has; ε and biases start at 0 and are not pruned.
    """

    name = "gin"
    self_loops = False
    chain = (Convolution(("layer0.weight",), ("layer0.bias",)), Convolution(("layer1.weight",), ("layer1.bias",)))
    footprint = Footprint(8.0, 30.0)
    coefficients = "mean"

    def __init__(self, in_features: int, out_features: int, hidden: int = 512, dropout: float = 0.5) -> None:
        super().__init__(in_features, out_features, hidden, dropout)
        biases = (("layer0.bias", (1, hidden)), ("layer1.bias", (1, out_features)))
        self.other = Layout((("layer0.epsilon", (1, 1)), ("layer1.epsilon", (1, 1)), *biases))

    def adjacency(self, graph: GraphBatch, edge_values: Tensor) -> Tensor:
        return ops.arc_values(graph, edge_values) / graph.in_degree

    def aggregate(self, weights: Weights, layer: int, block: Block, adjacency: Tensor, z: Tensor) -> Tensor:
        targets = z if block.targets == block.sources else z[:, : block.targets]
        own = torch.addcmul(weights[f"layer{layer}.bias"], targets, 1.0 + weights[f"layer{layer}.epsilon"])
        return own + ops.spmm(block, ops.pick(block, adjacency), z)
