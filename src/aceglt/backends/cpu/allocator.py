"""The memory of tensors on the CPU: what the C library does with what they give back."""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt
_LARGEST = (1 << 26, 1 << 25)  # bytes of a tensor whose memory is kept; older versions refuse the first
_KEPT = 1 << 29  # bytes in all


@cache
def glibc() -> ctypes.CDLL | None:
    """glibc, if that is the C library."""
    try:
        c = ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
    return c if hasattr(c, "mallopt") and hasattr(c, "malloc_trim") else None


@cache
def keep_memory() -> None:
    """Have the C library keep what tensors give back for the next ones, where it can be told.

    Otherwise a large tensor is made of new pages every time, which the system clears one by one.
    """
    c = glibc()
    if c is not None and any(c.mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST):
        c.mallopt(_TRIM_THRESHOLD, _KEPT)
        c.mallopt(_ARENA_MAX, 1)  # the arenas of other threads give back what is free, whatever the thresholds


def return_memory() -> None:
    """Give the system what no tensor uses."""
    c = glibc()
    if c is not None:
        c.malloc_trim(0)
