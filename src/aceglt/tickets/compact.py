"""The compact model: a ticket's network without what is dead, with the fastest kernels for what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aceglt.backbones.portable import SELF_LOOPS, ArcGraph, EdgeMap, Layer, Spec, TicketModel
from aceglt.backends import kernels
from aceglt.errors import DataError
from aceglt.numerics import ops
from aceglt.numerics.csr import as_csr, stored_bytes
from aceglt.numerics.graph import Graph
from aceglt.problems.checks import check_edges
from aceglt.tickets.linear import PrunedLinear, choose_input
from aceglt.tickets.shrink import shrink


class Inputs(NamedTuple):
    """Features and graph as a model reads them: made once, used for any number of forward passes."""

    x: Tensor  # [N, F'] dense or CSR
    graph: ArcGraph


class CompactModel(TicketModel):
    """Outputs [N, classes] from all features x [N, F], dense or sparse, and a PyG `edge_index`, as the masked model
    gives them.

    Dead hidden units, features that no alive weight reads and dead edges are not there, but for a few that kernels are
    faster with; of a residual network, whose norms need all hidden units, unread features and units of the encoder.
    What is left of a ticket that was pruned by units is dense. Each product runs on the kernel that is cheapest by its
    shapes and densities (see `linear`). It is for inference; no gradients are kept.

    `edge_index` is read as a search reads it: self-loops and repetitions do not count, and an edge of an undirected
    graph may be listed in one direction or both. It should hold alive edges only; see `Ticket.apply`. A model that is
    `weighted` reads a weight of each listed edge from `edge_weight`, one with `edge_features` so many from `edge_attr`;
    others pay no heed to these.
    """

    def __init__(
        self,
        layers: Sequence[Spec],
        coefficients: str,
        directed: bool = False,
        edge_features: int = 0,
        weighted: bool = False,
        inputs: Tensor | None = None,
    ) -> None:
        """`inputs` [F] bool are the features that the first layer has weights for; None is all."""
        super().__init__(*shrink(layers, inputs, aligned=True), coefficients, PrunedLinear)
        self.in_features, self.directed = len(layers[0].weight if inputs is None else inputs), directed
        self.edge_features, self.weighted = edge_features, weighted
        if getattr(self.layers[0], "identity", None) is None:  # that adds features by their places among the read ones
            for part in self._first:
                part.places = self.features

    @property
    def _first(self) -> list[PrunedLinear]:
        """The products that read the features."""
        return [part for part in self.layers[0].modules() if isinstance(part, PrunedLinear)]

    def prepare(
        self,
        x: Any,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Inputs:
        """What `run` reads, made once for any number of passes, from a PyG `Data` or from its tensors: features without
        the dead ones, sparse if that is faster, and the graph with its coefficients."""
        if not isinstance(x, Tensor):
            x, edge_index, edge_weight, edge_attr = parts_of(x)
        return self._inputs(x, edge_index, edge_weight, edge_attr, once=False)

    @torch.no_grad()
    def _inputs(
        self, x: Tensor, edge_index: Tensor | None, edge_weight: Tensor | None, edge_attr: Tensor | None, once: bool
    ) -> Inputs:
        """`once` says that the inputs serve one pass, so that making them counts too."""
        if x.dim() != 2 or x.shape[1] != self.in_features:
            raise DataError(f"the model reads {self.in_features} features per node, x has shape {list(x.shape)}")
        if edge_index is None:
            raise DataError("the model reads x and edge_index, or a Data with both; edge_index is missing")
        first = self._first
        x = x.to(first[0].weight.dtype)
        weight = self._checked_weight(edge_index, edge_weight) if self.weighted else None
        if self.coefficients == "softmax":
            attr = self._checked_attr(edge_index, edge_attr) if self.edge_features else None
            graph: ArcGraph = ArcBatch(edge_index, x.shape[0], self.directed, attr, weight, x.dtype)
        else:
            graph = CsrGraph(edge_index, x.shape[0], self.coefficients, self.directed, weight, x.dtype)
        x, spared = x if x.layout == torch.strided else as_csr(x), self._spared(edge_index.shape[1] / max(1, len(x)))
        return Inputs(choose_input(x, self.features, first, once, spared), graph)

    def _spared(self, degree: float) -> float:
        """Multiplications per node that are spared by summing dense features along arcs, and not units."""
        layer = self.layers[0]
        if not isinstance(layer, Layer) or not layer.sums_inputs:
            return 0.0
        return degree * (sum(layer.widths) - len(self.features))

    def _checked_weight(self, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        if edge_weight is None or edge_weight.numel() != edge_index.shape[1]:
            found = "none" if edge_weight is None else f"shape {list(edge_weight.shape)}"
            raise DataError(
                f"the model reads weights of edges: edge_weight must have shape [{edge_index.shape[1]}], found {found}"
            )
        return edge_weight.reshape(-1)

    def _checked_attr(self, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        if edge_attr is not None and edge_attr.dim() == 1:
            edge_attr = edge_attr.unsqueeze(1)
        if edge_attr is None or edge_attr.shape != (edge_index.shape[1], self.edge_features):
            found = "none" if edge_attr is None else f"shape {list(edge_attr.shape)}"
            raise DataError(
                f"the model reads {self.edge_features} features per edge: edge_attr must have shape "
                f"[{edge_index.shape[1]}, {self.edge_features}], found {found}"
            )
        return edge_attr

    @torch.no_grad()
    def run(self, inputs: Inputs) -> Tensor:
        """Outputs for prepared inputs."""
        return self.propagate(*inputs)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        """Outputs from scratch; where features and graph stay, `prepare` them once and `run`."""
        if torch.compiler.is_compiling():
            return _uncompiled(self._from_scratch)(x, edge_index, edge_weight, edge_attr)
        return self._from_scratch(x, edge_index, edge_weight, edge_attr)

    def _from_scratch(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None
    ) -> Tensor:
        return self.run(self._inputs(x, edge_index, edge_weight, edge_attr, once=True))

    @property
    def nbytes(self) -> int:
        """What the weights take, with the copies that kernels have made of them."""
        made = [copy for part in self.modules() if isinstance(part, PrunedLinear) for copy in part.copies]
        return sum(part.nbytes for part in (*self.parameters(), *self.buffers())) + sum(map(stored_bytes, made))

    @property
    def kernels(self) -> Mapping[str, str]:
        """Which kernel each product of the last forward pass ran on."""
        named = [(name, part) for name, part in self.named_modules() if isinstance(part, PrunedLinear)]
        return {name: ", ".join(part.used) for name, part in named}


def _uncompiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function as torch.compile leaves it alone: kernels are chosen by what inputs hold."""
    reason = "a ticket's model chooses kernels by its inputs and runs them as they are; compile an export to pyg"
    disabled: Callable[..., Tensor] = torch.compiler.disable(function, reason=reason)
    return disabled


def parts_of(data: Any) -> tuple[Any, ...]:
    """x, edge_index, edge_weight and edge_attr of a `Data`, None for what it has not."""
    return tuple(getattr(data, name, None) for name in ("x", "edge_index", "edge_weight", "edge_attr"))


class CsrGraph(ArcGraph):
    """The arcs as a sparse matrix of N rows (targets) and columns (sources), with the coefficients of its kind.

    Arcs that are listed as PyG has them are sorted, and nothing else: shapes are known beforehand, so that a GPU is
    waited for once, to learn whether they are. Small graphs take as long as
    there are operations, so these are few.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        coefficients: str,
        directed: bool,
        edge_weight: Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        self.num_nodes = num_nodes
        if not self._listed(edge_index, coefficients, directed, edge_weight):
            check_edges(edge_index, num_nodes, "the graph")
            try:
                graph = Graph.from_edge_index(edge_index, num_nodes, directed, edge_weight)
            except ValueError as problem:
                raise DataError(str(problem)) from None
            arcs, weight = graph.arcs()
            self._listed(arcs, coefficients, True, weight)
        starts = self._every(max(1, num_nodes), num_nodes**2 + 1, self._code)
        self._rowptr = torch.searchsorted(self._code, starts, out_int32=True)
        degree = self._rowptr.diff().to(dtype)
        if self.weight is not None:
            self.weight = self.weight.to(dtype)
            if coefficients == "symmetric":
                degree = self.sum(degree.new_ones(num_nodes, 1), self.weight.abs()).squeeze(1)
        self._weigh(coefficients, degree)

    def _listed(self, edge_index: Tensor, coefficients: str, directed: bool, edge_weight: Tensor | None) -> bool:
        """Sort the arcs by target and source, with self-loops where layers want them. False where the matrix is not
        that of the graph: arcs twice, loops that are not ours, or an undirected edge in one direction."""
        n = self.num_nodes
        source, target = edge_index.to(torch.int32 if n * n < 2**31 else torch.int64)
        code = torch.add(source, target, alpha=n)
        if coefficients in SELF_LOOPS:
            code = torch.cat([code, self._every(n + 1, n * n, code)])
        code, order = code.sort(stable=True)  # which for integers is a radix sort
        target, source = (code // n).int(), (code % n).int()
        self._code, self.source, self.target, self.weight = code, source, target, None
        wrong = (code[1:] == code[:-1]).any() | (edge_index != edge_index.clamp(0, max(0, n - 1))).any()
        if coefficients not in SELF_LOOPS:
            wrong |= (source == target).any()
        if edge_weight is not None:
            loops = edge_weight.new_ones(len(code) - len(edge_weight))
            self.weight = torch.cat([edge_weight, loops])[order]
        if not directed:
            by_source, mirror = source.sort(stable=True)
            mirrored = torch.add(target.index_select(0, mirror), by_source.to(code.dtype), alpha=n)
            wrong |= (mirrored != code).any()
            if self.weight is not None:
                wrong |= ~torch.isclose(self.weight[mirror], self.weight).all()
        return not bool(wrong)

    @staticmethod
    def _every(step: int, end: int, like: Tensor) -> Tensor:
        return torch.arange(0, end, step, device=like.device, dtype=like.dtype)

    def sum(self, z: Tensor, coefficients: Tensor | None = None) -> Tensor:
        return _product(self._own_matrix if coefficients is None else self._matrix(coefficients), z)

    @cached_property
    def _own_matrix(self) -> Tensor:
        assert self.own is not None
        return self._matrix(self.own)

    def _matrix(self, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(self._rowptr, self.source, values, (self.num_nodes, self.num_nodes))

    def softmax(self, logits: Tensor) -> Tensor:
        return ops.softmax_rows(logits, self._rowptr, self.target)


class ArcBatch(ArcGraph):
    """The arcs as a search has them, with the features of edges that the steps of a residual network read."""

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        directed: bool,
        edge_attr: Tensor | None,
        edge_weight: Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        try:
            graph = Graph.from_edge_index(edge_index, num_nodes, directed, edge_weight, edge_attr)
        except ValueError as problem:
            raise DataError(str(problem)) from None
        graph = replace(graph, **{name: value.to(dtype) for name, value in graph.values.items()})
        alive = torch.ones(1, graph.num_edges, dtype=torch.bool, device=edge_index.device)
        self._batch = graph.batch(alive, self_loops=False)
        self._scores = ops.arc_values(self._batch, alive.to(dtype))

    def softmax_sum(self, y: Tensor, temperature: Tensor, edge: EdgeMap | None) -> Tensor:
        terms = None if edge is None else (edge[0].unsqueeze(0), edge[1].unsqueeze(0))
        return ops.softmax_messages(self._batch, y.unsqueeze(0), self._scores, temperature, terms).squeeze(0)


def _product(left: Tensor, dense: Tensor) -> Tensor:
    """left · dense by the fastest kernels of its device."""
    return kernels(dense.device.type).product(left, dense)
