"""The commands, in the order of the help: those that search, that show what was found, and that use a ticket."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from aceglt.cli.options import command, read_seeds
from aceglt.cli.shell import console, errors, importing, say
from aceglt.errors import ConfigError

if TYPE_CHECKING:
    from aceglt.tickets.ticket import Ticket


@command
def search(
    settings: dict[str, Any],
    *,
    device: str = "auto",
    data_root: Path | None = None,
    tickets: str = "best",
    out: Path | None = None,
    tensorboard: bool = False,
    runs_at_once: int | None = None,
    config_file: Path | None = None,
) -> None:
    """Find graph lottery tickets. Without options: ace with a teacher, a GCN, CiteSeer, 10 levels, 3 seeds.

    Killed or interrupted, the same command continues where it stopped; with more --levels or --seeds, a finished run
    goes on.

    \b
    Examples:
      aceglt search --dataset cora --method ugs --axis graph --seeds 10
      aceglt search --dataset my_graph.npz --target-model 0.9 --out runs/mine
      aceglt search --backbone my_module:MyModel --preset quick
      aceglt search --method ace -m rounds=6 -m exchange=0.05
    """
    with importing():
        from aceglt import datasets, runner
        from aceglt.config import resolve
        from aceglt.config.own import take
        from aceglt.methods.build import build_method
        from aceglt.runs.directory import default_name
        from aceglt.searches.progress import SearchProgress
        from aceglt.sweeps.tune import read_settings
        from aceglt.training import processes

    named = config_file is None or "dataset" in settings
    settings = settings if config_file is None else read_settings(config_file, settings)
    names, own = take(settings)
    config = resolve(**names)
    if not named:
        datasets.check_here(config.dataset, data_root)
    path = out or Path(default_name(config))
    with SearchProgress(errors, config, build_method(config, own)) as progress:
        result = runner.search(
            out=path, device=device, data_root=data_root, tickets=tickets, runs_at_once=runs_at_once,
            tensorboard=tensorboard, observer=progress, progress=False,
            command=shlex.join(["aceglt", *sys.argv[1:]]), **settings,
        )  # fmt: skip
    if not processes.leads():
        return
    from aceglt.report.terminal import print_run

    print_run(console, path, result.results, levels=True)
    for note in result.notes:
        say(f"note: {note}")


@command
def sweep(
    grid: Path,
    *,
    out: Path,
    machines: dict[str, Any],
    tickets: str = "best",
) -> None:
    """Run every search of a grid: methods × backbones × datasets × axes × anything else, on one machine or many.

    Killed or interrupted, the same command continues it; searches that are finished are not run again.
    """
    from aceglt.report.terminal import print_sweep
    from aceglt.sweeps.board import SweepProgress
    from aceglt.sweeps.run import sweep as run_sweep

    with SweepProgress(errors) as progress:
        result = run_sweep(grid, out, tickets=tickets, observer=progress, **machines)
    print_sweep(console, result)
    if result.failed:
        raise typer.Exit(1)


@command
def compare(
    what: list[Path],
    *,
    out: Path,
    tickets: str = "best",
    machines: dict[str, Any],
) -> None:
    """Set methods beside each other: run a grid's searches, or take results that are there, and write one page.

    Random pruning is always among the methods of a grid. Killed or interrupted, the same command continues; with more
    seeds, levels, methods or graphs in the grid, it runs what is missing.

    \b
    Examples:
      aceglt compare grid.toml --out compared
      aceglt compare compared more/runs/* results/*.json --out page
    """
    from aceglt.report.terminal import print_comparison
    from aceglt.sweeps.board import SweepProgress
    from aceglt.sweeps.compare import compare as run_comparison

    with SweepProgress(errors) as progress:
        result = run_comparison(what, out, tickets=tickets, observer=progress, **machines)
    print_comparison(console, result)
    if result.failed:
        raise typer.Exit(1)


@command
def tune(
    settings: dict[str, Any],
    *,
    out: Path,
    budget: int | None = None,
    minutes: float | None = None,
    machines: dict[str, Any],
) -> None:
    """Choose training settings of the dense model on validation, and write a file that search --config takes.

    Settings that you give stay as they are. Killed or interrupted, the same command continues.

    \b
    Examples:
      aceglt tune --dataset cora --budget 20 --out tuned
      aceglt search --config tuned/tuned.json
    """
    from aceglt.report.terminal import print_tuning
    from aceglt.sweeps.board import SweepProgress
    from aceglt.sweeps.tune import trials_of
    from aceglt.sweeps.tune import tune as run_tuning

    with SweepProgress(errors, ("trial", "trials"), trials_of(budget, minutes)) as progress:
        result = run_tuning(out, budget=budget, minutes=minutes, observer=progress, **machines, **settings)
    print_tuning(console, result)


@command
def show(path: Path, *, levels: bool = False) -> None:
    """Say what a run found, in ten lines, what a sweep or a comparison found, or what a ticket is."""
    from aceglt.report import terminal as pages
    from aceglt.runs.directory import is_run, results_of

    if (path / "grid.json").is_file():
        from aceglt.sweeps.compare import TABLE, CompareResult
        from aceglt.sweeps.merged import load_sweep

        found = load_sweep(path)
        if (path / TABLE).exists() and not levels:
            pages.print_comparison(console, CompareResult(found.cells, found.path))
        else:
            pages.print_sweep(console, found, levels)
        return
    path = _file_of(path)
    if path.is_dir():
        if not is_run(path):
            raise ConfigError(f"{path} is neither a run directory (it has no config.json) nor a sweep's folder")
        pages.print_run(console, path, results_of(path), levels)
        return
    if path.suffix == ".npz" and path.is_file():
        raise ConfigError(
            f"{path} is a graph; aceglt search --dataset {path} searches it, aceglt datasets lists graphs"
        )
    from aceglt.tickets.ticket import Ticket

    pages.print_ticket(console, Ticket.load(path))


@command
def report(runs: list[Path], *, out: Path | None = None, static: Path | None = None, format: str = "svg") -> None:
    """Write one self-contained page about a run, or about several, or a sweep's, side by side."""
    from aceglt.files import check_output
    from aceglt.report import files_of, load_runs, write_report
    from aceglt.report.static import check_static, write_static

    if static is not None:
        check_static(format)
    path = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    check_output(path, files_of(runs))
    views = load_runs(runs, path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_report(views, path)
    plots = [] if static is None else write_static(views, static, format)
    for file in (path, *plots):
        say(str(file))


def _inputs(ticket: Path, dataset: str = "", data_root: Path | None = None) -> list[str | Path]:
    """What a command about a ticket, or a run's best one, reads."""
    from aceglt.datasets import files_of
    from aceglt.runs.directory import RunDir

    ticket = _file_of(ticket)
    return [*(RunDir(ticket).inputs() if ticket.is_dir() else [ticket]), *files_of(dataset, data_root)]


def _file_of(path: Path) -> Path:
    """The ticket in a folder as `zoo/` and hubs have it; any other path is itself."""
    from aceglt.tickets.hub import FILE

    return path / FILE if (path / FILE).is_file() else path


def _ticket(path: Path) -> Ticket:
    """A ticket by its file or the folder that holds it, or the best of a run by the run's folder."""
    from aceglt.report.terminal import best_tickets
    from aceglt.runs.directory import is_run, results_of
    from aceglt.searches.statistics import best_level
    from aceglt.tickets.ticket import Ticket

    path = _file_of(path)
    if path.is_dir() and not is_run(path):
        raise ConfigError(f"{path} is neither a ticket file nor a run directory; a sweep has its runs in runs/")
    if path.suffix == ".npz":
        raise ConfigError(f"{path} is a graph; name a ticket or a run, and the graph with --dataset {path}")
    if not is_run(path):
        return Ticket.load(path)
    results = results_of(path)
    found = best_tickets(path, results)
    if not found:
        raise ConfigError(f"{path}: the run keeps no ticket; search with --tickets best or all")
    if best_level(results) is None:
        say(f"note: no level wins (strict); {found[0]} is used", errors)
    return Ticket.load(found[0])


@command
def evaluate(
    ticket: Path,
    *,
    seeds: int = 5,
    device: str = "auto",
    deterministic: bool = False,
    data_root: Path | None = None,
    dataset: str | None = None,
    backbone: str | None = None,
    loss: str | None = None,
    metric: str | None = None,
) -> None:
    """Is it winning? Retrain a ticket in isolation, from its initial weights and from fresh ones, beside dense."""
    from aceglt.report.terminal import print_evaluation
    from aceglt.searches.progress import TrainingProgress
    from aceglt.tickets.evaluation import evaluate as run_evaluation

    loaded = _ticket(ticket)
    with TrainingProgress(errors, 4 * loaded.config.training.epochs * seeds) as progress:
        result = run_evaluation(
            loaded, seeds=seeds, device=device, data_root=data_root, dataset=dataset, observer=progress,
            backbone=backbone, loss=loss, metric=metric, deterministic=deterministic,
        )  # fmt: skip
    print_evaluation(console, loaded, result)


@command
def predict(
    ticket: Path,
    *,
    out: Path,
    unseen: str = "error",
    device: str = "auto",
    data_root: Path | None = None,
    dataset: str | None = None,
    backbone: str | None = None,
    pairs: Path | None = None,
) -> None:
    """Predict the class of every node with a ticket's model; of link prediction, embeddings or the scores of pairs."""
    from aceglt.files import check_output, is_stdout
    from aceglt.tickets.tables import read_pairs, write_embeddings, write_predictions, write_scores
    from aceglt.training.setup import pick_device

    loaded = _ticket(ticket)
    graph = dataset or loaded.config.dataset
    check_output(out, [*_inputs(ticket, graph, data_root), *([] if pairs is None else [pairs])])
    wanted = None if pairs is None else read_pairs(pairs)
    found = loaded.predict(loaded.load_data(dataset, data_root), unseen, pick_device(device), backbone, wanted)
    if wanted is not None:
        write_scores(out, wanted, found)
    elif loaded.config.task == "link":
        write_embeddings(out, found)
    else:
        write_predictions(out, found, loaded.several)
    say(f"{len(found):,} predictions: {out}", errors if is_stdout(out) else console)


@command
def bench(
    ticket: Path,
    *,
    repeats: int = 30,
    json_file: Path | None = None,
    plot: Path | None = None,
    device: str = "auto",
    data_root: Path | None = None,
    dataset: str | None = None,
    backbone: str | None = None,
) -> None:
    """Measure what a ticket saves, against the dense model and the plain PyG model: MACs, size, memory, latency."""
    from aceglt.files import check_output, write_json
    from aceglt.report.terminal import print_benchmark
    from aceglt.tickets.bench import benchmark, write_plot

    loaded = _ticket(ticket)
    for path in (json_file, plot):
        if path is not None:
            check_output(path, _inputs(ticket, dataset or loaded.config.dataset, data_root))
    if json_file is not None and plot is not None and os.path.realpath(json_file) == os.path.realpath(plot):
        raise ConfigError(f"--json and --plot are both {plot}; name two files")
    result = benchmark(loaded, loaded.load_data(dataset, data_root), device=device, repeats=repeats, backbone=backbone)
    print_benchmark(console, result)
    if json_file is not None:
        write_json(json_file, result.to_dict())
    if plot is not None:
        write_plot(result, plot)


@command
def export(ticket: Path, out: Path, *, format: str = "pyg", backbone: str | None = None, half: bool = False) -> None:
    """Write a ticket's compact model and alive edges into a folder, for use without aceglt.

    With --format ticket, a small ticket file for inference: without initial weights and dead edges.
    """
    from aceglt.files import check_output
    from aceglt.tickets.export import FORMATS

    loaded = _ticket(ticket)
    if format == "ticket":
        check_output(out, _inputs(ticket))
        loaded.save(out, parts="inference", half=half)
        say(f"exported: {out}")
        return
    if half:
        raise ConfigError("--half is for --format ticket")
    if format not in FORMATS:
        raise ConfigError(f"unknown format '{format}'; known are {', '.join([*FORMATS, 'ticket'])}")
    path = loaded.export(out, format, backbone)
    say(f"exported: {path} (see its README.md)")


@command
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


@command
def datasets(*, data_root: Path | None = None) -> None:
    """List the known datasets and which of them are present."""
    from aceglt.report import terminal as pages

    pages.print_datasets(console, data_root)
