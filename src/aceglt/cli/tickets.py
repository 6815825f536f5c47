"""The commands that use a ticket."""

from __future__ import annotations

from pathlib import Path

from aceglt.cli.options import with_help
from aceglt.cli.shell import app, console, errors, guarded, say


@app.command()
@guarded
@with_help
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
@with_help
def predict(
    ticket: Path,
    *,
    out: Path,
    unseen: str = "error",
    device: str = "auto",
    data_root: Path | None = None,
    dataset: str | None = None,
) -> None:
    """Predict the class of every node with a ticket's compact model."""
    from aceglt.tickets.export import write_csv
    from aceglt.tickets.ticket import Ticket
    from aceglt.training.setup import pick_device

    loaded = Ticket.load(ticket)
    probabilities = loaded.predict(loaded.load_data(dataset, data_root), unseen, pick_device(device))
    write_csv(out, probabilities, loaded.several)
    say(f"{len(probabilities):,} predictions: {out}")


@app.command()
@guarded
@with_help
def bench(
    ticket: Path,
    *,
    repeats: int = 30,
    json_file: Path | None = None,
    plot: Path | None = None,
    device: str = "auto",
    data_root: Path | None = None,
    dataset: str | None = None,
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
@with_help
def export(ticket: Path, out: Path, *, format: str = "pyg") -> None:
    """Write a ticket's compact model and alive edges into a folder, for use without aceglt."""
    from aceglt.tickets.ticket import Ticket

    path = Ticket.load(ticket).export(out, format)
    say(f"exported: {path} (see its README.md)")
