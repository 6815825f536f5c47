"""Searches side by side: a small graph leaves most of a GPU idle, so several processes share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import TypeVar

import torch

Task = TypeVar("Task")
Found = TypeVar("Found")


def side_by_side(
    work: Callable[[Task], Found], tasks: Sequence[Task], workers: int, seconds: float | None = None
) -> Iterator[tuple[Task, Found | Exception]]:
    """Tasks with what they gave, or with why they failed, as they end; after so many seconds the rest is given up."""
    if workers == 1 and seconds is None:
        yield from ((task, work(task)) for task in tasks)
        return
    until = None if seconds is None else time.monotonic() + seconds
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _one_thread)
    running: dict[Future[Found], Task] = {pool.submit(work, task): task for task in tasks}
    try:
        while running:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            for future in wait(running, left, FIRST_COMPLETED).done:
                failure = future.exception()
                if failure is not None and not isinstance(failure, Exception):
                    raise failure
                yield running.pop(future), failure if failure is not None else future.result()
    finally:
        processes = list(pool._processes.values()) if running else []
        pool.shutdown(wait=not running, cancel_futures=True)
        for process in processes:
            process.terminate()


def _one_thread() -> None:
    torch.set_num_threads(1)
