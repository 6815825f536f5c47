"""One run's pass through a GCN on the CPU in two halves, each with its gradient: a few compiled kernels where plain
torch has some fifty operations, which on a small graph take as long to call as to run."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property, partial
from typing import Any, TypeGuard

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Weights
from aceglt.backbones.gcn import GCN
from aceglt.backends.cpu.kernels import CompiledKernels, Sums
from aceglt.numerics.batch import Block, GraphBatch, pointers
from aceglt.numerics.features import Features
from aceglt.numerics.ops import scatter_arcs, slots

_INT32 = 2**31 - 1


def serves(backbone: Backbone) -> TypeGuard[GCN]:
    """Whether a backbone is a GCN of two plain layers, which these halves are of."""
    if type(backbone) is not GCN or len(backbone.chain) != 2 or backbone.input_dropout:
        return False
    simple = not any(stage.along or stage.adds_inputs or stage.norm != "none" for stage in backbone.chain)
    return simple and backbone.chain[1].messages


class CompiledGCN(GCN):
    """A GCN whose `stem` and `head` are compiled where that is worth it.

    `stem` then has the gradient of units that are 0 from `head`: they go together.
    """

    def __init__(self, backbone: GCN, kernels: CompiledKernels, fixed: bool = False) -> None:
        """`fixed` says that edge values stay what they are, so that what is made of them may be kept."""
        self.__dict__.update(copy(backbone).__dict__)
        self._kernels, self._fixed = kernels, fixed
        self._kept: dict[tuple[str, int], tuple[Any, Any]] = {}  # by what it is and a graph's id, with the graph

    def _serves(self, graph: GraphBatch, weights: Weights) -> bool:
        weight = weights["layer0.weight"]  # [S, F, H]
        width = self.drawn(0) or weight.shape[2]  # what serves a network serves it without its dead units
        return graph.runs == 1 and self._kernels.computes(weight, graph.layer(0).targets * width)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Tensor, Tensor]:
        """The first layer's units [1, T, H] after ReLU, and all arcs' coefficients [A]."""
        if not self._serves(graph, weights):
            return super().stem(weights, graph, edge_values, x)
        hidden, adjacency = _Stem.apply(weights["layer0.weight"], edge_values, graph, x, self)
        return hidden, adjacency

    def head(
        self, weights: Weights, graph: GraphBatch, state: tuple[Tensor, Tensor], dropout: Dropout | None
    ) -> Tensor:
        if not self._serves(graph, weights):
            return super().head(weights, graph, state, dropout)
        draw, scale = None, 1.0
        if dropout is not None:
            p = self.chain[0].dropout
            nodes, whole = graph.layer(0).nodes, self.drawn(0)
            draw, scale = partial(dropout, nodes=nodes, layer=0, p=p, whole=whole), 1.0 / (1.0 - p)
        result: Tensor = _Head.apply(weights["layer1.weight"], *state, graph, draw, scale, self)
        return result

    def coefficients_of(self, graph: GraphBatch, edge_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `CompiledKernels.arc_coefficients`; made once where values are fixed."""
        assert not (self._fixed and edge_values.requires_grad)
        made: tuple[Tensor, Tensor, Tensor] = self.once(
            "arcs", graph, lambda: self._kernels.arc_coefficients(graph, slots(edge_values)), self._fixed
        )
        return made

    def picked(self, block: Block, adjacency: Tensor) -> Tensor:
        """Of all arcs' coefficients those of a layer; made once where values are fixed."""
        if block.arcs is None:
            return adjacency
        made: Tensor = self.once("picked", block, partial(adjacency.index_select, 0, block.arcs), self._fixed)
        return made

    def once(self, what: str, graph: Block, make: Callable[[], Any], kept: bool = True) -> Any:
        """What is made of a graph, which is kept if it stays the same."""
        if not kept:
            return make()
        if (what, id(graph)) not in self._kept:
            self._kept[what, id(graph)] = graph, make()
        return self._kept[what, id(graph)][1]


class AggregatedFeatures(Features):
    """Features of a layer's sources that are summed along its arcs before they are multiplied by a weight: less work
    where few nodes with few features have many neighbours, since then the sums have fewer entries than the features."""

    def __init__(self, base: Features, block: Block, kernels: CompiledKernels) -> None:
        assert base.csr is not None
        vars(self).update(vars(base))
        self._base, self._block, self._compiled = base, block, kernels
        self.sums = Sums(kernels, block.rowptr, block.col32, base.csr)
        self._kept: Tensor | None = None

    def columns(self, kept: Tensor) -> AggregatedFeatures:
        return AggregatedFeatures(self._base.columns(kept), self._block, self._compiled)

    def units(self, weight: Tensor, arcs: Tensor, fixed: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Units [1, T, H] of a first layer, with 0 for what is below it, from the weight [1, F, H] and the values of
        arcs; then what the gradients of the weight and of arcs need. Sums are made once where arcs are `fixed`."""
        sums = self.sums.of(arcs) if self._kept is None else self._kept
        self._kept = sums if fixed else None
        out = weight.new_empty(1, self._block.targets, weight.shape[2])
        self._compiled.multiply(self.sums.rowptr, self.sums.col, sums, weight[0], out[0], positive=True)
        return out, sums, weight

    def weight_gradient(self, needed: Tensor, grad: Tensor) -> Tensor:
        """[1, F, H], from that [T, H] of the units."""
        rowptr, col, order = self._transposed
        out = grad.new_empty(1, self.shape[1], grad.shape[1])
        self._compiled.multiply(rowptr, col, needed.index_select(0, order), grad, out[0])
        return out

    def arc_gradient(self, needed: Tensor, grad: Tensor) -> Tensor:
        """[A] of the layer's arcs, from that [T, H] of the units."""
        products = self._compiled.inner_products(self.sums.rowptr, self.sums.col, grad, needed[0])
        return self.sums.gradient(products)

    @cached_property
    def _transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where the rows of the transposed sums begin, their columns, and their order among the sums."""
        row = torch.arange(self._block.targets).repeat_interleave(self.sums.rowptr.diff())
        order = self.sums.col.argsort(stable=True)
        return pointers(self.sums.col[order], self.shape[1]), row[order].int(), order


class ReadyFeatures(Features):
    """Features whose product with the weight of this step is known already, among that of others."""

    def __init__(self, base: Features, of_all: Tensor, places: Tensor) -> None:
        """The product of all [S, N, H], and which rows of it are meant, [n] int32."""
        vars(self).update(vars(base))
        self._base, self.of_all, self.places = base, of_all, places

    def product(self, weight: Tensor) -> Tensor:
        return self.of_all.index_select(1, self.places)

    def gradient(self, grad: Tensor) -> Tensor:
        return self._base.gradient(grad)


class _Multiplied:
    """Features of a layer's sources that are multiplied by a weight before they are summed along its arcs: what
    `AggregatedFeatures` do in the other order."""

    def __init__(self, x: Features, block: Block, gcn: CompiledGCN) -> None:
        self._x, self._block, self._kernels, self._sources = x, block, gcn._kernels, block.col32
        """[A] where the product of each arc's source is."""
        if isinstance(x, ReadyFeatures):
            self._sources = gcn.once("sources", block, partial(x.places.index_select, 0, block.col))

    def units(self, weight: Tensor, arcs: Tensor, fixed: bool) -> tuple[Tensor, Tensor, Tensor]:
        z = self._x.of_all if isinstance(self._x, ReadyFeatures) else self._x.product(weight)
        out = z.new_empty(1, self._block.targets, z.shape[2])
        self._kernels.multiply(self._block.rowptr, self._sources, arcs, z[0], out[0], positive=True)
        return out, arcs, z

    def weight_gradient(self, needed: Tensor, grad: Tensor) -> Tensor:
        return self._x.gradient(_transposed(self._block, needed, grad, self._kernels).unsqueeze(0))

    def arc_gradient(self, needed: Tensor, grad: Tensor) -> Tensor:
        return self._kernels.inner_products(self._block.rowptr, self._sources, grad, needed[0])


def aggregated(
    x: Features, graph: GraphBatch, width: int, trained: bool, kernels: CompiledKernels, most: float = 3.0
) -> Features:
    """The features as a first layer of this width had best read them: for (A·X)·W, or as they are for A·(X·W).

    A·X may have so many entries, at `most`, for each row that is read otherwise.
    """
    block = graph.layer(0)
    if x.csr is None or graph.runs > 1 or not kernels.computes(x.csr.values(), block.targets * width):
        return x
    rows = x.nnz + block.num_arcs  # that are read forward otherwise, and also for the gradient
    if block.targets * x.shape[1] > min(most * rows, _INT32):
        return x
    made = AggregatedFeatures(x, block, kernels)
    passes, others = (3, 2) if trained else (1, 1)  # over the sums, of which one is for scores of arcs; over others
    return made if passes * len(made.sums.col) < others * rows else x


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, edge_values: Tensor, graph: GraphBatch, x: Features, gcn: CompiledGCN
    ) -> tuple[Tensor, Tensor]:
        first = graph.layer(0)
        layer = x if isinstance(x, AggregatedFeatures) else _Multiplied(x, first, gcn)
        adjacency, values, root = gcn.coefficients_of(graph, edge_values)
        hidden, for_weight, for_arcs = layer.units(weight, gcn.picked(first, adjacency), gcn._fixed)
        ctx.graph, ctx.layer, ctx.kernels = graph, layer, gcn._kernels
        scored = ctx.needs_input_grad[1]
        ctx.save_for_backward(for_weight, *((for_arcs, values, root) if scored else ()))
        if not scored:
            ctx.mark_non_differentiable(adjacency)
        return hidden, adjacency

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, of_adjacency = grads[0][0].contiguous(), grads[1]
        for_weight, *kept = ctx.saved_tensors
        of_weight = ctx.layer.weight_gradient(for_weight, grad)
        if not ctx.needs_input_grad[1]:
            return of_weight, None, None, None, None
        for_arcs, values, root = kept
        of_picked = ctx.layer.arc_gradient(for_arcs, grad)
        of_arcs = scatter_arcs(ctx.graph.layer(0), of_picked, len(values)).add_(of_adjacency)
        of_slots = ctx.kernels.slot_gradient(ctx.graph, values, root, of_arcs)
        return of_weight, of_slots[:-1].unsqueeze(0), None, None, None


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, hidden: Tensor, adjacency: Tensor, *others: Any) -> Tensor:
        """`others` are the graph, what drops elements of hidden units (or None) and scales the rest, and the GCN."""
        graph, draw, ctx.scale, gcn = others
        kernels: CompiledKernels = gcn._kernels
        second, narrow = graph.layer(1), weight[0].t().contiguous()  # [C, H]
        left = hidden if draw is None else draw(hidden)
        picked, z = gcn.picked(second, adjacency), kernels.outputs(left[0], narrow)
        out: Tensor = z.new_empty(1, second.targets, z.shape[1])
        kernels.multiply(second.rowptr, second.col32, picked, z, out[0])
        ctx.graph, ctx.kernels = graph, kernels
        ctx.save_for_backward(narrow, left, picked, z)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0][0].contiguous()
        narrow, left, picked, z = ctx.saved_tensors
        second = ctx.graph.layer(1)
        of_z = _transposed(second, picked, grad, ctx.kernels)
        of_weight = (of_z.t() @ left[0]).t().contiguous().unsqueeze(0)
        of_hidden = ctx.kernels.unit_gradients(of_z, narrow, left[0], ctx.scale).unsqueeze(0)
        of_adjacency = None
        if ctx.needs_input_grad[2]:
            of_arcs = ctx.kernels.inner_products(second.rowptr, second.col32, grad, z)
            of_adjacency = scatter_arcs(second, of_arcs, ctx.graph.num_arcs)
        return of_weight, of_hidden, of_adjacency, None, None, None, None


def _transposed(block: Block, values: Tensor, dense: Tensor, kernels: CompiledKernels) -> Tensor:
    """The transposed block · dense."""
    out = dense.new_empty(block.sources, dense.shape[1])
    if block.mirrored:
        kernels.multiply(block.rowptr, block.col32, values, dense, out)
    else:
        values = values.index_select(0, block.transpose)
        kernels.multiply(block.transposed_rowptr, block.transposed_col, values, dense, out)
    return out
