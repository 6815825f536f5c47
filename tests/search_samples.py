"""A tiny graph and searches that take a moment, for the tests of the outer layers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import aceglt
from aceglt.datasets import GraphData, save_npz

TENSORS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")

TINY: dict[str, Any] = {
    "method": "ugs", "axis": "joint", "signal": "labels", "levels": 2, "seeds": 2, "epochs": 3, "hidden": 8,
}  # fmt: skip
"""A search of a moment; `graph()` is its data."""

TIMES = ("seconds", "phases", "sha256")
"""Parts of results.json that differ from run to run."""


def graph(seed: int = 0, nodes: int = 24) -> Data:
    """Two noisy groups of nodes, every edge in both directions, every node in the split."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 2
    x = torch.rand(nodes, 6, generator=generator)
    x[:, 0] += y
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 2) % nodes])
    chords = torch.randint(nodes, (2, nodes), generator=generator)
    chords = chords[:, chords[0] != chords[1]]
    arcs = torch.cat([ring, chords], dim=1)
    part = torch.arange(nodes) // 2 % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    return Data(x=x, y=y, edge_index=torch.unique(torch.cat([arcs, arcs.flip(0)], dim=1), dim=1), **masks)


def npz(folder: Path, **changes: Any) -> Path:
    """The tiny graph as a file."""
    data = graph()
    path = folder / "tiny.npz"
    save_npz(path, GraphData("tiny", *(changes.get(name, getattr(data, name)) for name in TENSORS)))
    return path


def search(data: Any = None, **settings: Any) -> aceglt.SearchResult:
    """Of `graph()` unless another or a file is given; without a report, unless it is asked for: that takes as long."""
    data = graph() if data is None and not settings.get("dataset", "").endswith(".npz") else data
    return aceglt.search(data, device="cpu", **{**TINY, "report": False, **settings})


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def timeless(value: Any) -> Any:
    """results.json without what the clock says."""
    if isinstance(value, dict):
        return {name: timeless(part) for name, part in value.items() if name not in TIMES}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def outcome(run: Path) -> tuple[Any, dict[str, bytes]]:
    """What two runs of one command must share: results without times, and the tickets byte by byte."""
    tickets = {path.name: path.read_bytes() for path in sorted((run / "tickets").iterdir())}
    return timeless(json.loads((run / "results.json").read_text())), tickets


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class Noisy(torch.nn.Module):
    """An own model that draws from torch's generator: at first, and in every pass, for nothing in evaluation."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.first, self.norm = GCNConv(in_features, 4), torch.nn.BatchNorm1d(4)
        self.drop, self.last = torch.nn.Dropout(0.5), GCNConv(4, out_features)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        kept = torch.rand(4) < 0.9 if self.training else torch.rand(4) < 2
        out: torch.Tensor = self.last(kept * self.drop(self.norm(self.first(x, edge_index)).relu()), edge_index)
        return out


def tickets_of(result: aceglt.SearchResult) -> list[Any]:
    """What two searches share that are the same bit by bit."""
    return [(t.masks.edges.tolist(), t.trained.prunable.tolist(), t.metrics) for t in result.tickets]


class Stop(Exception):  # noqa: N818
    """Raised by `Breaks`."""


class Breaks:
    """An observer that raises at the n-th time it is told something."""

    def __init__(self, after: int | None, error: Callable[[], BaseException] = Stop) -> None:
        self.calls, self._after, self._error = 0, after, error

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._after:
            raise self._error()

    def on_phase(self, level: int, phase: str) -> None:
        self._count()

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self._count()

    def on_test(self, level: int) -> None:
        self._count()


def command(*arguments: str | Path) -> list[str]:
    """The command line in a process of its own."""
    return [sys.executable, "-m", "aceglt", *map(str, arguments)]


def environment() -> dict[str, str]:
    """For such a process: this aceglt, as many threads as here, a plain and wide output."""
    here = str(Path(aceglt.__file__).parents[1])
    plain = {"PYTHONPATH": here, "OMP_NUM_THREADS": str(torch.get_num_threads()), "COLUMNS": "200", "NO_COLOR": "1"}
    return {**{k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "ACEGLT_DATA")}, **plain}


def bits_flipped(content: bytes) -> Iterator[bytes]:
    """The content with each of its bits flipped, one at a time."""
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)
