"""One self-contained HTML file that tells what a search, or several side by side, found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aceglt.errors import AcegltError
from aceglt.files import write_atomic
from aceglt.report.load import NAMING, distinct_names, load_runs
from aceglt.report.page import render
from aceglt.report.view import RunView

__all__ = ["NAMING", "ReportUnavailable", "RunView", "distinct_names", "load_runs", "write_report"]


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
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReportUnavailable("the report needs plotly: pip install plotly") from error
    write_atomic(Path(path), render(runs, get_plotlyjs()).encode())
