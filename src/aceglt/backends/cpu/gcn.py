"""One run's pass through a GCN on the CPU in two halves, and its gradient: a few compiled functions where plain torch
has some hundred operations, which on a small graph take as long to call as to run. In a training, room for what they
leave and their calls are made once."""

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
Call = Callable[[], object]
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

    def __init__(self, backbone: GCN, kernels: CompiledKernels, fixed: bool = False, reuses: bool = False) -> None:
        """`fixed` says that edge values stay what they are, so that what is made of them may be kept; `reuses` that
        passes over the same graphs follow each other, so that each is made in the room of the last: gradients of the
        first weight are read before the next pass."""
        self.__dict__.update(copy(backbone).__dict__)
        self.kernels, self.fixed, self.reuses = kernels, fixed, reuses
        self._kept: dict[tuple[str, int], tuple[list[int], Any, Any]] = {}  # by what it is and the id of what it is of

    def computes(self, graph: GraphBatch, weights: Weights) -> bool:
        """Whether passes there are worth compiled functions."""
        weight = weights["layer0.weight"]  # [S, F, H]
        width = self.drawn(0) or weight.shape[2]  # what serves a network serves it without its dead units
        return graph.runs == 1 and self.kernels.computes(weight, graph.layer(0).targets * width)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        if not self.computes(graph, weights):
            return super().stem(weights, graph, edge_values, x)
        weight, first, scored = weights["layer0.weight"], graph.layer(0), edge_values.requires_grad
        assert not (self.fixed and scored)
        with torch.no_grad():
            arcs = self.coefficients_of(graph, edge_values.detach())
            picked = self.picked(first, arcs[0])
            layer: Layer = self.once("layer", first, lambda: layer_of(x, first, self), x, kept=self.reuses)
            made = partial(layer.units, self, weight[0].detach(), picked, scored)
            hidden, z = self.filled("units", first, made, layer, weight, picked, scored)
        return Stem(weight, edge_values, layer, arcs, picked, hidden, z)

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        if not isinstance(state, Stem):
            return super().head(weights, graph, state, dropout)
        second = weights["layer1.weight"]
        with torch.no_grad():
            values = self.picked(graph.layer(1), state.arcs[0])
            kind = "evaluation" if dropout is None else "training"
            made = partial(HeadRoom, state, graph, values, second, dropout, self)
            given = state.hidden, values, second, state.edge_values.requires_grad
            room = self.once(kind, graph, made, *given, kept=self.reuses)
        result: Tensor = _Pass.apply(state.weight, second, state.edge_values, state, dropout, room, self)
        return result

    def product(self, x: Features, weight: Tensor) -> Tensor | None:
        """X · W in blocks for `ReadyFeatures`, of a weight [1, F, H]; None for features that are not read so."""
        if not in_blocks(x):
            return None

        def made() -> tuple[Tensor, Call]:
            out = self.kernels.blocks(x.shape[0], weight[0])
            parts = *self.csr(x), weight[0], out[:0], out, out[0, :0], True
            return out, self.kernels.call("product", *parts, size=x.nnz * weight.shape[2])

        of_all: Tensor = self.filled("product", x, made, weight)
        return of_all

    def coefficients_of(self, graph: GraphBatch, edge_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `CompiledKernels.arc_coefficients`; made once where values are fixed."""
        if self.fixed:
            made: tuple[Tensor, Tensor, Tensor] = self.once(
                "arcs", graph, lambda: self.kernels.arc_coefficients(graph, slots(edge_values))
            )
            return made

        def room() -> tuple[Any, Call]:
            given = edge_values.new_ones(edge_values.shape[1] + 1)  # the last is of self-loops
            left, scale = self.kernels.arc_coefficients_call(graph, given)

            def call() -> None:
                given[:-1] = edge_values[0]
                scale()

            return left, call

        left: tuple[Tensor, Tensor, Tensor] = self.filled("arcs", graph, room, edge_values)
        return left

    def picked(self, block: Block, adjacency: Tensor) -> Tensor:
        """Of all arcs' coefficients those of a layer; made once where values are fixed."""
        return adjacency if block.arcs is None else self.selected("picked", block, adjacency, block.arcs)

    def transposed(self, block: Block, values: Tensor) -> Csr:
        """A block with these values of its arcs, the other way round."""
        if block.mirrored:
            return *self.arcs_of(block), values
        there = self.once("transposed", block, lambda: as_given((block.transposed_rowptr, block.transposed_col)))
        return *there, self.selected("turned", block, values, block.transpose)

    def selected(self, what: str, of: Block | Features, values: Tensor, places: Tensor) -> Tensor:
        """Values at these places; made once where edge values are fixed."""
        if self.fixed:
            kept: Tensor = self.once(what, of, partial(values.index_select, 0, places))
            return kept

        def made() -> tuple[Tensor, Call]:
            out = values.new_empty(len(places))
            return out, partial(torch.index_select, values, 0, places, out=out)

        there: Tensor = self.filled(what, of, made, values)
        return there

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

    def filled(self, what: str, of: Any, make: Callable[[], tuple[Any, Call]], *given: Any) -> Any:
        """What a call leaves. `make` makes room for it and the call; both are kept where passes come again."""
        left, call = self.once(what, of, make, *given, kept=self.reuses)
        call()
        return left

    def once(self, what: str, of: Any, make: Callable[[], Any], *given: Any, kept: bool = True) -> Any:
        """What is made of a graph or of features, and of what else is given; made anew where that is something else, or
        somewhere else in memory."""
        if not kept:
            return make()
        at = [each.data_ptr() if isinstance(each, Tensor) else id(each) for each in given]
        if (what, id(of)) not in self._kept or self._kept[what, id(of)][0] != at:
            self._kept.pop((what, id(of)), None)  # two would not be needed at once
            self._kept[what, id(of)] = at, make(), (of, given)  # held, so that nothing else gets their places
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

    def summed(self, arcs: Tensor, fixed: bool, reuses: bool) -> Tensor:
        """The sums' values from those of arcs; for `fixed` and `reuses` see `CompiledGCN`."""
        if self._kept is None or not fixed:
            self._kept = self.sums.of(arcs, self._kept if reuses else None)
        return self._kept

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
        """The network keeps its layers, so they do not hold it."""
        self._x, self._block, self._kernels = x, block, gcn.kernels
        self.inner = gcn.arcs_of(block)
        """Of whose entries the values have gradients."""

    def inputs(self, gcn: CompiledGCN, arcs: Tensor) -> Csr:
        """Xᵀ in stretches; empty, with numbers like those of arcs, where its product is left to `weight_gradient`."""
        if in_blocks(self._x):
            return gcn.transposed_features(self._x)
        none = self.inner[1][:0]
        return none.reshape(0, 0), none, arcs[:0]

    def units(self, gcn: CompiledGCN, weight: Tensor, arcs: Tensor, scored: bool) -> tuple[tuple[Tensor, Tensor], Call]:
        """Room for units [T, H] after ReLU, from the weight [F, H] and the values of arcs, and for what they are sums
        of, in blocks; and the call that fills it."""
        x, (rowptr, col) = self._x, self.inner
        hidden, size = weight.new_empty(self._block.targets, weight.shape[1]), len(col) * weight.shape[1]
        if in_blocks(x):
            z = self._kernels.blocks(x.shape[0], weight)
            parts = *gcn.csr(x), weight, z, rowptr, col, arcs, hidden
            return (hidden, z), self._kernels.call("stem", *parts, size=size + x.nnz * weight.shape[1])
        z = self._kernels.blocks(x.shape[0], weight)

        def call() -> None:
            given = x.product(weight.unsqueeze(0))[0]
            self._kernels.together("along", rowptr, col, arcs, z, given, hidden, size=size)

        return (hidden, z), call

    def turned(self, gcn: CompiledGCN, arcs: Tensor) -> Csr:
        """The layer's arcs the other way round; empty where X is summed along them."""
        return gcn.transposed(self._block, arcs)

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

    def units(self, gcn: CompiledGCN, weight: Tensor, arcs: Tensor, scored: bool) -> tuple[tuple[Tensor, Tensor], Call]:
        (rowptr, col), z, given = self.inner, self._z, weight[:0]
        hidden = weight.new_empty(self._block.targets, weight.shape[1])
        if not self._blocked:
            z, given = self._kernels.blocks(z.shape[1], weight), z[0]
        parts = rowptr, col, arcs, z, given, hidden
        return (hidden, z), self._kernels.call("along", *parts, size=len(col) * weight.shape[1])


class _Summed(Layer):
    """One whose features are summed along its arcs first."""

    def __init__(self, x: AggregatedFeatures, block: Block, gcn: CompiledGCN) -> None:
        super().__init__(x, block, gcn)
        self._features, self.inner = x, as_given((x.sums.rowptr, x.sums.col))
        self._sums = x.sums.col  # what they are follows

    def inputs(self, gcn: CompiledGCN, arcs: Tensor) -> Csr:
        bounds, col, order = self._features.transposed
        return bounds, col, gcn.selected("turned sums", self._x, self._sums, order)

    def units(self, gcn: CompiledGCN, weight: Tensor, arcs: Tensor, scored: bool) -> tuple[tuple[Tensor, Tensor], Call]:
        hidden, kept = weight.new_empty(self._block.targets, weight.shape[1]), self._kernels.blocks(len(weight), weight)
        kept, summed = kept if scored else kept[:0], partial(self._features.summed, arcs)
        fixed, reuses = gcn.fixed, gcn.reuses

        def call() -> None:
            self._sums = summed(fixed, reuses)
            parts = *self.inner, self._sums, weight, kept, kept[:0], hidden, True
            self._kernels.together("product", *parts, size=len(self._sums) * weight.shape[1])

        return (hidden, kept), call

    def turned(self, gcn: CompiledGCN, arcs: Tensor) -> Csr:
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


class HeadRoom:
    """Room for what the second layer of a pass leaves, and for the gradients of both, with the calls that fill it."""

    def __init__(
        self, stem: Stem, graph: GraphBatch, values: Tensor, second: Tensor, dropout: Dropout | None, gcn: CompiledGCN
    ) -> None:
        """`values` of the second layer's arcs, in `graph`, and its weight [1, H, C]."""
        self._hidden, self._block, self._graph, self._kernels = stem.hidden, graph.layer(1), graph, gcn.kernels
        hidden = stem.hidden
        self._nodes, self._p, self._whole = graph.layer(0).nodes, gcn.chain[0].dropout, gcn.drawn(0)
        self._drawn, self._scale = None, 1.0
        if dropout is not None:
            key, units = dropout.drawing(0)
            self._scale, self._key = 1.0 / (1.0 - self._p), key.clone()
            self._drawn = gcn.kernels.drawing(hidden, self._key, units, self._nodes, self._p, self._whole)
        self._values, self._narrow = values, hidden.new_empty(second.shape[2], second.shape[1])  # [C, H]
        self._left = hidden if dropout is None else torch.empty_like(hidden)
        self._z = hidden.new_empty(len(hidden), len(self._narrow))
        self._out = hidden.new_empty(1, self._block.targets, len(self._narrow))
        parts = self._narrow, self._left, self._z, self._block.rowptr, self._block.col32, values, self._out[0]
        given = hidden if self._drawn else self._left, *(self._drawn or not_drawn(hidden))
        self._call = gcn.kernels.call("head", *given, *parts, size=len(self._narrow) * hidden.numel())
        self._back: Call | None = None

    def outputs(self, second: Tensor, dropout: Dropout | None) -> Tensor:
        """[1, T, C] from what hidden units and the second weight are now."""
        self._narrow.copy_(second[0].t())
        if dropout is not None and self._drawn is None:
            self._left.copy_(dropout(self._hidden.unsqueeze(0), self._nodes, 0, self._p, self._whole)[0])
        elif dropout is not None:
            self._key.copy_(dropout.drawing(0)[0])
        self._call()
        return self._out.clone()  # whose gradient knows this room, which then must not know it

    def gradients(
        self, gcn: CompiledGCN, grad: Tensor, stem: Stem, scored: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of both weights and, if they are `scored`, of the edges, from that of the outputs."""
        layer, block, picked = stem.layer, self._block, stem.picked
        matrices = gcn.transposed(block, self._values), layer.turned(gcn, picked), layer.inputs(gcn, picked)
        if self._back is None:
            self._make_room(stem, scored, *matrices)
        assert self._back is not None
        self._grad.copy_(grad[0])
        self._back()
        of_weights = layer.weight_gradient(self._of_first), self._of_second.clone().unsqueeze(0)
        if not scored:
            return *of_weights, None
        of_arcs = scatter_arcs(self._graph.layer(0), layer.arc_gradient(self._of_inner), self._graph.num_arcs)
        of_arcs = of_arcs.add_(scatter_arcs(block, self._of_outer, self._graph.num_arcs))
        _, unscaled, roots = stem.arcs
        made = partial(gcn.kernels.slot_gradient_call, self._graph, unscaled, roots, of_arcs)
        of_slots = gcn.filled("slots", self._graph, made, of_arcs, unscaled, roots)
        return *of_weights, of_slots[:-1].clone().unsqueeze(0)

    def _make_room(self, stem: Stem, scored: bool, outer: Csr, turned: Csr, inputs: Csr) -> None:
        """And the call that fills it."""
        left, layer, block, kernels = self._left, stem.layer, self._block, self._kernels
        units, (rowptr, col) = left.shape[1], layer.inner
        of_hidden, of_sources = kernels.room(left, stem.z, scored, max(0, len(turned[0]) - 1))
        self._grad = self._out.new_empty(self._out.shape[1:])
        self._of_first, self._of_second = left.new_empty(layer.rows, units), left.new_empty(units, len(self._narrow))
        self._of_outer, self._of_inner = left.new_empty(scored * block.num_arcs), left.new_empty(scored * len(col))
        self._back = kernels.call(
            "backward",
            *(self._grad, outer),
            *(torch.empty_like(self._z), self._narrow, left, left.new_tensor([self._scale]), self._of_second),
            *(turned, of_hidden, of_sources, inputs, self._of_first),
            *((block.rowptr, block.col32), self._z, self._of_outer, (rowptr, col), stem.z, self._of_inner),
            size=units * (len(col) + layer.entries),
        )


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, edge_values: Tensor, *given: Any) -> Tensor:
        """`given` are what the stem left, what drops hidden units, room for the head, and the GCN."""
        ctx.stem, dropout, ctx.room, ctx.gcn = given
        room: HeadRoom = ctx.room
        return room.outputs(second, dropout)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        room: HeadRoom = ctx.room
        return *room.gradients(ctx.gcn, grads[0], ctx.stem, ctx.needs_input_grad[2]), *(None,) * 4
