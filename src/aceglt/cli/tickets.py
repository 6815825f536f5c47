"""The commands that use a ticket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aceglt.cli.options import DataRoot, Device, Source, TicketFile, option
from aceglt.cli.shell import app, console, errors, guarded, say


@app.command()
@guarded
def evaluate(
    ticket: TicketFile,
    seeds: Annotated[int, typer.Option(help="Repetitions; each has its dropout and fresh weights of its own.")] = 5,
    device: Device = "auto",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="As in search; on where the ticket's search had it.")
    ] = False,
    data_root: DataRoot = None,
    dataset: Source = None,
    backbone: Annotated[str | None, option("Your own model as module:Class, if the ticket is one of such.")] = None,
    loss: Annotated[str | None, option("Your own loss as module:function, likewise.")] = None,
    metric: Annotated[str | None, option("Your own metric as module:function, likewise.")] = None,
) -> None:
    """Is it winning? Retrain a ticket in isolation, from its initial weights and from fresh ones, beside dense."""
    from aceglt.report.progress import SearchProgress
    from aceglt.report.terminal import print_evaluation
    from aceglt.tickets.evaluation import evaluate as run_evaluation
    from aceglt.tickets.ticket import Ticket

    loaded = Ticket.load(ticket)
    with SearchProgress(errors, 3, loaded.config.training.epochs, loaded.config.training.epochs, seeds) as progress:
        result = run_evaluation(
            loaded, seeds=seeds, device=device, data_root=data_root, dataset=dataset, observer=progress,
            backbone=backbone, loss=loss, metric=metric, deterministic=deterministic,
        )  # fmt: skip
    print_evaluation(console, loaded, result)


@app.command()
@guarded
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
    say(f"{len(probabilities):,} predictions: {out}")


@app.command()
@guarded
def bench(
    ticket: TicketFile,
    repeats: Annotated[int, typer.Option(help="Measurements of each variant.")] = 30,
    json_file: Annotated[Path | None, option("Write the measurements to this file too.", "--json")] = None,
    plot: Annotated[Path | None, option("Draw the latencies into this HTML file.")] = None,
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
@guarded
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
    say(f"exported: {path} (see its README.md)")
