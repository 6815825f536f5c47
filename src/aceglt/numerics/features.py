"""Node features X, kept sparse for the products where that is cheaper."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from aceglt.numerics.batch import pointers
from aceglt.numerics.csr import as_csr, full, places_of, take_columns, take_rows, transposed
from aceglt.numerics.kernels import PLAIN, Kernels

SPARSE = 0.13
"""Share of non-zeros below which X is held as CSR: X·W then reads each row of W once per non-zero, which is less work
on two cores, and not wrong on a GPU."""


class Features:
    """Node features X [N, F], shared by all runs; kept sparse for the products where that is cheaper.

    X is given dense or sparse. A sparse X is made dense only where its products are cheaper so.
    """

    shape: tuple[int, int]
    kernels: Kernels
    csr: Tensor | None
    """X, where X·W is cheaper with a sparse one."""
    entries: int
    """How many entries dropout draws for: dropping a zero changes nothing, so those of a sparse X are left out."""

    def __init__(self, x: Tensor, kernels: Kernels = PLAIN, sparse: float = SPARSE) -> None:
        """Held as CSR where the share of non-zeros is below `sparse`."""
        given_sparse = x.layout != torch.strided
        x = as_csr(x) if given_sparse else x
        nnz = x.values().numel() if given_sparse else int(torch.count_nonzero(x))
        self.kernels, self._density = kernels, nnz / max(1, x.numel())
        self._store(lambda: x, (x.shape[0], x.shape[1]), as_csr(x) if self._density < sparse else None)

    def _store(
        self,
        given: Callable[[], Tensor],
        shape: tuple[int, int],
        csr: Tensor | None,
        transpose: Callable[[], Tensor] | None = None,
        among: tuple[Features, Tensor] | None = None,
    ) -> None:
        """Keep X as `given` makes it, and what its products read; `among` are the features, and the nodes of theirs,
        that dropout draws for together with these."""
        self._given, self.shape, self.csr, self._transpose, self._among = given, shape, csr, transpose, among
        self.entries = among[0].entries if among else shape[0] * shape[1] if csr is None else csr.values().numel()
        self._blocks: _Blocks | None = None

    def using(self, kernels: Kernels) -> Features:
        """The same features, with products by these kernels."""
        made = copy(self)
        made.kernels = kernels
        made.__dict__.pop("csr_t", None)
        return made

    def _like(self) -> Features:
        """Features to be stored, with the kernels of these."""
        made = Features.__new__(Features)
        made.kernels, made._density = self.kernels, self._density
        return made

    @property
    def x(self) -> Tensor:
        """[N, F] X as it was given: dense, or CSR."""
        return self._given()

    @cached_property
    def dense(self) -> Tensor:
        return self.x.to_dense()

    @cached_property
    def csr_t(self) -> Tensor | None:
        """Xᵀ, where Xᵀ·G is cheaper with a sparse one."""
        if self.csr is None or not self.sparse_gradient:
            return None
        return transposed(self.csr) if self._transpose is None else self._transpose()

    @property
    def sparse(self) -> bool:
        """Whether X·W is computed with a sparse X."""
        return self.csr is not None and self._density < self.kernels.sparse_product

    @property
    def sparse_gradient(self) -> bool:
        """Whether Xᵀ·G is computed with a sparse Xᵀ."""
        return self.csr is not None and self._density < self.kernels.sparse_gradient

    @cached_property
    def nnz(self) -> int:
        return self.csr.values().numel() if self.csr is not None else int(torch.count_nonzero(self.dense))

    def of_run(self, run: int) -> Tensor:
        """[N, F] X as one run has it, dense or CSR."""
        return self.x

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(full(weight), self)
        return result.to(weight.dtype)

    def product(self, weight: Tensor) -> Tensor:
        """`matmul`, without a gradient."""
        return self.kernels.each_run(self.csr if self.sparse and self.csr is not None else self.dense, weight)

    def gradient(self, grad: Tensor) -> Tensor:
        """[S, F, H] of the weight, from that [S, N, H] of the product."""
        return self.kernels.each_run(self.dense.t() if self.csr_t is None else self.csr_t, grad)

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        """X of each run with some of its entries dropped and the rest scaled, keep [S, entries] bool."""
        keep = keep if self._among is None else keep[:, self._drawn]
        if self.csr is None:
            left = self.dense * keep.view(-1, *self.shape) * scale
            return DroppedFeatures(self.kernels, left, left.transpose(1, 2))
        blocks = self._blocks
        if blocks is None or blocks.runs != keep.shape[0]:
            blocks = self._blocks = _Blocks(self.csr, keep.shape[0])
        return DroppedFeatures(self.kernels, *blocks.dropped(keep, scale))

    def part(self, nodes: Tensor) -> Features:
        """The features of some nodes [n], kept as suits them."""
        return Features(take_rows(self.x, nodes), self.kernels)

    def rows(self, nodes: Tensor) -> Features:
        """The features of some nodes [n], kept as all are, which draw for dropout what they do among all."""
        made, csr = self._like(), None if self.csr is None else take_rows(self.csr, nodes)
        made._store(lambda: take_rows(self.x, nodes), (len(nodes), self.shape[1]), csr, None, (self, nodes))
        return made

    def columns(self, kept: Tensor) -> Features:
        """Some of the features ([F] bool) of all nodes, for passes without dropout on features."""
        made, whole = self._like(), self.csr_t
        csr = None if self.csr is None else take_columns(self.csr, kept)
        transpose = None if whole is None else lambda: take_rows(whole, kept.nonzero().squeeze(1))
        made._store(lambda: take_columns(self.x, kept), (self.shape[0], int(kept.sum())), csr, transpose)
        return made

    def permuted(self, order: Tensor) -> PermutedFeatures:
        """X with its rows in another order for each run, order [S, N]."""
        return PermutedFeatures(self, order)

    @cached_property
    def _drawn(self) -> Tensor:
        """Where the entries are among those that dropout draws for."""
        assert self._among is not None
        base, nodes = self._among
        places = base._places(nodes)
        return places if base._among is None else base._drawn[places]

    def _places(self, nodes: Tensor) -> Tensor:
        """Where the entries of some rows are among those of all rows."""
        if self.csr is not None:
            return places_of(self.csr, nodes)[0]
        return (nodes.unsqueeze(1) * self.shape[1] + torch.arange(self.shape[1], device=nodes.device)).flatten()


class DroppedFeatures:
    """Node features after dropout, which every run draws for itself: [S, N, F], or sparse with the runs as blocks."""

    def __init__(self, kernels: Kernels, left: Tensor, transposed: Tensor) -> None:
        self._kernels = kernels
        self._left, self._transposed = left, transposed  # [S, N, F] and [S, F, N], or CSR [S·N, S·F] and [S·F, S·N]

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(full(weight), self)
        return result.to(weight.dtype)

    def product(self, weight: Tensor) -> Tensor:
        """`matmul`, without a gradient."""
        return self._times(self._left, weight)

    def gradient(self, grad: Tensor) -> Tensor:
        """[S, F, H] of the weight, from that [S, N, H] of the product."""
        return self._times(self._transposed, grad)

    def _times(self, left: Tensor, right: Tensor) -> Tensor:
        """[S, n, H] of each run's matrix, or of a block of a sparse one, times right [S, m, H]."""
        if not left.is_sparse_csr:
            return left @ right
        return self._kernels.product(left, right.reshape(-1, right.shape[2])).view(len(right), -1, right.shape[2])


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

    X itself is not copied: its product with a weight is permuted, and what is kept is X in the order of the nodes.
    """

    def __init__(self, base: Features, order: Tensor) -> None:
        vars(self).update(vars(base))
        self._base, self._order = base, order  # order [S, N]

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        raise NotImplementedError("permuted features are for passes without dropout")

    def rows(self, nodes: Tensor) -> Features:
        raise NotImplementedError("permuted features are of all nodes")

    def part(self, nodes: Tensor) -> Features:
        return self.rows(nodes)

    def columns(self, kept: Tensor) -> Features:
        return PermutedFeatures(self._base.columns(kept), self._order)

    def permuted(self, order: Tensor) -> PermutedFeatures:
        return PermutedFeatures(self._base, self._order.gather(1, order))

    def product(self, weight: Tensor) -> Tensor:
        return _gather_rows(self._base.product(weight), self._order)

    def gradient(self, grad: Tensor) -> Tensor:
        return self._base.gradient(_gather_rows(grad, self._order.argsort(dim=1)))

    def of_run(self, run: int) -> Tensor:
        return take_rows(self._base.x, self._order[run])


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
