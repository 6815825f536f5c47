"""Pairs of nodes for link prediction: the split of a graph's edges, and pairs that are no edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import share

VAL_SHARE, TEST_SHARE = 0.05, 0.10
"""Shares of the edges that are held out; the rest is the training graph."""


@dataclass(frozen=True)
class EdgeSplit:
    """A graph's edges in three: those to train on and pass messages over, and those held out."""

    train: Graph
    val: Tensor  # [2, V]
    test: Tensor  # [2, T]


def split_edges(graph: Graph, connected: bool = False) -> EdgeSplit:
    """85 % of the edges for training, 5 % for validation, 10 % for test: a function of the edges alone.

    With `connected`, no held-out edge is one that keeps two parts of the training graph together, as in the split of
    Kipf and Welling's graph auto-encoders; where too few edges can go, fewer are held out.
    """
    order = rng.permutation(rng.keys([0], "link split", graph.structure), graph.num_edges)[0]
    if connected:
        order = order[~_spanning(graph, order)[order]]
    test = share(TEST_SHARE, graph.num_edges)
    held_out = order[: test + share(VAL_SHARE, graph.num_edges)]
    kept = torch.ones(graph.num_edges, dtype=torch.bool)
    kept[held_out] = False
    return EdgeSplit(graph.subgraph(kept), graph.edges[:, held_out[test:]], graph.edges[:, held_out[:test]])


def _spanning(graph: Graph, order: Tensor) -> Tensor:
    """[E] bool: the spanning forest that is left if edges go in this order, except those that hold a part together.

    Going over the edges and leaving out what disconnects nothing is the reverse-delete algorithm, so what stays is
    the spanning forest of least weight, where weights fall along the order.
    """
    from scipy.sparse import coo_matrix  # here: only this split pays for the import
    from scipy.sparse.csgraph import minimum_spanning_tree

    weight = np.empty(graph.num_edges)
    weight[order.numpy()] = np.arange(graph.num_edges, 0, -1)
    source, target = graph.edges.numpy()
    size = (graph.num_nodes, graph.num_nodes)
    forest = minimum_spanning_tree(coo_matrix((weight, (source, target)), shape=size).tocsr())
    return torch.from_numpy(np.isin(weight, forest.data))


@dataclass(frozen=True)
class NonEdges:
    """The pairs of different nodes that are not edges of a graph, numbered, so that drawing one needs no rejection."""

    graph: Graph

    @property
    def count(self) -> int:
        nodes = self.graph.num_nodes
        return nodes * (nodes - 1) // self.graph.arcs_per_edge - self.graph.num_edges

    def draw(self, key: Tensor, n: int) -> Tensor:
        """[2, S, n] pairs of every run, with replacement."""
        return self.pairs((rng.uniform(key, n) * self.count).long())

    def pairs(self, numbers: Tensor) -> Tensor:
        """[2, …] the pairs with these numbers: number r is after all edges with at most r non-edges before them."""
        code = numbers + torch.searchsorted(self._non_edges_before, numbers, right=True)
        return self._decode(code)

    @cached_property
    def _non_edges_before(self) -> Tensor:
        codes = self._encode(self.graph.edges).sort().values
        return codes - torch.arange(len(codes), device=codes.device)

    def _encode(self, pairs: Tensor) -> Tensor:
        """A number for every pair: below the diagonal row by row, or all but the diagonal for arcs."""
        source, target = pairs.unbind(0)
        if self.graph.directed:
            return source * (self.graph.num_nodes - 1) + target - (target > source).long()
        return target * (target - 1) // 2 + source

    def _decode(self, code: Tensor) -> Tensor:
        if self.graph.directed:
            source, target = code // (self.graph.num_nodes - 1), code % (self.graph.num_nodes - 1)
            return torch.stack([source, target + (target >= source).long()])
        target = ((1 + (1 + 8 * code.double()).sqrt()) / 2).long()
        target = target - (target * (target - 1) // 2 > code).long()  # the root may be rounded up
        return torch.stack([code - target * (target - 1) // 2, target])


def fixed_negatives(graph: Graph, n: int) -> Tensor:
    """[2, n] different non-edges of a graph, a function of its edges alone."""
    key, pairs = rng.keys([0], "link negatives", graph.structure), NonEdges(graph)
    drawn: dict[int, None] = {}  # a set that keeps the order
    attempt = 0
    while len(drawn) < n:
        drawn |= dict.fromkeys((rng.uniform(rng.fold(key, attempt), n)[0] * pairs.count).long().tolist())
        attempt += 1
    return pairs.pairs(torch.tensor(list(drawn)[:n], dtype=torch.int64))
