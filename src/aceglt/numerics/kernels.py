"""The operations that take the time of a training, in plain torch: what backends compute faster, and nothing else."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from aceglt.numerics import rng

if TYPE_CHECKING:
    from aceglt.numerics.batch import Block, GraphBatch

Gradients: TypeAlias = tuple[Tensor | None, Tensor]
"""Of a sparse matrix's values, if asked for, and of what it is multiplied with."""

with warnings.catch_warnings():  # torch says once per process that CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (1, 1))


_HALVES = (torch.float16, torch.bfloat16)


class Kernels:
    """Sparse products and random draws. A backend overrides what it has a faster way for; the results are the same to
    rounding, and those of draws bit by bit."""

    sparse_product: float = 1.0
    """Share of non-zeros in X below which X·W is computed as a sparse product, where X is held sparse."""
    sparse_gradient: float = 0.04
    """Share of non-zeros in X below which Xᵀ·G is computed as a sparse product: its long rows reuse the cache less."""

    def product(self, left: Tensor, dense: Tensor, out: Tensor | None = None) -> Tensor:
        """left · dense, into `out` if given; left is CSR or dense."""
        if out is None:
            out = dense.new_empty(left.shape[0], dense.shape[1])
        if left.is_sparse_csr and not left.is_cuda and dense.dtype in _HALVES:  # torch has no such product
            return out.copy_(self.product(left.float(), dense.float()))
        return torch.addmm(out, left, dense, beta=0, out=out)  # the plain operator would clear and copy the output

    def few_columns(self, left: Tensor, dense: Tensor) -> Tensor:
        """left · dense, both dense, for inference; dense has fewer than 16 columns."""
        return left @ dense

    def sparse_by_sparse(self, left: Tensor, right: Tensor) -> Tensor | None:
        """left · right, both CSR, as a dense matrix; None where there is no shorter way than with a dense right."""
        return None

    def by_sparse(self, left: Tensor, transposed: Tensor) -> Tensor | None:
        """left · the transpose of a CSR matrix, all but that dense; None where there is no faster way than dense."""
        return None

    def nonzeros(self, dense: Tensor) -> Tensor | None:
        """A dense matrix as CSR, as `numerics.csr.to_csr` makes it; None where there is no faster way."""
        return None

    def each_run(self, left: Tensor, right: Tensor) -> Tensor:
        """[S, n, H] products of one (CSR or dense) matrix with each run's, right [S, m, H]."""
        if right.is_cuda and not left.is_sparse_csr:
            return torch.matmul(left, right)
        out = right.new_empty(right.shape[0], left.shape[0], right.shape[2])
        for run in range(right.shape[0]):
            self.product(left, right[run], out[run])
        return out

    def along(self, block: Block, values: Tensor, dense: Tensor) -> Tensor:
        """[S, T, H] sums of dense [S, N, H] along a block's arcs, times their values [A]."""
        width = dense.shape[-1]
        out = dense.new_empty(block.runs, block.targets, width)
        self.product(block.csr(values), dense.reshape(-1, width), out.view(-1, width))
        return out

    def inner(self, block: Block, left: Tensor, right: Tensor) -> Tensor:
        """[A] inner products left[target] · right[source] for the arcs of a block, without an arcs × width tensor."""
        ones = left.new_ones(block.num_arcs)
        products: Tensor = torch.sparse.sampled_addmm(block.csr(ones), left, right.t(), beta=0.0).values()
        return products

    def spread(
        self, block: Block, values: Tensor, grad: Tensor, dense: Tensor | None, width: int, symmetric: bool
    ) -> Gradients:
        """Gradients of the values [A] of a block's arcs (with `dense` alone) and of what they were multiplied with,
        dense [S·N, width], from those [S·T, width] of the product; `symmetric`: the matrix is its own transpose."""
        to_values = None if dense is None else self.inner(block, grad, dense)
        if symmetric:  # the values' order need not be gathered
            return to_values, self.product(block.csr(values), grad)
        return to_values, self.product(block.transposed_csr(values.index_select(0, block.transpose)), grad)

    def matmul(self, left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor:
        """A dense product, plus what is added [S, n, H], with its gradient."""
        return torch.matmul(left, right) if added is None else torch.baddbmm(added, left, right)

    def linear(self, h: Tensor, weight: Tensor) -> Tensor:
        """[S, N, C] = h · weight, h [S, N, H] wide and weight [S, H, C] narrow."""
        return h @ weight

    def normalised(self, batch: GraphBatch, edge_values: Tensor) -> Tensor | None:
        """[A] what `ops.normalise` defines, with its gradient; None where there is no shorter way."""
        return None

    def soft_cross_entropy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """[S] mean over nodes of the cross-entropy of outputs [S, n, C] to soft targets, with its gradient."""
        return -(targets * outputs.log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)

    def fold(self, key: Tensor, value: int | Tensor) -> Tensor:
        """See `rng.fold`."""
        return rng.fold(key, value)

    def uniform(self, key: Tensor, n: int) -> Tensor:
        """See `rng.uniform`."""
        return rng.uniform(key, n)

    def keep_mask(
        self, key: Tensor, n: int, drop: float, dtype: torch.dtype = torch.bool, rows: Tensor | None = None
    ) -> Tensor:
        """See `rng.keep_mask`."""
        return rng.keep_mask(key, n, drop, dtype, rows)

    def dropped(
        self, key: Tensor, h: Tensor, rows: Tensor | None, drop: float, whole: int | None, units: Tensor | None
    ) -> Tensor | None:
        """h [S, n, width] with what `keep_mask` keeps of it scaled up, and 0 elsewhere; None where that is no shorter
        than to draw and multiply. Its columns draw as the first of `whole` ones, or as the `units` ([width] bool)."""
        return None


PLAIN = Kernels()
