"""The commands that search: one search, a grid of them, a table of the paper."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from aceglt.cli.options import read_seeds, with_help, with_settings
from aceglt.cli.shell import app, console, errors, guarded
from aceglt.errors import ConfigError


@app.command()
@guarded
@with_settings
@with_help
def search(
    settings: dict[str, Any],
    *,
    device: str = "auto",
    data_root: Path | None = None,
    tickets: str = "best",
    out: Path | None = None,
    tensorboard: bool = False,
    runs_at_once: int | None = None,
) -> None:
    """Find graph lottery tickets. Without options: ace with a teacher, a GCN, CiteSeer, 10 levels, 3 seeds.

    Killed or interrupted, the same command continues where it stopped; with more --levels, a finished run goes on.
    """
    from aceglt import runner
    from aceglt.config import resolve
    from aceglt.config.own import take
    from aceglt.methods.build import build_method
    from aceglt.report.progress import SearchProgress
    from aceglt.runs.directory import default_name
    from aceglt.training import processes

    names, own = take(settings)
    config = resolve(**names)
    cost = build_method(config, own).cost(config.scoring_epochs) + config.training.epochs
    path = out or Path(default_name(config))
    with SearchProgress(errors, config.stopping.levels, config.training.epochs, cost, len(config.seeds)) as progress:
        result = runner.search(
            out=path, device=device, data_root=data_root, tickets=tickets, runs_at_once=runs_at_once,
            tensorboard=tensorboard, observer=progress, command=shlex.join(["aceglt", *sys.argv[1:]]), **settings,
        )  # fmt: skip
    if not processes.leads():
        return
    from aceglt.report.terminal import print_run

    print_run(console, path, result.results, levels=True)
    for note in result.notes:
        console.print(f"no report: {note}", highlight=False, markup=False)


@app.command()
@guarded
@with_help
def sweep(
    grid: Path,
    *,
    out: Path,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    cpus: int = 1,
    gpus: float | None = None,
    memory: float | None = None,
    retries: int = 2,
    device: str = "auto",
    data_root: Path | None = None,
    tickets: str = "best",
) -> None:
    """Run every search of a grid: methods × backbones × datasets × axes × anything else, on one machine or many.

    Killed or interrupted, the same command continues it; searches that are finished are not run again.
    """
    from aceglt.report.terminal import print_sweep
    from aceglt.sweeps.board import SweepProgress
    from aceglt.sweeps.run import sweep as run_sweep

    with SweepProgress(errors) as progress:
        result = run_sweep(
            grid, out, engine=engine, address=address, workers=workers, cpus=cpus, gpus=gpus, memory=memory,
            retries=retries, device=device, data_root=data_root, tickets=tickets, observer=progress,
        )  # fmt: skip
    print_sweep(console, result)
    if result.failed:
        raise typer.Exit(1)


@app.command()
@guarded
@with_help
def reproduce(
    name: str | None = None,
    *,
    list_: bool = False,
    cell: list[str] | None = None,
    seeds: str = "3",
    levels: int | None = None,
    epochs: int | None = None,
    hidden: int | None = None,
    split: str | None = None,
    preset: str = "paper",
    no_search: bool = False,
    device: str = "auto",
    data_root: Path | None = None,
    runs_at_once: int | None = None,
    out: Path = Path("reproduction"),
) -> None:
    """Reproduce a table or figure of the paper: search what is missing, and set its numbers beside the paper's.

    Finished searches are reused, also by other tables and figures; interrupted ones continue.
    """
    from aceglt.config import resolve
    from aceglt.reproduction import Scale, exhibit, listing
    from aceglt.reproduction import reproduce as run_reproduction

    chosen = read_seeds(seeds)
    given = {"hidden": hidden, "split": split}
    settings = {name: value for name, value in given.items() if value is not None}
    scale = Scale(preset, chosen, levels, epochs, settings)
    if list_:
        if name is None:  # among them link prediction, which has no such split
            resolve(preset, **settings)
            sizes = {name: value for name, value in settings.items() if name != "split"}
            listing.print_exhibits(console, replace(scale, settings=sizes), device, data_root)
        else:
            listing.print_cells(console, exhibit(name), exhibit(name).pick(cell or []), scale, device, data_root, out)
        return
    if name is None:
        raise ConfigError("which table or figure? aceglt reproduce --list names them")
    result = run_reproduction(
        name, out=out, cells=cell or (), seeds=chosen, levels=levels, epochs=epochs, preset=preset, device=device,
        data_root=data_root, runs_at_once=runs_at_once, search=not no_search, observe=listing.Progress(errors),
        **settings,
    )  # fmt: skip
    listing.print_reproduction(console, result)
