"""k neighbours per node (Sadhanala et al., 2016). It chooses edges; weights go by magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.config.methods import NeighboursOptions
from aceglt.methods.base import Level, Selection
from aceglt.methods.magnitude import with_magnitudes
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph


@dataclass(frozen=True)
class Neighbours(NeighboursOptions):
    """Every node draws up to k of its edges; those that neither end has drawn go."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        # One order for all levels: what a node draws with a smaller k is part of what it draws with a larger.
        order = rng.uniform(rng.keys(level.seeds, "neighbours", device=level.masks.edges.device), level.graph.num_edges)
        places = torch.stack([needed_k(level.graph, run) for run in order])
        return with_magnitudes(level, 1 / places.double())  # exact counts end between two k: there, by chance

    def cost(self, epochs: int) -> int:
        return epochs


def needed_k(graph: Graph, order: Tensor) -> Tensor:
    """[E] the smallest k with which an end of an edge draws it, nodes drawing their edges by `order` [E] distinct.

    Nodes of a directed graph draw among the arcs that end there.
    """
    source, target = graph.edges
    nodes = target if graph.directed else torch.cat([target, source])
    edges = torch.arange(len(nodes), device=nodes.device) % max(1, graph.num_edges)
    drawn = order[edges].argsort(stable=True)
    drawn = drawn[nodes[drawn].argsort(stable=True)]  # node by node, each in the order of its draw
    first = torch.bincount(nodes, minlength=graph.num_nodes).cumsum(0).roll(1)
    first[:1] = 0
    place = torch.empty_like(edges)
    place[drawn] = torch.arange(1, len(nodes) + 1, device=nodes.device) - first[nodes[drawn]]
    return place if graph.directed else torch.minimum(*place.view(2, -1))
