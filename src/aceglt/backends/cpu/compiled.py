"""Kernels that numba compiles, for the CPU; `aceglt.backends.cpu.kernels` calls them where numba is installed.

Each works on the elements (or rows) first … last - 1 of its result, in one pass and without the interpreter's lock.
What an element comes to does not depend on how the whole is cut.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from aceglt.backends.cpu.compiled_rows import LONGEST, VECTOR


class _Cache:
    """numba's files of compiled code; damaged ones, or a full disk, cost the time of compiling and nothing else."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return self._cache.load_overload(signature, context)
        except Exception as problem:  # whatever unpickling damaged bytes raises
            _tell(problem)
            with suppress(Exception):
                self._cache.flush()  # what is saved now can be read next time
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            self._cache.save_overload(signature, data)
        except Exception as problem:
            _tell(problem)


@cache
def _told(where: str) -> None:
    logging.getLogger("aceglt").warning("numba's cache cannot be used (%s); kernels are compiled anew", where)


def _tell(problem: Exception) -> None:
    """Once for each kind of trouble."""
    _told(type(problem).__name__)


def _jit(**options: Any) -> Any:
    """numba's njit, with a cache where there is one."""

    def decorate(function: Any) -> Any:
        try:
            made = njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        except RuntimeError as problem:  # no folder for it can be written to
            _tell(problem)
            return njit(nogil=True, error_model="numpy", **options)(function)
        made._cache = _Cache(made._cache)
        return made

    return decorate


_compiled: Any = _jit()
_contracted: Any = _jit(fastmath={"contract"})
_reordered: Any = _jit(fastmath={"contract", "reassoc"})

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_12, _27, _30, _31 = (np.uint64(n) for n in (12, 27, 30, 31))
_BLOCK = 1 << 14  # elements of an update at a time: half a cache of 1 MiB, and long streams from memory
_WIDEST = 16 if get_host_cpu_features().get("avx512f") else LONGEST  # vectors: half of the registers there are
_STRETCH = 64  # entries of a dense row that are looked at together
_ONE = np.uint64(1)


@_compiled
def _hash(key: Any, counter: Any) -> Any:
    """SplitMix64, as `rng` has it."""
    x = key + (np.uint64(counter) + _ONE) * _GOLDEN
    x = (x ^ (x >> _30)) * _MIX_1
    x = (x ^ (x >> _27)) * _MIX_2
    return x ^ (x >> _31)


@_compiled
def uniform(first: int, last: int, key: Any, out: Any) -> None:
    """`rng.uniform`."""
    for i in range(first, last):
        out[i] = (float(_hash(key, i) >> _12) + 0.5) * 2.0**-52


@_compiled
def _lanes(key: Any, begin: int, words: Any) -> Any:
    """[4 · words] int16: four draws from each of the words' hashes, from `begin` on; one loop, for vectors."""
    for word in range(len(words)):
        words[word] = _hash(key, begin + word)
    return words.view(np.int16)


@_compiled
def keep(first: int, last: int, key: Any, rows: Any, threshold: int, out: Any) -> None:
    """`rng.keep_mask` of some rows: out [rows, 4 · words of a row]."""
    words, limit = np.empty(out.shape[1] // 4, np.uint64), np.int16(threshold)
    for i in range(first, last):
        drawn, lanes = out[i], _lanes(key, rows[i] * len(words), words)
        for c in range(len(drawn)):
            drawn[c] = lanes[c] >= limit


@_compiled
def drop(
    first: int, last: int, h: Any, key: Any, rows: Any, size: int, columns: Any, threshold: int, scale: Any, out: Any
) -> None:
    """Rows of h with the elements dropped that `keep` with key[0] does not keep, and the others scaled; those are the
    first, or the `columns`, of rows of `size` words."""
    drawn = size if len(columns) else (h.shape[1] + 3) // 4
    words, picked, limit = np.empty(drawn, np.uint64), np.empty(len(columns), np.int16), np.int16(threshold)
    factor, none = scale[0], scale[1]
    for i in range(first, last):
        row, left, lanes = h[i], out[i], _lanes(key[0], rows[i] * size, words)
        for c in range(len(picked)):
            picked[c] = lanes[np.uint64(columns[c])]  # unsigned: no look at whether it counts from the end
        draws = picked if len(columns) else lanes
        for c in range(len(row)):
            left[c] = row[c] * factor if draws[c] >= limit else none


@_reordered
def _dot(a: Any, b: Any) -> Any:
    """The inner product of two rows."""
    total = a.dtype.type(0)
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


@_compiled
def linear(first: int, last: int, h: Any, weight: Any, out: Any) -> None:
    """Rows of h · weightᵀ, weight [few, units]."""
    for i in range(first, last):
        for k in range(len(weight)):
            out[i, k] = _dot(h[i], weight[k])


@intrinsic
def _fetch_row(typing: Any, matrix: Any, row: Any) -> Any:
    """Begin to load a row of an array into the cache: LLVM's prefetch, which numba has no function for."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, array.strides, matrix.ndim)[0]
        offset = builder.mul(context.cast(builder, arguments[1], row, types.intp), stride)
        address = builder.add(builder.ptrtoint(array.data, stride.type), offset)
        pointer, flag = ir.PointerType(ir.IntType(8)), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(address, pointer), flag(0), flag(3), flag(1)])  # to read, soon, data
        return context.get_dummy_value()

    return types.void(matrix, row), emit


@_compiled
def _fetch(dense: Any, col: Any, begin: int, end: int, stop: int, ahead: int) -> None:
    """Begin to load the rows that come `ahead` entries later; 0 leaves that to the processor."""
    if ahead:
        for k in range(begin, end):
            _fetch_row(dense, col[min(k + ahead, stop)])


def _adding(vectors: int, masked: bool = True) -> Any:
    """A function that sums entries begin … end - 1 of a CSR row times rows of a matrix into `out`, in so many vectors
    of columns from `place` on; of the last vector, if `masked`, only what is in the matrix. It begins with 0 if
    `fresh`, else with what is there.

    Sums stay in registers, which numba's own loops over arrays do not manage. Terms are added one after the other:
    without those that are 0, a sum is the same bit by bit.
    """

    @intrinsic
    def add(
        typing: Any, begin: Any, end: Any, col: Any, values: Any, dense: Any, out: Any, place: Any, fresh: Any
    ) -> Any:
        size = values.dtype.bitwidth // 8
        lanes = VECTOR // size

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = zip(signature.args[2:6], arguments[2:6], strict=True)
            columns, factors, matrix, sums = (context.make_array(kind)(context, builder, a) for kind, a in kinds)
            stride = cgutils.unpack_tuple(builder, matrix.strides, dense.ndim)[0]
            number, index = context.get_value_type(types.intp), ir.IntType(32)
            first, last, at = (context.cast(builder, arguments[i], signature.args[i], types.intp) for i in (0, 1, 6))
            vector = ir.VectorType(context.get_data_type(values.dtype), lanes)
            undefined, zeros = ir.Constant(vector, ir.Undefined), ir.Constant(vector, None)
            everywhere = ir.Constant(ir.VectorType(index, lanes), [0] * lanes)

            bits, pointer = ir.VectorType(ir.IntType(1), lanes), vector.as_pointer()
            kind = f"v{lanes}f{8 * size}.p0"
            width = cgutils.unpack_tuple(builder, matrix.shape, dense.ndim)[1]
            left = builder.sub(width, builder.add(at, number((vectors - 1) * lanes)))
            left = builder.insert_element(ir.Constant(ir.VectorType(number, lanes), ir.Undefined), left, index(0))
            left = builder.shuffle_vector(left, ir.Constant(left.type, ir.Undefined), everywhere)
            there_is = builder.icmp_signed("<", ir.Constant(left.type, list(range(lanes))), left)

            def part(data: Any, which: int) -> Any:
                begins = builder.gep(data, [builder.add(at, number(which * lanes))])
                return builder.bitcast(begins, pointer)

            def load(data: Any, which: int) -> Any:
                if not masked or which < vectors - 1:
                    return builder.load(part(data, which), align=size)
                signature = ir.FunctionType(vector, [pointer, index, bits, vector])
                function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.load.{kind}")
                return builder.call(function, [part(data, which), index(size), there_is, zeros])

            def store(value: Any, data: Any, which: int) -> None:
                if not masked or which < vectors - 1:
                    builder.store(value, part(data, which), align=size)
                    return
                signature = ir.FunctionType(ir.VoidType(), [vector, pointer, index, bits])
                function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.store.{kind}")
                builder.call(function, [value, part(data, which), index(size), there_is])

            def given(flag: int) -> Any:
                return context.cast(builder, arguments[flag], signature.args[flag], types.boolean)

            totals = [cgutils.alloca_once(builder, vector) for _ in range(vectors)]
            for total in totals:
                builder.store(zeros, total)
            with builder.if_then(builder.not_(given(7))):
                for which, total in enumerate(totals):
                    builder.store(load(sums.data, which), total)
            begins = builder.ptrtoint(matrix.data, stride.type)
            with cgutils.for_range(builder, builder.sub(last, first)) as loop:
                k = builder.add(first, loop.index)
                row = context.cast(builder, builder.load(builder.gep(columns.data, [k])), col.dtype, types.intp)
                factor = builder.insert_element(undefined, builder.load(builder.gep(factors.data, [k])), index(0))
                factor = builder.shuffle_vector(factor, undefined, everywhere)
                there = builder.inttoptr(builder.add(begins, builder.mul(row, stride)), matrix.data.type)
                for which, total in enumerate(totals):
                    term = builder.fmul(factor, load(there, which), flags=("contract",))
                    builder.store(builder.fadd(builder.load(total), term, flags=("contract",)), total)
            for which, total in enumerate(totals):
                store(builder.load(total), sums.data, which)
            return context.get_dummy_value()

        return types.void(begin, end, col, values, dense, out, place, fresh), emit

    return add


_add_widest, _add_wide = (_adding(vectors, masked=False) for vectors in (_WIDEST, LONGEST))
_add_one, _add_two, _add_three, _add_four = (_adding(vectors) for vectors in range(1, 5))


@_contracted
def _add(total: Any, begin: int, end: int, col: Any, values: Any, dense: Any, fresh: bool = True) -> None:
    """Add entries begin … end - 1 of a row, some columns at a time; see `_adding`."""
    width, lanes, place = dense.shape[1], VECTOR // dense.itemsize, 0
    while place + _WIDEST * lanes <= width:
        _add_widest(begin, end, col, values, dense, total, place, fresh)
        place += _WIDEST * lanes
    while place + LONGEST * lanes <= width:
        _add_wide(begin, end, col, values, dense, total, place, fresh)
        place += LONGEST * lanes
    left = width - place
    if left > 3 * lanes:
        _add_four(begin, end, col, values, dense, total, place, fresh)
    elif left > 2 * lanes:
        _add_three(begin, end, col, values, dense, total, place, fresh)
    elif left > lanes:
        _add_two(begin, end, col, values, dense, total, place, fresh)
    elif left:
        _add_one(begin, end, col, values, dense, total, place, fresh)


@_contracted
def matmul(first: int, last: int, rowptr: Any, col: Any, values: Any, dense: Any, out: Any, ahead: int) -> None:
    """Rows of CSR · dense."""
    for i in range(first, last):
        begin, end = rowptr[i], rowptr[i + 1]
        _fetch(dense, col, begin, end, rowptr[last] - 1, ahead)
        _add(out[i], begin, end, col, values, dense)


@_contracted
def matmul_sparse(
    first: int, last: int, rowptr: Any, col: Any, values: Any, right_ptr: Any, right_col: Any, right: Any, out: Any
) -> None:
    """Rows of CSR · CSR, dense."""
    for i in range(first, last):
        row = out[i]
        row[:] = 0
        for entry in range(rowptr[i], rowptr[i + 1]):
            value, of = values[entry], col[entry]
            for place in range(right_ptr[of], right_ptr[of + 1]):
                row[np.uint32(right_col[place])] += value * right[place]


@_contracted
def matmul_by_sparse(first: int, last: int, x: Any, rowptr: Any, col: Any, values: Any, out: Any, lanes: int) -> None:
    """Rows of x · W, dense, with Wᵀ as CSR: so many rows of x at a time, side by side in a cache. Works on rows of
    `lanes` · first … lanes · last - 1."""
    wide, tall = np.zeros((x.shape[1], lanes), x.dtype), np.empty((out.shape[1], lanes), x.dtype)
    for block in range(first, last):
        rows, sums = x[lanes * block : lanes * (block + 1)], out[lanes * block : lanes * (block + 1)]
        _transpose(rows, wide)
        for unit in range(len(tall)):
            _add(tall[unit], rowptr[unit], rowptr[unit + 1], col, values, wide)
        _transpose(tall, sums) if len(sums) == lanes else _transpose(tall[:, : len(sums)], sums)


@_compiled
def _transpose(given: Any, out: Any) -> None:
    """Columns of what is given as rows of `out`; a line of the cache is written at once."""
    for begin in range(0, len(given), 16):
        part = given[begin : begin + 16]
        for c in range(part.shape[1]):
            for i in range(len(part)):
                out[c, begin + i] = part[i, c]


@_compiled
def _count(row: Any) -> Any:
    """Entries of a row that are not 0; in a loop of its own, for vectors."""
    count, none = np.int32(0), row.dtype.type(0)
    for c in range(len(row)):
        count += np.int32(row[c] != none)
    return count


@_compiled
def count_nonzeros(first: int, last: int, dense: Any, counts: Any) -> None:
    """How many entries of each row are not 0, from counts[1] on."""
    for i in range(first, last):
        counts[i + 1] = _count(dense[i])


@_compiled
def take_nonzeros(first: int, last: int, dense: Any, rowptr: Any, col: Any, values: Any) -> None:
    """Columns and values of the entries that are not 0; where few are, most stretches are passed over at once."""
    none = dense.dtype.type(0)
    for i in range(first, last):
        row, place = dense[i], rowptr[i]
        for begin in range(0, len(row), _STRETCH):
            stretch = row[begin : begin + _STRETCH]
            if _count(stretch) == 0:
                continue
            for c in range(len(stretch)):
                if stretch[c] != none:
                    col[place], values[place] = begin + c, stretch[c]
                    place += 1


@_contracted
def matmul_blocks(first: int, last: int, rowptr: Any, col: Any, values: Any, dense: Any, out: Any, block: int) -> None:
    """Rows of CSR · dense, with one block of the dense rows at a time, which a cache holds while all rows read it."""
    place = rowptr[first:last].copy()
    out[first:last] = 0
    for limit in range(block, len(dense) + block, block):
        for i in range(first, last):
            begin = end = place[i - first]
            while end < rowptr[i + 1] and col[end] < limit:
                end += 1
            place[i - first] = end
            _add(out[i], begin, end, col, values, dense, False)


@_compiled
def inner(first: int, last: int, rowptr: Any, col: Any, left: Any, right: Any, out: Any, ahead: int) -> None:
    """Inner products left[row] · right[col] at the entries of a CSR matrix."""
    for i in range(first, last):
        _fetch(right, col, rowptr[i], rowptr[i + 1], rowptr[last] - 1, ahead)
        for k in range(rowptr[i], rowptr[i + 1]):
            out[k] = _dot(left[i], right[col[k]])


@_compiled
def _entries(rowptr: Any, row: int) -> slice:
    """Where a row of a CSR matrix is among the entries."""
    return slice(rowptr[row], rowptr[row + 1])


@_contracted
def sums(
    first: int, last: int, rowptr: Any, col: Any, values: Any, of_x: Any, x_col: Any, x: Any, places: Any, out: Any
) -> None:
    """Values of CSR · X at its `places`: where each row begins, the columns, and how many there may be."""
    begin, column, width = places
    total = np.empty(width, out.dtype)
    for i in range(first, last):
        total[:] = 0
        for k in range(rowptr[i], rowptr[i + 1]):
            value, there, row = values[k], x_col[_entries(of_x, col[k])], x[_entries(of_x, col[k])]
            for e in range(len(row)):
                total[np.uint32(there[e])] += value * row[e]  # unsigned: no look at whether it counts from the end
        left, there = out[_entries(begin, i)], column[_entries(begin, i)]
        for p in range(len(left)):
            left[p] = total[np.uint32(there[p])]


@_contracted
def sum_gradients(
    first: int, last: int, rowptr: Any, col: Any, grad: Any, of_x: Any, x_col: Any, x: Any, places: Any, out: Any
) -> None:
    """What the entries of a CSR matrix get from the gradient of its `sums`."""
    begin, column, width = places
    of_row = np.zeros(width, out.dtype)
    for i in range(first, last):
        given, there = grad[_entries(begin, i)], column[_entries(begin, i)]
        for p in range(len(given)):
            of_row[np.uint32(there[p])] = given[p]
        for k in range(rowptr[i], rowptr[i + 1]):
            there, row, total = x_col[_entries(of_x, col[k])], x[_entries(of_x, col[k])], out.dtype.type(0)
            for e in range(len(row)):
                total += of_row[np.uint32(there[e])] * row[e]
            out[k] = total


@_contracted
def arc_roots(
    first: int, last: int, rowptr: Any, slot: Any, slots: Any, weight: Any, values: Any, root: Any, ahead: int
) -> None:
    """Values of the arcs, slots[slot] · weight (empty: 1), and each row's inverse root of the magnitudes' sum."""
    for i in range(first, last):
        total = root.dtype.type(0)
        _fetch(slots, slot, rowptr[i], rowptr[i + 1], rowptr[last] - 1, ahead)
        for k in range(rowptr[i], rowptr[i + 1]):
            value = slots[slot[k]]
            if len(weight):
                value *= weight[k]
            values[k] = value
            total += abs(value)
        root[i] = 1 / np.sqrt(total)


@_contracted
def scale_arcs(first: int, last: int, rowptr: Any, col: Any, values: Any, root: Any, out: Any) -> None:
    """Values of the arcs times the roots of both ends."""
    for i in range(first, last):
        for k in range(rowptr[i], rowptr[i + 1]):
            out[k] = values[k] * (root[i] * root[col[k]])


@_contracted
def root_gradients(
    first: int, last: int, rowptr: Any, col: Any, values: Any, root: Any, grad: Any, at_target: Any
) -> None:
    """What the roots' gradient gets where they scale a target."""
    for i in range(first, last):
        total = root.dtype.type(0)
        for k in range(rowptr[i], rowptr[i + 1]):
            if grad[k] != 0:  # of most arcs it is where few nodes are trained on
                total += grad[k] * values[k] * root[col[k]]
        at_target[i] = total


@_contracted
def source_gradients(
    first: int, last: int, rowptr: Any, col: Any, values: Any, root: Any, grad: Any, at_source: Any
) -> None:
    """And where they scale a source, first … last - 1: sums at random places, but of few enough for the cache."""
    at_source[first:last] = 0
    for i in range(len(rowptr) - 1):
        k, end = rowptr[i], rowptr[i + 1]
        while k < end and col[k] < first:
            k += 1
        while k < end and col[k] < last:
            at_source[col[k]] += grad[k] * values[k] * root[i]
            k += 1


@_contracted
def slot_gradients(
    first: int,
    last: int,
    arcs: Any,
    row: Any,
    col: Any,
    values: Any,
    weight: Any,
    root: Any,
    slope: Any,
    grad: Any,
    out: Any,
    ahead: int,
) -> None:
    """Of each slot from its (no, one or two) arcs; slope [nodes] is the gradient of the sums of magnitudes."""
    total = len(grad)
    for e in range(first, last):
        k, reverse = arcs[e, 0], arcs[e, 1]
        out[e] = 0
        if ahead:
            _fetch_row(grad, arcs[min(e + ahead, last - 1), 1])
        if k < total:
            i, j = row[k], col[k]
            change, magnitude = grad[k], slope[i]
            if reverse < total:
                change += grad[reverse]
                magnitude += slope[j]
            out[e] = change * (root[i] * root[j]) + np.sign(values[k]) * magnitude
            if len(weight):
                out[e] *= weight[k]


@_contracted
def _step(value: Any, grad: Any, first: Any, second: Any, decay: Any, l1: Any, rates: Any) -> None:
    """Adam on all elements, with what `cpu.Adam` says of this step in `rates`."""
    low, lower, size, root, epsilon = rates[0], rates[1], rates[2], rates[3], rates[4]
    none = l1 - l1  # a plain 0 would make everything float64
    for i in range(len(value)):
        x = value[i]
        sign = l1 if x > 0 else (-l1 if x < 0 else none)
        g = grad[i] + sign + decay * x
        mean, square = first[i], second[i]
        mean += low * (g - mean)
        square += lower * (g * g - square)
        first[i], second[i] = mean, square
        value[i] = x - size * mean / (np.sqrt(square) * root + epsilon)


@_contracted
def _multiply(a: Any, b: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] = a[i] * b[i]


@_compiled
def _gather(values: Any, places: Any, out: Any) -> None:
    for i in range(len(places)):
        out[i] = values[places[i]]


@_compiled
def _choose(values: Any, alive: Any, out: Any) -> None:
    for i in range(len(values)):
        out[i] = values[i] * values.dtype.type(alive[i])  # a vector instruction, which a choice is not


@_compiled
def _scatter(values: Any, places: Any, out: Any) -> None:
    for i in range(len(places)):
        out[places[i]] = values[i]


@_compiled
def adam(
    begin: int,
    end: int,
    value: Any,
    score: Any,
    out: Any,
    grad: Any,
    alive: Any,
    places: Any,
    moments: Any,
    rules: Any,
    rates: Any,
) -> None:
    """One step of values by their gradient; with scores, of both by the gradient of their product, and the new product,
    into `out`: block by block, so that a cache holds what several loops read.

    `moments` [2, n], or [4, n] with scores; `rules` the decay and the L1 term of each. With `places`, those are where
    the gradient of each element is, and where it goes in `out`; without, in order, and values do not go there. Elements
    that are not `alive` (empty: all are) have no gradient.
    """
    size = min(_BLOCK, len(score))
    gathered, to_value, to_score = (
        np.empty(_BLOCK, value.dtype),
        np.empty(size, value.dtype),
        np.empty(size, value.dtype),
    )
    for start in range(begin, end, _BLOCK):
        stop = min(start + _BLOCK, end)
        x, g, at = value[start:stop], grad[start:stop], places[start:stop]
        if len(at):
            g = gathered[: stop - start]
            _gather(grad, at, g)
        elif len(alive):
            g = gathered[: stop - start]
            _choose(grad[start:stop], alive[start:stop], g)
        if len(score):
            s, of_x, of_s = score[start:stop], to_value[: stop - start], to_score[: stop - start]
            _multiply(g, s, of_x)
            _multiply(g, x, of_s)
            _step(x, of_x, moments[0][start:stop], moments[1][start:stop], rules[0, 0], rules[0, 1], rates)
            _step(s, of_s, moments[2][start:stop], moments[3][start:stop], rules[1, 0], rules[1, 1], rates)
            x = of_x if len(at) else out[start:stop]
            _multiply(value[start:stop], s, x)
        else:
            _step(x, g, moments[0][start:stop], moments[1][start:stop], rules[0, 0], rules[0, 1], rates)
        _scatter(x, at, out)


# Compiled at once: where numba's LLVM does not know this prefetch, the import fails, and plain torch does the work.
_fetch(np.zeros((1, 1)), np.zeros(1, dtype=np.int32), 0, 1, 0, 1)
