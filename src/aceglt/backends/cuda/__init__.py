"""Trainings on a GPU: Triton's kernels, one fused update, epochs recorded as CUDA graphs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Place, Start
from aceglt.backends.cuda.capture import captured
from aceglt.backends.fields import Fields, Passes
from aceglt.backends.reference import PlainElements, Reference
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Block
from aceglt.numerics.kernels import Kernels


@cache
def available() -> bool:
    """Whether there are a GPU, Triton, and the C compiler that Triton needs for what launches its kernels."""
    if not torch.cuda.is_available() or not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return False
    try:
        import_module("aceglt.backends.cuda.kernels")
    except ImportError:
        return False
    return True


class TritonKernels(Kernels):
    """Sums have a fixed order, so results repeat bit by bit."""

    sparse_gradient = 0.13

    def __init__(self) -> None:
        self._triton: Any = import_module("aceglt.backends.cuda.kernels")

    def product(self, left: Tensor, dense: Tensor, out: Tensor | None = None) -> Tensor:
        if not left.is_sparse_csr:
            return super().product(left, dense, out)
        out = dense.new_empty(left.shape[0], dense.shape[1]) if out is None else out
        self._triton.spmm(left, dense.contiguous(), out)
        return out

    def each_run(self, left: Tensor, right: Tensor) -> Tensor:
        if not left.is_sparse_csr:
            return torch.matmul(left, right)
        runs, _, width = right.shape
        out = right.new_empty(runs, left.shape[0], width)
        self._triton.spmm(left, right.reshape(-1, width), out.view(-1, width), shared=True)
        return out

    def inner(self, block: Block, left: Tensor, right: Tensor) -> Tensor:
        products: Tensor = self._triton.sddmm(block.rowptr, block.col32, left.contiguous(), right.contiguous())
        return products

    def keep_mask(self, key: Tensor, n: int, drop: float, dtype: torch.dtype = torch.bool) -> Tensor:
        out = torch.empty(len(key), n, dtype=dtype, device=key.device)
        self._triton.keep(key, out, None, drop)
        return out

    def keep_rows(self, key: Tensor, rows: Tensor, width: int, drop: float, dtype: torch.dtype) -> Tensor:
        out = torch.empty(len(key), len(rows), width, dtype=dtype, device=key.device)
        self._triton.keep(key, out, rows, drop)
        return out


class Cuda(Reference):
    """All runs of a group share every kernel; nothing waits for the GPU inside an epoch."""

    name = "cuda"

    def __init__(self) -> None:
        self.kernels = TritonKernels()
        self._fields = Fields(self.kernels)

    def features(self, features: Features) -> Features:
        return self._fields.features(features)

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> Passes:
        return Passes(backbone, *self._fields.sites(backbone, train, val, start.masks.edges), self.kernels)

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> PlainElements:
        from aceglt.backends.cuda.elements import FusedElements  # here: it imports Triton

        return FusedElements(backbone, start)

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        return captured(epoch) if fixed and backbone.chain else epoch
