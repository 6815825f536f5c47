"""The sparse kernels, with gradients, for a batch of runs. Nothing here is ever N×N or arcs×width."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from aceglt.graph import GraphBatch

with warnings.catch_warnings():  # torch says once per process that CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (1, 1))

# Share of non-zeros below which the sparse product wins, measured on two cores (and not wrong on a GPU):
# X·W reads each row of W once per non-zero; Xᵀ·G has long rows and reuses the cache less.
_SPARSE_FORWARD = 0.13
_SPARSE_BACKWARD = 0.04


def arc_values(batch: GraphBatch, edge_values: Tensor) -> Tensor:
    """[A] value of every arc from edge values [S, E]; self-loops get 1."""
    ones = edge_values.new_ones(batch.runs, 1)
    padded: Tensor = torch.cat([edge_values, ones], dim=1)
    result: Tensor = _GatherArcs.apply(padded.reshape(-1), batch)
    return result


def spmm(batch: GraphBatch, values: Tensor, dense: Tensor) -> Tensor:
    """[S, N, H]: out[target] = Σ value · dense[source] over arcs, values [A], dense [S, N, H]."""
    result: Tensor = _Spmm.apply(values, dense, batch)
    return result


def row_sum(batch: GraphBatch, values: Tensor) -> Tensor:
    """[S·N] sum of arc values [A] at each target."""
    ones = values.new_ones(batch.runs, batch.num_nodes, 1)
    return spmm(batch, values, ones).reshape(-1)


def linear(h: Tensor, weight: Tensor) -> Tensor:
    """[S, N, C] = h [S, N, H] · weight [S, H, C]; a single run takes the plain product, which is faster on a CPU."""
    return (h.squeeze(0) @ weight.squeeze(0)).unsqueeze(0) if len(h) == 1 else h @ weight


class Features:
    """Node features X [N, F], shared by all runs; kept sparse for the products where that is cheaper."""

    def __init__(self, x: Tensor) -> None:
        self.shape = (x.shape[0], x.shape[1])
        self.nnz = int(torch.count_nonzero(x))
        density = self.nnz / max(1, x.numel())
        self._csr = _to_csr(x) if density < _SPARSE_FORWARD else None
        self._csr_t = _to_csr(x.t()) if density < _SPARSE_BACKWARD else None
        self._dense = x if self._csr is None or self._csr_t is None else None

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(weight, self)
        return result

    def permuted(self, order: Tensor) -> PermutedFeatures:
        """X with its rows in another order for each run, order [S, N]."""
        return PermutedFeatures(self, order)

    def _forward(self, weight: Tensor) -> Tensor:
        return _each_run(self._csr if self._csr is not None else self._dense, weight)

    def _backward(self, grad: Tensor) -> Tensor:
        return _each_run(self._csr_t if self._csr_t is not None else self._dense.t(), grad)  # type: ignore[union-attr]


class PermutedFeatures(Features):
    """Features whose rows every run has in an order of its own; X itself is not copied, products are permuted."""

    def __init__(self, base: Features, order: Tensor) -> None:
        self.shape, self.nnz = base.shape, base.nnz
        self._base = base
        self._order = order  # [S, N]

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = P · X · weight, weight [S, F, H]."""
        result: Tensor = _PermuteRows.apply(self._base.matmul(weight), self._order)
        return result


def _each_run(left: Tensor | None, right: Tensor) -> Tensor:
    """[S, n, H] products of one (sparse or dense) matrix with each run's."""
    assert left is not None
    out = right.new_empty(right.shape[0], left.shape[0], right.shape[2])
    for run, dense in enumerate(right):
        _product(left, dense, out[run])
    return out


def _product(left: Tensor, dense: Tensor, out: Tensor) -> Tensor:
    """left · dense into `out`; the plain operator would clear and copy the output besides."""
    return torch.addmm(out, left, dense, beta=0, out=out)


class _FeatureMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, features: Features) -> Tensor:
        ctx.features = features
        return features._forward(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.features._backward(grads[0].contiguous()), None


class _PermuteRows(torch.autograd.Function):
    """Rows in another order; the gradient is a gather by the inverse order, where autograd's own would scatter."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return _gather_rows(h, order)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return _gather_rows(grads[0], order.argsort(dim=1)), None


def _gather_rows(h: Tensor, order: Tensor) -> Tensor:
    """[S, N, H]: row order[s, i] of run s at place i."""
    runs, nodes, width = h.shape
    rows = order + nodes * torch.arange(runs, device=h.device).unsqueeze(1)
    return h.reshape(-1, width)[rows.flatten()].view(h.shape)


class _GatherArcs(torch.autograd.Function):
    """slot values → arc values; the gradient is a gather too, so it needs no atomics and is deterministic."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, batch: GraphBatch) -> Tensor:
        ctx.batch = batch
        return slots[batch.slot]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        padded = torch.cat([grads[0], grads[0].new_zeros(1)])
        return padded[ctx.batch.arcs_of_slot].sum(dim=1), None


class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dense: Tensor, batch: GraphBatch) -> Tensor:
        ctx.batch = batch
        ctx.save_for_backward(values, dense)
        matrix = _csr(batch.rowptr, batch.col32, values)
        flat = dense.reshape(-1, dense.shape[-1])
        return _product(matrix, flat, torch.empty_like(flat)).view(dense.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        batch: GraphBatch = ctx.batch
        values, dense = ctx.saved_tensors
        grad = grads[0].reshape(-1, dense.shape[-1])
        grad_values = grad_dense = None
        if ctx.needs_input_grad[0]:
            grad_values = _sddmm(batch, values, grad, dense.reshape(grad.shape))
        if ctx.needs_input_grad[1]:
            transposed = _csr(batch.transposed_rowptr, batch.transposed_col, values[batch.transpose])
            grad_dense = _product(transposed, grad, torch.empty_like(grad)).view(dense.shape)
        return grad_values, grad_dense, None


def _sddmm(batch: GraphBatch, values: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """[A] inner products left[target] · right[source], without an arcs×width tensor."""
    pattern = _csr(batch.rowptr, batch.col32, values)
    result: Tensor = torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values()
    return result


def _csr(rowptr: Tensor, col: Tensor, values: Tensor) -> Tensor:
    size = rowptr.shape[0] - 1
    return torch.sparse_csr_tensor(rowptr, col, values, (size, size))


def _to_csr(x: Tensor) -> Tensor:
    csr = x.contiguous().to_sparse_csr()
    return torch.sparse_csr_tensor(csr.crow_indices().int(), csr.col_indices().int(), csr.values(), x.shape)
