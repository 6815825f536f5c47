"""How much arithmetic inference takes."""

from __future__ import annotations

from aceglt.backbones.base import Backbone
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts


def inference_macs(backbone: Backbone, graph: Graph, alive: Counts) -> int:
    """Multiply-accumulates of one forward pass: Σ over layers of N·nnz(W) + nnz(A)·width (the paper's Table S8)."""
    arcs = alive.edges * graph.arcs_per_edge + (graph.num_nodes if backbone.self_loops else 0)
    return graph.num_nodes * alive.weights + arcs * sum(backbone.aggregation_widths)
