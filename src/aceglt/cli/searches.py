"""The commands that search: one search, a grid of them, a table of the paper."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from aceglt.cli.options import DataRoot, Device, RunsAtOnce, Tickets, option, read_seeds, with_settings
from aceglt.cli.shell import app, console, errors, guarded
from aceglt.errors import ConfigError

_SCALE = "To try it out"


@app.command()
@guarded
@with_settings
def search(
    settings: dict[str, Any],
    device: Device = "auto",
    data_root: Annotated[
        Path | None, option("Where datasets are looked for first, before $ACEGLT_DATA and the cache.")
    ] = None,
    tickets: Tickets = "best",
    out: Annotated[
        Path | None, option("Run directory; by default a folder under runs/ named after the configuration.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write scalars for TensorBoard to RUN/tensorboard.")
    ] = False,
    runs_at_once: Annotated[
        int | None, option("How many runs share the GPU [default: as many as fit].", panel="Training")
    ] = None,
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
def sweep(
    grid: Annotated[Path, typer.Argument(help="A TOML file: settings of a search, a list for each that varies.")],
    out: Annotated[Path, typer.Option(help="The folder of the sweep: run directories, sweep.json, sweep.csv, report.")],
    engine: Annotated[
        str, typer.Option(help="local (processes of this machine) or ray (tasks of a cluster).")
    ] = "local",
    address: Annotated[
        str | None, option("The Ray cluster: auto, or HOST:PORT [default: one is started on this machine].")
    ] = None,
    workers: Annotated[
        int | None, option("Searches at a time on this machine [default: as many as cores, memory and GPUs allow].")
    ] = None,
    cpus: Annotated[int, typer.Option(help="Cores, and threads, of one search.")] = 1,
    gpus: Annotated[
        float | None, option("Share of a GPU for one search, e.g. 0.5 [default: a whole one where there are any].")
    ] = None,
    memory: Annotated[float | None, option("GiB of main memory for one search [default: an estimate].")] = None,
    retries: Annotated[int, typer.Option(help="How often a search is continued after its worker died.")] = 2,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    data_root: DataRoot = None,
    tickets: Tickets = "best",
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
def reproduce(
    name: Annotated[str | None, typer.Argument(help="table1, figureS2 …; --list has all.", show_default=False)] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Say what there is, its cells and what they would cost here.")
    ] = False,
    cell: Annotated[
        list[str] | None, option("Part of it: a cell's name, or parts of names such as cora/gcn or ours (repeatable).")
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 0,4,7 or 5-9.")] = "3",
    levels: Annotated[int | None, option("Fewer levels of pruning than the paper's.", panel=_SCALE)] = None,
    epochs: Annotated[int | None, option("Epochs of a full training; refinement in proportion.", panel=_SCALE)] = None,
    hidden: Annotated[int | None, option("Hidden units.", panel=_SCALE)] = None,
    split: Annotated[
        str | None, option("Which nodes train, validate and test: given, or random:SEED, drawn anew.", panel=_SCALE)
    ] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: paper, ugs, default or quick.")] = "paper",
    no_search: Annotated[
        bool, typer.Option("--no-search", help="Search nothing: make the table from the runs that are there.")
    ] = False,
    device: Device = "auto",
    data_root: DataRoot = None,
    runs_at_once: RunsAtOnce = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")] = Path("reproduction"),
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
