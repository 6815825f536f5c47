"""Operations on the CPU by kernels that numba compiles, where there are any and they are worth it.

numba is optional (the extra `fast`) and imported with the first operation that is worth it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from aceglt.backends.cpu.workers import Workers
from aceglt.numerics import ops, rng
from aceglt.numerics.graph import Block, GraphBatch
from aceglt.numerics.kernels import Kernels

_PASSES = 8  # over the arcs that normalisation is counted as
_FEW = 16  # outputs of a layer up to which they are made one by one
_NARROW = 8  # columns below which a row has nothing to vectorise
_LINES = 1 << 8  # bytes of a row up to which they are
_FETCHED = 12  # entries ahead
_PACKED = 1 << 18  # bytes of a block of columns that a cache holds, whatever else there is
_FLOATS = (torch.float32, torch.float64)
_HASH = 8  # operations that a draw is counted as
_STEP = 8  # and a step of Adam for a moment


@cache
def compiled_module() -> ModuleType | None:
    """The compiled kernels; None without numba, or with one that does not go with the rest."""
    if find_spec("numba") is None:
        return None
    try:
        from aceglt.backends.cpu import compiled
    except Exception:  # whatever keeps an optional package from working
        return None
    return compiled


class CompiledKernels(Kernels):
    """What numba's kernels give, and plain torch where they do not serve."""

    def __init__(
        self,
        worth: int = 1 << 16,
        blocked: int = 1 << 23,
        block: int = 1 << 19,
        cache: int = 1 << 22,
        reads: int = 64,
        numba: bool = True,
        workers: Workers | None = None,
    ) -> None:
        """
        Args:
            worth: elements from which on an operation is worth a compiled kernel.
            blocked: bytes of a matrix from which on long rows of entries read it block by block.
            block: bytes of such a block.
            cache: bytes of a matrix from which on gathers of its rows are prefetched.
            reads: how often a row of a small matrix is read, from which on the matrix is packed for that.
            numba: whether to use it where it is installed.
            workers: threads that share the work of a kernel; by default its own.
        """
        self.worth, self.blocked, self.block, self._numba = worth, blocked, block, numba
        self._cache, self._reads = cache, reads
        self.sparse_gradient = 0.13 if numba and find_spec("numba") is not None else Kernels.sparse_gradient
        self.workers = workers or Workers()

    def _serving(self, like: Tensor, size: int) -> Any:
        """The compiled kernels, if so many elements on the device of `like` are worth them; else None."""
        worth = self._numba and size >= self.worth and like.device.type == "cpu"
        return compiled_module() if worth else None

    @property
    def _compiled(self) -> ModuleType:
        """The compiled kernels, where it is known that there are any."""
        compiled = compiled_module()
        assert compiled is not None
        return compiled

    def computes(self, like: Tensor, size: int) -> bool:
        """Whether there are the kernels for numbers like these, and so many of them are worth it."""
        return like.dtype in _FLOATS and self._serving(like, size) is not None

    # Random draws

    def uniform(self, key: Tensor, n: int) -> Tensor:
        compiled = self._serving(key, n)
        if compiled is None:
            return super().uniform(key, n)
        out = torch.empty(len(key), n, dtype=torch.float64)
        for run, number in enumerate(_unsigned(key)):
            self.workers.divide(compiled.uniform, n, number, _array(out[run]))
        return out

    def keep_mask(self, key: Tensor, n: int, drop: float, dtype: torch.dtype = torch.bool) -> Tensor:
        drawn = self._keep(key, torch.zeros(1, dtype=torch.int64), n + -n % 4, drop, dtype)
        return super().keep_mask(key, n, drop, dtype) if drawn is None else drawn[:, 0, :n].contiguous()

    def keep_rows(self, key: Tensor, rows: Tensor, width: int, drop: float, dtype: torch.dtype) -> Tensor:
        drawn = self._keep(key, rows, width, drop, dtype) if width % 4 == 0 else None
        return super().keep_rows(key, rows, width, drop, dtype) if drawn is None else drawn

    def _keep(self, key: Tensor, rows: Tensor, width: int, drop: float, dtype: torch.dtype) -> Tensor | None:
        compiled = self._serving(key, len(rows) * width)
        if compiled is None or dtype not in (torch.bool, *_FLOATS):
            return None
        out = torch.empty(len(key), len(rows), width, dtype=dtype)
        for run, number in enumerate(_unsigned(key)):
            arguments = number, _array(rows), rng.threshold(drop), _array(out[run])
            self.workers.divide(compiled.keep, len(rows), *arguments, size=_HASH * len(rows) * width)
        return out

    def dropped(self, key: Tensor, h: Tensor, rows: Tensor | None, drop: float) -> Tensor | None:
        if len(h) > 1 or h.shape[2] % 4 or (h.requires_grad and torch.is_grad_enabled()):
            return None
        if not self.computes(h, h.numel()):
            return None
        rows = torch.arange(h.shape[1]) if rows is None else rows
        out = torch.empty_like(h)
        factors = _array(torch.tensor([1.0 / (1.0 - drop), 0.0], dtype=h.dtype))
        arguments = _array(h[0]), _unsigned(key)[0], _array(rows), rng.threshold(drop), factors, _array(out[0])
        self.workers.divide(self._compiled.drop, len(rows), *arguments, size=_HASH * h.numel())
        return out

    # Products

    def multiplies(self, entries: int, width: int) -> bool:
        """Whether a compiled kernel serves a product of so many entries with a matrix of this width."""
        large = width >= _NARROW and entries * width >= max(1, self.worth)
        return large and self._numba and compiled_module() is not None

    def product(self, left: Tensor, dense: Tensor, out: Tensor | None = None) -> Tensor:
        if out is None:
            out = dense.new_empty(left.shape[0], dense.shape[1])
        if left.is_sparse_csr and self._serves_product(left.values(), dense, out):
            self.multiply(left.crow_indices(), left.col_indices(), left.values(), dense, out)
            return out
        return super().product(left, dense, out)

    def _serves_product(self, values: Tensor, dense: Tensor, out: Tensor) -> bool:
        if self._serving(dense, values.numel() * dense.shape[1]) is None:
            return False
        return dense.shape[1] >= _NARROW and _plain(values, dense, out)

    def multiply(
        self, rowptr: Tensor, col: Tensor, values: Tensor, dense: Tensor, out: Tensor, positive: bool = False
    ) -> None:
        """A CSR matrix · dense, into `out`; if `positive`, with 0 for what is below it."""
        compiled, divide = self._compiled, self.workers.divide
        begin, *_ = arrays = tuple(map(_array, (rowptr, col, values, dense, out)))
        size, block = len(col) * dense.shape[1], self.block // dense[0].nbytes
        if self.packs(len(col), dense, compiled.PACKED):
            packed = dense.reshape(len(dense), -1, compiled.PACKED // dense.element_size()).transpose(0, 1).contiguous()
            divide(compiled.matmul_packed, begin, *arrays[:3], _array(packed), arrays[4], positive, size=size)
        elif not positive and dense.nbytes > self.blocked and len(col) * block >= 4 * len(out) * len(dense):
            divide(compiled.matmul_blocks, begin, *arrays, block, size=size, pieces=1)
        else:
            divide(compiled.matmul, begin, *arrays, self.prefetched(dense), positive, size=size)

    def packs(self, entries: int, dense: Tensor, width: int) -> bool:
        """Whether a matrix is small and read often enough to be packed, in blocks of so many bytes a row."""
        small = len(dense) * width <= _PACKED and dense[0].nbytes % width == 0
        return small and entries >= self._reads * len(dense)

    def prefetched(self, dense: Tensor) -> int:
        """How many entries ahead the rows of a matrix larger than the cache are prefetched; long rows fetch
        themselves."""
        return _FETCHED if dense.nbytes > self._cache and dense[0].nbytes <= _LINES else 0

    def inner(self, block: Block, left: Tensor, right: Tensor) -> Tensor:
        if self._serving(left, block.num_arcs * left.shape[1]) is None or not _plain(left, right):
            return super().inner(block, left, right)
        return self.inner_products(block.rowptr, block.col32, left, right)

    def inner_products(self, rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """[A] left[row] · right[col] at the entries of a CSR matrix, whatever the size."""
        out = left.new_empty(len(col))
        arrays = tuple(map(_array, (rowptr, col, left, right, out)))
        self.workers.divide(
            self._compiled.inner, arrays[0], *arrays, self.prefetched(right), size=len(col) * left.shape[1]
        )
        return out

    def linear(self, h: Tensor, weight: Tensor) -> Tensor:
        if h.device.type != "cpu":
            return super().linear(h, weight)
        result: Tensor = _Linear.apply(h, weight)
        return result

    def outputs(self, h: Tensor, weight: Tensor) -> Tensor:
        """[n, C] h [n, H] · weight [C, H] transposed."""
        if len(weight) > _FEW:
            return h @ weight.t()
        out = h.new_empty(len(h), len(weight))
        arguments = _array(h), _array(weight), _array(out)
        self.workers.divide(self._compiled.linear, len(h), *arguments, size=len(weight) * h.numel())
        return out

    def unit_gradients(self, grad: Tensor, weight: Tensor, h: Tensor, scale: float) -> Tensor:
        """[n, H] grad [n, C] · weight [C, H], scaled, where h is above 0, and 0 elsewhere."""
        out = torch.empty_like(h)
        factor = _array(torch.tensor([scale], dtype=h.dtype))
        arguments = _array(grad), _array(weight), _array(h), factor, _array(out)
        self.workers.divide(self._compiled.unit_gradients, len(h), *arguments, size=grad.shape[1] * h.numel())
        return out

    # Symmetric normalisation

    def normalised(self, batch: GraphBatch, edge_values: Tensor) -> Tensor | None:
        if not self.computes(edge_values, _PASSES * batch.num_arcs):
            return None
        result: Tensor = _Normalise.apply(ops.slots(edge_values), batch, self)
        return result

    def arc_coefficients(self, batch: GraphBatch, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[A] arcs' values from those of slots, scaled by the inverse roots of both ends' sums of magnitudes; also the
        values unscaled, and the roots [S·N]."""
        compiled, divide = self._compiled, self.workers.divide
        values, root = slots.new_empty(batch.num_arcs), slots.new_empty(len(batch.rowptr) - 1)
        rowptr = _array(batch.rowptr)
        places = (batch.slot32, slots, _arc_weights(batch, slots), values, root)
        divide(compiled.arc_roots, len(root), rowptr, *map(_array, places), self.prefetched(slots))
        out = torch.empty_like(values)
        divide(compiled.scale_arcs, len(root), rowptr, *map(_array, (batch.col32, values, root, out)))
        return out, values, root

    def slot_gradient(self, batch: GraphBatch, values: Tensor, root: Tensor, grad: Tensor) -> Tensor:
        """Of the slots, from that of what `arc_coefficients` returned first."""
        compiled, divide = self._compiled, self.workers.divide
        at_target, at_source = torch.empty_like(root), torch.empty_like(root)
        arcs = tuple(map(_array, (batch.rowptr, batch.col32, values, root, grad.contiguous())))
        divide(compiled.root_gradients, len(root), *arcs, _array(at_target))
        divide(compiled.source_gradients, len(root), *arcs, _array(at_source), pieces=1)  # each piece reads all arcs
        slope = at_target.add_(at_source).mul_(root**3).mul_(-0.5)
        out = root.new_empty(len(batch.arcs_of_slot))
        ends = (batch.arcs_of_slot, batch.row, batch.col32, values, _arc_weights(batch, values), root, slope)
        divide(compiled.slot_gradients, len(out), *map(_array, ends), arcs[-1], _array(out), self.prefetched(grad))
        return out


class Sums:
    """A CSR matrix, of changing values, times sparse features X: where the product has entries, and what they are."""

    def __init__(self, kernels: CompiledKernels, rowptr: Tensor, col: Tensor, x: Tensor) -> None:
        self._compiled, self._divide, width = kernels._compiled, kernels.workers.divide, x.shape[1]
        self._x = tuple(map(_array, (x.crow_indices(), x.col_indices(), x.values())))
        self._rows = _array(rowptr), _array(col)
        self.rowptr = torch.zeros_like(rowptr)
        begin, none = _array(self.rowptr), self._x[1][:0]
        places = self._compiled.sum_places
        self._divide(places, self._rows[0], *self._rows, *self._x[:2], width, begin, none)
        self.rowptr.copy_(self.rowptr.cumsum(0))
        self.col = torch.empty(int(self.rowptr[-1]), dtype=col.dtype)
        self._divide(places, self._rows[0], *self._rows, *self._x[:2], width, begin, _array(self.col))
        self._places = begin, _array(self.col), width

    def of(self, values: Tensor) -> Tensor:
        """The product's entries, from the matrix's."""
        return self._filled(self._compiled.sums, values, len(self.col))

    def gradient(self, grad: Tensor) -> Tensor:
        """Of the matrix's entries, from that of the product's."""
        return self._filled(self._compiled.sum_gradients, grad, len(self._rows[1]))

    def _filled(self, kernel: Callable[..., None], given: Tensor, entries: int) -> Tensor:
        out = given.new_empty(entries)
        size = len(self._rows[1]) * len(self._x[1]) // max(1, len(self._x[0]) - 1)
        arguments = *self._rows, _array(given), *self._x, self._places, _array(out)
        self._divide(kernel, self._rows[0], *arguments, size=size)
        return out


class Adam:
    """Steps of Adam, as torch's, in one pass over each matrix and with the threads that are lent."""

    _BETAS, _EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, kernels: CompiledKernels, lr: float, like: Tensor) -> None:
        """`like` what is updated."""
        self._compiled, self._divide = kernels._compiled, kernels.workers.divide
        self._lr, self._steps, self._dtype = lr, 0, like.dtype
        self._everywhere = _array(torch.empty(0, dtype=torch.int64))
        self._rates: Any = None  # of this step

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
        parts = value, value if matrix is None else matrix, grad
        self._update(self._compiled.adam, parts, places, moments, rule)

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
        self._update(self._compiled.adam_product, (weight, score, matrix, grad), places, moments, rules)

    def _update(
        self, kernel: Callable[..., None], parts: tuple[Tensor, ...], places: Tensor | None, moments: Tensor, rule: Any
    ) -> None:
        arrays = [_array(part.view(-1)) for part in parts]
        at, count = (self._everywhere, moments.shape[1]) if places is None else (_array(places), len(places))
        self._divide(kernel, count, *arrays, at, _array(moments), rule, self._rates, size=_STEP * moments.numel())


class _Linear(torch.autograd.Function):
    """The products in the order that reads h row by row: three to five times as fast as autograd's own."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(h, weight)
        return (weight.transpose(1, 2).contiguous() @ h.transpose(1, 2)).transpose(1, 2).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor]:
        h, weight = ctx.saved_tensors
        grad = grads[0]
        grad_h = grad @ weight.transpose(1, 2) if ctx.needs_input_grad[0] else None
        return grad_h, (grad.transpose(1, 2) @ h).transpose(1, 2).contiguous()


class _Normalise(torch.autograd.Function):
    """`ops.normalise` by compiled kernels, with few passes over the arcs."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, batch: GraphBatch, kernels: CompiledKernels) -> Tensor:
        out, *kept = kernels.arc_coefficients(batch, slots)
        ctx.batch, ctx.kernels = batch, kernels
        ctx.save_for_backward(*kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        values, root = ctx.saved_tensors
        return ctx.kernels.slot_gradient(ctx.batch, values, root, grads[0]), None, None


def _arc_weights(batch: GraphBatch, like: Tensor) -> Tensor:
    """Of the arcs, as the kernels read them: empty if all are 1."""
    return like.new_empty(0) if batch.weight is None else batch.weight.to(like.dtype)


def _plain(*tensors: Tensor) -> bool:
    return all(t.dtype in _FLOATS and t.dtype == tensors[0].dtype and t.is_contiguous() for t in tensors)


def _array(tensor: Tensor) -> Any:
    """As the kernels read it."""
    return tensor.detach().numpy()


def _unsigned(key: Tensor) -> Any:
    return _array(key).view("uint64")
