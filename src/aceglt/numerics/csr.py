"""Matrices in compressed sparse rows."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.numerics.graph import pointers


def full(values: Tensor) -> Tensor:
    """In float32, if the precision is a lower one: sparse kernels have none below."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def to_csr(x: Tensor) -> Tensor:
    """A dense matrix as CSR with 32-bit indices; half the time of torch's own conversion."""
    flat = x.reshape(-1)
    place = flat.nonzero().squeeze(1)
    row = place // x.shape[1]
    return torch.sparse_csr_tensor(
        pointers(row, x.shape[0]), (place - row * x.shape[1]).int(), flat[place], tuple(x.shape)
    )
