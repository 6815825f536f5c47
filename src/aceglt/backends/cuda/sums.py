"""GPU kernels in Triton: sums along arcs and other sparse products, in a fixed order, so results repeat bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from aceglt.numerics.batch import Block, ByLength
from aceglt.numerics.kernels import Gradients

_NARROW = 16  # columns of an output
_MANY = 12  # entries of a row, on average, of which more are read at a time
LARGEST = 32768.0
"""That a rounded number is; float16 ends at 65504."""


@triton.jit
def scaled(tile, largest):
    """Rows, each over a factor that makes its largest magnitude that one, and the factors."""
    factor = tl.maximum(tl.max(tl.abs(tile), axis=1) / largest, 1e-30)
    return tile / factor[:, None], factor


@triton.jit(do_not_specialize=["count"])
def _round_kernel(out, factors, dense, count, width, largest, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Some rows in float16."""
    row, offset = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    both = (row < count)[:, None] & (offset < width)[None, :]
    cells = row[:, None] * width + offset[None, :]
    tile, factor = scaled(tl.load(dense + cells, mask=both, other=0.0), largest)
    tl.store(out + cells, tile.to(tl.float16), mask=both)
    tl.store(factors + row, factor, mask=row < count)


@triton.jit(do_not_specialize=["columns", "lines"])
def _wide_kernel(
    out, rowptr, col, values, dense, factors, rows, columns, lines, width,
    ROUNDED: tl.constexpr, RELU: tl.constexpr, WARPS: tl.constexpr, STEPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some columns of one row of one run's result: the sum over the row's entries, which warps take by turns.

    Programs that run side by side work on the same columns, so that what they read of `dense` stays in the cache.
    """
    row, run = tl.load(rows + tl.program_id(0)), tl.program_id(2).to(tl.int64)
    offset = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = offset < width
    source = dense + run * columns * width + offset
    first, last = tl.load(rowptr + row), tl.load(rowptr + row + 1)
    total = tl.zeros([WARPS, WIDTH], dtype=out.dtype.element_ty)
    for start in range(first, last, WARPS * STEPS):
        for step in tl.static_range(STEPS):  # several reads under way at a time
            entry = start + step * WARPS + tl.arange(0, WARPS)
            there = entry < last
            line = tl.load(col + entry, mask=there, other=0).to(tl.int64)
            value = tl.load(values + entry, mask=there, other=0.0)
            if ROUNDED:
                value *= tl.load(factors + line, mask=there, other=0.0)
            both = there[:, None] & inside[None, :]
            tile = tl.load(source[None, :] + line[:, None] * width, mask=both, other=0.0)
            total += value[:, None] * tile.to(total.dtype)
    result = tl.sum(total, axis=0)
    if RELU:
        result = tl.maximum(result, 0.0)
    tl.store(out + (run * lines + row) * width + offset, result, mask=inside)


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
    out, to_values, rowptr, col, order, values, grad, factors, dense, rows, width, arcs,
    ROUNDED: tl.constexpr, SCORED: tl.constexpr, WARPS: tl.constexpr, STEPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some columns of one source's row of the gradient of `dense`, and their part of those of its arcs' values: what
    comes from a target is read once. Warps take the arcs by turns."""
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    offset = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = offset < width
    total = tl.zeros([WARPS, WIDTH], dtype=out.dtype.element_ty)
    if SCORED:
        to_values += tl.program_id(1).to(tl.int64) * arcs
        own = tl.load(dense + row * width + offset, mask=inside, other=0.0)
    last = tl.load(rowptr + row + 1)
    for start in range(tl.load(rowptr + row), last, WARPS * STEPS):
        entry = start + tl.arange(0, WARPS * STEPS)
        there = entry < last
        target = tl.load(col + entry, mask=there, other=0).to(tl.int64)
        place = tl.load(order + entry, mask=there, other=0)
        value = tl.load(values + place, mask=there, other=0.0)
        cells = target[:, None] * width + offset[None, :]
        tile = tl.load(grad + cells, mask=there[:, None] & inside[None, :], other=0.0).to(total.dtype)
        if ROUNDED:
            factor = tl.load(factors + target, mask=there, other=0.0)
            value *= factor
        total += tl.sum(tl.reshape(tile * value[:, None], [STEPS, WARPS, WIDTH]), axis=0)
        if SCORED:
            inner = tl.sum(tile * own[None, :], axis=1)
            if ROUNDED:
                inner *= factor
            tl.store(to_values + place, inner, mask=there)
    tl.store(out + row * width + offset, tl.sum(total, axis=0), mask=inside)


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


@dataclass(frozen=True)
class Rows:
    """A dense matrix [n, width] to sum rows of along arcs, which are most of the traffic."""

    numbers: Tensor
    factors: Tensor | None = None
    """[n] that rows are to be multiplied by; None is 1."""

    @staticmethod
    def empty(like: Tensor, rounded: bool) -> Rows:
        """Of the shape of a matrix."""
        if not rounded:
            return Rows(torch.empty_like(like))
        return Rows(torch.empty_like(like, dtype=torch.float16), like.new_empty(len(like)))

    @staticmethod
    def rounded(dense: Tensor) -> Rows:
        """In float16, with the precision of TF32 (10 bits of mantissa) for what is not small beside the largest number
        of its row: half the traffic."""
        made = Rows.empty(dense, rounded=True)
        wide = triton.next_power_of_2(dense.shape[1])
        lines = max(1, 2048 // wide)
        _round_kernel[(triton.cdiv(len(dense), lines),)](
            *(made.numbers, made.factors, dense, *dense.shape, LARGEST, lines, wide), num_warps=4
        )
        return made


def spmm(matrix: Matrix, dense: Rows, out: Tensor, shared: bool = False, relu: bool = False) -> None:
    """out = matrix · dense, both [lines, width], or its ReLU; `shared` if one matrix serves all runs' lines."""
    lines, width = out.shape
    if not lines or not width:
        return
    wide = triton.next_power_of_2(width)
    if wide <= _NARROW and not shared:
        _narrow_spmm(matrix, dense.numbers, out, relu)
        return
    rounded, (rows, columns) = dense.factors is not None, matrix.shape if shared else (lines, 0)
    read = matrix.rowptr, matrix.col, matrix.values, dense.numbers, dense.factors if rounded else dense.numbers
    shapes = [(_SHARED, matrix.rows.all)] if shared else _shapes("sums", matrix.rows, len(matrix.values), rounded)
    for shape, some in shapes:
        wide = min(shape.columns, triton.next_power_of_2(width))
        grid = len(some), triton.cdiv(width, wide), lines // rows
        flags = rounded, relu, shape.warps, shape.steps, wide
        _wide_kernel[grid](out, *read, some, columns, rows, width, *flags, num_warps=shape.warps)


def _narrow_spmm(matrix: Matrix, dense: Tensor, out: Tensor, relu: bool) -> None:
    (lines, width), long = out.shape, matrix.rows.long
    order = matrix.col if matrix.order is None else matrix.order
    read = out, matrix.rowptr, matrix.col, matrix.values, order, dense, matrix.rows.all
    for first, last, group, entries in ((0, long, 1, 32), (long, lines, 16, 2)):
        if last > first:
            flags = first, last, width, matrix.order is not None, relu, group, entries, triton.next_power_of_2(width)
            _narrow_kernel[(triton.cdiv(last - first, group),)](*read, *flags, num_warps=1)


def spread(block: Block, values: Tensor, grad: Rows, dense: Tensor | None) -> Gradients:
    """Gradients of the values [A] of a block's arcs (None without `dense`) and of what they were multiplied with,
    dense [S·N, H], from those [S·T, H] of the product."""
    width = grad.numbers.shape[1]
    out = values.new_empty(block.runs * block.sources, width)
    if not out.numel():
        return None if dense is None else torch.empty_like(values), out
    rows, transposed = block.transposed_by_length, (block.transposed_rowptr, block.transposed_col)
    if width <= _NARROW:
        to_values = torch.empty_like(values) if dense is not None else None
        spmm(Matrix(*transposed, values, (0, 0), rows, block.transpose), grad, out)
        if to_values is not None and len(values):
            ends = block.row, block.col, grad.numbers, dense, len(values)
            _inner_kernel[(triton.cdiv(len(values), 128),)](to_values, *ends, width, 128)
        return to_values, out
    rounded, scored = grad.factors is not None, dense is not None
    shapes = _shapes("scores" if scored else "spread", rows, len(values), rounded)
    wide = min(shapes[0][0].columns, triton.next_power_of_2(width))
    parts = values.new_empty(triton.cdiv(width, wide), len(values)) if scored else None
    given = grad.numbers, grad.factors if rounded else values, dense if scored else out
    for shape, some in shapes:
        _spread_kernel[(len(some), triton.cdiv(width, wide))](
            *(out, out if parts is None else parts, *transposed, block.transpose, values, *given, some),
            *(width, len(values), rounded, scored, shape.warps, shape.steps, wide),
            num_warps=shape.warps,
        )
    return None if parts is None else parts[0] if len(parts) == 1 else parts.sum(dim=0), out


class Shape(NamedTuple):
    """Of a program that sums rows along the arcs of a node, as an H200 is fastest."""

    columns: int
    """What is read many times stays in the cache by a few columns of all rows at a time."""
    warps: int
    steps: int
    """Arcs that each warp reads at a time."""


_SHARED = Shape(128, 1, 8)
_FEW = {"sums": Shape(512, 1, 4), "spread": Shape(512, 1, 2), "scores": Shape(256, 1, 2)}
_LONG = {"sums": Shape(128, 8, 4), "spread": Shape(128, 8, 4), "scores": Shape(256, 8, 2)}
_SHORT = {"sums": Shape(128, 1, 16), "spread": Shape(128, 1, 8), "scores": Shape(256, 1, 4)}
_LONG_ROUNDED, _SHORT_ROUNDED = Shape(256, 8, 4), Shape(256, 2, 4)


def _shapes(what: str, rows: ByLength, entries: int, rounded: bool) -> list[tuple[Shape, Tensor]]:
    """Of programs for a matrix with so many entries, and the rows of each: where rows have many entries, the longest
    would be waited for unless several warps shared them."""
    if not rounded and entries <= _MANY * len(rows.all):
        return [(_FEW[what], rows.all)]
    long, short = (_LONG_ROUNDED, _SHORT_ROUNDED) if rounded else (_LONG[what], _SHORT[what])
    both = (long, rows.all[: rows.long]), (short, rows.all[rows.long :])
    return [(shape, some) for shape, some in both if len(some)]


def sddmm(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """[entries] inner products left[row] · right[col]."""
    out = left.new_empty(len(col))
    width = left.shape[1]
    if len(col):
        wide = min(512, triton.next_power_of_2(width))
        _sddmm_kernel[(left.shape[0],)](out, rowptr, col, left, right, width, 4, wide, num_warps=1 if wide < 128 else 4)
    return out
