"""One epoch with validation, ours beside the same network in plain PyG, in one alternating run:
`python -m benchmarks.deep [--dataset …] [--backbone gcn] [--layers 3] [--hidden 512] [--norm layer] [--seeds 5] …`.

Ours trains scores on the teacher's signal, as a search does it by default, beside the floor of that, and weights alone,
which PyG does: one seed, with `edge_index` and, for GCN, with a normalised CSR adjacency, its fastest form on a CPU; on
a GPU also compiled by torch. Ours trains all seeds at once; a GPU records the epoch as a CUDA graph. Times are the
fastest of the rounds, per seed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from aceglt.backbones import Backbone, build
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem, Soft
from aceglt.tickets.plain import plain_model
from aceglt.training.fit import fit
from benchmarks import floor, machine
from benchmarks.epoch import SCORING, problem_of

TRAINING = Training(lr=1e-3, weight_decay=5e-5)
OURS, SCORES = "aceglt", "aceglt, scores with a teacher"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    problem = problem_of(options.dataset, options.data_root, options.device)
    more = {name: getattr(options, name) for name in ("hidden", "layers", "norm", "skip", "output", "dropout")}
    more |= {"bias": True, **({"heads": options.heads} if options.backbone == "gat" else {})}
    backbone = build(options.backbone, problem.x.shape[1], problem.out_features, **more)
    ours = {SCORES: Ours(problem, backbone, options.seeds, scored=True), OURS: Ours(problem, backbone, options.seeds)}
    forms = ("edge_index", "CSR", *(("CSR, compiled",) if problem.device.type == "cuda" else ()))
    names = [name for name in forms if name not in options.without]
    names = [name for name in names if name == "edge_index" or options.backbone == "gcn"]
    epochs = {f"PyG, {name}": pyg_epoch(problem, backbone, name) for name in names}
    times: dict[str, list[float]] = {name: [] for name in (*ours, *epochs)}
    for _ in range(options.rounds):
        for name, epoch in epochs.items():
            times[name] += [seconds(epoch, problem.device) for _ in range(options.epochs)]
        for name, each in ours.items():
            times[name] += each.times(options.epochs)
        if options.json:
            record(options, times)
    least = None
    if not any(stage.attends for stage in backbone.chain):
        least = floor.work(problem, backbone, teacher=True).floor_ms(machine.rates(options.device), options.seeds)
    table(options, times, least)


def record(options: argparse.Namespace, times: dict[str, list[float]]) -> None:
    """Milliseconds per seed, the fastest and all of them, beside what was asked for and the machine."""
    rows = {
        name: {
            "seeds": seeds,
            "ms_per_seed": round(1e3 * min(taken) / seeds, 2),
            "all_ms": [round(1e3 * s, 1) for s in taken],
        }
        for name, taken in times.items()
        for seeds in [options.seeds if name in (OURS, SCORES) else 1]
    }
    asked = {name: value for name, value in vars(options).items() if name not in ("json", "data_root")}
    made = {"options": asked, "machine": machine.describe(options.device), "rows": rows}
    options.json.write_text(json.dumps(made, indent=1) + "\n")


def table(options: argparse.Namespace, times: dict[str, list[float]], least: float | None) -> None:
    """`least` are the milliseconds that score training takes at least."""
    mine = min(times[OURS]) / options.seeds
    shown = Table(title=f"{options.backbone} {options.layers} × {options.hidden} on {options.dataset}", box=None)
    for column in ("", "seeds", "ms per epoch", "ms per seed", "times ours"):
        shown.add_column(column, justify="right")
    for name, taken in times.items():
        seeds, best = options.seeds if name in (OURS, SCORES) else 1, min(taken)
        shown.add_row(name, f"{seeds}", f"{1e3 * best:.1f}", f"{1e3 * best / seeds:.1f}", f"{best / seeds / mine:.2f}")
    Console(width=100).print(shown)
    if least is not None:
        print(f"floor of {SCORES}: {least:.2f} ms; over it: {1e3 * min(times[SCORES]) / least:.1f}")


class Ours:
    """Trainings of some epochs, of which each is timed."""

    def __init__(self, problem: Problem, backbone: Backbone, seeds: int, scored: bool = False) -> None:
        """Of weights alone, or of scores with the teacher's signal too."""
        device, counts = problem.device, Counts(backbone.prunable.size, problem.graph.num_edges)
        self._given = problem, backbone, backbone.init(range(seeds), device), Masks.full(seeds, counts, device)
        self._key, self._device = rng.keys(range(seeds), "bench", device=device), device
        self._more: dict[str, Any] = {}
        if scored:
            shape = seeds, problem.graph.num_nodes, problem.out_features
            self._more = {"scoring": SCORING, "soft": Soft(torch.full(shape, 1 / shape[2], device=device), 10.0)}

    def times(self, epochs: int) -> list[float]:
        """Seconds of all seeds together; the first epochs, which also prepare and record, are left out."""
        self._ends: list[float] = []
        few = 2 if self._device.type == "cpu" else 5
        count = epochs if self._device.type == "cpu" else 20 * epochs
        more = {**self._more, "observer": self, "runs_at_once": len(self._key)}
        fit(*self._given, few + count, TRAINING, self._key, **more)
        wait(self._device)
        if self._device.type == "cuda":  # epochs are only begun when the observer is told of them
            return [(time.perf_counter() - self._ends[few - 1]) / count]
        return [after - before for before, after in zip(self._ends[few - 1 :], self._ends[few:], strict=False)]

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        if self._device.type == "cuda" and epoch == 5:
            wait(self._device)
        self._ends.append(time.perf_counter())


def pyg_network(problem: Any, backbone: Backbone, form: str) -> tuple[Any, Tensor]:
    """The network with initial weights of its own, and what it passes messages over."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    edges = problem.graph.edges
    adjacency: Tensor = torch.cat([edges, edges.flip(0)], dim=1)
    model: Any = plain_model(backbone).to(problem.device)
    if form != "edge_index":  # normalised once
        index, weight = gcn_norm(adjacency, None, problem.graph.num_nodes)
        size = problem.graph.num_nodes, problem.graph.num_nodes
        adjacency = torch.sparse_coo_tensor(index.flip(0), weight, size, device=problem.device).coalesce()
        adjacency = adjacency.to_sparse_csr()
        for conv in model.convs:
            conv.normalize = False
    return (torch.compile(model) if form == "CSR, compiled" else model), adjacency


def pyg_epoch(problem: Any, backbone: Backbone, form: str) -> Callable[[], None]:
    """A step of Adam on the training nodes and accuracy on the validation nodes."""
    torch.manual_seed(0)
    model, adjacency = pyg_network(problem, backbone, form)
    optimiser = torch.optim.Adam(model.parameters(), lr=TRAINING.lr, weight_decay=TRAINING.weight_decay)
    x, y, train, val = problem.x.to_dense(), problem.y, *(problem.reads(split) for split in ("train", "val"))
    correct = torch.zeros((), device=problem.device)

    def epoch() -> None:
        outputs = pyg_step(model, optimiser, x, adjacency, y, train)
        correct.copy_((outputs[val].argmax(dim=1) == y[val]).float().mean())

    return epoch


def pyg_step(model: Any, optimiser: Any, x: Tensor, adjacency: Tensor, y: Tensor, train: Any) -> Tensor:
    """A step of Adam on the training nodes, and what the model gives for all nodes after it."""
    model.train()
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(model(x, adjacency)[train], y[train]).backward()
    optimiser.step()
    model.eval()
    with torch.no_grad():
        outputs: Tensor = model(x, adjacency)
    return outputs


def seconds(work: Callable[[], None], device: torch.device) -> float:
    wait(device)
    began = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - began


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deep", description=__doc__)
    parser.add_argument("--dataset", default="amazon-computers")
    parser.add_argument("--data-root")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backbone", default="gcn")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--norm", default="layer")
    parser.add_argument("--skip", default="none")
    parser.add_argument("--output", default="linear")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2, help="of each form in a round")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without", action="append", default=[], help="edge_index or CSR")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
