"""The compiled kernels behind a few operations on the CPU: what they give, or None where plain torch has to do; and the
memory of tensors there.

numba is optional (the extra `fast`) and imported with the first operation that is worth it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from threading import Condition
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aceglt.numerics.graph import GraphBatch

INSTALLED = find_spec("numba") is not None
_LARGE = 1 << 16  # elements from which on an operation is worth a compiled kernel
_PASSES = 8  # over the arcs that normalisation is counted as
_FEW = 16  # outputs of a layer up to which they are made one by one
_NARROW = 8  # columns below which a row has nothing to vectorise
_CACHE = 1 << 22  # bytes of a matrix from which on its rows are fetched ahead
_LINES = 1 << 8  # bytes of a row up to which they are
_FETCHED = 12
_PIECES = 4  # of a kernel's work for each thread
_BLOCKED = 1 << 23  # bytes of a matrix from which on long rows of entries read it block by block
_BLOCK = 1 << 19
_PACKED = 1 << 18  # bytes of a block of columns that a cache holds, whatever else there is
_READ = 64  # times that a row is read, from which on such blocks pay
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt
_LARGEST = (1 << 26, 1 << 25)  # bytes of a tensor whose memory is kept; older versions refuse the first
_KEPT = 1 << 29  # bytes in all
_FLOATS = (torch.float32, torch.float64)
_LENT = 1 << 23  # operations from which on a kernel has the threads that are lent
_HASH = 8  # operations that a draw is counted as
_STEP = 8  # and a step of Adam for a moment
_lent = 1  # see `lend`
_offers: dict[int, tuple[Callable[[], None], list[Future[None]]]] = {}  # see `_offered`
_changed = Condition()  # what is offered, or waited for
Result = TypeVar("Result")


@cache
def kernels() -> ModuleType | None:
    """The compiled kernels; None without numba, or with one that does not go with the rest."""
    try:
        from aceglt.backends.cpu import kernels as cpu_kernels
    except Exception:  # whatever keeps an optional package from working
        return None
    return cpu_kernels


def _there() -> ModuleType:
    """The compiled kernels, where it is known that there are any."""
    compiled = kernels()
    assert compiled is not None
    return compiled


def _c_library() -> ctypes.CDLL | None:
    """glibc, if that is the C library."""
    try:
        c = ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
    return c if hasattr(c, "mallopt") and hasattr(c, "malloc_trim") else None


_GLIBC = _c_library()


@cache
def keep_memory() -> None:
    """Have the C library keep what tensors give back for the next ones, where it can be told.

    Otherwise a large tensor is made of new pages every time, which the system clears one by one.
    """
    if _GLIBC is not None and any(_GLIBC.mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST):
        _GLIBC.mallopt(_TRIM_THRESHOLD, _KEPT)


def return_memory() -> None:
    """Give the system what no tensor uses."""
    if _GLIBC is not None:
        _GLIBC.malloc_trim(0)


def uniform(key: Tensor, n: int) -> Tensor | None:
    """See `rng.uniform`."""
    compiled = _compiled(key, n)
    if compiled is None:
        return None
    out = torch.empty(len(key), n, dtype=torch.float64)
    for run, number in enumerate(_unsigned(key)):
        _divided(compiled.uniform, n, number, _array(out[run]))
    return out


def keep_rows(key: Tensor, rows: Tensor, width: int, threshold: int, dtype: torch.dtype) -> Tensor | None:
    """See `rng.keep_rows`; an element stays where a lane is at least the threshold."""
    compiled = _compiled(key, len(rows) * width)
    if compiled is None or width % 4 or dtype not in (torch.bool, *_FLOATS):
        return None
    out = torch.empty(len(key), len(rows), width, dtype=dtype)
    for run, number in enumerate(_unsigned(key)):
        arguments = number, _array(rows), threshold, _array(out[run])
        _divided(compiled.keep, len(rows), *arguments, size=_HASH * len(rows) * width)
    return out


class Adam:
    """Steps of Adam, as torch's, in one pass over each matrix and with the threads that are lent."""

    _BETAS, _EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, lr: float, like: Tensor) -> None:
        """`like` what is updated."""
        self._lr, self._steps, self._dtype, self._kernels = lr, 0, like.dtype, _there()
        self._everywhere = _array(torch.empty(0, dtype=torch.int64))
        self._rates: Any = None  # of this step

    @staticmethod
    def serves(values: Tensor) -> bool:
        """Whether there are the kernels, and they are worth it."""
        return computes(values, values.shape[-1])

    def rule(self, *numbers: Any) -> Any:
        """A decay and an L1 term, or several such, as `update` reads them."""
        return _array(torch.tensor(numbers, dtype=self._dtype))

    def advance(self) -> None:
        """To the next step."""
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in self._BETAS)
        low, lower = (1 - beta for beta in self._BETAS)
        self._rates = self.rule(low, lower, self._lr / first, second**-0.5, self._EPSILON)

    def update(
        self,
        value: Tensor,
        grad: Tensor,
        moments: Tensor,
        rule: Any,
        matrix: Tensor | None = None,
        places: Tensor | None = None,
    ) -> None:
        """Of values in place, and their two moments [2, n], by a rule.

        With places [≤ n] in a matrix, whose gradient is given, the values go there.
        """
        self._divide(self._kernels.adam, (value, value if matrix is None else matrix, grad), places, moments, rule)

    def update_product(
        self,
        weight: Tensor,
        score: Tensor,
        matrix: Tensor,
        grad: Tensor,
        moments: Tensor,
        rules: Any,
        places: Tensor | None = None,
    ) -> None:
        """Of weights and scores in place, their four moments [4, n] and their product, which is the matrix, or goes to
        places in it; its gradient is given."""
        self._divide(self._kernels.adam_product, (weight, score, matrix, grad), places, moments, rules)

    def _divide(
        self, kernel: Callable[..., None], parts: tuple[Tensor, ...], places: Tensor | None, moments: Tensor, rule: Any
    ) -> None:
        arrays = [_array(part.view(-1)) for part in parts]
        at, count = (self._everywhere, moments.shape[1]) if places is None else (_array(places), len(places))
        _divided(kernel, count, *arrays, at, _array(moments), rule, self._rates, size=_STEP * moments.numel())


def multiplies(entries: int, width: int) -> bool:
    """Whether `matmul` serves a product of so many entries with a matrix of this width."""
    return width >= _NARROW and entries * width >= _LARGE and kernels() is not None


def matmul(csr: Tensor, dense: Tensor, out: Tensor) -> Tensor | None:
    """CSR · dense, into `out`."""
    compiled = _compiled(dense, csr.values().numel() * dense.shape[1])
    if compiled is None or dense.shape[1] < _NARROW or not _plain(csr.values(), dense, out):
        return None
    multiply(csr.crow_indices(), csr.col_indices(), csr.values(), dense, out)
    return out


def multiply(rowptr: Tensor, col: Tensor, values: Tensor, dense: Tensor, out: Tensor, positive: bool = False) -> None:
    """A CSR matrix · dense, into `out`; if `positive`, with 0 for what is below it."""
    compiled = _there()
    begin, *_ = arrays = tuple(map(_array, (rowptr, col, values, dense, out)))
    size, block = len(col) * dense.shape[1], _BLOCK // dense[0].nbytes
    if _packs(len(col), dense, compiled.PACKED):
        packed = dense.reshape(len(dense), -1, compiled.PACKED // dense.element_size()).transpose(0, 1).contiguous()
        arguments = *arrays[:3], _array(packed), arrays[4], positive
        _divided(compiled.matmul_packed, begin, *arguments, size=size)
    elif not positive and dense.nbytes > _BLOCKED and len(col) * block >= 4 * len(out) * len(dense):
        _divided(compiled.matmul_blocks, begin, *arrays, block, size=size, pieces=1)
    else:
        _divided(compiled.matmul, begin, *arrays, _ahead(dense), positive, size=size)


def _packs(entries: int, dense: Tensor, width: int) -> bool:
    """Whether a matrix is small and read often enough to be put in order for that, in blocks of so many bytes a row."""
    small = len(dense) * width <= _PACKED and dense[0].nbytes % width == 0
    return small and entries >= _READ * len(dense)


def inner(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    """[A] inner products left[row] · right[col] at the entries of a CSR matrix."""
    if _compiled(left, len(col) * left.shape[1]) is None or not _plain(left, right):
        return None
    return products(rowptr, col, left, right)


def products(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`inner`, whatever the size."""
    compiled = _there()
    out = left.new_empty(len(col))
    arrays = tuple(map(_array, (rowptr, col, left, right, out)))
    _divided(compiled.inner, arrays[0], *arrays, _ahead(right), size=len(col) * left.shape[1])
    return out


class Sums:
    """A CSR matrix, of changing values, times sparse features X: where the product has entries, and what they are."""

    def __init__(self, rowptr: Tensor, col: Tensor, x: Tensor) -> None:
        compiled, width = _there(), x.shape[1]
        self._x = tuple(map(_array, (x.crow_indices(), x.col_indices(), x.values())))
        self._rows = _array(rowptr), _array(col)
        self.rowptr = torch.zeros_like(rowptr)
        begin, none = _array(self.rowptr), self._x[1][:0]
        _divided(compiled.sum_places, self._rows[0], *self._rows, *self._x[:2], width, begin, none)
        self.rowptr.copy_(self.rowptr.cumsum(0))
        self.col = torch.empty(int(self.rowptr[-1]), dtype=col.dtype)
        _divided(compiled.sum_places, self._rows[0], *self._rows, *self._x[:2], width, begin, _array(self.col))
        self._places = begin, _array(self.col), width

    def of(self, values: Tensor) -> Tensor:
        """The product's entries, from the matrix's."""
        out = values.new_empty(len(self.col))
        arguments = *self._rows, _array(values), *self._x, self._places, _array(out)
        _divided(_there().sums, self._rows[0], *arguments, size=self._size)
        return out

    def gradient(self, grad: Tensor) -> Tensor:
        """Of the matrix's entries, from that of the product's."""
        out = grad.new_empty(len(self._rows[1]))
        arguments = *self._rows, _array(grad), *self._x, self._places, _array(out)
        _divided(_there().sum_gradients, self._rows[0], *arguments, size=self._size)
        return out

    @property
    def _size(self) -> int:
        return len(self._rows[1]) * len(self._x[1]) // max(1, len(self._x[0]) - 1)


def computes(like: Tensor, size: int) -> bool:
    """Whether there are the kernels for numbers like these, and so many of them are worth it."""
    return like.dtype in _FLOATS and _compiled(like, size) is not None


def drop(h: Tensor, key: Tensor, rows: Tensor, threshold: int, scale: float) -> Tensor:
    """h [1, n, H], H a multiple of 4, with what `keep_rows` does not keep dropped and the rest scaled."""
    compiled = _there()
    out = torch.empty_like(h)
    factors = _array(torch.tensor([scale, 0.0], dtype=h.dtype))
    arguments = _array(h[0]), _unsigned(key)[0], _array(rows), threshold, factors, _array(out[0])
    _divided(compiled.drop, len(rows), *arguments, size=_HASH * h.numel())
    return out


def linear(h: Tensor, weight: Tensor) -> Tensor:
    """[n, C] h [n, H] · weight [C, H] transposed."""
    if len(weight) > _FEW:
        return h @ weight.t()
    out = h.new_empty(len(h), len(weight))
    _divided(_there().linear, len(h), _array(h), _array(weight), _array(out), size=len(weight) * h.numel())
    return out


def unit_gradients(grad: Tensor, weight: Tensor, h: Tensor, scale: float) -> Tensor:
    """[n, H] grad [n, C] · weight [C, H], scaled, where h is above 0, and 0 elsewhere."""
    compiled = _there()
    out = torch.empty_like(h)
    factor = _array(torch.tensor([scale], dtype=h.dtype))
    arguments = _array(grad), _array(weight), _array(h), factor, _array(out)
    _divided(compiled.unit_gradients, len(h), *arguments, size=grad.shape[1] * h.numel())
    return out


def normalises(block: GraphBatch, values: Tensor) -> bool:
    """Whether `normalised` is to be had, and worth it."""
    return values.dtype in _FLOATS and _compiled(values, _PASSES * block.num_arcs) is not None


def normalised(block: GraphBatch, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[A] arcs' values from those of slots, scaled by the inverse roots of both ends' sums of magnitudes; also the
    values unscaled, and the roots [S·N]."""
    compiled = _there()
    values, root = slots.new_empty(block.num_arcs), slots.new_empty(len(block.rowptr) - 1)
    rowptr, weight = _array(block.rowptr), _weights(block, slots)
    places = (block.slot32, slots, weight, values, root)
    _divided(compiled.arc_roots, len(root), rowptr, *map(_array, places), _ahead(slots))
    out = torch.empty_like(values)
    _divided(compiled.scale_arcs, len(root), rowptr, *map(_array, (block.col32, values, root, out)))
    return out, values, root


def normalised_gradient(block: GraphBatch, values: Tensor, root: Tensor, grad: Tensor) -> Tensor:
    """Of the slots, from that of what `normalised` returned first."""
    compiled = _there()
    at_target, at_source = torch.empty_like(root), torch.empty_like(root)
    arcs = tuple(map(_array, (block.rowptr, block.col32, values, root, grad.contiguous())))
    _divided(compiled.root_gradients, len(root), *arcs, _array(at_target))
    _divided(compiled.source_gradients, len(root), *arcs, _array(at_source), pieces=1)  # each piece reads all arcs
    slope = at_target.add_(at_source).mul_(root**3).mul_(-0.5)
    out = root.new_empty(len(block.arcs_of_slot))
    ends = (block.arcs_of_slot, block.row, block.col32, values, _weights(block, values), root, slope)
    _divided(compiled.slot_gradients, len(out), *map(_array, ends), arcs[-1], _array(out), _ahead(grad))
    return out


def _ahead(dense: Tensor) -> int:
    """How many entries ahead the rows of a matrix are fetched that no cache holds; long rows fetch themselves."""
    return _FETCHED if dense.nbytes > _CACHE and dense[0].nbytes <= _LINES else 0


def _weights(block: GraphBatch, like: Tensor) -> Tensor:
    """Of the arcs, as the kernels read them: empty if all are 1."""
    return like.new_empty(0) if block.weight is None else block.weight.to(like.dtype)


def _compiled(like: Tensor, size: int) -> Any:
    return kernels() if size >= _LARGE and like.device.type == "cpu" else None


def _plain(*tensors: Tensor) -> bool:
    return all(t.dtype in _FLOATS and t.dtype == tensors[0].dtype and t.is_contiguous() for t in tensors)


def _array(tensor: Tensor) -> Any:
    """As the kernels read it."""
    return tensor.detach().numpy()


def _unsigned(key: Tensor) -> Any:
    return _array(key).view("uint64")


def _divided(kernel: Callable[..., None], work: Any, *arguments: Any, size: int = 0, pieces: int = _PIECES) -> None:
    """The kernel on all of its elements, in so many pieces per thread, which threads take as they come: `work` is how
    many elements there are, or for rows of unequal length where each begins, `size` the operations in all."""
    count, large = work if isinstance(work, int) else len(work) - 1, size >= _LENT
    threads = min(max(torch.get_num_threads(), _lent if large else 1), count)
    shares = max(threads, 2) if large and pieces > 1 else threads
    if shares <= 1:
        return kernel(0, count, *arguments)
    left = iter(list(pairwise(_cuts(work, count, pieces * shares))))

    def take() -> None:
        for piece in left:  # each goes to one thread: the interpreter's lock is held in between
            kernel(*piece, *arguments)

    with _offered(take) as helpers:
        helpers += [_pool().submit(take) for _ in range(threads - 1)]
        take()
    for helper in helpers:
        if not helper.cancel():  # what has not begun would find nothing left
            helper.result()
    return None


@contextmanager
def _offered(take: Callable[[], None]) -> Iterator[list[Future[None]]]:
    """Inside, threads that wait may take a share of the work; gives the list of who did."""
    helpers: list[Future[None]] = []
    try:
        with _changed:
            _offers[id(helpers)] = take, helpers
            _changed.notify_all()
        yield helpers
    finally:
        with _changed:
            _offers.pop(id(helpers), None)


def wait(for_what: Future[Result]) -> Result:
    """The result, once it is there; until then this thread takes a share of kernels that are under way."""
    for_what.add_done_callback(_wake)
    while not for_what.done():
        with _changed:
            if not _offers and not for_what.done():
                _changed.wait()
            if not _offers:
                continue
            _, (take, helpers) = _offers.popitem()  # when it comes back, nothing is left of it
            helper = Future[None]()
            helper.set_running_or_notify_cancel()
            helpers.append(helper)
        try:
            take()
            helper.set_result(None)
        except BaseException as error:
            helper.set_exception(error)
    return for_what.result()


def _wake(_: Future[Result]) -> None:
    with _changed:
        _changed.notify_all()


def _cuts(work: Any, count: int, pieces: int) -> list[int]:
    """Where each piece begins, and the end."""
    if isinstance(work, int):
        return [count * i // pieces for i in range(pieces + 1)]
    total = int(work[-1])
    inner = [int(work.searchsorted(total * i // pieces)) for i in range(1, pieces)]
    return [0, *inner, count]


def lend(threads: int) -> None:
    """Let large kernels have so many threads, on which no result depends, if torch has fewer."""
    global _lent
    _lent = threads


@cache
def _pool() -> ThreadPoolExecutor:
    """For all kernels at once; its threads begin as they are needed."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="aceglt-kernel")
