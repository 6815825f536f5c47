"""Node features X, kept sparse for the products where that is cheaper."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from aceglt.numerics.csr import full, to_csr
from aceglt.numerics.graph import pointers
from aceglt.numerics.kernels import PLAIN, Kernels

SPARSE = 0.13
"""Share of non-zeros below which X is held as CSR: X·W then reads each row of W once per non-zero, which is less work
on two cores, and not wrong on a GPU."""


class Features:
    """Node features X [N, F], shared by all runs; kept sparse for the products where that is cheaper."""

    def __init__(self, x: Tensor, kernels: Kernels = PLAIN, sparse: float = SPARSE) -> None:
        self.shape = (x.shape[0], x.shape[1])
        self.dense, self.kernels = x, kernels
        self.nnz = int(torch.count_nonzero(x))
        self.density = self.nnz / max(1, x.numel())
        self.csr = to_csr(x) if self.density < sparse else None
        self._blocks: _Blocks | None = None

    def using(self, kernels: Kernels) -> Features:
        """The same features, with products by these kernels."""
        made = copy(self)
        made.kernels = kernels
        made.__dict__.pop("csr_t", None)
        return made

    @cached_property
    def csr_t(self) -> Tensor | None:
        """The transpose, where the gradient is a sparse product."""
        if self.csr is None or self.density >= self.kernels.sparse_gradient:
            return None
        return to_csr(self.dense.t())

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(full(weight), self)
        return result.to(weight.dtype)

    @property
    def entries(self) -> int:
        """How many entries dropout draws for: dropping a zero changes nothing, so those of a sparse X are left out."""
        return self.nnz if self.csr is not None else self.shape[0] * self.shape[1]

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        """X of each run with some of its entries dropped and the rest scaled, keep [S, entries] bool."""
        if self.csr is None:
            return DroppedFeatures(self.kernels, self.dense * keep.view(-1, *self.shape) * scale)
        blocks = self._blocks
        if blocks is None or blocks.runs != keep.shape[0]:
            blocks = self._blocks = _Blocks(self.csr, keep.shape[0])
        return DroppedFeatures(self.kernels, *blocks.dropped(keep, scale))

    def of_run(self, run: int) -> Tensor:
        """[N, F] X as one run has it."""
        return self.dense

    def rows(self, nodes: Tensor) -> Features:
        """The features of some nodes, which draw for dropout what they do among all."""
        return _FeatureRows(self, nodes)

    def columns(self, kept: Tensor) -> Features:
        """Some of the features ([F] bool) of all nodes, for passes without dropout on features."""
        return _FeatureColumns(self, kept)

    def permuted(self, order: Tensor) -> PermutedFeatures:
        """X with its rows in another order for each run, order [S, N]."""
        return PermutedFeatures(self, order)

    def _entries_of(self, nodes: Tensor) -> Tensor:
        """Where the entries of some rows are among those of all rows."""
        if self.csr is None:
            return (nodes.unsqueeze(1) * self.shape[1] + torch.arange(self.shape[1], device=nodes.device)).flatten()
        first, counts = self.csr.crow_indices()[nodes].long(), self.csr.crow_indices().diff()[nodes].long()
        before = counts.cumsum(0) - counts
        return torch.arange(int(counts.sum()), device=nodes.device) + (first - before).repeat_interleave(counts)

    def product(self, weight: Tensor) -> Tensor:
        """`matmul`, without a gradient."""
        return self.kernels.each_run(self.csr if self.csr is not None else self.dense, weight)

    def gradient(self, grad: Tensor) -> Tensor:
        """[S, F, H] of the weight, from that [S, N, H] of the product."""
        return self.kernels.each_run(self.csr_t if self.csr_t is not None else self.dense.t(), grad)


class _FeatureRows(Features):
    """Features of some nodes, kept as those of all nodes are."""

    def __init__(self, base: Features, nodes: Tensor) -> None:
        self.dense = base.dense[nodes]
        self.shape = (len(nodes), base.shape[1])
        self.nnz = int(torch.count_nonzero(self.dense))
        self.density, self.kernels = base.density, base.kernels
        self.csr = None if base.csr is None else to_csr(self.dense)
        self._blocks = None
        self._entries = base.entries
        self._drawn = base._entries_of(nodes)

    @property
    def entries(self) -> int:
        return self._entries

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        return super().dropped(keep[:, self._drawn], scale)


class _FeatureColumns(Features):
    """Some of the columns of sparse features, kept as all of them are."""

    def __init__(self, base: Features, kept: Tensor) -> None:
        assert base.csr is not None
        self.shape = (base.shape[0], int(kept.sum()))
        rowptr, col, values = _parts(base.csr)
        rowptr, col, values = _compact(rowptr, col, values, kept[col])
        number = kept.cumsum(0, dtype=col.dtype) - 1
        self.csr = torch.sparse_csr_tensor(rowptr, number[col], values, self.shape)
        self.nnz, self.density, self.kernels = len(col), base.density, base.kernels
        self._base, self._columns = base, kept

    @cached_property
    def csr_t(self) -> Tensor | None:
        return None if self._base.csr_t is None else _some_rows(self._base.csr_t, self._columns)


def _some_rows(csr: Tensor, kept: Tensor) -> Tensor:
    """A CSR matrix without the rows that are not kept."""
    rowptr, col, values = _parts(csr)
    counts = rowptr.diff()
    inside = kept.repeat_interleave(counts)
    rowptr = torch.cat([rowptr.new_zeros(1), counts[kept].cumsum(0, dtype=rowptr.dtype)])
    return torch.sparse_csr_tensor(rowptr, col[inside], values[inside], (len(rowptr) - 1, csr.shape[1]))


def _parts(csr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return csr.crow_indices(), csr.col_indices(), csr.values()


class DroppedFeatures:
    """Node features after dropout, which every run draws for itself: [S, N, F], or sparse with the runs as blocks."""

    def __init__(self, kernels: Kernels, left: Tensor, transposed: Tensor | None = None) -> None:
        self._kernels = kernels
        self._left = left  # [S, N, F], or CSR [S·N, S·F]
        self._transposed = transposed  # None, or CSR [S·F, S·N]

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(full(weight), self)
        return result.to(weight.dtype)

    def product(self, weight: Tensor) -> Tensor:
        """`matmul`, without a gradient."""
        return self._left @ weight if self._transposed is None else self._blockwise(self._left, weight)

    def gradient(self, grad: Tensor) -> Tensor:
        """[S, F, H] of the weight, from that [S, N, H] of the product."""
        if self._transposed is None:
            return self._left.transpose(1, 2) @ grad
        return self._blockwise(self._transposed, grad)

    def _blockwise(self, left: Tensor, right: Tensor) -> Tensor:
        """[S, n, H] of a block-diagonal matrix times the runs' matrices, stacked."""
        runs, _, width = right.shape
        out = right.new_empty(left.shape[0], width)
        return self._kernels.product(left, right.reshape(-1, width), out).view(runs, -1, width)


class _Blocks:
    """S copies of a sparse X along a diagonal, and the transpose: the structure that dropout takes entries from."""

    def __init__(self, csr: Tensor, runs: int) -> None:
        rows, cols = csr.shape
        row = torch.repeat_interleave(torch.arange(rows, device=csr.device), csr.crow_indices().diff())
        run = torch.arange(runs, device=csr.device).unsqueeze(1)
        row, col = (row + run * rows).flatten(), (csr.col_indices() + run * cols).flatten()  # [S·nnz]
        self.runs, self.shape = runs, (runs * rows, runs * cols)
        self.values = csr.values()
        self.order = torch.argsort(col * self.shape[0] + row)  # entries of the transpose
        self.rowptr, self.col = pointers(row, self.shape[0]), col.int()
        self.rowptr_t, self.col_t = pointers(col[self.order], self.shape[1]), row[self.order].int()

    def dropped(self, keep: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        values, keep = (self.values * keep * scale).flatten(), keep.flatten()  # [S·nnz]
        left = _compact(self.rowptr, self.col, values, keep)
        by_column = values.index_select(0, self.order), keep.index_select(0, self.order)
        transposed = _compact(self.rowptr_t, self.col_t, *by_column)
        return torch.sparse_csr_tensor(*left, self.shape), torch.sparse_csr_tensor(*transposed, self.shape[::-1])


def _compact(rowptr: Tensor, col: Tensor, values: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A CSR matrix without the entries that are not kept; on a GPU, where their count would be awaited, with them."""
    if values.is_cuda:
        return rowptr, col, values
    before = torch.cat([rowptr.new_zeros(1), keep.cumsum(0, dtype=rowptr.dtype)])
    return before.index_select(0, rowptr), col[keep], values[keep]


class PermutedFeatures(Features):
    """Features whose rows every run has in an order of its own, for passes without dropout.

    X itself is not copied: its product with a weight is permuted.
    """

    def __init__(self, base: Features, order: Tensor) -> None:
        self.shape, self.nnz, self.density, self.kernels = base.shape, base.nnz, base.density, base.kernels
        self._base = base
        self._order = order  # [S, N]

    def product(self, weight: Tensor) -> Tensor:
        return _gather_rows(self._base.product(weight), self._order)

    def gradient(self, grad: Tensor) -> Tensor:
        return self._base.gradient(_gather_rows(grad, self._order.argsort(dim=1)))

    def of_run(self, run: int) -> Tensor:
        return self._base.dense[self._order[run]]


class _FeatureMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, features: Features | DroppedFeatures) -> Tensor:
        ctx.features = features
        return features.product(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.features.gradient(grads[0].contiguous()), None


def _gather_rows(h: Tensor, order: Tensor) -> Tensor:
    """[S, N, H]: row order[s, i] of run s at place i."""
    runs, nodes, width = h.shape
    rows = order + nodes * torch.arange(runs, device=h.device).unsqueeze(1)
    return h.reshape(-1, width)[rows.flatten()].view(h.shape)
