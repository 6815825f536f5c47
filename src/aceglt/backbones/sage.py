"""GraphSAGE of Hamilton et al., with the mean."""

from __future__ import annotations

from torch import Tensor

from aceglt.backbones.base import Footprint, Weights
from aceglt.backbones.layered import Layered
from aceglt.config.groups import SageOptions
from aceglt.numerics import ops
from aceglt.numerics.batch import GraphBatch


class SAGE(Layered):
    """Layers W·(mean of the alive neighbours' s·x) + R·x + b. The mean divides by the number of alive neighbours,
    whatever their scores."""

    name = "sage"
    kind = SageOptions
    self_loops = False
    rooted = True
    linear_maps = (".skip", ".root", ".weight")
    linear_biases = (".bias",)
    footprint = Footprint(5.5, 30.0)
    coefficients = "mean"

    def arcs(self, weights: Weights, graph: GraphBatch, edge_values: Tensor) -> Tensor:
        return ops.arc_values(graph, edge_values) / graph.in_degree
