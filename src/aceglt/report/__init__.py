"""One self-contained HTML file that tells what a search, or several side by side, found."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aceglt.errors import AcegltError, ConfigError, RunError, printable
from aceglt.files import parse_json, tail, write_atomic
from aceglt.report.page import render
from aceglt.report.view import NAMING, RunView, distinct_names
from aceglt.runs.directory import RunDir, is_run, results_of

__all__ = [
    "NAMING", "ReportUnavailable", "RunView", "distinct_names", "files_of", "load_runs", "plotly_js", "write_report",
]  # fmt: skip


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
    write_atomic(Path(path), render(runs, plotly_js()).encode())


def plotly_js() -> str:
    """The script that draws charts; ReportUnavailable without plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ReportUnavailable("the report needs plotly: pip install plotly") from error
    return str(get_plotlyjs())


def load_runs(paths: Sequence[Path], folder: Path) -> list[RunView]:
    """Runs, finished or not, for a report that will lie in `folder`, each with a name of its own.

    A sweep's folder stands for all of its searches that have results; a damaged one is left out, with a warning.

    Raises:
        ConfigError: a path is no run directory, or comes twice.
        RunError: a run has no results yet, or it is damaged, or all of a sweep are.
    """
    runs = [(run, given) for given in paths for run in _runs_in(given)]
    if len({os.path.realpath(run) for run, _ in runs}) < len(runs):
        raise ConfigError("a run directory is given twice; name each once")
    views = []
    for run, given in runs:
        try:
            views.append(_load(run, folder))
        except RunError as problem:
            if given == run or (run == runs[-1][0] and not views):
                raise
            logging.getLogger("aceglt").warning("left out: %s", problem)
    return distinct_names(views)


def files_of(paths: Sequence[Path]) -> list[Path]:
    """What a report of runs and sweeps is made of."""
    folders = [folder for path in paths for folder in (path, *path.glob("runs/*"))]
    sweeps = [path / name for path in paths for name in ("grid.json", "sweep.json")]
    return [*sweeps, *(file for folder in folders for file in RunDir(folder).inputs())]


def _runs_in(path: Path) -> list[Path]:
    if is_run(path) or not (path / "grid.json").is_file():
        return [path]
    found = [run.parent for run in sorted(path.glob("runs/*/results.json"))]
    if not found:
        raise RunError(f"{path}: no search of this sweep has results yet")
    return found


def _load(path: Path, folder: Path) -> RunView:
    if not is_run(path):
        raise ConfigError(f"{path} is not a run directory (it has no config.json)")
    run = RunDir(path)
    found = dict(results_of(path))
    tickets = [os.path.relpath(ticket, folder) for ticket in run.saved_tickets(found["seeds"])]
    known = (run.read_environment(), run.read_savings(), str(path))
    view = RunView(str(found["label"]), found, run.read_config().to_dict(), _command(run.events), tickets, *known)
    try:
        render([view], "")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise RunError(f"{run.results}: damaged ({type(problem).__name__}: {problem})") from None
    return view


def _command(log: Path) -> str:
    """The command of the last session in a run's log, where a line may be cut off: a process was killed."""
    for line in reversed(tail(log)):
        with suppress(ValueError):
            found = parse_json(line)
            if isinstance(found, dict) and found.get("command"):
                return printable(str(found["command"]))
    return "not recorded"
