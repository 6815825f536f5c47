"""Groups of runs side by side: a thread for each, since torch lets go of the interpreter while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Lock
from typing import Protocol, TypeVar

import torch

from aceglt.backends.cpu import calls as cpu

Group = TypeVar("Group")
Result = TypeVar("Result")


class Observer(Protocol):
    """Told about the progress of a training."""

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        """`runs` runs have finished an epoch; `best()` reads the best validation metric so far (and may cost time)."""


def side_by_side(
    train: Callable[[Group, Observer], Result], groups: Sequence[Group], observer: Observer | None, workers: int
) -> list[Result]:
    """The results of training each group, `workers` at a time, with one thread each, so that results are bitwise the
    same whatever else is trained.

    The first error, also one that the observer raises, ends the training of all groups at their next epoch.
    """
    turns = _Turns(observer)
    with _one_thread_each(), ThreadPoolExecutor(workers) as pool:
        trainings = [pool.submit(train, group, turns) for group in groups]
        try:
            wait(trainings, return_when=FIRST_EXCEPTION)
        finally:  # also when this thread is interrupted
            turns.over = True
            pool.shutdown(cancel_futures=True)
    for training in trainings:
        if not training.cancelled() and not isinstance(training.exception(), _Over):
            training.result()  # raises what ended the others
    return [training.result() for training in trainings]


class Spare:
    """Cores that no training needs for itself: for work beside trainings, while there are enough that every training
    may have one, and for the compiled kernels of all of them."""

    def __init__(self, cores: int) -> None:
        self._cores, self._trainings, self._beside, self._lock = cores, 0, 0, Lock()
        self._pool = ThreadPoolExecutor(cores)

    def close(self) -> None:
        """Trainings are over."""
        self._pool.shutdown()
        cpu.lend(1)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Inside, one more training is under way."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def submit(self, work: Callable[..., Result], *arguments: object) -> Future[Result] | None:
        """Begin some work beside a training, if there is a core for that; until it ends, it has one of its own."""
        if 2 * self._trainings > self._cores:
            return None
        self._count(0, 1)

        def do() -> Result:
            try:
                return work(*arguments)
            finally:
                self._count(0, -1)

        return self._pool.submit(do)

    def _count(self, trainings: int, beside: int = 0) -> None:
        with self._lock:
            self._trainings += trainings
            self._beside += beside
            cpu.lend(max(1, self._cores // max(1, self._trainings + self._beside)))


class _Over(Exception):  # noqa: N818
    """Ends a training that nobody waits for any more."""


class _Turns:
    """Lets the threads tell the observer one at a time, and ends them when it is over."""

    def __init__(self, observer: Observer | None) -> None:
        self._observer, self._lock, self.over = observer, Lock(), False

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        with self._lock:
            if self.over:
                raise _Over
            try:
                if self._observer is not None:
                    self._observer.on_epoch(epoch, epochs, runs, best)
            except BaseException:
                self.over = True
                raise


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Inside, an operation has one thread, also in threads that begin there."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
