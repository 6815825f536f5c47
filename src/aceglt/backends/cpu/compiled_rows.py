"""Loops over rows that are a few vectors long, for functions that numba compiles: its own loops take as long to begin
as rows like these to read.

`out` (or the first matrix) says how long rows are: four vectors of 64 bytes, two or one. Other matrices may have longer
rows, of which the columns from `begin` on are read or written. Sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

VECTOR = 64
"""Bytes."""
LONGEST = 4
"""Vectors of a row."""
_TOGETHER = 4  # rows that a row is multiplied with at a time
_INDEX = ir.IntType(32)


class _Code:
    """Writes a loop's instructions for rows of so many vectors; arguments by their names."""

    def __init__(self, context: Any, builder: Any, kinds: dict[str, Any], values: dict[str, Any], dtype: Any) -> None:
        self._context, self.builder, self.dtype = context, builder, dtype
        self.size = dtype.bitwidth // 8
        self.lanes = VECTOR // self.size
        self.vector = ir.VectorType(context.get_data_type(dtype), self.lanes)
        self.zeros = ir.Constant(self.vector, None)
        self.number = context.get_value_type(types.intp)
        self.arrays: dict[str, Any] = {}
        self.strides: dict[str, Any] = {}
        self.given: dict[str, Any] = {}
        for name, kind in kinds.items():
            if isinstance(kind, types.Array):
                array = self.arrays[name] = context.make_array(kind)(context, builder, values[name])
                self.strides[name] = cgutils.unpack_tuple(builder, array.strides, kind.ndim)[0]
            else:
                wanted = types.boolean if isinstance(kind, types.Boolean) else types.intp
                self.given[name] = context.cast(builder, values[name], kind, wanted)

    def columns(self, name: str, ndim: int) -> Any:
        return cgutils.unpack_tuple(self.builder, self.arrays[name].shape, ndim)[1]

    def element(self, name: str, place: Any) -> Any:
        """Of an array in one dimension."""
        return self.builder.load(self.builder.gep(self.arrays[name].data, [place]))

    def index(self, name: str, place: Any) -> Any:
        """A whole number from one."""
        value = self.element(name, place)
        return self.builder.sext(value, self.number) if value.type.width < self.number.width else value

    def row(self, name: str, i: Any, begin: Any = None) -> Any:
        """The address of a row, from a column on."""
        b = self.builder
        there = b.add(b.ptrtoint(self.arrays[name].data, self.number), b.mul(i, self.strides[name]))
        if begin is not None:
            there = b.add(there, b.mul(begin, self.number(self.size)))
        return there

    def part(self, row: Any, which: int) -> Any:
        there = self.builder.add(row, self.number(which * VECTOR))
        return self.builder.inttoptr(there, self.vector.as_pointer())

    def load(self, row: Any, which: int) -> Any:
        return self.builder.load(self.part(row, which), align=self.size)

    def store(self, value: Any, row: Any, which: int) -> None:
        self.builder.store(value, self.part(row, which), align=self.size)

    def everywhere(self, scalar: Any) -> Any:
        """A vector of one number."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, _INDEX(0))
        return self.builder.shuffle_vector(
            one, undefined, ir.Constant(ir.VectorType(_INDEX, self.lanes), [0] * self.lanes)
        )

    def add_product(self, total: Any, one: Any, other: Any) -> Any:
        term = self.builder.fmul(one, other, flags=("contract",))
        return self.builder.fadd(total, term, flags=("contract",))

    def compared(self, how: str, value: Any) -> Any:
        """[lanes] whether a number is so to 0; NaN never is, and stays NaN."""
        return self.builder.fcmp_ordered(how, value, self.zeros)

    def variables(self, count: int) -> list[Any]:
        return [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]

    @contextmanager
    def each(self, first: Any, last: Any) -> Iterator[Any]:
        with cgutils.for_range(self.builder, self.builder.sub(last, first)) as loop:
            yield self.builder.add(first, loop.index)

    def sum_of(self, vector: Any) -> Any:
        """Of a vector's numbers, in halves."""
        while half := vector.type.count // 2:
            parts = [
                self.builder.shuffle_vector(
                    vector,
                    ir.Constant(vector.type, ir.Undefined),
                    ir.Constant(ir.VectorType(_INDEX, half), list(range(first, first + half))),
                )
                for first in (0, half)
            ]
            vector = self.builder.fadd(*parts)
        return self.builder.extract_element(vector, _INDEX(0))


def _loops(like: str, emit: Callable[[_Code, int], None], **kinds: Any) -> Any:
    """What an intrinsic with arguments of these kinds returns: loops of which `emit` writes the one for rows of so many
    vectors, those of the matrix `like`."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, kinds, dict(zip(kinds, arguments, strict=True)), kinds[like].dtype)
        columns, served = code.columns(like, kinds[like].ndim), ir.Constant(ir.IntType(1), 0)
        for vectors in (LONGEST, LONGEST // 2, 1):
            this = builder.icmp_signed("==", columns, code.number(vectors * code.lanes))
            served = builder.or_(served, this)
            with builder.if_then(this):
                emit(code, vectors)
        with builder.if_then(builder.not_(served), likely=False):
            context.call_conv.return_user_exc(builder, ValueError, ("rows are not one, two or four vectors long",))
        return context.get_dummy_value()

    return types.void(*kinds.values()), write


@intrinsic
def pack_rows(typing: Any, first: Any, last: Any, matrix: Any, begin: Any, out: Any) -> Any:
    """Copy rows of a matrix from column `begin` on."""

    def emit(code: _Code, vectors: int) -> None:
        with code.each(code.given["first"], code.given["last"]) as i:
            row, to = code.row("matrix", i, code.given["begin"]), code.row("out", i)
            for which in range(vectors):
                code.store(code.load(row, which), to, which)

    return _loops("out", emit, first=first, last=last, matrix=matrix, begin=begin, out=out)


@intrinsic
def sum_rows(
    typing: Any, first: Any, last: Any, starts: Any, ends: Any, col: Any, values: Any, dense: Any, out: Any,
    begin: Any, fresh: Any, positive: Any,
) -> Any:  # fmt: skip
    """Rows of a sparse matrix, each with the entries from its start to its end, times dense, as rows of `out` from
    column `begin` on; added to what is there unless `fresh`. If `positive`, with 0 for what is below it.

    Terms are added one after the other: without those that are 0, a sum is the same bit by bit.
    """

    def emit(code: _Code, vectors: int) -> None:
        b, totals = code.builder, code.variables(vectors)
        with code.each(code.given["first"], code.given["last"]) as i:
            to = code.row("out", i, code.given["begin"])
            with b.if_else(code.given["fresh"]) as (begins, goes_on):
                with begins:
                    for total in totals:
                        b.store(code.zeros, total)
                with goes_on:
                    for which, total in enumerate(totals):
                        b.store(code.load(to, which), total)
            with code.each(code.index("starts", i), code.index("ends", i)) as k:
                factor = code.everywhere(code.element("values", k))
                there = code.row("dense", code.index("col", k))
                for which, total in enumerate(totals):
                    b.store(code.add_product(b.load(total), factor, code.load(there, which)), total)
            with b.if_then(code.given["positive"]):
                for total in totals:
                    b.store(b.select(code.compared("<", b.load(total)), code.zeros, b.load(total)), total)
            for which, total in enumerate(totals):
                code.store(b.load(total), to, which)

    kinds = {"starts": starts, "ends": ends, "col": col, "values": values, "dense": dense, "out": out}
    return _loops("dense", emit, first=first, last=last, **kinds, begin=begin, fresh=fresh, positive=positive)


@intrinsic
def unit_rows(
    typing: Any, first: Any, last: Any, grad: Any, narrow: Any, left: Any, begin: Any, factors: Any, out: Any
) -> Any:
    """Rows of grad · narrow, times factors[0], where those of `left` from column `begin` on are above 0, else 0."""

    def emit(code: _Code, vectors: int) -> None:
        b, totals = code.builder, code.variables(vectors)
        count = cgutils.unpack_tuple(b, code.arrays["narrow"].shape, 2)[0]
        factor = code.everywhere(code.element("factors", code.number(0)))
        with code.each(code.given["first"], code.given["last"]) as i:
            for total in totals:
                b.store(code.zeros, total)
            of = b.inttoptr(code.row("grad", i), code.arrays["grad"].data.type)
            with code.each(code.number(0), count) as k:
                value, row = code.everywhere(b.load(b.gep(of, [k]))), code.row("narrow", k)
                for which, total in enumerate(totals):
                    b.store(code.add_product(b.load(total), value, code.load(row, which)), total)
            there, to = code.row("left", i, code.given["begin"]), code.row("out", i)
            for which, total in enumerate(totals):
                scaled = b.fmul(b.load(total), factor)
                code.store(b.select(code.compared("<=", code.load(there, which)), code.zeros, scaled), to, which)

    kinds = {"grad": grad, "narrow": narrow, "left": left, "begin": begin, "factors": factors, "out": out}
    return _loops("out", emit, first=first, last=last, **kinds)


@intrinsic
def spread_rows(typing: Any, first: Any, last: Any, grad: Any, left: Any, begin: Any, sums: Any) -> Any:
    """Add gradᵀ · rows of `left` from column `begin` on to `sums`."""

    def emit(code: _Code, vectors: int) -> None:
        b = code.builder
        count = cgutils.unpack_tuple(b, code.arrays["sums"].shape, 2)[0]
        with code.each(code.given["first"], code.given["last"]) as i:
            row = code.row("left", i, code.given["begin"])
            pieces = [code.load(row, which) for which in range(vectors)]
            of = b.inttoptr(code.row("grad", i), code.arrays["grad"].data.type)
            with code.each(code.number(0), count) as k:
                value, to = code.everywhere(b.load(b.gep(of, [k]))), code.row("sums", k)
                for which, piece in enumerate(pieces):
                    code.store(code.add_product(code.load(to, which), value, piece), to, which)

    return _loops("sums", emit, first=first, last=last, grad=grad, left=left, begin=begin, sums=sums)


@intrinsic
def inner_rows(typing: Any, first: Any, last: Any, rowptr: Any, col: Any, left: Any, right: Any, out: Any) -> Any:
    """Add inner products left[row] · right[col] at the entries of a sparse matrix to `out`."""

    def emit(code: _Code, vectors: int) -> None:
        b = code.builder
        with code.each(code.given["first"], code.given["last"]) as i:
            row = code.row("left", i)
            pieces = [code.load(row, which) for which in range(vectors)]
            with code.each(code.index("rowptr", i), code.index("rowptr", b.add(i, code.number(1)))) as k:
                there, total = code.row("right", code.index("col", k)), code.zeros
                for which, piece in enumerate(pieces):
                    total = code.add_product(total, piece, code.load(there, which))
                to = b.gep(code.arrays["out"].data, [k])
                b.store(b.fadd(b.load(to), code.sum_of(total)), to)

    kinds = {"rowptr": rowptr, "col": col, "left": left, "right": right, "out": out}
    return _loops("left", emit, first=first, last=last, **kinds)


@intrinsic
def narrow_rows(typing: Any, first: Any, last: Any, wide: Any, narrow: Any, out: Any) -> Any:
    """Inner products of rows of two matrices, whose length is whole vectors: out[i, k] = wide[i] · narrow[k]."""
    kinds = {"first": first, "last": last, "wide": wide, "narrow": narrow, "out": out}

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, kinds, dict(zip(kinds, arguments, strict=True)), wide.dtype)
        b, number = builder, code.number
        length = b.mul(code.columns("wide", 2), number(code.size))  # bytes
        count = cgutils.unpack_tuple(b, code.arrays["narrow"].shape, 2)[0]
        fours = b.and_(count, number(-_TOGETHER))
        totals = code.variables(_TOGETHER)

        def products(i: Any, k: Any, together: int) -> None:
            """Of one row with several."""
            row, others = code.row("wide", i), [code.row("narrow", b.add(k, number(n))) for n in range(together)]
            for total in totals[:together]:
                b.store(code.zeros, total)
            with cgutils.for_range_slice(b, number(0), length, number(VECTOR)) as (at, _):
                piece = code.load(b.add(row, at), 0)
                for total, other in zip(totals, others, strict=False):
                    b.store(code.add_product(b.load(total), piece, code.load(b.add(other, at), 0)), total)
            to = b.gep(b.inttoptr(code.row("out", i), code.arrays["out"].data.type), [k])
            for n, total in enumerate(totals[:together]):
                b.store(code.sum_of(b.load(total)), b.gep(to, [number(n)]))

        with code.each(code.given["first"], code.given["last"]) as i:
            with cgutils.for_range_slice(b, number(0), fours, number(_TOGETHER)) as (k, _):
                products(i, k, _TOGETHER)
            with code.each(fours, count) as k:
                products(i, k, 1)
        return context.get_dummy_value()

    return types.void(*kinds.values()), write
