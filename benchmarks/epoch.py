"""Time per epoch and peak memory on the machine at hand: `python -m benchmarks.epoch [--json FILE]`.

Score training with validation, as a search does it, for each backbone, dataset and number of runs. Each figure is the
fastest of three repetitions, because other work on the machine only ever adds time. Datasets that are not present are
left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from aceglt import datasets, rng
from aceglt.backbones import build
from aceglt.masks import Counts, Masks
from aceglt.problem import Problem
from aceglt.train import fit
from aceglt.update import Scoring, Training

TRAINING = Training(lr=0.01, weight_decay=5e-4)
SCORING = Scoring(1e-4, 1e-4, decay=True, clamp=False, epoch="best")


def measure(problem: Problem, backbone_name: str, runs: int, epochs: int, repeat: int = 3) -> dict[str, Any]:
    """Milliseconds per epoch of plain and of score training, all runs together, and the process's peak memory."""
    seeds = range(runs)
    backbone = build(backbone_name, problem.x.shape[1], problem.out_features, 512)
    start, key = backbone.init(seeds, problem.device), rng.keys(seeds, "bench", device=problem.device)
    masks = Masks.full(runs, Counts(backbone.prunable.size, problem.graph.num_edges), problem.device)
    row: dict[str, Any] = {"dataset": problem.name, "backbone": backbone_name, "runs": runs}
    for name, scoring in (("train_ms", None), ("score_ms", SCORING)):
        times = []
        for _ in range(repeat):
            began = time.perf_counter()
            fit(problem, backbone, start, masks, epochs, TRAINING, key, scoring=scoring)
            if problem.device.type == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter() - began) / epochs * 1e3)
        row[name] = round(min(times), 2)
    row["peak_mib"] = _peak_mib(problem.device)
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbones", default="gcn,gin")
    parser.add_argument("--runs", default="1", help="numbers of runs, such as 1,10")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-root")
    parser.add_argument("--json", type=Path, help="write the figures and the machine's description there")
    options = parser.parse_args(arguments)
    rows = []
    for name, present, _ in datasets.available(options.data_root):
        if not present or name not in ("cora", "citeseer", "pubmed"):
            continue
        problem = Problem.from_data(datasets.load(name, options.data_root)).to(options.device)
        for backbone in options.backbones.split(","):
            for runs in map(int, options.runs.split(",")):
                rows.append(measure(problem, backbone, runs, options.epochs))
    _print(rows)
    if options.json:
        options.json.write_text(json.dumps({"machine": _machine(options.device), "rows": rows}, indent=1) + "\n")


def _print(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None)
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


def _peak_mib(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or "cpu"
    return {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


if __name__ == "__main__":
    main()
