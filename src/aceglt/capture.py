"""CUDA graphs: what a function launches on the GPU, recorded once and then repeated without Python in between."""

from __future__ import annotations

from collections.abc import Callable

import torch

_WARM_UP = 1  # calls before the recording: kernels are compiled and libraries prepared in them


class Captured:
    """A function without arguments and results that works in place on GPU tensors, and never waits for the GPU.

    The first call runs it, the second records it, and from then on the recording is repeated.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == _WARM_UP + 1:
            self._record()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._function()

    def _record(self) -> None:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._function()
        self._graph = graph
