"""Node features X, kept sparse for the products where that is cheaper."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from aceglt.backends.cpu import calls as cpu
from aceglt.numerics.csr import blockwise, each_run, full
from aceglt.numerics.graph import pointers
from aceglt.numerics.sparse import as_csr, places_of, take_columns, take_rows, transposed

# Share of non-zeros below which the sparse product wins, measured on two cores (and not wrong on a GPU):
# X·W reads each row of W once per non-zero; Xᵀ·G has long rows, which torch's own product reuses the cache less for.
_SPARSE_FORWARD = 0.13
_SPARSE_BACKWARD = 0.13 if cpu.INSTALLED else 0.04


class Features:
    """Node features X [N, F], shared by all runs; kept sparse for the products where that is cheaper.

    X is given dense or sparse. A sparse X is made dense only where one of the products is cheaper so.
    """

    gathered: ClassVar[bool] = False
    """Whether they are summed along arcs before they are multiplied."""

    shape: tuple[int, int]
    csr: Tensor | None
    """X, where X·W is cheaper with a sparse one."""
    csr_t: Tensor | None
    """Xᵀ, where Xᵀ·G is too."""
    dense: Tensor | None
    """X, where one of the products needs it."""
    entries: int
    """How many entries dropout draws for: dropping a zero changes nothing, so those of a sparse X are left out."""

    def __init__(self, x: Tensor) -> None:
        sparse = x.layout != torch.strided
        x = as_csr(x) if sparse else x
        nnz = x.values().numel() if sparse else int(torch.count_nonzero(x))
        density = nnz / max(1, x.numel())
        csr = as_csr(x) if density < _SPARSE_FORWARD else None
        csr_t = transposed(csr) if csr is not None and density < _SPARSE_BACKWARD else None
        dense = None if csr_t is not None else x.to_dense() if sparse else x
        self._store(lambda: x, dense, csr, csr_t)

    def _store(
        self,
        given: Callable[[], Tensor],
        dense: Tensor | None,
        csr: Tensor | None,
        csr_t: Tensor | None,
        among: tuple[Features, Tensor] | None = None,
    ) -> None:
        """Keep X as `given` makes it and as the products read it; `among` are the features, and the nodes of theirs,
        that dropout draws for together with these."""
        self._given, self.dense, self.csr, self.csr_t, self._among = given, dense, csr, csr_t, among
        kept = csr if csr is not None else dense
        assert kept is not None
        self.shape = (kept.shape[0], kept.shape[1])
        self.entries = among[0].entries if among else kept.numel() if csr is None else csr.values().numel()
        self._blocks: _Blocks | None = None

    def _share(self, base: Features) -> None:
        """Keep what other features keep."""
        vars(self).update(vars(base))

    @cached_property
    def nnz(self) -> int:
        if self.csr is not None:
            return self.csr.values().numel()
        assert self.dense is not None
        return int(torch.count_nonzero(self.dense))

    @property
    def x(self) -> Tensor:
        """[N, F] X as it was given: dense, or CSR."""
        return self._given()

    def of_run(self, run: int) -> Tensor:
        """[N, F] X as one run has it, dense or CSR."""
        return self.x

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(full(weight), self)
        return result.to(weight.dtype)

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        """X of each run with some of its entries dropped and the rest scaled, keep [S, entries] bool."""
        keep = keep if self._among is None else keep[:, self._drawn]
        if self.csr is None:
            assert self.dense is not None
            return DroppedFeatures(self.dense * keep.view(-1, *self.shape) * scale, None)
        blocks = self._blocks
        if blocks is None or blocks.runs != keep.shape[0]:
            blocks = self._blocks = _Blocks(self.csr, keep.shape[0])
        return blocks.dropped(keep, scale)

    def part(self, nodes: Tensor) -> Features:
        """The features of some nodes [n], kept as suits them."""
        return Features(take_rows(self.x, nodes))

    def rows(self, nodes: Tensor) -> Features:
        """The features of some nodes [n], kept as all are, which draw for dropout what they do among all."""
        return _FeatureRows(self, nodes)

    def columns(self, kept: Tensor) -> Features:
        """Some of the features ([F] bool) of all nodes, for passes without dropout on features."""
        return _FeatureColumns(self, kept)

    def exact(self, kept: Tensor, width: int) -> bool:
        """Whether `columns` makes the same product, bit by bit, with a matrix of this width whose other rows are 0."""
        if self.csr is None or self.csr_t is None:
            return False
        return cpu.multiplies(int(kept[self.csr.col_indices()].sum()), width)

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

    def product(self, weight: Tensor) -> Tensor:
        """`matmul`, without a gradient."""
        left = self.csr if self.csr is not None else self.dense
        assert left is not None
        return each_run(left, weight)

    def gradient(self, grad: Tensor) -> Tensor:
        """[S, F, H] of the weight, from that [S, N, H] of the product."""
        if self.csr_t is not None:
            return each_run(self.csr_t, grad)
        assert self.dense is not None
        return each_run(self.dense.t(), grad)


class _FeatureRows(Features):
    """Features of some nodes, kept as those of all nodes are."""

    def __init__(self, base: Features, nodes: Tensor) -> None:
        dense = None if base.dense is None else base.dense[nodes]
        csr = None if base.csr is None else take_rows(base.csr, nodes)
        csr_t = None if csr is None or base.csr_t is None else transposed(csr)
        self._store(lambda: take_rows(base.x, nodes), dense, csr, csr_t, (base, nodes))


class _FeatureColumns(Features):
    """Some of the columns of features, kept as all of them are."""

    def __init__(self, base: Features, kept: Tensor) -> None:
        dense = None if base.dense is None else base.dense[:, kept]
        csr = None if base.csr is None else take_columns(base.csr, kept)
        csr_t = None if base.csr_t is None else take_rows(base.csr_t, kept.nonzero().squeeze(1))
        self._store(lambda: take_columns(base.x, kept), dense, csr, csr_t)


class DroppedFeatures:
    """Node features after dropout, which every run draws for itself: [S, N, F], or sparse with the runs as blocks."""

    def __init__(self, left: Tensor, transposed: Tensor | None) -> None:
        self._left = left  # [S, N, F], or CSR [S·N, S·F]
        self._transposed = transposed  # None, or CSR [S·F, S·N]

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(full(weight), self)
        return result.to(weight.dtype)

    def product(self, weight: Tensor) -> Tensor:
        """`matmul`, without a gradient."""
        return self._left @ weight if self._transposed is None else blockwise(self._left, weight)

    def gradient(self, grad: Tensor) -> Tensor:
        """[S, F, H] of the weight, from that [S, N, H] of the product."""
        if self._transposed is None:
            return self._left.transpose(1, 2) @ grad
        return blockwise(self._transposed, grad)


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

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        values, keep = (self.values * keep * scale).flatten(), keep.flatten()  # [S·nnz]
        left = _compact(self.rowptr, self.col, values, keep)
        by_column = values.index_select(0, self.order), keep.index_select(0, self.order)
        transposed = _compact(self.rowptr_t, self.col_t, *by_column)
        return DroppedFeatures(
            torch.sparse_csr_tensor(*left, self.shape), torch.sparse_csr_tensor(*transposed, self.shape[::-1])
        )


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
        self._share(base)
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


class ReadyFeatures(Features):
    """Features whose product with the weight of this step is known already, among that of others."""

    def __init__(self, base: Features, of_all: Tensor, places: Tensor) -> None:
        """The product of all [S, N, H], and which rows of it are meant, [n] int32."""
        self._share(base)
        self._base, self.of_all, self.places = base, of_all, places

    def product(self, weight: Tensor) -> Tensor:
        return self.of_all.index_select(1, self.places)

    def gradient(self, grad: Tensor) -> Tensor:
        return self._base.gradient(grad)


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
