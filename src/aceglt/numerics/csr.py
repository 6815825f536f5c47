"""Products of CSR matrices with dense ones."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from aceglt.backends.cpu import calls as cpu
from aceglt.backends.cuda import available as gpu
from aceglt.numerics.graph import pointers

with warnings.catch_warnings():  # torch says once per process that CSR tensors are in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (1, 1))


def full(values: Tensor) -> Tensor:
    """In float32, if the precision is a lower one: sparse kernels have none below."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def each_run(left: Tensor, right: Tensor) -> Tensor:
    """[S, n, H] products of one (sparse or dense) matrix with each run's."""
    runs, _, width = right.shape
    if right.is_cuda and not left.is_sparse_csr:
        return torch.matmul(left, right)
    out = right.new_empty(runs, left.shape[0], width)
    if left.is_sparse_csr and gpu.serves(right):
        _kernel_product(left, right.reshape(-1, width), out.view(-1, width), tuple(left.shape))
        return out
    for run, dense in enumerate(right):
        product(left, dense, out[run])
    return out


def _kernel_product(left: Tensor, dense: Tensor, out: Tensor, shared: tuple[int, ...] | None = None) -> Tensor:
    """CSR left · dense; `shared` is left's shape where it serves all runs."""
    result: Tensor = gpu.kernels.spmm(left.crow_indices(), left.col_indices(), left.values(), dense, out, shared)
    return result


def blockwise(left: Tensor, right: Tensor) -> Tensor:
    """[S, n, H] of a block-diagonal matrix times the runs' matrices, stacked."""
    runs, _, width = right.shape
    out = right.new_empty(left.shape[0], width)
    return product(left, right.reshape(-1, width), out).view(runs, -1, width)


def product(left: Tensor, dense: Tensor, out: Tensor | None = None) -> Tensor:
    """left · dense into `out`; the plain operator would clear and copy the output besides."""
    if out is None:
        out = dense.new_empty(left.shape[0], dense.shape[1])
    if gpu.serves(dense) and left.is_sparse_csr:
        return _kernel_product(left, dense.contiguous(), out)
    if left.is_sparse_csr and cpu.matmul(left, dense, out) is not None:
        return out
    return torch.addmm(out, left, dense, beta=0, out=out)


def to_csr(x: Tensor) -> Tensor:
    """A dense matrix as CSR with 32-bit indices; half the time of torch's own conversion."""
    flat = x.reshape(-1)
    place = flat.nonzero().squeeze(1)
    row = place // x.shape[1]
    return torch.sparse_csr_tensor(
        pointers(row, x.shape[0]), (place - row * x.shape[1]).int(), flat[place], tuple(x.shape)
    )
