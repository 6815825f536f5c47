"""The graph isomorphism network of Xu et al., with the mean in place of the sum."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.backbones.base import Footprint, Weights
from aceglt.backbones.layered import Layered, Shapes
from aceglt.backbones.portable import LayerSpec
from aceglt.config.groups import GinOptions
from aceglt.numerics import ops
from aceglt.numerics.batch import Block, GraphBatch


class GIN(Layered):
    """Layers W·((1 + ε)·x + mean of the alive neighbours' s·x) + b.

    The mean divides by the number of alive neighbours, whatever their scores. One linear map per layer with a bias,
    as PyG's `Linear` has; ε and biases start at 0 and are not pruned.
    """

    name = "gin"
    kind = GinOptions
    self_loops = False
    footprint = Footprint(8.0, 30.0)
    coefficients = "mean"

    def _vectors(self) -> Shapes:
        epsilons: Shapes = [(f"layer{number}.epsilon", (1, 1)) for number in range(self.options.layers)]
        return [*epsilons, *super()._vectors()]

    def arcs(self, weights: Weights, graph: GraphBatch, edge_values: Tensor) -> Tensor:
        return ops.arc_values(graph, edge_values) / graph.in_degree

    def gather(self, weights: Weights, number: int, block: Block, arcs: Tensor, h: Tensor) -> Tensor:
        own = 1.0 + weights[f"layer{number}.epsilon"]
        return torch.addcmul(super().gather(weights, number, block, arcs, h), block.at_targets(h), own)

    def aggregate(self, weights: Weights, number: int, block: Block, arcs: Tensor, z: Tensor) -> Tensor:
        bias = weights.get(f"layer{number}.bias")
        if bias is None:
            return self.gather(weights, number, block, arcs, z)
        own = torch.addcmul(bias, block.at_targets(z), 1.0 + weights[f"layer{number}.epsilon"])
        return own + super().gather(weights, number, block, arcs, z)

    def _spec(self, weights: Weights, number: int, **more: Tensor | None) -> LayerSpec:
        epsilon = weights.get(f"layer{number}.epsilon")
        return super()._spec(weights, number, own=None if epsilon is None else (1.0 + epsilon).reshape(()))
