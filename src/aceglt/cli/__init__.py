"""The command line. Heavy imports happen inside the commands, so that --help answers at once."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn, Optional, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from aceglt.errors import AcegltError, ConfigError

app = typer.Typer(
    name="aceglt",
    help="Graph lottery tickets: find a sparse subgraph and a sparse subnetwork that train as well as the dense pair.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console()
errors = Console(stderr=True)

F = TypeVar("F", bound=Callable[..., None])


def main() -> None:
    """Entry point: one clear line for what the user can mend, no traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except _Terminated:  # before or after a command's own work
        sys.exit(143)


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


class _Terminated(BaseException):
    """SIGTERM arrived."""


def _guarded(command: F) -> F:
    """Turn what can go wrong into one line and an exit code."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except AcegltError as problem:
            _fail(f"error: {problem}", 2)
        except (KeyboardInterrupt, _Terminated) as stop:
            resumable = command.__name__ in ("search", "sweep", "reproduce")
            _fail(
                "interrupted" + ("; the same command continues where it stopped" if resumable else ""),
                143 if isinstance(stop, _Terminated) else 130,
            )
        except BrokenPipeError:
            raise typer.Exit(1) from None
        except OSError as problem:
            _fail(f"error: {problem.filename or 'system'}: {problem.strerror or problem}", 2)
        except (MemoryError, RuntimeError) as problem:
            if not _is_shortage(problem):
                raise
            _fail("error: not enough memory; a smaller --hidden, fewer --seeds or --runs-at-once need less", 2)

    return wrapper  # type: ignore[return-value]


def _is_shortage(problem: Exception) -> bool:
    """Whether memory ran out, also torch's; torch itself may not be imported here."""
    words = ("allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(problem, MemoryError) or any(part in str(problem) for part in words)


def _fail(message: str, code: int) -> NoReturn:
    errors.print(message, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code) from None


Run = Annotated[Optional[Path], typer.Option("--out", help="Run directory; by default a folder under runs/ named after the configuration.")]  # noqa: UP045, E501  # fmt: skip


def _option(help: str, *names: str, panel: str = "Options") -> Any:
    return typer.Option(*names, help=escape(help), rich_help_panel=panel, show_default=False)


_STOP, _TRAIN, _SCORE = "When to stop", "Training", "Scores and pruning"
_SCALE = "To try it out"


@app.command()
@_guarded
def search(
    dataset: Annotated[
        str,
        typer.Option(help="citeseer (embedded), cora, pubmed, ogbn-arxiv …, synthetic-arxiv:0.01 …, or a .npz file."),
    ] = "citeseer",
    backbone: Annotated[
        str, typer.Option(help="The graph neural network: gcn, gin, gat, resgcn, or your own as module:Class.")
    ] = "gcn",
    method: Annotated[
        str, typer.Option(help="How masks are chosen: random, ugs, gebt, ace, or your own as module:Class.")
    ] = "ace",
    axis: Annotated[str, typer.Option(help="What gets sparser from level to level: model, graph or joint.")] = "model",
    task: Annotated[
        str,
        typer.Option(help="The task: node (transductive) or inductive node classification, or link (link prediction)."),
    ] = "node",
    split: Annotated[
        str, typer.Option(help="Masks: given with the data, or random:SEED (20 per class, 500, 1000 nodes).")
    ] = "given",
    directed: Annotated[
        bool, typer.Option("--directed", help="Prune the two directions of an edge apart from each other.")
    ] = False,
    objective: Annotated[
        str | None, _option("What link prediction trains: bce [default] or infoclust (the paper's setting).")
    ] = None,
    edge_split: Annotated[
        str | None,
        _option("Edges that link prediction holds out: random [default] or connected (the training graph stays so)."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="default, paper (its Table S2), ugs (the UGS authors' settings) or quick; options override it."
        ),
    ] = "default",
    signal: Annotated[
        str | None,
        _option("What trains the scores: teacher or labels [default: teacher; random, gebt and infoclust labels]."),
    ] = None,
    levels: Annotated[
        int | None, _option("Levels of pruning [default: 10]; 0 trains the dense baseline alone.", panel=_STOP)
    ] = None,
    target_model: Annotated[float | None, _option("Stop at this model sparsity, e.g. 0.9.", panel=_STOP)] = None,
    target_graph: Annotated[float | None, _option("Stop at this graph sparsity, e.g. 0.3.", panel=_STOP)] = None,
    patience: Annotated[
        int | None, _option("Stop after this many losing levels in a row (by validation).", panel=_STOP)
    ] = None,
    seeds: Annotated[str | None, _option("How many seeds [default: 3], or which: 0,4,7 or 5-9.")] = None,
    no_test: Annotated[bool, typer.Option("--no-test", help="Tuning mode: never read the test set.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "auto",
    data_root: Annotated[
        Path | None, _option("Where datasets are looked for first, before $ACEGLT_DATA and the cache.")
    ] = None,
    tickets: Annotated[str, typer.Option(help="Tickets to keep: those of the best level, all or none.")] = "best",
    out: Run = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write scalars for TensorBoard to RUN/tensorboard.")
    ] = False,
    epochs: Annotated[int | None, _option("Epochs of a full training [default: 200].", panel=_TRAIN)] = None,
    hidden: Annotated[int | None, _option("Hidden units [default: 512; resgcn: 128].", panel=_TRAIN)] = None,
    layers: Annotated[int | None, _option("Layers of resgcn [default: 28].", panel=_TRAIN)] = None,
    precision: Annotated[
        str | None, _option("Numbers to compute in: float32 or bfloat16 [default: float32].", panel=_TRAIN)
    ] = None,
    checkpoint_blocks: Annotated[
        bool | None,
        _option(
            "Whether resgcn computes its layers again in the gradient instead of keeping them.",
            "--checkpoint-blocks/--no-checkpoint-blocks",
            panel=_TRAIN,
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        _option("Bit-identical results on a GPU too, at some cost in speed.", "--deterministic", panel=_TRAIN),
    ] = False,
    partitions: Annotated[
        int | None,
        _option("Parts of the nodes to train on and evaluate one after the other [default: 1].", panel=_TRAIN),
    ] = None,
    partition_by: Annotated[
        str | None, _option("What parts are made of: random nodes [default] or METIS clusters.", panel=_TRAIN)
    ] = None,
    parts_per_step: Annotated[
        int | None, _option("Parts whose gradients make one step [default: 1].", panel=_TRAIN)
    ] = None,
    runs_at_once: Annotated[
        int | None, _option("How many runs share the GPU [default: as many as fit].", panel=_TRAIN)
    ] = None,
    embedding: Annotated[
        int | None, _option("Width of link prediction's embeddings [default: 64; infoclust 16].", panel=_TRAIN)
    ] = None,
    lr: Annotated[
        float | None, _option("Learning rate [default: 0.01; gat 0.005; infoclust 0.001].", panel=_TRAIN)
    ] = None,
    weight_decay: Annotated[float | None, _option("Weight decay [default: 5e-4; task link 0].", panel=_TRAIN)] = None,
    loss: Annotated[str | None, _option("Your own training loss as module:function.", panel=_TRAIN)] = None,
    metric: Annotated[str | None, _option("Your own metric as module:function.", panel=_TRAIN)] = None,
    prunable: Annotated[
        list[str] | None,
        _option(
            "What is pruned in your own model: a pattern of parameters' names (repeatable) "
            "[default: weight matrices of linear maps].",
            panel=_SCORE,
        ),
    ] = None,
    lambda_edges: Annotated[
        float | None, _option("λ1: L1 on edge scores [default: 0; gebt 1e-4].", panel=_SCORE)
    ] = None,
    lambda_weights: Annotated[float | None, _option("λ2: L1 on weight scores [default: 0].", panel=_SCORE)] = None,
    beta: Annotated[float | None, _option("Weight of the teacher's signal [default: 10].", panel=_SCORE)] = None,
    teacher_temperature: Annotated[
        float | None,
        _option("What the teacher's outputs are divided by; below 1 sharpens them [default: 0.03].", panel=_SCORE),
    ] = None,
    teacher_smoothing: Annotated[
        float | None,
        _option("How much of the teacher's answer at a node is its neighbours' [default: 0.9].", panel=_SCORE),
    ] = None,
    score_epochs: Annotated[
        int | None, _option("Epochs that a level's scores are trained, at most --epochs [default: 60].", panel=_SCORE)
    ] = None,
    score_epoch: Annotated[
        str | None,
        _option("Whose scores decide: the best-validation epoch's or the last: best or last.", panel=_SCORE),
    ] = None,
    decay_scores: Annotated[
        bool | None,
        _option(
            "Whether weight decay touches scores [default: no; gebt yes].",
            "--decay-scores/--no-decay-scores",
            panel=_SCORE,
        ),
    ] = None,
    clamp_scores: Annotated[
        bool | None, _option("Whether scores are kept in [0, 1].", "--clamp-scores/--no-clamp-scores", panel=_SCORE)
    ] = None,
    balance: Annotated[
        float | None,
        _option(
            "How much of the weights is divided among matrices: from nothing (0), all weights compete, to everything "
            "(1), each matrix ranks by itself [default: 0.75; gebt 0].",
            panel=_SCORE,
        ),
    ] = None,
    degree_bonus: Annotated[
        float | None,
        _option(
            "What ugs and ace add to the importance of an edge, over the root of the product of its ends' degrees "
            "[default: 2].",
            panel=_SCORE,
        ),
    ] = None,
    prune_model: Annotated[
        float | None, _option("Share of alive weights that goes per level [default: 0.2].", panel=_SCORE)
    ] = None,
    prune_graph: Annotated[
        float | None, _option("Share of alive edges that goes per level [default: 0.05].", panel=_SCORE)
    ] = None,
    fixed_model: Annotated[
        float | None,
        _option("Share of weights that goes at every level of the graph axis [default: 0.2].", panel=_SCORE),
    ] = None,
    fixed_graph: Annotated[
        float | None,
        _option("Share of edges that goes at every level of the model axis [default: 0.05].", panel=_SCORE),
    ] = None,
    method_option: Annotated[
        list[str] | None,
        _option(
            "A hyper-parameter of the method as NAME=VALUE, e.g. rounds=6 (repeatable; docs/methods.md lists them).",
            "--method-option",
            "-m",
            panel=_SCORE,
        ),
    ] = None,
) -> None:
    """Find graph lottery tickets. Without options: ace with a teacher, no rounds, a GCN, CiteSeer, 10 levels, 3 seeds.

    Killed or interrupted, the same command continues where it stopped; with more --levels, a finished run goes on.
    """
    from aceglt import runner
    from aceglt.config import resolve
    from aceglt.config.own import take
    from aceglt.methods.build import build_method
    from aceglt.report.progress import SearchProgress
    from aceglt.runs.directory import default_name
    from aceglt.training import processes

    choices: dict[str, Any] = {
        "dataset": dataset,
        "backbone": backbone,
        "method": method,
        "axis": axis,
        "task": task,
        "split": split,
        "directed": directed or None,
        "objective": objective,
        "edge_split": edge_split,
        "embedding": embedding,
        "signal": signal,
        "levels": levels,
        "target_model": target_model,
        "target_graph": target_graph,
        "patience": patience,
        "epochs": epochs,
        "hidden": hidden,
        "layers": layers,
        "precision": precision,
        "checkpoint_blocks": checkpoint_blocks,
        "partitions": partitions,
        "deterministic": deterministic or None,
        "partition_by": partition_by,
        "parts_per_step": parts_per_step,
        "lr": lr,
        "weight_decay": weight_decay,
        "loss": loss,
        "metric": metric,
        "prunable": prunable or None,
        "lambda_edges": lambda_edges,
        "lambda_weights": lambda_weights,
        "beta": beta,
        "teacher_temperature": teacher_temperature,
        "teacher_smoothing": teacher_smoothing,
        "score_epochs": score_epochs,
        "score_epoch": score_epoch,
        "decay_scores": decay_scores,
        "clamp_scores": clamp_scores,
        "balance": balance,
        "degree_bonus": degree_bonus,
        "prune_model": prune_model,
        "prune_graph": prune_graph,
        "fixed_model": fixed_model,
        "fixed_graph": fixed_graph,
        "seeds": read_seeds(seeds),
        "test": False if no_test else None,
        "method_options": _method_options(method_option or []),
    }
    names, own = take(choices)
    config = resolve(preset, **names)
    cost = build_method(config, own).cost(config.scoring_epochs) + config.epochs
    path = out or Path(default_name(config))
    with SearchProgress(errors, config.levels, config.epochs, cost, len(config.seeds)) as progress:
        result = runner.search(
            out=path, device=device, data_root=data_root, tickets=tickets, preset=preset, runs_at_once=runs_at_once,
            tensorboard=tensorboard, observer=progress, command=shlex.join(["aceglt", *sys.argv[1:]]), **choices,
        )  # fmt: skip
    if not processes.leads():
        return
    from aceglt.report.terminal import print_run

    print_run(console, path, result.results, levels=True)
    for note in result.notes:
        console.print(f"no report: {note}", highlight=False, markup=False)


Source = Annotated[Optional[str], _option("The graph, if it lies elsewhere now: a dataset's name or a .npz file.")]  # noqa: UP045
DataRoot = Annotated[Optional[Path], _option("Where datasets are looked for first.")]  # noqa: UP045
TicketFile = Annotated[Path, typer.Argument(help="A ticket file.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")]


@app.command()
@_guarded
def sweep(
    grid: Annotated[Path, typer.Argument(help="A TOML file: settings of a search, a list for each that varies.")],
    out: Annotated[Path, typer.Option(help="The folder of the sweep: run directories, sweep.json, sweep.csv, report.")],
    engine: Annotated[
        str, typer.Option(help="local (processes of this machine) or ray (tasks of a cluster).")
    ] = "local",
    address: Annotated[
        str | None, _option("The Ray cluster: auto, or HOST:PORT [default: one is started on this machine].")
    ] = None,
    workers: Annotated[
        int | None, _option("Searches at a time on this machine [default: as many as cores, memory and GPUs allow].")
    ] = None,
    cpus: Annotated[int, typer.Option(help="Cores, and threads, of one search.")] = 1,
    gpus: Annotated[
        float | None, _option("Share of a GPU for one search, e.g. 0.5 [default: a whole one where there are any].")
    ] = None,
    memory: Annotated[float | None, _option("GiB of main memory for one search [default: an estimate].")] = None,
    retries: Annotated[int, typer.Option(help="How often a search is continued after its worker died.")] = 2,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    data_root: DataRoot = None,
    tickets: Annotated[str, typer.Option(help="Tickets to keep: those of the best level, all or none.")] = "best",
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
@_guarded
def evaluate(
    ticket: TicketFile,
    seeds: Annotated[int, typer.Option(help="Repetitions; each has its dropout and fresh weights of its own.")] = 5,
    device: Device = "auto",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="As in search; on where the ticket's search had it.")
    ] = False,
    data_root: DataRoot = None,
    dataset: Source = None,
    backbone: Annotated[str | None, _option("Your own model as module:Class, if the ticket is one of such.")] = None,
    loss: Annotated[str | None, _option("Your own loss as module:function, likewise.")] = None,
    metric: Annotated[str | None, _option("Your own metric as module:function, likewise.")] = None,
) -> None:
    """Is it winning? Retrain a ticket in isolation, from its initial weights and from fresh ones, beside dense."""
    from aceglt.report.progress import SearchProgress
    from aceglt.report.terminal import print_evaluation
    from aceglt.tickets.evaluation import evaluate as run_evaluation
    from aceglt.tickets.ticket import Ticket

    loaded = Ticket.load(ticket)
    with SearchProgress(errors, 3, loaded.config.epochs, loaded.config.epochs, seeds) as progress:
        result = run_evaluation(
            loaded, seeds=seeds, device=device, data_root=data_root, dataset=dataset, observer=progress,
            backbone=backbone, loss=loss, metric=metric, deterministic=deterministic,
        )  # fmt: skip
    print_evaluation(console, loaded, result)


@app.command()
@_guarded
def predict(
    ticket: TicketFile,
    out: Annotated[Path, typer.Option(help="The CSV file to write: node, predicted class, probability per class.")],
    unseen: Annotated[
        str, typer.Option(help="If the graph is not the ticket's: error, or keep or drop the edges it never saw.")
    ] = "error",
    device: Device = "auto",
    data_root: DataRoot = None,
    dataset: Source = None,
) -> None:
    """Predict the class of every node with a ticket's compact model."""
    from aceglt.tickets.predictions import write_csv
    from aceglt.tickets.ticket import Ticket
    from aceglt.training.setup import pick_device

    loaded = Ticket.load(ticket)
    probabilities = loaded.predict(loaded.load_data(dataset, data_root), unseen, pick_device(device))
    write_csv(out, probabilities, loaded.several)
    console.print(f"{len(probabilities):,} predictions: {out}", highlight=False, markup=False, soft_wrap=True)


@app.command()
@_guarded
def bench(
    ticket: TicketFile,
    repeats: Annotated[int, typer.Option(help="Measurements of each variant.")] = 30,
    json_file: Annotated[Path | None, _option("Write the measurements to this file too.", "--json")] = None,
    plot: Annotated[Path | None, _option("Draw the latencies into this HTML file.")] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    dataset: Source = None,
) -> None:
    """Measure what a ticket saves, against the dense model and the plain PyG model: MACs, size, memory, latency."""
    from aceglt.files import write_json
    from aceglt.report.terminal import print_benchmark
    from aceglt.tickets.bench import benchmark, write_plot
    from aceglt.tickets.ticket import Ticket

    loaded = Ticket.load(ticket)
    result = benchmark(loaded, loaded.load_data(dataset, data_root), device=device, repeats=repeats)
    print_benchmark(console, result)
    if json_file is not None:
        write_json(json_file, result.to_dict())
    if plot is not None:
        write_plot(result, plot)


@app.command()
@_guarded
def export(
    ticket: TicketFile,
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    format: Annotated[
        str, typer.Option(help="pyg (a Python file that needs torch alone), torch-export or onnx.")
    ] = "pyg",
) -> None:
    """Write a ticket's compact model and alive edges into a folder, for use without aceglt."""
    from aceglt.tickets.ticket import Ticket

    path = Ticket.load(ticket).export(out, format)
    console.print(f"exported: {path} (see its README.md)", highlight=False, markup=False, soft_wrap=True)


@app.command()
@_guarded
def show(
    path: Annotated[Path, typer.Argument(help="A run directory or a ticket file.")],
    levels: Annotated[bool, typer.Option("--levels", help="Of a run, print the table of levels too.")] = False,
) -> None:
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
@_guarded
def reproduce(
    name: Annotated[str | None, typer.Argument(help="table1, figureS2 …; --list has all.", show_default=False)] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Say what there is, its cells and what they would cost here.")
    ] = False,
    cell: Annotated[
        list[str] | None, _option("Part of it: a cell's name, or parts of names such as cora/gcn or ours (repeatable).")
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 0,4,7 or 5-9.")] = "3",
    levels: Annotated[int | None, _option("Fewer levels of pruning than the paper's.", panel=_SCALE)] = None,
    epochs: Annotated[int | None, _option("Epochs of a full training; refinement in proportion.", panel=_SCALE)] = None,
    hidden: Annotated[int | None, _option("Hidden units.", panel=_SCALE)] = None,
    split: Annotated[
        str | None, _option("Which nodes train, validate and test: given, or random:SEED, drawn anew.", panel=_SCALE)
    ] = None,
    preset: Annotated[str, typer.Option(help="Whose settings: paper, ugs, default or quick.")] = "paper",
    no_search: Annotated[
        bool, typer.Option("--no-search", help="Search nothing: make the table from the runs that are there.")
    ] = False,
    device: Device = "auto",
    data_root: DataRoot = None,
    runs_at_once: Annotated[int | None, _option("How many runs share the GPU [default: as many as fit].")] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")] = Path("reproduction"),
) -> None:
    """Reproduce a table or figure of the paper: search what is missing, and set its numbers beside the paper's.

    Finished searches are reused, also by other tables and figures; interrupted ones continue.
    """
    from aceglt.config import resolve
    from aceglt.reproduction import Scale, exhibit, listing
    from aceglt.reproduction import reproduce as run_reproduction

    chosen = read_seeds(seeds)
    assert chosen is not None
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


@app.command()
@_guarded
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, finished or not.")],
    out: Annotated[
        Path | None,
        _option("The HTML file [default: report.html, in the run directory if there is one run].", "--out", "-o"),
    ] = None,
    static: Annotated[Path | None, _option("Draw every plot into this folder too (needs matplotlib).")] = None,
    format: Annotated[str, typer.Option(help="Of the --static plots: svg, png or pdf.")] = "svg",
) -> None:
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
        console.print(str(file), highlight=False, markup=False, soft_wrap=True)


@app.command()
@_guarded
def datasets(
    data_root: Annotated[Path | None, _option("Where datasets are looked for first.")] = None,
) -> None:
    """List the known datasets and which of them are present."""
    from aceglt.report import terminal as pages

    pages.print_datasets(console, data_root)


def _version(wanted: bool) -> None:
    if wanted:
        from aceglt.version import __version__

        console.print(f"aceglt {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def read_seeds(text: str | None) -> Sequence[int] | int | None:
    """`3` → that many; `0,4,7` and `5-9` → these."""
    from aceglt.config import MAX_SEEDS

    if text is None:
        return None
    try:
        if text.strip().isdigit():
            return int(text)
        seeds: list[int] = []
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            span = range(int(first), int(last if dash else first) + 1)
            if len(span) > MAX_SEEDS:
                raise ConfigError(f"--seeds names {len(span)} seeds; the most is {MAX_SEEDS}")
            seeds += span
        return seeds
    except ValueError:
        raise ConfigError(
            f"--seeds takes a number, a list such as 0,4,7 or a range such as 5-9; found {text!r}"
        ) from None


def _method_options(pairs: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError(f"--method-option takes NAME=VALUE, found {pair!r}")
        options[name.strip().replace("-", "_")] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "on": True, "off": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
