"""What can go wrong in a way the user can mend."""

from __future__ import annotations

import re

# What terminals obey, what turns text around, and what cannot be encoded.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 2000
_SHORTAGE = ("allocate memory", "out of memory", "Storage size calculation overflowed", "failed to map segment")


def printable(text: str) -> str:
    """The text with escapes in place of control characters and surrogates."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def is_shortage(problem: BaseException) -> bool:
    """Whether memory ran out, whoever says so; torch itself may not be imported here."""
    return isinstance(problem, MemoryError) or any(words in str(problem) for words in _SHORTAGE)


class AcegltError(Exception):
    """Something the user gave is wrong; the message says what, and what to do about it, in one printable line."""

    def __init__(self, message: str = "") -> None:
        line = printable(" ".join(message.splitlines()))
        super().__init__(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …")


class DataError(AcegltError):
    """A dataset is unknown, missing, corrupt or unusable."""


class ConfigError(AcegltError):
    """A setting is out of range, unknown or contradicts another."""


class RunError(AcegltError):
    """A run directory is in use, belongs to another configuration or cannot be written."""


class RunInUse(RunError):  # noqa: N818
    """Another process is working in a run directory."""


class TicketError(AcegltError):
    """A ticket file is damaged or does not fit the graph it is applied to."""


class TrainingError(AcegltError):
    """Training diverged."""
