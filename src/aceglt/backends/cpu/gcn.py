"""One run's pass through a GCN on the CPU in two halves, and its gradient: a few compiled functions where plain torch
has some hundred operations, which on a small graph take as long to call as to run."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeGuard

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Weights
from aceglt.backbones.gcn import GCN
from aceglt.backends.cpu.kernels import CompiledKernels, Sums, as_given, not_drawn
from aceglt.numerics.batch import Block, GraphBatch, pointers
from aceglt.numerics.features import Features
from aceglt.numerics.ops import scatter_arcs, slots

_INT32 = 2**31 - 1
Csr = tuple[Any, Any, Any]
"""Where the rows of a sparse matrix begin, its columns, and its values, arrays or tensors; empty if there is none."""


def serves(backbone: Backbone) -> TypeGuard[GCN]:
    """Whether a backbone is a GCN of two plain layers, which these halves are of."""
    if type(backbone) is not GCN or len(backbone.chain) != 2 or backbone.input_dropout:
        return False
    simple = not any(stage.along or stage.adds_inputs or stage.norm != "none" for stage in backbone.chain)
    return simple and backbone.chain[1].messages


@dataclass(frozen=True)
class Stem:
    """What the first layer leaves for the second one and for the gradient."""

    weight: Tensor  # [1, F, H]
    edge_values: Tensor  # [1, E]
    layer: Layer
    arcs: tuple[Tensor, Tensor, Tensor]  # see `CompiledKernels.arc_coefficients`
    picked: Tensor  # [A] coefficients of the layer's arcs
    hidden: Tensor  # [T, H] units after ReLU
    z: Tensor  # what units are sums of, in blocks [blocks, rows, columns]; empty where no gradient reads it


class CompiledGCN(GCN):
    """A GCN whose `stem` and `head` are compiled where that is worth it."""

    def __init__(self, backbone: GCN, kernels: CompiledKernels, fixed: bool = False) -> None:
        """`fixed` says that edge values stay what they are, so that what is made of them may be kept."""
        self.__dict__.update(copy(backbone).__dict__)
        self.kernels, self.fixed = kernels, fixed
        self._kept: dict[tuple[str, int], tuple[Any, Any]] = {}  # by what it is and a graph's id, with the graph

    def computes(self, graph: GraphBatch, weights: Weights) -> bool:
        """Whether passes there are worth compiled functions."""
        weight = weights["layer0.weight"]  # [S, F, H]
        width = self.drawn(0) or weight.shape[2]  # what serves a network serves it without its dead units
        return graph.runs == 1 and self.kernels.computes(weight, graph.layer(0).targets * width)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        if not self.computes(graph, weights):
            return super().stem(weights, graph, edge_values, x)
        weight, first = weights["layer0.weight"], graph.layer(0)
        arcs = self.coefficients_of(graph, edge_values)
        picked, layer = self.picked(first, arcs[0]), layer_of(x, first, self)
        with torch.no_grad():
            hidden, z = layer.units(weight[0], picked, edge_values.requires_grad)
        return Stem(weight, edge_values, layer, arcs, picked, hidden, z)

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        if not isinstance(state, Stem):
            return super().head(weights, graph, state, dropout)
        hidden, drawing, scale = state.hidden, not_drawn(state.hidden), 1.0
        if dropout is not None:
            nodes, p, whole = graph.layer(0).nodes, self.chain[0].dropout, self.drawn(0)
            scale, drawn = 1.0 / (1.0 - p), self.kernels.drawing(hidden, *dropout.drawing(0), nodes, p, whole)
            if drawn is None:
                hidden = dropout(hidden.unsqueeze(0), nodes, 0, p, whole)[0]
            drawing = drawn or drawing
        given = hidden, drawing, scale, state, graph, self
        result: Tensor = _Pass.apply(state.weight, weights["layer1.weight"], state.edge_values, *given)
        return result

    def product(self, x: Features, weight: Tensor) -> Tensor | None:
        """X · W in blocks for `ReadyFeatures`, of a weight [1, F, H]; None for features that are not read so."""
        if not in_blocks(x):
            return None
        out = self.kernels.blocks(x.shape[0], weight[0])
        parts = *self.csr(x), weight[0], out[:0], out, out[0, :0], True
        self.kernels.together("product", *parts, size=x.nnz * weight.shape[2])
        return out

    def coefficients_of(self, graph: GraphBatch, edge_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `CompiledKernels.arc_coefficients`; made once where values are fixed."""
        assert not (self.fixed and edge_values.requires_grad)
        with torch.no_grad():
            made: tuple[Tensor, Tensor, Tensor] = self.once(
                "arcs", graph, lambda: self.kernels.arc_coefficients(graph, slots(edge_values)), self.fixed
            )
        return made

    def picked(self, block: Block, adjacency: Tensor) -> Tensor:
        """Of all arcs' coefficients those of a layer; made once where values are fixed."""
        if block.arcs is None:
            return adjacency
        made: Tensor = self.once("picked", block, partial(adjacency.index_select, 0, block.arcs), self.fixed)
        return made

    def transposed(self, block: Block, values: Tensor) -> Csr:
        """A block with these values of its arcs, the other way round."""
        if block.mirrored:
            return *self.arcs_of(block), values
        order = partial(values.index_select, 0, block.transpose)
        there = self.once("transposed", block, lambda: as_given((block.transposed_rowptr, block.transposed_col)))
        return *there, self.once("turned", block, order, self.fixed)

    def arcs_of(self, block: Block) -> tuple[Any, Any]:
        """Where the rows of a block begin, and their columns."""
        arcs: tuple[Any, Any] = self.once("arcs of", block, lambda: as_given((block.rowptr, block.col32)))
        return arcs

    def csr(self, x: Features) -> Csr:
        """X."""

        def made() -> Csr:
            assert x.csr is not None
            csr: Csr = as_given((x.csr.crow_indices(), x.csr.col_indices(), x.csr.values()))
            return csr

        kept: Csr = self.once("csr", x, made)
        return kept

    def transposed_features(self, x: Features) -> Csr:
        """Xᵀ, with bounds in place of where rows begin (see `stretches`)."""

        def made() -> Csr:
            assert x.csr_t is not None
            rowptr, col, values = x.csr_t.crow_indices(), x.csr_t.col_indices(), x.csr_t.values()
            csr: Csr = as_given((self.kernels.stretches(rowptr, col, x.shape[0]), col, values))
            return csr

        kept: Csr = self.once("transposed", x, made)
        return kept

    def once(self, what: str, of: Block | Features, make: Callable[[], Any], kept: bool = True) -> Any:
        """What is made of a graph or of features, which is kept if it stays the same."""
        if not kept:
            return make()
        if (what, id(of)) not in self._kept:
            self._kept[what, id(of)] = of, make()
        return self._kept[what, id(of)][1]


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

    def summed(self, arcs: Tensor, fixed: bool) -> Tensor:
        """The sums' values from those of arcs; made once where arcs are `fixed`."""
        sums = self.sums.of(arcs) if self._kept is None else self._kept
        self._kept = sums if fixed else None
        return sums

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds of the transposed sums (see `stretches`), their columns, and their order among the sums."""
        row = torch.arange(self._block.targets).repeat_interleave(self.sums.rowptr.diff())
        order = self.sums.col.argsort(stable=True)
        rowptr, col = pointers(self.sums.col[order], self.shape[1]), row[order].int()
        return self._compiled.stretches(rowptr, col, self._block.targets), col, order


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


class ReadyFeatures(Features):
    """Features whose product with the weight of this step is known already, among that of others."""

    def __init__(self, base: Features, of_all: Tensor, places: Tensor, blocked: bool = False) -> None:
        """The product of all, [1, N, H] or if `blocked` [blocks, N, columns], and which rows are meant, [n] int32."""
        vars(self).update(vars(base))
        self._base, self.of_all, self.places, self.blocked = base, of_all, places, blocked

    def product(self, weight: Tensor) -> Tensor:
        rows = self.of_all.index_select(1, self.places)
        if not self.blocked:
            return rows
        return rows.transpose(0, 1).reshape(1, len(self.places), -1)[..., : weight.shape[2]].contiguous()

    def gradient(self, grad: Tensor) -> Tensor:
        return self._base.gradient(grad)


class Layer:
    """A first layer: features of its sources are multiplied by a weight and summed along its arcs."""

    def __init__(self, x: Features, block: Block, gcn: CompiledGCN) -> None:
        self._x, self._block, self._gcn, self._kernels = x, block, gcn, gcn.kernels
        self.inner = gcn.arcs_of(block)
        """Of whose entries the values have gradients."""

    def inputs(self, arcs: Tensor) -> Csr:
        """Xᵀ in stretches; empty, with numbers like those of arcs, where its product is left to `weight_gradient`."""
        if in_blocks(self._x):
            return self._gcn.transposed_features(self._x)
        none = self.inner[1][:0]
        return none.reshape(0, 0), none, arcs[:0]

    def units(self, weight: Tensor, arcs: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        """Units [T, H] after ReLU from the weight [F, H] and the values of arcs, and what they are sums of, in
        blocks."""
        x, (rowptr, col) = self._x, self.inner
        hidden, size = weight.new_empty(self._block.targets, weight.shape[1]), len(col) * weight.shape[1]
        if in_blocks(x):
            z = self._kernels.blocks(x.shape[0], weight)
            parts = *self._gcn.csr(x), weight, z, rowptr, col, arcs, hidden
            self._kernels.together("stem", *parts, size=size + x.nnz * weight.shape[1])
        else:
            given = x.product(weight.unsqueeze(0))[0]
            z = self._kernels.blocks(len(given), weight)
            self._kernels.together("along", rowptr, col, arcs, z, given, hidden, size=size)
        return hidden, z

    def turned(self, arcs: Tensor) -> Csr:
        """The layer's arcs the other way round; empty where X is summed along them."""
        return self._gcn.transposed(self._block, arcs)

    def weight_gradient(self, of_weight: Tensor) -> Tensor:
        """[1, F, H], from what `backward` leaves."""
        return of_weight.unsqueeze(0) if in_blocks(self._x) else self._x.gradient(of_weight.unsqueeze(0))

    def arc_gradient(self, of_inner: Tensor) -> Tensor:
        """[A] of the layer's arcs."""
        return of_inner

    @property
    def rows(self) -> int:
        """How many `backward` leaves for `weight_gradient`."""
        return self._x.shape[1] if in_blocks(self._x) else self._block.sources

    @property
    def entries(self) -> int:
        """Of X."""
        return self._x.nnz


class _Ready(Layer):
    """One whose features have been multiplied already."""

    def __init__(self, x: ReadyFeatures, block: Block, gcn: CompiledGCN) -> None:
        super().__init__(x._base, block, gcn)
        self._z, self._blocked = x.of_all, x.blocked
        rowptr, _ = self.inner
        sources = gcn.once("sources", block, lambda: as_given(x.places.index_select(0, block.col)))
        self.inner = rowptr, sources

    def units(self, weight: Tensor, arcs: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        (rowptr, col), z, given = self.inner, self._z, weight[:0]
        hidden = weight.new_empty(self._block.targets, weight.shape[1])
        if not self._blocked:
            z, given = self._kernels.blocks(z.shape[1], weight), z[0]
        self._kernels.together("along", rowptr, col, arcs, z, given, hidden, size=len(col) * weight.shape[1])
        return hidden, z


class _Summed(Layer):
    """One whose features are summed along its arcs first."""

    def __init__(self, x: AggregatedFeatures, block: Block, gcn: CompiledGCN) -> None:
        super().__init__(x, block, gcn)
        self._features, self.inner = x, as_given((x.sums.rowptr, x.sums.col))
        self._sums = x.sums.col  # what they are follows

    def inputs(self, arcs: Tensor) -> Csr:
        bounds, col, order = self._features.transposed
        values = self._gcn.once("turned", self._x, lambda: self._sums.index_select(0, order), self._gcn.fixed)
        return bounds, col, values

    def units(self, weight: Tensor, arcs: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        self._sums = self._features.summed(arcs, self._gcn.fixed)
        hidden, kept = weight.new_empty(self._block.targets, weight.shape[1]), self._kernels.blocks(len(weight), weight)
        kept = kept if scored else kept[:0]
        parts = *self.inner, self._sums, weight, kept, kept[:0], hidden, True
        self._kernels.together("product", *parts, size=len(self._sums) * weight.shape[1])
        return hidden, kept

    def turned(self, arcs: Tensor) -> Csr:
        none = self.inner[1][:0]
        return none, none, arcs[:0]

    def weight_gradient(self, of_weight: Tensor) -> Tensor:
        return of_weight.unsqueeze(0)

    def arc_gradient(self, of_inner: Tensor) -> Tensor:
        return self._features.sums.gradient(of_inner)

    @property
    def rows(self) -> int:
        return self._x.shape[1]

    @property
    def entries(self) -> int:
        return len(self._sums)


def layer_of(x: Features, block: Block, gcn: CompiledGCN) -> Layer:
    """How a layer reads features of this kind."""
    if isinstance(x, AggregatedFeatures):
        return _Summed(x, block, gcn)
    return _Ready(x, block, gcn) if isinstance(x, ReadyFeatures) else Layer(x, block, gcn)


def in_blocks(x: Features) -> bool:
    """Whether these features are multiplied by blocks of a weight's columns: sparse ones, both ways."""
    return type(x) is Features and x.sparse and x.sparse_gradient


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, edge_values: Tensor, *given: Any) -> Tensor:
        """`given` are hidden units, what drops elements of them and scales the others, what the stem left, the graph
        and the GCN."""
        hidden, drawing, ctx.scale, stem, graph, gcn = given
        block, narrow = graph.layer(1), second[0].t().contiguous()  # [C, H]
        left = torch.empty_like(hidden) if len(drawing[-1]) else hidden
        values, z = gcn.picked(block, stem.arcs[0]), hidden.new_empty(len(hidden), len(narrow))
        out: Tensor = z.new_empty(1, block.targets, len(narrow))
        parts = narrow, left, z, block.rowptr, block.col32, values, out[0]
        gcn.kernels.together("head", hidden, *drawing, *parts, size=len(narrow) * hidden.numel())
        ctx.graph, ctx.gcn, ctx.stem = graph, gcn, stem
        ctx.save_for_backward(narrow, left, values, z)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (narrow, left, values, z), stem, graph = ctx.saved_tensors, ctx.stem, ctx.graph
        gcn: CompiledGCN = ctx.gcn
        block, layer, kernels, scored = graph.layer(1), stem.layer, gcn.kernels, ctx.needs_input_grad[2]
        units, (rowptr, col), turned = left.shape[1], layer.inner, layer.turned(stem.picked)
        of_hidden, of_sources = kernels.room(left, stem.z, scored, max(0, len(turned[0]) - 1))
        of_first, of_second = left.new_empty(layer.rows, units), left.new_empty(units, len(narrow))
        of_outer, of_inner = left.new_empty(scored * block.num_arcs), left.new_empty(scored * len(col))
        kernels.together(
            "backward",
            *(grads[0][0].contiguous(), gcn.transposed(block, values)),
            *(torch.empty_like(z), narrow, left, left.new_tensor([ctx.scale]), of_second),
            *(turned, of_hidden, of_sources, layer.inputs(stem.picked), of_first),
            *((block.rowptr, block.col32), z, of_outer, (rowptr, col), stem.z, of_inner),
            size=units * (len(col) + layer.entries),
        )
        of_weights = layer.weight_gradient(of_first), of_second.unsqueeze(0)
        if not scored:
            return *of_weights, *(None,) * 7
        of_arcs = scatter_arcs(graph.layer(0), layer.arc_gradient(of_inner), graph.num_arcs)
        of_arcs = of_arcs.add_(scatter_arcs(block, of_outer, graph.num_arcs))
        _, unscaled, roots = stem.arcs
        of_slots = kernels.slot_gradient(graph, unscaled, roots, of_arcs)
        return *of_weights, of_slots[:-1].unsqueeze(0), *(None,) * 6
