"""A backbone in a file of its own, as a contributor would add it."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.backbones import Backbone, Dropout, Layout
from aceglt.backbones.base import Weights
from aceglt.numerics import ops
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features


class MeanSage(Backbone):
    """GraphSAGE with the mean (Hamilton et al., 2017): a node's own features have weights of their own."""

    name = "mean-sage"
    self_loops = False
    coefficients = "mean"

    def __init__(self, in_features: int, out_features: int, hidden: int = 16, dropout: float = 0.5) -> None:
        self.dropout = dropout
        sizes = ((in_features, hidden), (hidden, out_features))
        self.prunable = Layout(
            tuple((f"layer{i}.{part}", size) for i, size in enumerate(sizes) for part in ("weight", "root"))
        )
        self.other = Layout((("layer0.bias", (1, hidden)), ("layer1.bias", (1, out_features))))
        self.aggregation_widths = (hidden, out_features)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Tensor, Tensor]:
        adjacency = ops.arc_values(graph, edge_values) / graph.in_degree
        aggregated = ops.spmm(graph, adjacency, x.matmul(weights["layer0.weight"]))
        return torch.relu(aggregated + x.matmul(weights["layer0.root"]) + weights["layer0.bias"]), adjacency

    def head(
        self, weights: Weights, graph: GraphBatch, state: tuple[Tensor, Tensor], dropout: Dropout | None
    ) -> Tensor:
        hidden, adjacency = state
        if dropout is not None:
            hidden = dropout(hidden, None, 0, self.dropout)
        aggregated = ops.spmm(graph, adjacency, hidden @ weights["layer1.weight"])
        return aggregated + hidden @ weights["layer1.root"] + weights["layer1.bias"]
