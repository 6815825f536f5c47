"""One self-contained HTML file that tells what a search, or several side by side, found."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aceglt.errors import AcegltError
from aceglt.report.page import render
from aceglt.report.view import RunView

__all__ = ["ReportUnavailable", "RunView", "write_report"]


class ReportUnavailable(AcegltError):
    """The report cannot be drawn because plotly is not installed."""


def write_report(runs: Sequence[RunView], path: Path) -> None:
    """Write the report of `runs` to `path`, whole or not at all.

    The file needs no network: plotly.js is inside. Tables and text are there without JavaScript.

    Raises:
        ReportUnavailable: plotly is not installed.
        ValueError: `runs` is empty.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    _write_atomically(Path(path), render(runs, _plotly_js()))


def _plotly_js() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReportUnavailable("the report needs plotly: pip install plotly") from error
    return str(get_plotlyjs())


def _write_atomically(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's files are private; a report is for passing on
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
