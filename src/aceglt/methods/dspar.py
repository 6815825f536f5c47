"""DSpar (Liu et al., 2023): edges are drawn by the degrees of their ends. It chooses edges; weights go by magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.config.methods import DsparOptions
from aceglt.methods.base import Level, Selection
from aceglt.methods.magnitude import with_magnitudes
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph


@dataclass(frozen=True)
class Dspar(DsparOptions):
    """Keep edges with probability in proportion to 1/d_u + 1/d_v."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        # One draw for all levels: the first n of it are a draw of n, so a level keeps what a cut in one step would.
        drawn = rng.uniform(rng.keys(level.seeds, "dspar", device=level.masks.edges.device), level.graph.num_edges)
        return with_magnitudes(level, probabilities(level.graph) / -drawn.log())  # [S, E] the first have the highest

    def cost(self, epochs: int) -> int:
        return epochs


def probabilities(graph: Graph) -> Tensor:
    """[E] float64, of each edge to be drawn first; it stands for the effective resistance between its ends."""
    degree = torch.bincount(graph.edges.flatten(), minlength=graph.num_nodes).double()
    source, target = graph.edges
    weight = 1 / degree[source] + 1 / degree[target]
    return weight / weight.sum()
