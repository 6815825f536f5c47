"""Threads that share the work of one compiled kernel, and of trainings that run side by side."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from threading import Barrier, Condition, Lock, Thread
from typing import Any, TypeVar

import numpy as np
import torch

from aceglt.backends.base import Observer

Group = TypeVar("Group")
Result = TypeVar("Result")

_TURN = 25  # epochs, after which what a training reads is in the cache for long enough
_PIECES = 4  # of a kernel's work for each thread
_SETTING = Lock()
_NO_GATE = np.zeros(2, np.int64)  # for one thread, which meets nobody


def one_thread() -> None:
    """Operations of this thread have one thread from here on, and those of all others as many as they had.

    torch keeps the number for each thread, but one that begins has what was set last, in whichever: so it is set back.
    """
    with _SETTING:
        usual = torch.get_num_threads()  # which also makes this thread begin
        torch.set_num_threads(1)
        back = Thread(target=torch.set_num_threads, args=(usual,))
        back.start()
        back.join()


def begun(count: int) -> ThreadPoolExecutor:
    """A pool whose threads have all begun, with one thread each for their operations.

    While one begins, torch would give that number to any other thread that begins: so none does later on.
    """
    pool, all_there = ThreadPoolExecutor(count, initializer=one_thread), Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(all_there.wait)
        all_there.wait()
    except BaseException:  # an interruption
        all_there.abort()
        pool.shutdown()
        raise
    return pool


class Workers:
    """Divides kernels among threads. A thread that waits for something else takes a share of what is under way.

    No result depends on how the work is divided.
    """

    def __init__(self, worth: int = 1 << 22, together_from: int = 1 << 20, most: int | None = None) -> None:
        self.worth, self.together_from, self.most = worth, together_from, most or os.cpu_count() or 1
        """Operations from which on a kernel has the threads that are lent, and one that divides its own work more than
        one thread; of which there are so many at most."""
        self.lent = 1
        """How many threads these may have, if torch has fewer."""
        self.awaited = True
        """Whether a thread may wait and take a share; where none does, the kernel of one thread is one piece."""
        self.offers: dict[int, tuple[Callable[[], None], list[Future[None]]]] = {}
        """Kernels under way that a thread which waits may take a share of, with those that do."""
        self._changed = Condition()  # what is offered, or waited for
        self._free = self.most - 1

    def divide(
        self, kernel: Callable[..., None], work: Any, *arguments: Any, size: int = 0, pieces: int = _PIECES
    ) -> None:
        """Run a kernel on all of its elements, in so many pieces per thread, which threads take as they come.

        `work` is how many elements there are, or for rows of unequal length where each begins; `size` the operations
        in all.
        """
        count, large = work if isinstance(work, int) else len(work) - 1, size >= self.worth
        threads = min(max(torch.get_num_threads(), self.lent if large else 1), count)
        shares = max(threads, 2) if large and pieces > 1 and self.awaited else threads
        if shares <= 1:
            return kernel(0, count, *arguments)
        left = iter(list(pairwise(cuts(work, count, pieces * shares))))

        def take() -> None:
            for piece in left:  # each goes to one thread: the interpreter's lock is held in between
                kernel(*piece, *arguments)

        helpers: list[Future[None]] = []  # which take a share; so may threads that wait
        with self._changed:
            self.offers[id(helpers)] = take, helpers
            self._changed.notify_all()
        try:
            helpers += [self._pool.submit(take) for _ in range(threads - 1)]
            take()
        finally:
            with self._changed:
                self.offers.pop(id(helpers), None)
        for helper in helpers:
            if not helper.cancel():  # what has not begun would find nothing left
                helper.result()
        return None

    def together(self, kernel: Callable[..., None], *arguments: Any, size: int = 0) -> None:
        """Run a kernel that divides its own work: each thread calls it with its rank, how many there are, and a gate
        at which they meet. `size` the operations in all."""
        wanted = max(torch.get_num_threads(), self.lent if size >= self.worth else 1)
        if wanted == 1 or size < self.together_from:
            return kernel(0, 1, _NO_GATE, *arguments)
        gate, helpers, more = np.zeros(2, np.int64), list[Future[None]](), 0
        try:
            more = self._reserve(wanted - 1)
            for rank in range(1, 1 + more):
                helpers.append(self._team.submit(_as_one, kernel, rank, 1 + more, gate, arguments))
            _as_one(kernel, 0, 1 + more, gate, arguments)
        except BaseException:
            gate[1] = 1  # nobody waits for a thread that never began
            raise
        finally:
            try:
                wait_for(helpers)
            finally:
                self._reserve(-more)
        for helper in helpers:
            helper.result()
        return None

    def _reserve(self, threads: int) -> int:
        """As many threads as there are, at most, of those that begin at once; a negative number gives them back."""
        with self._changed:
            granted = min(threads, self._free)
            self._free -= granted
        return granted

    def wait(self, for_what: Future[Result]) -> Result:
        """The result, once it is there; until then this thread takes a share of kernels that are under way."""
        for_what.add_done_callback(self._wake)
        while not for_what.done():
            with self._changed:
                if not self.offers and not for_what.done():
                    self._changed.wait()
                if not self.offers:
                    continue
                _, (take, helpers) = self.offers.popitem()  # when it comes back, nothing is left of it
                helper = Future[None]()
                helper.set_running_or_notify_cancel()
                helpers.append(helper)
            try:
                take()
                helper.set_result(None)
            except BaseException as error:
                helper.set_exception(error)
        return for_what.result()

    def _wake(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """For all kernels at once; its threads begin as they are needed."""
        return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="aceglt-kernel")

    @cached_property
    def _team(self) -> ThreadPoolExecutor:
        """For kernels whose threads wait for each other: each of those that are reserved begins at once."""
        return ThreadPoolExecutor(self.most, thread_name_prefix="aceglt-team")


def _as_one(kernel: Callable[..., None], rank: int, ranks: int, gate: Any, arguments: tuple[Any, ...]) -> None:
    try:
        kernel(rank, ranks, gate, *arguments)
    except BaseException:
        gate[1] = 1  # so that nobody waits for it
        raise


def cuts(work: Any, count: int, pieces: int) -> list[int]:
    """Where each piece begins, and the end."""
    if isinstance(work, int):
        return [count * i // pieces for i in range(pieces + 1)]
    total = int(work[-1])
    inner = [int(work.searchsorted(total * i // pieces)) for i in range(1, pieces)]
    return [0, *inner, count]


class Spare:
    """Cores that no training needs for itself: for work beside trainings, while there are enough that every training
    may have one, and for the compiled kernels of all of them."""

    def __init__(self, cores: int, workers: Workers) -> None:
        self._cores, self._trainings, self._beside, self._lock = cores, 0, 0, Lock()
        self._pool, self._workers = begun(max(1, cores // 2)), workers

    def close(self) -> None:
        """Trainings are over."""
        self._pool.shutdown()
        self._workers.lent, self._workers.awaited = 1, True

    @contextmanager
    def training(self) -> Iterator[None]:
        """Inside, one more training is under way."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def submit(self, work: Callable[[], Result]) -> Callable[[], Result] | None:
        """Begin some work beside a training, if there is a core for that; until it ends, it has one of its own. The
        function that is returned waits for the result."""
        if 2 * self._trainings > self._cores:
            return None
        self._count(0, 1)

        def do() -> Result:
            try:
                return work()
            finally:
                self._count(0, -1)

        begun = self._pool.submit(do)
        return lambda: self._workers.wait(begun)

    def _count(self, trainings: int, beside: int = 0) -> None:
        with self._lock:
            self._trainings += trainings
            self._beside += beside
            self._workers.lent = max(1, self._cores // max(1, self._trainings + self._beside))
            self._workers.awaited = self._beside > 0


def under_way(groups: int, threads: int) -> int:
    """How many groups are best in training at once: one for each thread, and one more if that one would be left over
    alone, so that no thread waits while it is trained."""
    return groups if groups <= threads else threads + (groups % threads == 1)


def side_by_side(
    train: Callable[[Group, Observer], Result],
    groups: Sequence[Group],
    observer: Observer | None,
    threads: int,
    more: int = 0,
) -> list[Result]:
    """The results of training each group, with one thread each, so that results are bitwise the same whatever else is
    trained. So many `more` are under way than there are threads, which take turns.

    The first error, also one that the observer raises, ends the training of all groups at their next epoch.
    """
    turns = _Turns(observer, threads)
    pools = [begun(count) for count in (more, threads) if count]

    def in_turn(group: Group) -> Result:
        with turns.turn():
            return train(group, turns)

    try:
        trainings = [pools[0 if number < more else -1].submit(in_turn, group) for number, group in enumerate(groups)]
        wait_for(trainings, return_when=FIRST_EXCEPTION)
    finally:  # also when this thread is interrupted
        turns.over = True
        for pool in pools:
            pool.shutdown(cancel_futures=True)
    for training in trainings:
        if not training.cancelled() and not isinstance(training.exception(), _Over):
            training.result()  # raises what ended the others
    return [training.result() for training in trainings]


class _Over(Exception):  # noqa: N818
    """Ends a training that nobody waits for any more."""


class _Turns:
    """Lets some threads train at a time, in turns of a few epochs, and one of them tell the observer; ends them when it
    is over."""

    def __init__(self, observer: Observer | None, at_once: int) -> None:
        self._observer, self._lock, self.over = observer, Lock(), False
        self._free, self._queue = at_once, deque[Lock]()  # of those that wait, each with a lock that is held

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Inside, a training is under way."""
        try:
            self._take()
            yield
        finally:
            self._give()

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
        if self._queue and epoch % _TURN == 0:
            self._give()
            self._take()

    def _take(self) -> None:
        """Wait for a turn; where it is over by then, _Over is raised with the turn in hand, which `turn` gives back."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = Lock()
            mine.acquire()
            self._queue.append(mine)
        mine.acquire()
        if self.over:
            raise _Over

    def _give(self) -> None:
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._free += 1
