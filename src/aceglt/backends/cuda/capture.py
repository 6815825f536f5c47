"""CUDA graphs: what a function launches on the GPU, recorded once and then repeated without Python in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch


class Captured:
    """A function without arguments and results that works in place on GPU tensors, and never waits for the GPU.

    The first call runs it, so that kernels are compiled and libraries prepared; the second records it, and from then on
    the recording is repeated.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._warm = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if not self._warm:
            self._warm = True
            self._function()
            return
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        """`torch.cuda.graph` would collect garbage and empty the cache besides, which takes longer than to record."""
        _make_room()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._function()
            except BaseException:
                with suppress(RuntimeError):  # about the recording, which is lost anyway
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return graph


def _make_room() -> None:
    """Give back what recordings before this one had: while one is made, torch does not do that by itself."""
    free, total = torch.cuda.mem_get_info()
    if 2 * free < total:
        torch.cuda.empty_cache()
