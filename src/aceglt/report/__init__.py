"""One self-contained HTML file that tells what a search, or several side by side, found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aceglt.errors import AcegltError, ConfigError, RunError, printable
from aceglt.files import parse_json, write_atomic
from aceglt.report.page import render
from aceglt.report.view import RunView, text
from aceglt.runs.directory import RunDir, is_run, results_of

__all__ = ["NAMING", "ReportUnavailable", "RunView", "distinct_names", "load_runs", "write_report"]

NAMING = ("dataset", "backbone", "task", "axis", "preset")
"""What is added to the names of runs that differ in it."""


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


def load_runs(paths: Sequence[Path], folder: Path) -> list[RunView]:
    """Runs, finished or not, for a report that will lie in `folder`, each with a name of its own.

    Raises:
        ConfigError: a path is no run directory, or comes twice.
        RunError: a run has no results yet, or they are damaged.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a run directory is given twice; name each once")
    runs = [_load(path, folder) for path in paths]
    return [replace(run, name=name) for run, name in zip(runs, distinct_names(runs, paths), strict=True)]


def _load(path: Path, folder: Path) -> RunView:
    if not is_run(path):
        raise ConfigError(f"{path} is not a run directory (it has no config.json)")
    run = RunDir(path)
    tickets = [os.path.relpath(ticket, folder) for ticket in sorted(run.tickets.glob("level_*.safetensors"))]
    view = RunView("", dict(results_of(path)), run.read_config().to_dict(), _command(run.events), tickets)
    view = replace(view, name=f"{text(view, 'method')} ({text(view, 'signal')})")
    try:
        render([view], "")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise RunError(f"{run.results}: damaged ({type(problem).__name__}: {problem})") from None
    return view


def _command(log: Path) -> str:
    """The command of the last session in a run's log, where a line may be cut off: a process was killed."""
    for line in reversed(log.read_text(errors="replace").splitlines() if log.is_file() else []):
        with suppress(ValueError):
            found = parse_json(line)
            if isinstance(found, dict) and found.get("command"):
                return printable(str(found["command"]))
    return "not recorded"


def distinct_names(runs: Sequence[RunView], paths: Sequence[Path]) -> list[str]:
    """Each run's name, then what else differs between the runs, then the folder where that is not enough."""
    differing = [field for field in NAMING if len({text(run, field) for run in runs}) > 1]
    values = [[text(run, field) for field in differing] for run in runs]  # a graph in a file by the file's name
    short = [[Path(value).name if value.endswith(".npz") else value for value in of_run] for of_run in values]
    names = [", ".join([run.name, *of_run]) for run, of_run in zip(runs, short, strict=True)]
    return [f"{name}, {path}" if names.count(name) > 1 else name for name, path in zip(names, paths, strict=True)]
