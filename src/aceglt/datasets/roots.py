"""Where datasets are looked for, and where downloads go."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the user's cache folder for datasets; nothing is created."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    return Path(base) / "aceglt"


def roots(data_root: str | Path | None = None) -> list[Path]:
    """Return the folders to search, first one first: `data_root`, `$ACEGLT_DATA`, the cache."""
    named = [data_root, os.environ.get("ACEGLT_DATA")]
    return [Path(root).expanduser() for root in named if root] + [cache_root()]
