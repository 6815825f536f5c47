"""The commands that show what is there."""

from __future__ import annotations

from pathlib import Path

from aceglt.cli.options import with_help
from aceglt.cli.shell import app, console, guarded, say
from aceglt.errors import ConfigError


@app.command()
@guarded
@with_help
def show(path: Path, *, levels: bool = False) -> None:
    """Say what a run found, in ten lines, or what a ticket is."""
    from aceglt.report import terminal as pages
    from aceglt.runs.directory import is_run, results_of

    if path.is_dir():
        if not is_run(path):
            raise ConfigError(f"{path} is not a run directory (it has no config.json)")
        pages.print_run(console, path, results_of(path), levels)
        return
    from aceglt.tickets.ticket import Ticket

    pages.print_ticket(console, Ticket.load(path))


@app.command()
@guarded
@with_help
def report(runs: list[Path], *, out: Path | None = None, static: Path | None = None, format: str = "svg") -> None:
    """Write one self-contained page about a run, or about several side by side."""
    from aceglt.report import load_runs, write_report
    from aceglt.report.static import check_static, write_static

    if static is not None:
        check_static(format)
    path = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; -o takes the HTML file to write")
    views = load_runs(runs, path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_report(views, path)
    plots = [] if static is None else write_static(views, static, format)
    for file in (path, *plots):
        say(str(file))


@app.command()
@guarded
@with_help
def datasets(*, data_root: Path | None = None) -> None:
    """List the known datasets and which of them are present."""
    from aceglt.report import terminal as pages

    pages.print_datasets(console, data_root)
