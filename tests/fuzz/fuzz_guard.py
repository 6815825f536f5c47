"""What an attempt to read something must not do: hang, allocate much, run code, or fail without a clear line."""

from __future__ import annotations

import platform
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aceglt.errors import AcegltError

SECONDS, BYTES = 20, 500_000_000
"""Of the processor, and of addresses beyond those of the input and of what is there already."""
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect",
              "socket.getaddrinfo", "pickle.find_class", "ctypes.dlopen", "webbrowser.open")  # fmt: skip


class Violation(BaseException):
    """Not an Exception, so that no reader can take it for a damaged file."""


class Reached(Exception):  # noqa: N818
    """Raised in place of a training: what was read has been accepted."""


_executed: list[str] | None = None  # the forbidden events so far, while somebody watches


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _executed is not None and event in _FORBIDDEN:
        _executed.append(f"{event}{arguments!r}")
        raise Violation(_executed[-1])


platform.platform()  # asks another process once, and remembers
sys.addaudithook(_audit)  # for good: Python has no way to remove one


def outcome(read: Callable[[Any], object], given: Any) -> str:
    """`read` or `refused`; anything else raises, and that is a bug."""
    try:
        with _limits(size(given)):
            read(given)
    except Reached:
        return "read"
    except AcegltError as problem:
        _check_clear(problem)
        return "refused"
    return "read"


def _check_clear(problem: AcegltError) -> None:
    message = str(problem)
    assert message, "an error without a message"
    assert not _UNCLEAR.search(message), f"control characters or surrogates in {message!r}"
    assert len(message) < 3000, f"{len(message)} characters: {message[:200]!r}"
    cause: BaseException | None = problem
    while cause is not None:
        assert not isinstance(cause, MemoryError), f"a huge allocation was tried: {message}"
        assert "allocate memory" not in str(cause), f"a huge allocation was tried: {cause}"
        cause = cause.__cause__ or cause.__context__


def size(given: Any) -> int:
    """Bytes of an input."""
    if isinstance(given, tuple | list | dict):
        return sum(map(size, given.values() if isinstance(given, dict) else given))
    return len(given) if isinstance(given, bytes | str) else 0


class Peak:
    """How much main memory the process had at most inside, above what it had before."""

    def __enter__(self) -> Peak:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew, from what the process has now
        self._before = self._most()
        return self

    def __exit__(self, *_: object) -> None:
        self.grown = self._most() - self._before

    def _most(self) -> int:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])


@contextmanager
def _limits(size: int) -> Iterator[None]:
    global _executed
    before, (soft, hard) = signal.signal(signal.SIGPROF, _hang), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + BYTES + size, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor: the machine may be busy
    _executed = executed = []
    try:
        yield
    finally:
        _executed = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert not executed, f"run while reading: {executed}"


def _hang(number: int, frame: object) -> None:
    raise Violation(f"no answer within {SECONDS} s")


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
