"""Large graphs on the machine at hand: `python -m benchmarks.scaling [--json FILE]`.

On a GPU: score-training epochs of a 28-layer ResGCN on a graph of the size of ogbn-arxiv, whole; a short ACE search on
it, whose ticket is evaluated; epochs on a graph of the size of ogbn-proteins in parts. On a CPU: score-training epochs
of a GCN on graphs up to the size of ogbn-arxiv, and how far the largest is from the line through the others. Graphs are
synthetic.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import aceglt
from aceglt import datasets
from aceglt.backbones import Backbone, build
from aceglt.backends.base import ScoreTraining
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem, Soft
from aceglt.training.fit import fit
from aceglt.training.partitions import WHOLE, Parts

SHORT: dict[str, Any] = {
    "levels": 3,
    "seeds": 1,
    "epochs": 10,
    "method_options": {"rounds": 1, "refine_epochs": 5, "keep": "last"},
}
"""The ACE search with reduced epochs."""
SCALES = (0.25, 0.5, 0.75, 1.0)
"""Of the graphs that the CPU's line goes through."""


class Clock:
    """An observer that notes when each epoch ends; on a CPU by the time that the process had, not its neighbours."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.now = device, time.perf_counter if device.type == "cuda" else time.process_time
        self.ends = [self.now()]

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.ends.append(self.now())

    @property
    def seconds(self) -> float:
        """Of the fastest epoch, validation included; the first has none."""
        return float(np.diff(self.ends)[1:].min())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", help="some of: epoch,search,parts on a GPU")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the graphs")
    parser.add_argument("--layers", type=int, default=28, help="layers of ResGCN")
    parser.add_argument("--partitions", type=int, default=10, help="parts of the graph like ogbn-proteins")
    parser.add_argument("--json", type=Path, help="write the figures and the machine's description there")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if options.only is None and device.type == "cpu":
        rows = on_cpu(options.scale)
    else:
        measured = {"epoch": arxiv_epoch, "search": arxiv_search, "parts": proteins_parts}
        chosen = (options.only or ",".join(measured)).split(",")
        rows = [row for name in chosen for row in _reported(measured[name], device, options)]
    _print(rows)
    if options.json:
        options.json.write_text(json.dumps({"machine": _machine(device), "rows": rows}, indent=1) + "\n")


def arxiv_epoch(device: torch.device, options: Any) -> list[dict[str, Any]]:
    problem = Problem.from_data(datasets.load(f"synthetic-arxiv:{options.scale}")).to(device)
    backbone = build("resgcn", problem.x.shape[1], problem.out_features, 128, layers=options.layers)
    rows = []
    for signal in ("labels", "teacher"):
        even = torch.full((1, problem.graph.num_nodes, problem.out_features), 1 / problem.out_features, device=device)
        soft = Soft(even, 1.0) if signal == "teacher" else None
        rows.append({"what": f"arxiv, ResGCN-{options.layers}, {signal}", **score_epochs(problem, backbone, soft=soft)})
    return rows


def arxiv_search(device: torch.device, options: Any) -> list[dict[str, Any]]:
    name = f"synthetic-arxiv:{options.scale}"
    _reset_peak(device)
    began = time.perf_counter()
    result = aceglt.search(
        dataset=name, backbone="resgcn", layers=options.layers, method="ace", device=str(device), tickets="all", **SHORT
    )
    searched = time.perf_counter()
    evaluation = aceglt.evaluate(result.tickets[-1], seeds=1, device=str(device))
    row = {
        "what": f"arxiv, ACE, {SHORT['levels']} levels of {SHORT['epochs']} epochs",
        "seconds": round(searched - began, 1),
        "evaluate_seconds": round(time.perf_counter() - searched, 1),
        "peak_gib": _peak_gib(device),
        "dense_test": round(result.results["dense"]["test"][0], 4),
        "last_level_test": round(result.results["levels"][-1]["test"][0], 4),
        "evaluated_test": None if evaluation.ticket.test is None else round(evaluation.ticket.test[0], 4),
    }
    return [row]


def proteins_parts(device: torch.device, options: Any) -> list[dict[str, Any]]:
    began = time.perf_counter()
    problem = Problem.from_data(datasets.load(f"synthetic-proteins:{options.scale}"))
    made = time.perf_counter() - began
    problem = problem.to(device)
    backbone = build("resgcn", problem.x.shape[1], problem.out_features, 128, layers=options.layers, edge_features=8)
    figures = score_epochs(problem, backbone, epochs=3, parts=Parts(options.partitions))
    what = f"proteins, ResGCN-{options.layers}, {options.partitions} parts"
    return [{"what": what, **figures, "generated_seconds": round(made, 1)}]


def on_cpu(scale: float) -> list[dict[str, Any]]:
    """A GCN with 128 hidden units, and the line through the smaller graphs at the size of the largest."""
    rows = []
    for part in SCALES:  # ascending, so that the process's peak is the last graph's
        problem = Problem.from_data(datasets.load(f"synthetic-arxiv:{scale * part}"))
        backbone = build("gcn", problem.x.shape[1], problem.out_features, 128)
        figures = score_epochs(problem, backbone, epochs=4)
        rows.append({"what": f"arxiv × {scale * part:g}, GCN", "edges": problem.graph.num_edges, **figures})
    size, seconds = np.array([row["edges"] for row in rows]), np.array([row["epoch_seconds"] for row in rows])
    slope, offset = np.polyfit(size[:-1], seconds[:-1], 1)
    rows[-1]["over_line"] = round(float(seconds[-1] / (slope * size[-1] + offset)), 3)
    return rows


def score_epochs(
    problem: Problem, backbone: Backbone, epochs: int = 6, soft: Soft | None = None, parts: Parts = WHOLE
) -> dict[str, Any]:
    """Seconds of a score-training epoch of one run, and the peak memory."""
    device = problem.device
    start, key = backbone.init([0], device), rng.keys([0], "bench", device=device)
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges), device)
    scoring, clock = ScoreTraining(1e-4, 1e-4, decay=True, clamp=False, epoch="best"), Clock(device)
    _reset_peak(device)
    training = Training(lr=0.01, weight_decay=5e-4)
    fit(
        problem, backbone, start, masks, epochs, training, key,
        scoring=scoring, soft=soft, parts=parts, observer=clock,
    )  # fmt: skip
    return {"epoch_seconds": round(clock.seconds, 3), "peak_gib": _peak_gib(device)}


def _reported(measure: Callable[..., list[dict[str, Any]]], device: torch.device, options: Any) -> list[dict[str, Any]]:
    """Rows as they come, so that a benchmark that is stopped has shown what it knew."""
    rows = measure(device, options)
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(box=None)
    for name in names:
        table.add_column(name, justify="left" if name == "what" else "right")
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in names))
    Console(width=160).print(table)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak_gib(device: torch.device) -> float:
    """Of tensors on a GPU since the last reset, or of the process in main memory."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)


def _machine(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


if __name__ == "__main__":
    main()
