"""Where datasets are looked for, and where downloads go."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aceglt.errors import DataError


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
    return [Path(os.path.expanduser(root)) for root in named if root] + [cache_root()]


def first_folder(data_root: str | Path | None, layouts: Iterable[str], complete: Callable[[Path], bool]) -> Path | None:
    """Return the first complete folder among these layouts of each root, or None."""
    folders = (root / layout for root in roots(data_root) for layout in layouts)
    return next(filter(complete, folders), None)


def allowed(wanted: bool, download: Callable[[str], Path], name: str) -> Path:
    """The folder of a download, if there is to be one: what only a file names is not fetched."""
    if not wanted:
        raise DataError(f"{name} is not on this machine; to download it, name it yourself: --dataset {name}")
    return download(name)


@contextmanager
def downloading(name: str, advice: str) -> Iterator[Path]:
    """A folder in the cache to download into, gone afterwards; any failure becomes a `DataError` with the advice."""
    try:
        cache_root().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=cache_root()) as temporary:
            yield Path(temporary)
    except DataError as error:
        raise DataError(f"download of {name} failed: {error}; {advice}") from error
    # PyG and ogb pass on whatever their network stacks raise; no common base but Exception.
    except Exception as error:
        raise DataError(
            f"{name} is not on this machine and cannot be downloaded ({one_line(error)}); {advice}"
        ) from error


def one_line(error: Exception) -> str:
    """What an error says."""
    return " ".join(str(error).split()) or type(error).__name__
