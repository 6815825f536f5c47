"""The sparse structure that a batch of runs passes messages over: alive arcs, whole or for some nodes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from aceglt.numerics.kernels import PLAIN, Kernels

_LONG = 64  # entries of a row that are worth a program of their own


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
        matrix = matrix_of(self.runs, len(nodes), self.num_nodes, rows[order], self.col[arcs[order]])
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
            matrix = matrix_of(self.runs, targets, sources, rows[order], cols[order])
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


def matrix_of(runs: int, targets: int, sources: int, row: Tensor, col: Tensor) -> dict[str, Any]:
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


def arcs_of_slot(slot: Tensor, runs: int, num_edges: int) -> Tensor:
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
