"""Networks on a GPU: a GCN of two plain layers as one operation, and norms of deeper ones in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Weights
from aceglt.backbones.gcn import GCN
from aceglt.backbones.layered import Blocks, Inputs, Layered
from aceglt.backends.cuda import arcs, sums, units
from aceglt.backends.cuda.operations import TritonKernels, norm_relu
from aceglt.backends.cuda.units import Draw
from aceglt.backends.layers import Ordered, ordered, sums_first
from aceglt.numerics.batch import Block, GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.ops import scatter_arcs

_WIDEST, _NARROWEST = 1024, 16  # units of the hidden layer, and of the outputs, that a program has in registers


def network(backbone: Backbone, fixed: bool) -> Backbone:
    """The backbone with forward passes for a GPU; `fixed` says that edge values stay what they are."""
    if not isinstance(backbone, Layered) or backbone.width % 4 or backbone.width > _WIDEST:
        return ordered(backbone, fixed)
    return ordered(backbone, fixed, FusedGCN if _plain(backbone) else FusedLayers)


def _plain(backbone: Layered) -> bool:
    """Whether it is a GCN of two plain layers."""
    if type(backbone) is not GCN or len(backbone.chain) != 2 or backbone.input_dropout:
        return False
    simple = not any(stage.along or stage.adds_inputs or stage.norm != "none" for stage in backbone.chain)
    return simple and backbone.chain[1].messages and backbone.chain[1].units <= _NARROWEST


class FusedLayers(Ordered):
    """Bias, layer norm, ReLU and dropout of a layer in one pass, and so their gradients."""

    def _sums_features(self, block: Block, inputs: Inputs) -> bool:
        """Also where a layer has so few targets that three products with their sums are less than two with all
        sources."""
        if super()._sums_features(block, inputs):
            return True
        if self.fixed or type(inputs) is not Features or inputs.sparse or type(self).gather is not Layered.gather:
            return False
        return sums_first(block, self.chain[0].inputs, self.chain[0].units, margin=1.5)

    def _normed(self, number: int) -> bool:
        """Whether a stage's norm is over all its units."""
        stage = self.chain[number]
        return stage.norm == "layer" and stage.activation == "relu" and not self._present

    def biased(self, weights: Weights, number: int, units: Tensor) -> Tensor:
        return units if self._normed(number) else super().biased(weights, number, units)

    def _activated(self, weights: Weights, number: int, units: Tensor, training: bool) -> Tensor:
        if not self._normed(number):
            return super()._activated(weights, number, units, training)
        return norm_relu(units, self._parts(weights, number))

    def outputs(
        self, weights: Weights, graph: GraphBatch, number: int, arcs: Any, inputs: Inputs, dropout: Dropout | None
    ) -> Blocks:
        draw = self._drawn_in(graph, number, dropout)
        if not self._normed(number) or draw is None:
            return super().outputs(weights, graph, number, arcs, inputs, dropout)
        made = self.units(weights, graph, number, arcs, inputs)
        return [norm_relu(made, self._parts(weights, number), draw)]

    def _drawn_in(self, graph: GraphBatch, number: int, dropout: Dropout | None) -> Draw | None:
        """A stage's dropout."""
        stage = self.chain[number]
        if dropout is None or not stage.dropout:
            return None
        key = graph.kernels.fold(dropout.key, self.draw(number))
        return Draw(key, stage.dropout, self.drawn(number) or stage.units, graph.layer(number).nodes)

    def _parts(self, weights: Weights, number: int) -> tuple[Tensor | None, Tensor, Tensor]:
        norm = f"norm{number}."
        return weights.get(f"layer{number}.bias"), weights[norm + "scale"], weights[norm + "shift"]


@dataclass(frozen=True)
class _Hidden:
    """What a GCN's first layer leaves for the second and for the gradients."""

    units: Tensor  # [S, T, H] after ReLU
    product: Tensor  # [S, N, H] X·W
    edge_values: Tensor  # [S, E]
    adjacency: Tensor  # [A] coefficients of all arcs
    root: Tensor  # [S·N], see `arcs.coefficients`
    x: Features
    graph: GraphBatch


class FusedGCN(FusedLayers):
    """A GCN of two plain layers whose gradient is made as a whole."""

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Any, Any]:
        first = graph.layer(0)
        if self._sums_features(first, x) or not isinstance(graph.kernels, TritonKernels):
            return super().stem(weights, graph, edge_values, x)
        with torch.no_grad():
            adjacency, root = self._once("coefficients", graph, lambda: arcs.coefficients(graph, edge_values))
            product = x.product(weights["layer0.weight"])
            hidden = graph.kernels.along(first, _picked(first, adjacency), product, relu=True)
        return _Hidden(hidden, product, edge_values, adjacency, root, x, graph), None

    def head(self, weights: Weights, graph: GraphBatch, state: tuple[Any, Any], dropout: Dropout | None) -> Tensor:
        hidden = state[0]
        if not isinstance(hidden, _Hidden):
            return super().head(weights, graph, state, dropout)
        given = weights["layer0.weight"], weights["layer1.weight"], hidden.edge_values
        result: Tensor = _Head.apply(*given, hidden, graph, self._drawn_in(graph, 0, dropout))
        return result


class _Head(torch.autograd.Function):
    """The second layer, with the gradients of both."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, weight: Tensor, edge_values: Tensor, *others: Any) -> Tensor:
        """`others` are what the first layer left, the graph, and its dropout, or None."""
        hidden, graph, draw = others
        block, narrow = graph.layer(1), weight.transpose(1, 2).contiguous()  # [S, C, H]
        z, mask = units.narrow_layer(hidden.units, narrow, draw)
        picked = _picked(block, hidden.adjacency)
        ctx.hidden, ctx.graph, ctx.scale = hidden, graph, 1.0 if draw is None else 1.0 / (1.0 - draw.p)
        ctx.save_for_backward(narrow, z, mask, picked)
        result: Tensor = graph.kernels.along(block, picked, z)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        narrow, z, mask, picked = ctx.saved_tensors
        hidden, graph, scored = ctx.hidden, ctx.graph, ctx.needs_input_grad[2]
        first, second, (runs, columns, width) = graph.layer(0), graph.layer(1), narrow.shape
        mask = (hidden.units > 0).to(torch.uint8) if mask is None else mask
        of_outputs = grads[0].reshape(-1, columns)
        of_second, to_z = sums.spread(second, picked, of_outputs, z.view(-1, columns) if scored else None)
        to_z = to_z.view(runs, -1, columns)
        to_weight, to_units = units.narrow_gradients(hidden.units, narrow, to_z, mask, ctx.scale)
        product, picked = hidden.product.reshape(-1, width) if scored else None, _picked(first, hidden.adjacency)
        of_first, to_product = sums.spread(first, picked, to_units.view(-1, width), product)
        to_first = hidden.x.gradient(to_product.view(runs, -1, width))
        to_edges = None
        if of_first is not None and of_second is not None:
            whole = hidden.graph
            to_arcs = scatter_arcs(first, of_first, whole.num_arcs) + scatter_arcs(second, of_second, whole.num_arcs)
            to_edges = arcs.edge_gradient(whole, hidden.edge_values, hidden.adjacency, hidden.root, to_arcs)
        return to_first, to_weight, to_edges, None, None, None


def _picked(block: Block, values: Tensor) -> Tensor:
    """Of the block's arcs."""
    return values if block.arcs is None else values.index_select(0, block.arcs)
