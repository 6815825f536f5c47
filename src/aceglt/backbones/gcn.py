"""The graph convolutional network of Kipf and Welling (paper, Equation 1)."""

from __future__ import annotations

from torch import Tensor

from aceglt.backbones.base import Footprint, Weights
from aceglt.backbones.layered import Layered
from aceglt.numerics import ops
from aceglt.numerics.batch import GraphBatch


class GCN(Layered):
    """Without a bias unless asked for; the normalisation follows the alive edges' values."""

    name = "gcn"
    self_loops = True
    footprint = Footprint(6.0, 38.0)
    coefficients = "symmetric"

    def arcs(self, weights: Weights, graph: GraphBatch, edge_values: Tensor) -> Tensor:
        return ops.normalise(graph, edge_values)
