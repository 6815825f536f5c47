"""The graph of a problem: edges, each once, with their weights and features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from aceglt.numerics.batch import Field, GraphBatch, arcs_of_slot, matrix_of
from aceglt.numerics.kernels import PLAIN, Kernels


@dataclass(frozen=True)
class Graph:
    """A graph as a list of edges: one entry per undirected edge (or per arc of a directed graph).

    Duplicates are merged and self-loops dropped: layers that want self-loops add their own, which are never pruned.
    The weights of duplicates are added, their features averaged.
    """

    num_nodes: int
    edges: Tensor  # [2, E] int64, sorted; source and target, with source < target unless directed
    directed: bool = False
    edge_weight: Tensor | None = None  # [E] multiplies the edge's score; None is 1
    edge_attr: Tensor | None = None  # [E, D] for backbones that read features of edges

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int,
        directed: bool = False,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Graph:
        """Build from PyG's `edge_index`, which may list an undirected edge once or in both directions.

        Raises ValueError if the two directions of an undirected edge have other weights or features.
        """
        source, target = edge_index.long()
        values = {name: v for name, v in (("edge_weight", edge_weight), ("edge_attr", edge_attr)) if v is not None}
        if not _is_listed(source, target, num_nodes, directed):  # else there is nothing to sort, merge or drop
            source, target, values = _merged(source, target, num_nodes, directed, values)
        dtype = torch.get_default_dtype()
        values = {name: value.to(dtype) for name, value in values.items()}
        return cls(num_nodes, torch.stack([source, target]), directed, **values)

    def expand(self, alive: Tensor, edge_index: Tensor, unseen: bool = True) -> Tensor:
        """Which columns of an `edge_index` are alive, for alive edges [E] bool of this graph.

        Self-loops always are; `unseen` says whether edges are that this graph does not have.
        """
        source, target = edge_index.long()
        fallback: Tensor = (source == target) | unseen
        if not self.num_edges:
            return fallback
        if not self.directed:
            source, target = torch.minimum(source, target), torch.maximum(source, target)
        ours, code = self.edges[0] * self.num_nodes + self.edges[1], source * self.num_nodes + target
        position = torch.searchsorted(ours, code).clamp(max=self.num_edges - 1)
        known = (torch.maximum(source, target) < self.num_nodes) & (ours[position] == code)
        return torch.where(known, alive[position], fallback)

    @property
    def num_edges(self) -> int:
        return self.edges.shape[1]

    @property
    def arcs_per_edge(self) -> int:
        return 1 if self.directed else 2

    @property
    def values(self) -> dict[str, Any]:
        """Weights and features of the edges, as far as there are any."""
        return {name: v for name in ("edge_weight", "edge_attr") if (v := getattr(self, name)) is not None}

    def arcs(self) -> tuple[Tensor, Tensor | None]:
        """PyG's edge_index [2, A], an undirected edge in both directions, and the weights [A] of the arcs."""
        if self.directed:
            return self.edges, self.edge_weight
        weight = None if self.edge_weight is None else self.edge_weight.repeat(2)
        return torch.cat([self.edges, self.edges.flip(0)], dim=1), weight

    def to(self, device: torch.device | str) -> Graph:
        return replace(self, edges=self.edges.to(device), **{name: v.to(device) for name, v in self.values.items()})

    def subgraph(self, kept: Tensor) -> Graph:
        """All nodes and some of the edges ([E] bool, or numbers in ascending order)."""
        return replace(self, edges=self.edges[:, kept], **{name: v[kept] for name, v in self.values.items()})

    def part(self, nodes: Tensor, edges: Tensor) -> Graph:
        """Some nodes ([n] in ascending order), numbered anew, and some of the edges among them ([e] likewise)."""
        number = torch.empty(self.num_nodes, dtype=torch.int64, device=nodes.device)
        number[nodes] = torch.arange(len(nodes), device=nodes.device)
        kept = self.subgraph(edges)
        return replace(kept, num_nodes=len(nodes), edges=number[kept.edges])

    @cached_property
    def structure(self) -> str:
        """Equal for graphs with equal nodes and edges."""
        digest = hashlib.sha256(f"{self.num_nodes} {self.num_edges} {self.directed} ".encode())
        digest.update(self.edges.cpu().numpy().tobytes())
        return digest.hexdigest()[:32]

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal graphs, weights and features of edges included."""
        if not self.values:
            return self.structure
        digest = hashlib.sha256(self.structure.encode())
        for name, value in self.values.items():
            digest.update(f"{name} {list(value.shape)} ".encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:32]

    def field(self, nodes: Tensor, steps: int) -> Field:
        """What outputs at these nodes ([n] int64, distinct) depend on, after `steps` steps along edges."""
        inside = torch.zeros(self.num_nodes, dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)
        order, (source, target) = [nodes], self.edges
        for _ in range(steps):
            wider = inside.clone()
            wider[source[inside[target]]] = True
            if not self.directed:
                wider[target[inside[source]]] = True
            order.append((wider & ~inside).nonzero().squeeze(1))
            inside = wider
        return Field(torch.cat(order), tuple(accumulate(len(part) for part in order)))

    def batch(self, alive: Tensor, self_loops: bool, kernels: Kernels = PLAIN) -> GraphBatch:
        """The block-diagonal graph of S runs, each with its own alive edges ([S, E] bool)."""
        runs = alive.shape[0]
        run, edge = alive.nonzero(as_tuple=True)
        slot = run * (self.num_edges + 1) + edge
        offset = run * self.num_nodes
        source, target = self.edges[0, edge] + offset, self.edges[1, edge] + offset
        rows, cols, slots = [target], [source], [slot]
        if not self.directed:
            rows, cols, slots = [target, source], [source, target], [slot, slot]
        if self_loops:
            nodes = torch.arange(runs * self.num_nodes, device=alive.device)
            loop_slot = (nodes // self.num_nodes) * (self.num_edges + 1) + self.num_edges
            rows, cols, slots = [*rows, nodes], [*cols, nodes], [*slots, loop_slot]
        row, col, slot = torch.cat(rows), torch.cat(cols), torch.cat(slots)
        order = torch.argsort(row * (runs * self.num_nodes) + col)
        slot = slot[order]
        return GraphBatch(
            **matrix_of(runs, self.num_nodes, self.num_nodes, row[order], col[order]),
            kernels=kernels,
            num_edges=self.num_edges,
            slot=slot,
            arcs_of_slot=arcs_of_slot(slot, runs, self.num_edges),
            **self.values,
        )


def _is_listed(source: Tensor, target: Tensor, num_nodes: int, directed: bool) -> bool:
    """Whether edges are as a `Graph` lists them already, as those of a graph with many edges had better be."""
    proper = source != target if directed else source < target
    return bool(proper.all()) and bool((torch.diff(source * num_nodes + target) > 0).all())


def _merged(
    source: Tensor, target: Tensor, num_nodes: int, directed: bool, values: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Edges as a `Graph` lists them, with their weights and features."""
    proper = source != target
    arcs, arc = torch.unique((source * num_nodes + target)[proper], return_inverse=True)
    merged = {name: _sum(v[proper], arc, len(arcs), mean=name == "edge_attr") for name, v in values.items()}
    source, target = arcs // num_nodes, arcs % num_nodes
    if not directed:
        source, target = torch.minimum(source, target), torch.maximum(source, target)
        code, edge = torch.unique(source * num_nodes + target, return_inverse=True)
        source, target = code // num_nodes, code % num_nodes
        merged = {name: _agreed(name, v, edge, source, target) for name, v in merged.items()}
    return source, target, merged


def _sum(values: Tensor, group: Tensor, groups: int, mean: bool) -> Tensor:
    """[groups, …] float64 sums, or means, of values [n, …] by group [n]."""
    zeros = values.new_zeros(groups, *values.shape[1:], dtype=torch.float64)
    sums = zeros.index_add_(0, group, values.double())
    counts = torch.bincount(group, minlength=groups).view(-1, *[1] * (values.dim() - 1))
    return sums / counts if mean else sums


def _agreed(name: str, values: Tensor, edge: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """[E, …] what the one or two directions of each edge say, if they say the same."""
    mean = _sum(values, edge, len(source), mean=True)
    close = torch.isclose(values, mean[edge])
    differs = ~(close.all(dim=1) if close.dim() > 1 else close)
    if bool(differs.any()):
        first = edge[differs][0]
        raise ValueError(
            f"{name} of the edge between nodes {int(source[first])} and {int(target[first])} differs between its two "
            "directions; make them agree, or search with directed=True (--directed)"
        )
    return mean
