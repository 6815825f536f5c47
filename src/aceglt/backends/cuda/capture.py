"""CUDA graphs: what a function launches on the GPU, recorded once and then repeated without Python in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch


def captured(function: Callable[[], None]) -> Callable[[], None]:
    """A function without arguments and results that works in place on GPU tensors, and never waits for the GPU.

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
