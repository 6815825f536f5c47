"""One self-contained HTML file that tells what a search, or several side by side, found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from aceglt.errors import AcegltError
from aceglt.report.page import render
from aceglt.report.view import RunView

__all__ = ["ReportUnavailable", "RunView", "write_report"]


class ReportUnavailable(AcegltError):  # noqa: N818
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
