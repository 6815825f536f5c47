"""Work beside the caller, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Background:
    """Does one thing at a time in a thread of its own; what goes wrong there is raised in the caller, when it begins
    the next thing or waits, or logged where the caller has an error of its own. Nothing is under way any more when its
    `with` block is left, however that is."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def __enter__(self) -> Background:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="aceglt-background")
        return self

    def begin(self, work: Callable[[], None]) -> None:
        """As soon as the last work is done, which is waited for."""
        assert self._pool is not None
        self.wait()
        self._last = self._pool.submit(work)

    def wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._pool is not None
        self._pool.shutdown()
        try:
            self.wait()
        except Exception as problem:
            if kind is None:
                raise
            logging.getLogger("aceglt").warning("work in the background failed as well: %s", problem)
