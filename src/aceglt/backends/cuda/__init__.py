"""Trainings on a GPU: Triton's kernels, one fused update, epochs recorded as CUDA graphs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Place, Start
from aceglt.backends.fields import Fields, Passes
from aceglt.backends.layers import ordered
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
        from aceglt.backends.cuda import kernels
    except ImportError:
        return False
    return kernels is not None


class TritonKernels(Kernels):
    """Sums have a fixed order, so results repeat bit by bit."""

    sparse_gradient = 0.13

    def __init__(self) -> None:
        from aceglt.backends.cuda import kernels  # here: it imports Triton

        self._triton: Any = kernels

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

    def keep_mask(
        self, key: Tensor, n: int, drop: float, dtype: torch.dtype = torch.bool, rows: Tensor | None = None
    ) -> Tensor:
        shape = (len(key), n) if rows is None else (len(key), len(rows), n)
        out = torch.empty(shape, dtype=dtype, device=key.device)
        self._triton.keep(key, out, rows, drop)
        return out

    def dropped(self, key: Tensor, h: Tensor, rows: Tensor | None, drop: float) -> Tensor:
        """In one pass, and with a mask of a byte per element to keep for the gradient."""
        shape = (h[0].numel(), None) if rows is None else (h.shape[2], rows)
        mask = self.keep_mask(key, shape[0], drop, torch.bool, shape[1]).view(h.shape)
        result: Tensor = torch.ops.aten.native_dropout_backward(h, mask, 1.0 / (1.0 - drop))
        return result


class Cuda(Reference):
    """All runs of a group share every kernel; nothing waits for the GPU inside an epoch."""

    name = "cuda"

    def __init__(self) -> None:
        self.kernels = TritonKernels()
        self._fields = Fields(self.kernels)

    def afresh(self) -> Cuda:
        made = copy(self)
        made._fields = Fields(self.kernels)
        return made

    def network(self, backbone: Backbone, fixed: bool = False) -> Backbone:
        """`fixed` says that edge values stay what they are."""
        return ordered(backbone, fixed)

    def features(self, features: Features) -> Features:
        return self._fields.features(features)

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> Passes:
        network = self.network(backbone, fixed=start.scoring is None)
        return Passes(network, *self._fields.sites(network, train, val, start.masks.edges), self.kernels)

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> PlainElements:
        from aceglt.backends.cuda.elements import FusedElements  # here: it imports Triton

        return FusedElements(backbone, start)

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        return captured(epoch) if fixed and backbone.chain else epoch


def captured(function: Callable[[], None]) -> Callable[[], None]:
    """A CUDA graph of a function: what it launches on the GPU, repeated without Python in between.

    The function has no arguments and results, works in place on GPU tensors, and never waits for the GPU.

    The first call runs it, so that kernels are compiled and libraries prepared; the second records it, and from then on
    the recording is repeated.
    """
    calls: list[Callable[[], None]] = []

    def call() -> None:
        if len(calls) == 1:
            calls.append(_record(function).replay)
        elif not calls:
            calls.append(function)
        calls[-1]()

    return call


def _record(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """`torch.cuda.graph` would collect garbage and empty the cache besides, which takes longer than to record."""
    free, total = torch.cuda.mem_get_info()
    if 2 * free < total:  # give back what recordings before had: during one, torch does not do that by itself
        torch.cuda.empty_cache()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            function()
        except BaseException:
            with suppress(RuntimeError):  # about the recording, which is lost anyway
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph
