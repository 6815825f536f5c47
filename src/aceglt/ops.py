"""The sparse kernels, with gradients, for a batch of runs. Nothing here is ever N×N or arcs×width."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from aceglt.graph import GraphBatch, pointers

with warnings.catch_warnings():  # torch says once per process that CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (1, 1))

# Share of non-zeros below which the sparse product wins, measured on two cores (and not wrong on a GPU):
# X·W reads each row of W once per non-zero; Xᵀ·G has long rows and reuses the cache less.
_SPARSE_FORWARD = 0.13
_SPARSE_BACKWARD = 0.04


def arc_values(batch: GraphBatch, edge_values: Tensor) -> Tensor:
    """[A] value of every arc from edge values [S, E], times the edge's weight; self-loops get 1."""
    ones = edge_values.new_ones(batch.runs, 1)
    padded: Tensor = torch.cat([edge_values, ones], dim=1)
    result: Tensor = _GatherArcs.apply(padded.reshape(-1), batch)
    return result if batch.weight is None else result * batch.weight


def spmm(batch: GraphBatch, values: Tensor, dense: Tensor) -> Tensor:
    """[S, N, H]: out[target] = Σ value · dense[source] over arcs, values [A], dense [S, N, H]."""
    result: Tensor = _Spmm.apply(values, dense, batch)
    return result


def row_sum(batch: GraphBatch, values: Tensor) -> Tensor:
    """[S·N] sum of arc values [A] at each target."""
    ones = values.new_ones(batch.runs, batch.num_nodes, 1)
    return spmm(batch, values, ones).reshape(-1)


def linear(h: Tensor, weight: Tensor) -> Tensor:
    """[S, N, C] = h · weight, h [S, N, H] wide and weight [S, H, C] narrow."""
    result: Tensor = _Linear.apply(h, weight)
    return result


def arc_sum(batch: GraphBatch, source: Tensor, target: Tensor) -> Tensor:
    """[A, K]: source[j] + target[i] for every arc from j to i, node values [S·N, K]."""
    result: Tensor = _ArcSum.apply(source, target, batch)
    return result


def row_softmax(batch: GraphBatch, logits: Tensor) -> Tensor:
    """[A, K]: softmax of logits [A, K] over the arcs that share a target."""
    result: Tensor = _RowSoftmax.apply(logits, batch)
    return result


def elu_dropout(h: Tensor, bias: Tensor, keep: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """keep · scale · ELU(h + bias) with three passes over h [S, N, H] and one result to save; bias [S, H].

    Without `keep`, nothing is dropped.
    """
    result: Tensor = _EluDropout.apply(h, bias, keep, scale)
    return result


class Features:
    """Node features X [N, F], shared by all runs; kept sparse for the products where that is cheaper."""

    def __init__(self, x: Tensor) -> None:
        self.shape = (x.shape[0], x.shape[1])
        self.nnz = int(torch.count_nonzero(x))
        density = self.nnz / max(1, x.numel())
        self._csr = _to_csr(x) if density < _SPARSE_FORWARD else None
        self._csr_t = _to_csr(x.t()) if density < _SPARSE_BACKWARD else None
        self._dense = x if self._csr is None or self._csr_t is None else None
        self._blocks: _Blocks | None = None

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(weight, self)
        return result

    @property
    def entries(self) -> int:
        """How many entries dropout draws for: dropping a zero changes nothing, so those of a sparse X are left out."""
        return self.nnz if self._csr is not None else self.shape[0] * self.shape[1]

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        """X of each run with some of its entries dropped and the rest scaled, keep [S, entries] bool."""
        if self._csr is None:
            assert self._dense is not None
            return DroppedFeatures(self._dense * keep.view(-1, *self.shape) * scale, None)
        if self._blocks is None or self._blocks.runs != keep.shape[0]:
            self._blocks = _Blocks(self._csr, keep.shape[0])
        return self._blocks.dropped(keep, scale)

    def _forward(self, weight: Tensor) -> Tensor:
        return _each_run(self._csr if self._csr is not None else self._dense, weight)

    def _backward(self, grad: Tensor) -> Tensor:
        return _each_run(self._csr_t if self._csr_t is not None else self._dense.t(), grad)  # type: ignore[union-attr]


class DroppedFeatures:
    """Node features after dropout, which every run draws for itself: [S, N, F], or sparse with the runs as blocks."""

    def __init__(self, left: Tensor, transposed: Tensor | None) -> None:
        self._left = left  # [S, N, F], or CSR [S·N, S·F]
        self._transposed = transposed  # None, or CSR [S·F, S·N]

    def matmul(self, weight: Tensor) -> Tensor:
        """[S, N, H] = X · weight, weight [S, F, H]."""
        result: Tensor = _FeatureMatmul.apply(weight, self)
        return result

    def _forward(self, weight: Tensor) -> Tensor:
        return self._left @ weight if self._transposed is None else _blockwise(self._left, weight)

    def _backward(self, grad: Tensor) -> Tensor:
        if self._transposed is None:
            return self._left.transpose(1, 2) @ grad
        return _blockwise(self._transposed, grad)


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
        self.rowptr, self.col = pointers(row, self.shape[0]).long(), col.int()
        self.rowptr_t, self.col_t = pointers(col[self.order], self.shape[1]).long(), row[self.order].int()

    def dropped(self, keep: Tensor, scale: float) -> DroppedFeatures:
        values, keep = (self.values * keep * scale).flatten(), keep.flatten()  # [S·nnz]
        left = _compact(self.rowptr, self.col, values, keep)
        transposed = _compact(self.rowptr_t, self.col_t, values[self.order], keep[self.order])
        return DroppedFeatures(
            torch.sparse_csr_tensor(*left, self.shape), torch.sparse_csr_tensor(*transposed, self.shape[::-1])
        )


def _compact(rowptr: Tensor, col: Tensor, values: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A CSR matrix without the entries that are not kept; on a GPU, where their count would be awaited, with them."""
    if values.is_cuda:
        return rowptr.int(), col, values
    before = torch.cat([rowptr.new_zeros(1), keep.cumsum(0)])
    return before[rowptr].int(), col[keep], values[keep]


def _each_run(left: Tensor | None, right: Tensor) -> Tensor:
    """[S, n, H] products of one (sparse or dense) matrix with each run's."""
    assert left is not None
    out = right.new_empty(right.shape[0], left.shape[0], right.shape[2])
    for run, dense in enumerate(right):
        _product(left, dense, out[run])
    return out


def _blockwise(left: Tensor, right: Tensor) -> Tensor:
    """[S, n, H] of a block-diagonal matrix times the runs' matrices, stacked."""
    runs, _, width = right.shape
    out = right.new_empty(left.shape[0], width)
    return _product(left, right.reshape(-1, width), out).view(runs, -1, width)


def _product(left: Tensor, dense: Tensor, out: Tensor) -> Tensor:
    """left · dense into `out`; the plain operator would clear and copy the output besides."""
    return torch.addmm(out, left, dense, beta=0, out=out)


class _FeatureMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, features: Features | DroppedFeatures) -> Tensor:
        ctx.features = features
        return features._forward(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.features._backward(grads[0].contiguous()), None


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


class _ArcSum(torch.autograd.Function):
    """Gathers whose gradients are sums over rows of the matrix and of its transpose: no atomics, deterministic."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, batch: GraphBatch) -> Tensor:
        ctx.batch = batch
        return source[batch.col].add_(target[batch.row])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        batch: GraphBatch = ctx.batch
        grad = grads[0].contiguous()
        grad_source = _reduce_rows(grad[batch.transpose], batch.transposed_rowptr, "sum")
        return grad_source, _reduce_rows(grad, batch.rowptr, "sum"), None


class _RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: GraphBatch) -> Tensor:
        ctx.batch = batch
        logits = logits.contiguous()
        exps = (logits - _reduce_rows(logits, batch.rowptr, "max")[batch.row]).exp_()
        result = exps.div_(_reduce_rows(exps, batch.rowptr, "sum")[batch.row])
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        batch: GraphBatch = ctx.batch
        (result,) = ctx.saved_tensors
        weighted = grads[0] * result
        return weighted - result * _reduce_rows(weighted, batch.rowptr, "sum")[batch.row], None


class _Linear(torch.autograd.Function):
    """The products in the order that reads h row by row: on a CPU three to five times as fast as autograd's own."""

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


class _EluDropout(torch.autograd.Function):
    """aten's ELU takes a factor and can tell its gradient from its result, so the result alone is saved."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, bias: Tensor, keep: Tensor | None, scale: float) -> Tensor:
        result: Tensor = torch.ops.aten.elu_(h + bias.unsqueeze(1), 1.0, scale)
        if keep is not None:
            result.mul_(keep)
        ctx.scale = scale
        ctx.save_for_backward(result, keep)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        result, keep = ctx.saved_tensors
        grad = grads[0] if keep is None else grads[0] * keep
        grad = torch.ops.aten.elu_backward(grad, 1.0, ctx.scale, 1.0, True, result)
        return grad, grad.sum(dim=1), None, None


def _reduce_rows(values: Tensor, rowptr: Tensor, how: str) -> Tensor:
    """[rows, K] sum or maximum of arc values [A, K] in the order of `rowptr`."""
    result: Tensor = torch.segment_reduce(values, how, offsets=rowptr.long(), axis=0, unsafe=True)
    return result


def _csr(rowptr: Tensor, col: Tensor, values: Tensor) -> Tensor:
    size = rowptr.shape[0] - 1
    return torch.sparse_csr_tensor(rowptr, col, values, (size, size))


def _to_csr(x: Tensor) -> Tensor:
    csr = x.contiguous().to_sparse_csr()
    return torch.sparse_csr_tensor(csr.crow_indices().int(), csr.col_indices().int(), csr.values(), x.shape)
