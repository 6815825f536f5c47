"""The two halves of one run's pass through a GCN on a CPU, each with its gradient: a few compiled kernels where plain
torch has some fifty operations, which on a small graph take as long to call as to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aceglt import cpu
from aceglt.graph import Block, GraphBatch
from aceglt.ops import Features, slots

Draw = Callable[[Tensor], Tensor]
"""Drops elements of h [1, n, H]."""


def serves(graph: GraphBatch, weight: Tensor) -> bool:
    """Whether there are the kernels for a layer with this weight [S, F, H], and they are worth it."""
    return graph.runs == 1 and cpu.computes(weight, graph.layer(0).targets * weight.shape[2])


def stem(weight: Tensor, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Tensor, Tensor]:
    """The first layer's units [1, T, H] after ReLU, and all arcs' coefficients [A].

    Their gradient is to be that of `head`, which is 0 where a unit is.
    """
    hidden, adjacency = _Stem.apply(weight, edge_values, graph, x)
    return hidden, adjacency


def head(
    weight: Tensor, graph: GraphBatch, state: tuple[Tensor, Tensor], draw: Draw | None = None, scale: float = 1.0
) -> Tensor:
    """Outputs [1, T, C] of the second layer from what `stem` returned, after a draw that scales what it keeps."""
    result: Tensor = _Head.apply(weight, *state, graph, draw, scale)
    return result


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, edge_values: Tensor, graph: GraphBatch, x: Features) -> tuple[Tensor, Tensor]:
        first = graph.layer(0)
        adjacency, values, root = _normalised(graph, edge_values)
        picked, z = _picked(first, adjacency), x.product(weight)
        hidden = z.new_empty(1, first.targets, z.shape[2])
        cpu.multiply(first.rowptr, first.col32, picked, z[0], hidden[0], positive=True)
        ctx.graph, ctx.x = graph, x
        if ctx.needs_input_grad[1]:
            ctx.save_for_backward(picked, z, values, root)
        else:
            ctx.save_for_backward(picked)
            ctx.mark_non_differentiable(adjacency)
        return hidden, adjacency

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, of_adjacency = grads[0].contiguous(), grads[1]
        picked, *kept = ctx.saved_tensors
        first = ctx.graph.layer(0)
        of_weight = ctx.x.gradient(_transposed(first, picked, grad[0]).unsqueeze(0))
        if not ctx.needs_input_grad[1]:
            return of_weight, None, None, None
        z, values, root = kept
        of_arcs = _spread(first, cpu.products(first.rowptr, first.col32, grad[0], z[0]), len(values))
        of_slots = cpu.normalised_gradient(ctx.graph, values, root, of_arcs.add_(of_adjacency))
        return of_weight, of_slots[:-1].unsqueeze(0), None, None


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, hidden: Tensor, adjacency: Tensor, graph: GraphBatch, draw: Draw | None, scale: float
    ) -> Tensor:
        second, narrow = graph.layer(1), weight[0].t().contiguous()  # [C, H]
        left = hidden if draw is None else draw(hidden)
        picked, z = _picked(second, adjacency), (narrow @ left[0].t()).t().contiguous()  # reads h row by row
        out = z.new_empty(1, second.targets, z.shape[1])
        cpu.multiply(second.rowptr, second.col32, picked, z, out[0])
        ctx.graph, ctx.scale = graph, scale
        ctx.save_for_backward(narrow, left, picked, z)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0][0].contiguous()
        narrow, left, picked, z = ctx.saved_tensors
        second = ctx.graph.layer(1)
        of_z = _transposed(second, picked, grad)
        of_weight = (of_z.t() @ left[0]).t().contiguous().unsqueeze(0)
        of_hidden = cpu.unit_gradients(of_z, narrow, left[0], ctx.scale).unsqueeze(0)
        of_adjacency = None
        if ctx.needs_input_grad[2]:
            of_arcs = cpu.products(second.rowptr, second.col32, grad, z)
            of_adjacency = _spread(second, of_arcs, ctx.graph.num_arcs)
        return of_weight, of_hidden, of_adjacency, None, None, None


def _normalised(graph: GraphBatch, edge_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `cpu.normalised`; made once where values are fixed."""
    assert not (graph.fixed and edge_values.requires_grad)
    if "normalised" in graph.kept:
        return graph.kept["normalised"]  # type: ignore[no-any-return]
    made = cpu.normalised(graph, slots(edge_values))
    if graph.fixed:
        graph.kept["normalised"] = made
    return made


def _picked(block: Block, values: Tensor) -> Tensor:
    """Of the block's arcs."""
    return values if block.arcs is None else values.index_select(0, block.arcs)


def _spread(block: Block, values: Tensor, total: int) -> Tensor:
    """[total] of all arcs, from those of the block's; 0 elsewhere."""
    return values if block.arcs is None else values.new_zeros(total).index_copy_(0, block.arcs, values)


def _transposed(block: Block, values: Tensor, dense: Tensor) -> Tensor:
    """The transposed block · dense."""
    out = dense.new_empty(block.sources, dense.shape[1])
    if block.mirrored:
        cpu.multiply(block.rowptr, block.col32, values, dense, out)
    else:
        values = values.index_select(0, block.transpose)
        cpu.multiply(block.transposed_rowptr, block.transposed_col, values, dense, out)
    return out
