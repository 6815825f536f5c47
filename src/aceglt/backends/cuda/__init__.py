"""Trainings on a GPU: Triton's kernels, one fused update, epochs recorded as CUDA graphs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cache

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Place, Start
from aceglt.backends.fields import Fields, Passes
from aceglt.backends.reference import PlainElements, Reference
from aceglt.numerics.features import Features


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


class Cuda(Reference):
    """All runs of a group share every kernel; nothing waits for the GPU inside an epoch."""

    name = "cuda"
    look_every = 16

    def __init__(self, tensor_cores: bool = True) -> None:
        """`tensor_cores` says whether dense products are in TF32."""
        self.tensor_cores, self._records = tensor_cores, True
        from aceglt.backends.cuda.operations import TritonKernels  # here: it imports Triton

        self.kernels = TritonKernels(tensor_cores)
        self._fields = Fields(self.kernels)

    def afresh(self) -> Cuda:
        made = copy(self)
        made._fields = Fields(self.kernels)
        return made

    def able_to(self, own_elements: bool, changing_arcs: bool) -> Reference:
        """A CUDA graph does not record a method's own rule, which may do other work at every step. The arcs of a
        training are prepared once."""
        if changing_arcs:
            return Reference()
        made = copy(self)
        made._records = not own_elements
        return made

    @property
    def description(self) -> str:
        return f"{self.name} (TF32)" if self.tensor_cores else self.name

    def network(self, backbone: Backbone, fixed: bool = False) -> Backbone:
        """`fixed` says that edge values stay what they are."""
        from aceglt.backends.cuda.networks import network

        return network(backbone, fixed)

    def features(self, features: Features) -> Features:
        return self._fields.features(features)

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> Passes:
        network = self.network(backbone, fixed=start.scoring is None)
        return CudaPasses(network, *self._fields.sites(network, train, val, start.masks.edges), self.kernels)

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> PlainElements:
        from aceglt.backends.cuda.elements import FusedElements  # here: it imports Triton

        return FusedElements(backbone, start)

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        return captured(epoch) if self._records and fixed and backbone.chain else epoch


class CudaPasses(Passes):
    """Validation on fields of its own runs beside the training pass: small kernels leave most of a GPU idle."""

    _stream: torch.cuda.Stream | None = None

    def beside(self, validate: Callable[[], Tensor]) -> Callable[[], Tensor]:
        if not self.train_site.place.graph.edges.is_cuda:  # Triton's interpreter
            return super().beside(validate)
        self._stream = self._stream or torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            outputs = validate()

        def waited() -> Tensor:
            torch.cuda.current_stream().wait_stream(stream)
            return outputs

        stream = self._stream
        return waited


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
