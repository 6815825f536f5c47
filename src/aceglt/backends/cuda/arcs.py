"""GPU kernels in Triton for symmetric normalisation: the values of arcs from those of edges, and back."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from aceglt.numerics.batch import GraphBatch


@triton.jit
def _value(edge_values, weight, slot, there, arc, edges, WEIGHED: tl.constexpr):
    """Of arcs, from the slots of their edges; 1 for self-loops."""
    run = slot // (edges + 1)
    edge = slot - run * (edges + 1)
    value = tl.load(edge_values + run * edges + edge, mask=there & (edge < edges), other=0.0)
    value = tl.where(edge == edges, 1.0, value)
    if WEIGHED:
        value *= tl.load(weight + arc, mask=there, other=0.0)
    return value


@triton.jit(do_not_specialize=["nodes", "edges"])
def _root_kernel(
    root,
    rowptr,
    slot,
    edge_values,
    weight,
    edges,
    nodes,
    WEIGHED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One over the root of the sum of magnitudes at each of some nodes."""
    node = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = node < nodes
    first, last = tl.load(rowptr + node, mask=real, other=0), tl.load(rowptr + node + 1, mask=real, other=0)
    total = tl.zeros([ROWS], dtype=root.dtype.element_ty)
    for start in range(0, tl.max(last - first), BLOCK):
        arc = first[:, None] + start + tl.arange(0, BLOCK)[None, :]
        there = arc < last[:, None]
        value = _value(edge_values, weight, tl.load(slot + arc, mask=there, other=0), there, arc, edges, WEIGHED)
        total += tl.sum(tl.where(there, tl.abs(value), 0.0), axis=1)
    tl.store(root + node, 1.0 / tl.sqrt(total), mask=real)


@triton.jit(do_not_specialize=["count", "edges"])
def _scale_kernel(
    out, root, row, col, slot, edge_values, weight, edges, count, WEIGHED: tl.constexpr, BLOCK: tl.constexpr
):
    arc = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = arc < count
    value = _value(edge_values, weight, tl.load(slot + arc, mask=there, other=0), there, arc, edges, WEIGHED)
    ends = tl.load(root + tl.load(row + arc, mask=there, other=0), mask=there, other=0.0)
    ends *= tl.load(root + tl.load(col + arc, mask=there, other=0), mask=there, other=0.0)
    tl.store(out + arc, value * ends, mask=there)


@triton.jit(do_not_specialize=["nodes"])
def _degree_kernel(
    out, rowptr, col, transposed_rowptr, transposed_col, order, root, coefficient, grad, nodes,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradient of the sum of magnitudes at each of some nodes: coefficients are over its root in rows and columns."""
    node = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = node < nodes
    total = tl.zeros([ROWS], dtype=out.dtype.element_ty)
    first, last = tl.load(rowptr + node, mask=real, other=0), tl.load(rowptr + node + 1, mask=real, other=0)
    for start in range(0, tl.max(last - first), BLOCK):
        arc = first[:, None] + start + tl.arange(0, BLOCK)[None, :]
        there = arc < last[:, None]
        product = tl.load(coefficient + arc, mask=there, other=0.0) * tl.load(grad + arc, mask=there, other=0.0)
        total += tl.sum(product, axis=1)
    first = tl.load(transposed_rowptr + node, mask=real, other=0)
    last = tl.load(transposed_rowptr + node + 1, mask=real, other=0)
    for start in range(0, tl.max(last - first), BLOCK):
        entry = first[:, None] + start + tl.arange(0, BLOCK)[None, :]
        there = entry < last[:, None]
        arc = tl.load(order + entry, mask=there, other=0)
        product = tl.load(coefficient + arc, mask=there, other=0.0) * tl.load(grad + arc, mask=there, other=0.0)
        total += tl.sum(product, axis=1)
    r = tl.load(root + node, mask=real, other=0.0)
    tl.store(out + node, -0.5 * total * r * r, mask=real)  # of r⁻², where total is r times the gradient of r


@triton.jit(do_not_specialize=["edges", "arc_count"])
def _slot_kernel(
    out, arcs, row, col, root, degree, edge_values, weight, grad, edges, runs, arc_count,
    WEIGHED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradient of each edge's value from its one or two arcs."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = place < runs * edges
    run = place // edges
    value = tl.load(edge_values + place, mask=real, other=0.0)
    sign = tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))
    total = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
    for number in tl.static_range(2):
        arc = tl.load(arcs + (place + run) * 2 + number, mask=real, other=0)
        there = real & (arc < arc_count)
        target, source = tl.load(row + arc, mask=there, other=0), tl.load(col + arc, mask=there, other=0)
        ends = tl.load(root + target, mask=there, other=0.0) * tl.load(root + source, mask=there, other=0.0)
        to_value = tl.load(grad + arc, mask=there, other=0.0) * ends
        to_size = tl.load(degree + target, mask=there, other=0.0)
        part = to_value + to_size * sign
        if WEIGHED:
            factor = tl.load(weight + arc, mask=there, other=0.0)
            part = to_value * factor + to_size * sign * tl.abs(factor)
        total += tl.where(there, part, 0.0)
    tl.store(out + place, total, mask=real)


def coefficients(batch: GraphBatch, edge_values: Tensor) -> tuple[Tensor, Tensor]:
    """[A] of the arcs, and what the ends of each are multiplied by, [S·N]."""
    root, out = edge_values.new_empty(batch.runs * batch.num_nodes), edge_values.new_empty(batch.num_arcs)
    weight, weighed = (edge_values, False) if batch.weight is None else (batch.weight, True)
    given, rows = (batch.slot, edge_values, weight, batch.num_edges), 8
    _root_kernel[(triton.cdiv(len(root), rows),)](root, batch.rowptr, *given, len(root), weighed, rows, 32, num_warps=2)
    if len(out):
        grid = (triton.cdiv(len(out), 256),)
        _scale_kernel[grid](out, root, batch.row, batch.col, *given, len(out), weighed, 256, num_warps=4)
    return out, root


def edge_gradient(batch: GraphBatch, edge_values: Tensor, made: Tensor, root: Tensor, grad: Tensor) -> Tensor:
    """[S, E] of the edges' values, from that [A] of what `coefficients` made."""
    out, degree, rows = torch.empty_like(edge_values), torch.empty_like(root), 8
    transposed = batch.transposed_rowptr, batch.transposed_col, batch.transpose
    _degree_kernel[(triton.cdiv(len(root), rows),)](
        degree, batch.rowptr, batch.col, *transposed, root, made, grad, len(root), rows, 32, num_warps=2
    )
    if out.numel():
        weight, weighed = (edge_values, False) if batch.weight is None else (batch.weight, True)
        _slot_kernel[(triton.cdiv(out.numel(), 256),)](
            *(out, batch.arcs_of_slot, batch.row, batch.col, root, degree, edge_values, weight, grad),
            *(batch.num_edges, batch.runs, batch.num_arcs, weighed, 256),
            num_warps=4,
        )
    return out
