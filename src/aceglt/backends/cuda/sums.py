"""GPU kernels in Triton: sums along arcs and other sparse products, in a fixed order, so results repeat bit by bit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from aceglt.numerics.batch import Block, ByLength
from aceglt.numerics.kernels import Gradients

_NARROW = 16  # columns of an output
_MANY = 12  # entries of a row, on average, of which more are read at a time


@triton.jit(do_not_specialize=["columns", "lines"])
def _wide_kernel(
    out, rowptr, col, values, dense, rows, columns, lines, width,
    RELU: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some columns of one row of one run's result: the sum over the row's entries, in their order.

    Programs that run side by side work on the same columns, so that what they read of `dense` stays in the cache.
    """
    row, run = tl.load(rows + tl.program_id(0)), tl.program_id(2).to(tl.int64)
    offset = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = offset < width
    source = dense + run * columns * width + offset
    first, last = tl.load(rowptr + row), tl.load(rowptr + row + 1)
    total = tl.zeros([WIDTH], dtype=out.dtype.element_ty)
    for start in range(first, last, ENTRIES):
        for step in tl.static_range(ENTRIES):  # several reads under way at a time
            there = start + step < last
            line = tl.load(col + start + step, mask=there, other=0).to(tl.int64)
            value = tl.load(values + start + step, mask=there, other=0.0)
            total += value * tl.load(source + line * width, mask=inside & there, other=0.0)
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(out + (run * lines + row) * width + offset, total, mask=inside)


@triton.jit(do_not_specialize=["first_row", "count"])
def _narrow_kernel(
    out, rowptr, col, values, order, dense, rows, first_row, count, width,
    TURNED: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some narrow rows of about the same length: a program costs more to begin than one such row to compute."""
    place = first_row + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = place < count
    row = tl.load(rows + place, mask=real, other=0)
    first = tl.load(rowptr + row, mask=real, other=0)
    last = tl.load(rowptr + row + 1, mask=real, other=0)
    offset = tl.arange(0, WIDTH)
    total = tl.zeros([ROWS, ENTRIES, WIDTH], dtype=out.dtype.element_ty)
    for start in range(0, tl.max(last - first), ENTRIES):
        entry = (first + start)[:, None] + tl.arange(0, ENTRIES)[None, :]
        there = entry < last[:, None]
        line = tl.load(col + entry, mask=there, other=0).to(tl.int64)
        if TURNED:
            entry = tl.load(order + entry, mask=there, other=0)
        value = tl.load(values + entry, mask=there, other=0.0)
        both = there[:, :, None] & (offset < width)[None, None, :]
        tile = tl.load(dense + line[:, :, None] * width + offset[None, None, :], mask=both, other=0.0)
        total += value[:, :, None] * tile
    result = tl.sum(total, axis=1)
    if RELU:
        result = tl.maximum(result, 0.0)
    tl.store(out + row[:, None] * width + offset[None, :], result, mask=real[:, None] & (offset < width)[None, :])


@triton.jit
def _spread_kernel(
    out, to_values, rowptr, col, order, values, grad, dense, rows, width, arcs,
    SCORED: tl.constexpr, ENTRIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some columns of one source's row of the gradient of `dense`, and their part of those of its arcs' values: what
    comes from a target is read once."""
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    offset = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = offset < width
    total = tl.zeros([WIDTH], dtype=out.dtype.element_ty)
    if SCORED:
        to_values += tl.program_id(1).to(tl.int64) * arcs
        own = tl.load(dense + row * width + offset, mask=inside, other=0.0)
    last = tl.load(rowptr + row + 1)
    for start in range(tl.load(rowptr + row), last, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        there = entry < last
        target = tl.load(col + entry, mask=there, other=0).to(tl.int64)
        place = tl.load(order + entry, mask=there, other=0)
        value = tl.load(values + place, mask=there, other=0.0)
        cells = target[:, None] * width + offset[None, :]
        tile = tl.load(grad + cells, mask=there[:, None] & inside[None, :], other=0.0)
        total += tl.sum(tile * value[:, None], axis=0)
        if SCORED:
            tl.store(to_values + place, tl.sum(tile * own[None, :], axis=1), mask=there)
    tl.store(out + row * width + offset, total, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _inner_kernel(out, row, col, left, right, count, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Inner products of narrow rows of `left` and `right`, an arc for each thread."""
    arc = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = arc < count
    target, source = tl.load(row + arc, mask=there, other=0), tl.load(col + arc, mask=there, other=0)
    total = tl.zeros([BLOCK], dtype=out.dtype.element_ty)
    for number in tl.static_range(COLUMNS):
        a = tl.load(left + target * COLUMNS + number, mask=there, other=0.0)
        total += a * tl.load(right + source * COLUMNS + number, mask=there, other=0.0)
    tl.store(out + arc, total, mask=there)


@triton.jit
def _sddmm_kernel(out, rowptr, col, left, right, width, ENTRIES: tl.constexpr, WIDTH: tl.constexpr):
    """The inner products of one row of `left` with the rows of `right` that its entries name."""
    row = tl.program_id(0).to(tl.int64)
    first, last = tl.load(rowptr + row), tl.load(rowptr + row + 1)
    for start in range(first, last, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        there = entry < last
        source = tl.load(col + entry, mask=there, other=0).to(tl.int64)
        total = tl.zeros([ENTRIES], dtype=out.dtype.element_ty)
        for begin in range(0, width, WIDTH):
            offset = begin + tl.arange(0, WIDTH)
            inside = offset < width
            line = tl.load(left + row * width + offset, mask=inside, other=0.0)
            tile = tl.load(
                right + source[:, None] * width + offset[None, :], mask=there[:, None] & inside[None, :], other=0.0
            )
            total += tl.sum(tile * line[None, :], axis=1)
        tl.store(out + entry, total, mask=there)


@dataclass(frozen=True)
class Matrix:
    """A CSR matrix, for one run each or shared by all, and its rows by length."""

    rowptr: Tensor
    col: Tensor
    values: Tensor
    shape: tuple[int, int]
    rows: ByLength
    order: Tensor | None = None
    """[A] where the value of each entry is; None where they are in the order of the entries."""


def spmm(matrix: Matrix, dense: Tensor, out: Tensor, shared: bool = False, relu: bool = False) -> None:
    """out = matrix · dense, both [lines, width], or its ReLU; `shared` if one matrix serves all runs' lines."""
    lines, width = out.shape
    if not lines or not width:
        return
    rows, columns = matrix.shape if shared else (lines, 0)
    wide = triton.next_power_of_2(width)
    if wide > _NARROW or shared:
        wide, entries = _shape(width, shared or len(matrix.values) > _MANY * lines)
        given = out, matrix.rowptr, matrix.col, matrix.values, dense, matrix.rows.all
        grid = rows, triton.cdiv(width, wide), lines // rows
        _wide_kernel[grid](*given, columns, rows, width, relu, 8 if shared else 2 * entries, wide, num_warps=1)
        return
    order = matrix.col if matrix.order is None else matrix.order
    read, long = (out, matrix.rowptr, matrix.col, matrix.values, order, dense, matrix.rows.all), matrix.rows.long
    for first, last, group, entries in ((0, long, 1, 32), (long, lines, 16, 2)):
        if last > first:
            flags = first, last, width, matrix.order is not None, relu, group, entries, wide
            _narrow_kernel[(triton.cdiv(last - first, group),)](*read, *flags, num_warps=1)


def spread(block: Block, values: Tensor, grad: Tensor, dense: Tensor | None) -> Gradients:
    """Gradients of the values [A] of a block's arcs (None without `dense`) and of what they were multiplied with,
    dense [S·N, H], from those [S·T, H] of the product."""
    width = grad.shape[1]
    out = values.new_empty(block.runs * block.sources, width)
    if not out.numel():
        return None if dense is None else torch.empty_like(values), out
    rows, transposed = block.transposed_by_length, (block.transposed_rowptr, block.transposed_col)
    if width <= _NARROW:
        to_values = torch.empty_like(values) if dense is not None else None
        spmm(Matrix(*transposed, values, (0, 0), rows, block.transpose), grad, out)
        if to_values is not None and len(values):
            ends = block.row, block.col, grad, dense, len(values)
            _inner_kernel[(triton.cdiv(len(values), 128),)](to_values, *ends, width, 128)
        return to_values, out
    wide, entries = _shape(width, len(values) > _MANY * len(out), dense is not None)
    given = block.transpose, values, grad, out if dense is None else dense, rows.all, width, len(values)
    parts = None if dense is None else values.new_empty(triton.cdiv(width, wide), len(values))
    _spread_kernel[(len(out), triton.cdiv(width, wide))](
        *(out, out if parts is None else parts, *transposed, *given, dense is not None, entries, wide), num_warps=1
    )
    return None if parts is None else parts[0] if len(parts) == 1 else parts.sum(dim=0), out


def _shape(width: int, many: bool, scored: bool = False) -> tuple[int, int]:
    """Of a program that sums rows of so many columns along arcs, of which a node has many or few: its columns, and the
    arcs that it reads at a time, as an H200 is fastest. What is read many times stays in the cache by a few columns of
    all rows at a time; a score's gradient is a sum over columns."""
    wide, arcs = (256, 4 if many else 2) if scored else (128, 8) if many else (512, 2)
    return min(wide, triton.next_power_of_2(width)), arcs


def sddmm(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """[entries] inner products left[row] · right[col]."""
    out = left.new_empty(len(col))
    width = left.shape[1]
    if len(col):
        wide = min(512, triton.next_power_of_2(width))
        _sddmm_kernel[(left.shape[0],)](out, rowptr, col, left, right, width, 4, wide, num_warps=1 if wide < 128 else 4)
    return out
