"""The pass of a GCN of two layers, and its gradient, as a few functions that numba compiles.

Several threads call a function at once, each with its `rank`, and meet at a gate where one reads what others wrote. So
a pass needs the interpreter's lock a few times, and trainings side by side do not wait for each other.

Wide matrices are read in blocks of columns, [blocks, rows, columns], that a core's cache holds while all rows of a
sparse matrix read them; the last block is filled up with zeros. What an element comes to depends neither on the
threads nor on the blocks.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from aceglt.backends.cpu.compiled import (
    _compiled,
    _contracted,
    arc_roots,
    drop,
    linear,
    matmul,
    root_gradients,
    scale_arcs,
    slot_gradients,
    source_gradients,
)
from aceglt.backends.cpu.compiled_rows import (
    VECTOR,
    inner_rows,
    narrow_rows,
    pack_rows,
    spread_rows,
    sum_rows,
    unit_rows,
)

_PATIENCE = 1 << 12  # looks at a gate before others may have the core
_CHUNK = 32  # rows that are dropped, and then read from the cache
_TERMS = 256  # of a long sum that are added before they are added to others


@_compiled
def _go_on() -> int:
    return 0


_yield: Any = types.ExternalFunction("sched_yield", types.int32()) if hasattr(os, "sched_yield") else _go_on


@intrinsic
def _arrive(typing: Any, gate: Any) -> Any:
    """Add one to gate[0], whoever else does."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.int64(gate), emit


@intrinsic
def _there(typing: Any, gate: Any, place: Any) -> Any:
    """gate[place], as others left it."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = context.cast(builder, arguments[1], signature.args[1], types.intp)
        return builder.load_atomic(builder.gep(array.data, [place]), "acquire", 8)

    return types.int64(gate, place), emit


@_compiled
def _meet(gate: Any, ranks: int, met: int) -> int:
    """Wait for all ranks, unless one has failed; how often they have met. One alone does not wait."""
    if ranks == 1:
        return met
    _arrive(gate)
    looks = 0
    while _there(gate, 0) < ranks * (met + 1) and _there(gate, 1) == 0:
        looks += 1
        if looks > _PATIENCE:
            _yield()
    return met + 1


@_compiled
def _share(count: int, rank: int, ranks: int) -> Any:
    return count * rank // ranks, count * (rank + 1) // ranks


@_compiled
def _blocks(blocks: int, rank: int, ranks: int) -> Any:
    """Whether each rank has blocks of its own, and which; where there are too few, all share the rows of each."""
    alone = blocks >= ranks
    first, last = _share(blocks, rank, ranks) if alone else (0, blocks)
    return alone, first, last


@_compiled
def _row_at(rowptr: Any, entry: int) -> int:
    """The first row that begins at an entry or after it."""
    low, high = 0, len(rowptr) - 1
    while low < high:
        middle = (low + high) // 2
        if rowptr[middle] < entry:
            low = middle + 1
        else:
            high = middle
    return low


@_compiled
def _rows(rowptr: Any, rank: int, ranks: int) -> Any:
    """A share of the rows, with about as many entries as any other."""
    if ranks == 1:
        return 0, len(rowptr) - 1
    first, last = _share(rowptr[-1], rank, ranks)
    return _row_at(rowptr, first), len(rowptr) - 1 if rank == ranks - 1 else _row_at(rowptr, last)


@_compiled
def _pack(matrix: Any, begin: int, out: Any) -> None:
    """Columns from `begin` on, and zeros where there are no more."""
    width = matrix.shape[1] - begin
    if width >= out.shape[1]:
        pack_rows(0, len(out), matrix, begin, out)
        return
    out[:, width:] = 0
    for i in range(len(out)):
        for c in range(width):
            out[i, c] = matrix[i, begin + c]


@_compiled
def _narrow(first: int, last: int, wider: Any, out: Any, begin: int) -> None:
    """Rows of a matrix, as the last columns of another, from `begin` on."""
    for i in range(first, last):
        for c in range(out.shape[1] - begin):
            out[i, begin + c] = wider[i, c]


@_compiled
def _sums(
    first: int, last: int, rowptr: Any, col: Any, values: Any, dense: Any, out: Any, begin: int, positive: bool
) -> None:
    """Rows of CSR · a block, as columns of `out` from `begin` on."""
    if out.shape[1] - begin >= dense.shape[1]:
        sum_rows(first, last, rowptr, rowptr[1:], col, values, dense, out, begin, True, positive)
        return
    wider = np.empty((last, dense.shape[1]), out.dtype)
    sum_rows(first, last, rowptr, rowptr[1:], col, values, dense, wider, 0, True, positive)
    _narrow(first, last, wider, out, begin)


@_compiled
def _sums_in_turn(first: int, last: int, bounds: Any, col: Any, values: Any, dense: Any, out: Any, begin: int) -> None:
    """The same of rows whose entries are between bounds [stretches + 1, rows], one stretch after the other, so that a
    cache holds what all rows read of a block at a time."""
    wide = out.shape[1] - begin < dense.shape[1]
    wider = np.empty((last if wide else 0, dense.shape[1]), out.dtype)
    to, place = (wider, 0) if wide else (out, begin)
    for k in range(len(bounds) - 1):
        sum_rows(first, last, bounds[k], bounds[k + 1], col, values, dense, to, place, k == 0, False)
    if wide:
        _narrow(first, last, wider, out, begin)


@_compiled
def product(
    rank: int, ranks: int, gate: Any, rowptr: Any, col: Any, values: Any, weight: Any, kept: Any, out: Any,
    hidden: Any, positive: bool,
) -> None:  # fmt: skip
    """X · W, X sparse: as blocks in `out`, or as rows in `hidden`, if `positive` with 0 for what is below it.

    `kept` are blocks of W, where those are needed later.
    """
    columns = kept.shape[2] if len(kept) else out.shape[2]
    alone, first, last = _blocks(-(-weight.shape[1] // columns), rank, ranks)
    begin, end = (0, len(rowptr) - 1) if alone else _rows(rowptr, rank, ranks)
    spare = np.empty((len(weight), columns), weight.dtype)
    for block in range(first, last):
        packed = kept[block] if len(kept) and (alone or rank == 0) else spare
        _pack(weight, block * columns, packed)
        if len(out):
            _sums(begin, end, rowptr, col, values, packed, out[block], 0, False)
        else:
            _sums(begin, end, rowptr, col, values, packed, hidden, block * columns, positive)


@_compiled
def along(
    rank: int, ranks: int, gate: Any, rowptr: Any, col: Any, values: Any, z: Any, given: Any, hidden: Any
) -> None:
    """What is above 0 of a sparse matrix times z in blocks, as rows; z are first made of `given` rows, if there are
    any."""
    alone, first, last = _blocks(len(z), rank, ranks)
    begin, end = (0, len(rowptr) - 1) if alone else _rows(rowptr, rank, ranks)
    if len(given):
        from_row, to_row = (0, len(given)) if alone else _share(len(given), rank, ranks)
        for block in range(first, last):
            _pack(given[from_row:to_row], block * z.shape[2], z[block][from_row:to_row])
        if not alone:
            _meet(gate, ranks, 0)
    for block in range(first, last):
        _sums(begin, end, rowptr, col, values, z[block], hidden, block * z.shape[2], True)


@_compiled
def stem(
    rank: int, ranks: int, gate: Any, x_rowptr: Any, x_col: Any, x: Any, weight: Any, z: Any, rowptr: Any, col: Any,
    values: Any, hidden: Any,
) -> None:  # fmt: skip
    """What is above 0 of A · (X · W), as rows; z = X · W is left in blocks."""
    columns, blocks = z.shape[2], len(z)
    alone, first, last = _blocks(blocks, rank, ranks)
    begin, end = (0, len(x_rowptr) - 1) if alone else _rows(x_rowptr, rank, ranks)
    packed = np.empty((len(weight), columns), weight.dtype)
    for block in range(first, last):
        _pack(weight, block * columns, packed)
        _sums(begin, end, x_rowptr, x_col, x, packed, z[block], 0, False)
        if alone:
            _sums(0, len(rowptr) - 1, rowptr, col, values, z[block], hidden, block * columns, True)
    if not alone:
        _meet(gate, ranks, 0)
        begin, end = _rows(rowptr, rank, ranks)
        for block in range(blocks):
            _sums(begin, end, rowptr, col, values, z[block], hidden, block * columns, True)


@_compiled
def head(
    rank: int, ranks: int, gate: Any, hidden: Any, key: Any, nodes: Any, size: int, columns: Any, threshold: int,
    factors: Any, narrow: Any, left: Any, z: Any, rowptr: Any, col: Any, values: Any, out: Any,
) -> None:  # fmt: skip
    """A · (h · W), narrow [C, H] = Wᵀ, of hidden units h after dropout (see `drop`; without factors there is none),
    which are left in `left`; h · W is left in z."""
    first, last = _share(len(hidden), rank, ranks)
    whole = left.shape[1] * left.itemsize % VECTOR == 0
    for begin in range(first, last, _CHUNK):
        end = min(begin + _CHUNK, last)
        if len(factors):
            drop(begin, end, hidden, key, nodes, size, columns, threshold, factors, left)
        if whole:
            narrow_rows(begin, end, left, narrow, z)
        else:
            linear(begin, end, left, narrow, z)
    _meet(gate, ranks, 0)
    first, last = _rows(rowptr, rank, ranks)
    matmul(first, last, rowptr, col, values, z, out, 0)


@_compiled
def _narrow_gradient(of_z: Any, left: Any, begin: int, totals: Any, place: int, out: Any) -> None:
    """Of W [H, C], rows from `place` on, from units from column `begin` on; `totals` are zeros."""
    sums = np.empty_like(totals)
    for start in range(0, len(of_z), _TERMS):
        sums[:] = 0
        spread_rows(start, min(start + _TERMS, len(of_z)), of_z, left, begin, sums)
        totals += sums
    for k in range(len(totals)):
        for c in range(min(totals.shape[1], len(out) - place)):
            out[place + c, k] = totals[k, c]


@_compiled
def _narrow_inner(first: int, last: int, rowptr: Any, col: Any, left: Any, right: Any, out: Any) -> None:
    """Inner products of narrow rows at the entries of a sparse matrix."""
    for i in range(first, last):
        for k in range(rowptr[i], rowptr[i + 1]):
            total = out.dtype.type(0)
            for c in range(left.shape[1]):
                total += left[i, c] * right[col[k], c]
            out[k] = total


@_compiled
def backward(
    rank: int, ranks: int, gate: Any, grad: Any,
    outer: Any, of_z: Any, narrow: Any, left: Any, factors: Any, of_narrow: Any,
    inner: Any, of_hidden: Any, of_sources: Any, inputs: Any, of_weight: Any,
    outer_arcs: Any, z: Any, of_outer: Any, inner_arcs: Any, sources: Any, of_inner: Any,
) -> None:  # fmt: skip
    """The gradients of a pass from that of its outputs, `grad`: of both weights, `of_narrow` [H, C] and `of_weight`,
    and, where there is room, of the values of both layers' arcs, `of_outer` and `of_inner`.

    `outer`, `inner` and `inputs` are transposed sparse matrices: both layers as (rowptr, col, values), and X with
    bounds of stretches in place of rowptr (see `_sums_in_turn`). Without an inner one, X is summed along the arcs
    already; without inputs, what they would be multiplied by is left in `of_weight`. `of_hidden` has room for all
    blocks and `of_sources` for one, or none where each rank has its own.
    """
    rowptr, col, values = outer
    begin, end = _rows(rowptr, rank, ranks)
    matmul(begin, end, rowptr, col, values, grad, of_z, 0)
    if len(of_outer):
        begin, end = _rows(outer_arcs[0], rank, ranks)
        _narrow_inner(begin, end, outer_arcs[0], outer_arcs[1], grad, z, of_outer)
    met = _meet(gate, ranks, 0)
    columns = of_hidden.shape[2]
    blocks = -(-left.shape[1] // columns)
    alone, low, high = _blocks(blocks, rank, ranks)
    part, parts = (0, 1) if alone else (rank, ranks)  # of each block's rows
    few = np.empty((len(narrow), columns), narrow.dtype)
    my_units = np.empty((0 if len(of_hidden) else len(left), columns), grad.dtype)
    my_sources = np.empty((max(len(inner[0]) - 1, 0) if alone else 0, columns), grad.dtype)
    for block in range(low, high):
        place = block * columns
        units = of_hidden[block] if len(of_hidden) else my_units
        _pack(narrow, place, few)
        there, at_column = left, place
        if place + columns > left.shape[1]:
            there, at_column = np.empty((len(left), columns), left.dtype), 0
            _pack(left, place, there)
        begin, end = _share(len(left), part, parts)
        unit_rows(begin, end, of_z, few, there, at_column, factors, units)
        if part == 0:
            _narrow_gradient(of_z, there, at_column, np.zeros((len(few), columns), few.dtype), place, of_narrow)
        met = _meet(gate, parts, met)
        rowptr, col, values = inner
        if len(rowptr):
            at = my_sources if alone else of_sources
            begin, end = _rows(rowptr, part, parts)
            if len(inputs[0]):
                _sums(begin, end, rowptr, col, values, units, at, 0, False)
                met = _meet(gate, parts, met)
            else:
                _sums(begin, end, rowptr, col, values, units, of_weight, place, False)
        else:
            at = units
        if len(inputs[0]):
            begin, end = _share(len(of_weight), part, parts)
            _sums_in_turn(begin, end, inputs[0], inputs[1], inputs[2], at, of_weight, place)
        met = _meet(gate, parts, met)
    if len(of_inner):
        if parts == 1:
            met = _meet(gate, ranks, met)
        rowptr, col = inner_arcs
        begin, end = _rows(rowptr, rank, ranks)
        of_inner[rowptr[begin] : rowptr[end]] = 0
        for block in range(blocks):
            inner_rows(begin, end, rowptr, col, of_hidden[block], sources[block], of_inner)


@_compiled
def coefficients(
    rank: int, ranks: int, gate: Any, rowptr: Any, col: Any, slot: Any, slots: Any, weight: Any, values: Any,
    root: Any, ahead: int, out: Any,
) -> None:  # fmt: skip
    """Values of the arcs, the inverse roots of their sums at nodes, and in `out` the values scaled by both ends'."""
    first, last = _rows(rowptr, rank, ranks)
    arc_roots(first, last, rowptr, slot, slots, weight, values, root, ahead)
    _meet(gate, ranks, 0)
    scale_arcs(first, last, rowptr, col, values, root, out)


@_contracted
def _slope(first: int, last: int, at_target: Any, at_source: Any, root: Any) -> None:
    """The gradient of the sums at nodes, into `at_target`."""
    for i in range(first, last):
        at_target[i] = (at_target[i] + at_source[i]) * (root[i] * root[i] * root[i]) * root.dtype.type(-0.5)


@_compiled
def coefficient_gradients(
    rank: int, ranks: int, gate: Any, rowptr: Any, row: Any, col: Any, values: Any, weight: Any, root: Any,
    grad: Any, at_target: Any, at_source: Any, arcs: Any, ahead: int, out: Any,
) -> None:  # fmt: skip
    """Of the slots, from that of what `coefficients` leaves in its `out`."""
    first, last = _share(len(root), rank, ranks)
    root_gradients(first, last, rowptr, col, values, root, grad, at_target)
    source_gradients(first, last, rowptr, col, values, root, grad, at_source)
    _slope(first, last, at_target, at_source, root)
    _meet(gate, ranks, 0)
    first, last = _share(len(out), rank, ranks)
    slot_gradients(first, last, arcs, row, col, values, weight, root, at_target, grad, out, ahead)


# Compiled at once: where numba's LLVM lacks these instructions, the import fails, and plain torch does the work.
_meet(np.zeros(2, dtype=np.int64), 1, 0)
_INTEGERS, _ROWS = np.zeros(1, dtype=np.int32), np.zeros((1, VECTOR // 4), dtype=np.float32)
_sums(0, 0, _INTEGERS, _INTEGERS, _ROWS[0], _ROWS, _ROWS, 0, False)
