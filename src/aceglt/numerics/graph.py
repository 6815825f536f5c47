"""The graph, and the sparse structure that a batch of runs passes messages over."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from aceglt.numerics.kernels import PLAIN, Kernels

_LONG = 64  # entries of a row that are worth a program of their own


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
            **_matrix(runs, self.num_nodes, self.num_nodes, row[order], col[order]),
            kernels=kernels,
            num_edges=self.num_edges,
            slot=slot,
            arcs_of_slot=_arcs_of_slot(slot, runs, self.num_edges),
            **self.values,
        )


@dataclass(frozen=True)
class Field:
    """The nodes that the outputs of some nodes depend on: k steps along edges before, the first sizes[k] of `nodes`."""

    nodes: Tensor  # [n] int64
    sizes: tuple[int, ...]

    def place(self, num_nodes: int) -> Tensor:
        """[N] where each node is among `nodes`; those that are not there are at the end."""
        place = torch.full((num_nodes,), len(self.nodes), device=self.nodes.device)
        place[self.nodes] = torch.arange(len(self.nodes), device=self.nodes.device)
        return place


@dataclass(frozen=True)
class ByLength:
    """Rows of a sparse matrix in an order in which those of about the same length can be computed together."""

    all: Tensor  # [n] int64: the long ones, the longest first; the others run after run, in each the longest first
    long: int
    """How many are long."""

    @staticmethod
    def of(rowptr: Tensor, runs: int = 1) -> ByLength:
        length = rowptr.diff()
        run = torch.arange(len(length), device=length.device) // max(1, len(length) // runs)
        order = torch.argsort(torch.where(length < _LONG, run * _LONG + _LONG - length, -length), stable=True)
        return ByLength(order, int((length >= _LONG).sum()))


@dataclass(frozen=True, kw_only=True)
class Block:
    """Arcs of S runs as one sparse matrix: a row for each target, a column for each source, run after run."""

    runs: int
    targets: int  # T rows per run
    sources: int  # N columns per run; the first T are the targets
    rowptr: Tensor  # [S·T + 1] int32
    row: Tensor  # [A] int64
    col: Tensor  # [A] int64
    transposed_rowptr: Tensor  # [S·N + 1] int32
    transposed_col: Tensor  # [A] int32
    transpose: Tensor  # [A] int64: arc order of the transposed matrix
    nodes: Tensor | None = None  # [T] numbers of the targets; None if they are all nodes
    arcs: Tensor | None = None  # [A] numbers of the arcs among the graph's; None if they are all arcs
    scattered: bool = False
    """Whether the sources are all nodes in their order, and the targets anywhere among them."""
    kernels: Kernels = PLAIN
    """What computes along its arcs."""

    @property
    def num_arcs(self) -> int:
        return self.row.shape[0]

    def at_targets(self, h: Tensor) -> Tensor:
        """[S, T, H] of h [S, n, H], which is of the targets or of the sources."""
        if h.shape[1] == self.targets:
            return h
        return h.index_select(1, self.nodes) if self.scattered and self.nodes is not None else h[:, : self.targets]

    @property
    def mirrored(self) -> bool:
        """Whether each arc has its reverse, with the same value, so that the matrix is its own transpose."""
        return False

    @cached_property
    def by_length(self) -> ByLength:
        """The rows."""
        return ByLength.of(self.rowptr, self.runs)

    @cached_property
    def transposed_by_length(self) -> ByLength:
        """The rows of the transposed matrix."""
        return ByLength.of(self.transposed_rowptr, self.runs)

    @cached_property
    def col32(self) -> Tensor:
        return self.col.int()

    def csr(self, values: Tensor) -> Tensor:
        """The matrix with these values [A] of its arcs."""
        size = self.runs * self.targets, self.runs * self.sources
        return torch.sparse_csr_tensor(self.rowptr, self.col32, values, size)

    def transposed_csr(self, values: Tensor) -> Tensor:
        """The transposed matrix, with values [A] in its own order (see `transpose`)."""
        size = self.runs * self.sources, self.runs * self.targets
        return torch.sparse_csr_tensor(self.transposed_rowptr, self.transposed_col, values, size)


@dataclass(frozen=True, kw_only=True)
class GraphBatch(Block):
    """Message-passing structure of S runs: the block of all arcs between all nodes.

    Dead edges are not in it, so no backbone can see them. An arc's value comes from the slot of its edge: slot
    r·(E+1) + e is edge e of run r, and slot r·(E+1) + E stands for the constant 1 of the self-loops.
    """

    num_edges: int
    slot: Tensor  # [A] int64
    arcs_of_slot: Tensor  # [S·(E+1), ≤2] int64 positions of an edge's arcs, A where there is none
    edge_weight: Tensor | None = None  # [E] weights of the edges, shared by the runs
    edge_attr: Tensor | None = None  # [E, D] features of the edges, likewise
    field: Field | None = None
    """Where outputs are wanted, and what they depend on; None is everywhere."""
    ending: tuple[int, Block, GraphBatch] | None = None
    """The number of the last layer and its block, where only that one is computed for some of the nodes, and the graph
    of the others."""

    @property
    def num_nodes(self) -> int:
        return self.targets

    @cached_property
    def slot32(self) -> Tensor:
        return self.slot.int()

    @cached_property
    def mirrored(self) -> bool:
        """Found out on a CPU alone: on a GPU it would be waited for, and saves little."""
        if self.row.is_cuda or not torch.equal(self.transposed_col, self.col32):
            return False
        return torch.equal(self.slot.index_select(0, self.transpose), self.slot)

    def within(self, field: Field) -> GraphBatch:
        """The same graph for computing no more than the field says."""
        return replace(self, field=field)

    def ending_at(self, nodes: Tensor, last: int) -> GraphBatch:
        """The same graph for computing the last layer, which has this number, for some nodes ([T] distinct) alone."""
        number = torch.full((self.num_nodes,), -1, device=nodes.device)
        number[nodes] = torch.arange(len(nodes), device=nodes.device)
        run = self.row // self.num_nodes
        row = number[self.row - run * self.num_nodes]
        arcs = (row >= 0).nonzero().squeeze(1)
        rows = (run * len(nodes) + row)[arcs]
        order = rows.argsort(stable=True)
        matrix = _matrix(self.runs, len(nodes), self.num_nodes, rows[order], self.col[arcs[order]])
        block = Block(**matrix, nodes=nodes, arcs=arcs[order], kernels=self.kernels, scattered=True)
        return replace(self, ending=(last, block, self))

    def layer(self, index: int) -> Block:
        """What the layer passes messages over: the arcs into the nodes whose values are needed after it."""
        if self.ending is not None:
            last, block, whole = self.ending
            return block if index == last else whole
        return self if self.field is None else self._layers[index]

    @cached_property
    def _layers(self) -> list[Block]:
        assert self.field is not None
        place = self.field.place(self.num_nodes)
        run = self.row // self.num_nodes
        row, col = place[self.row - run * self.num_nodes], place[self.col - run * self.num_nodes]
        layers = []
        for targets, sources in pairwise(self.field.sizes):
            arcs = (row < targets).nonzero().squeeze(1)
            rows, cols = (run * targets + row)[arcs], (run * sources + col)[arcs]
            order = rows.argsort(stable=True)  # sums keep the order of the whole graph's
            matrix = _matrix(self.runs, targets, sources, rows[order], cols[order])
            nodes = self.field.nodes[:targets]
            layers.append(Block(**matrix, nodes=nodes, arcs=arcs[order], kernels=self.kernels))
        return layers[::-1]

    @cached_property
    def weight(self) -> Tensor | None:
        """[A] weight of each arc's edge, 1 for self-loops; None if all are 1."""
        if self.edge_weight is None:
            return None
        return torch.cat([self.edge_weight, self.edge_weight.new_ones(1)])[self.slot % (self.num_edges + 1)]

    @cached_property
    def arcs_of_runs(self) -> list[slice]:
        """Where each run's arcs are."""
        bounds = self.rowptr[:: self.num_nodes].tolist()
        return [slice(first, last) for first, last in pairwise(bounds)]

    @cached_property
    def attr_of_runs(self) -> list[Tensor]:
        """Features of each run's arcs, [A of the run, D]."""
        assert self.edge_attr is not None
        return [self.edge_attr[self.slot[part] % (self.num_edges + 1)] for part in self.arcs_of_runs]

    @cached_property
    def by_run(self) -> list[tuple[Tensor, slice]]:
        """Each run's arcs as PyG's `edge_index`, sorted by target, and where they are among all arcs."""
        both = torch.stack([self.col, self.row])
        return [(both[:, part] - run * self.num_nodes, part) for run, part in enumerate(self.arcs_of_runs)]

    @cached_property
    def in_degree(self) -> Tensor:
        """[A] number of arcs with the same target, for every arc."""
        return self.rowptr.diff()[self.row]

    @cached_property
    def draw_slot(self) -> Tensor:
        """[A] each arc's place in draws [S · draws_per_run], which does not depend on what else is alive."""
        run = self.row // self.num_nodes
        edge = self.slot - run * (self.num_edges + 1)
        loop = 2 * self.num_edges + self.row % self.num_nodes
        arc = torch.where(edge == self.num_edges, loop, 2 * edge + (self.row > self.col).long())
        return run * self.draws_per_run + arc

    @property
    def draws_per_run(self) -> int:
        """Arcs and self-loops of one run, alive or not."""
        return 2 * self.num_edges + self.num_nodes


def _matrix(runs: int, targets: int, sources: int, row: Tensor, col: Tensor) -> dict[str, Any]:
    """Fields of a block with these arcs, sorted by row."""
    transpose = torch.argsort(col * (runs * targets) + row)
    return {
        "runs": runs,
        "targets": targets,
        "sources": sources,
        "rowptr": pointers(row, runs * targets),
        "row": row,
        "col": col,
        "transposed_rowptr": pointers(col[transpose], runs * sources),
        "transposed_col": row[transpose].int(),
        "transpose": transpose,
    }


def pointers(sorted_rows: Tensor, size: int) -> Tensor:
    """[size + 1] int32: where each row's entries begin, for sorted row numbers."""
    counts = torch.bincount(sorted_rows, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()


def _arcs_of_slot(slot: Tensor, runs: int, num_edges: int) -> Tensor:
    """Where the (one or two) arcs of each edge are. Slots of the constant 1 need no gradient and stay empty."""
    total = slot.shape[0]
    is_edge = slot % (num_edges + 1) != num_edges
    position = is_edge.nonzero().squeeze(1)
    by_slot = torch.argsort(slot[position], stable=True)
    position, owner = position[by_slot], slot[position[by_slot]]
    second = torch.zeros_like(owner)
    second[1:] = (owner[1:] == owner[:-1]).long()
    table = torch.full((runs * (num_edges + 1), 2), total, dtype=torch.int64, device=slot.device)
    table[owner, second] = position
    return table


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
