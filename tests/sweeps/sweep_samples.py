"""Small grids and what two sweeps of one grid must share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_samples import npz, timeless

from aceglt.sweeps.grid import GridCell


def grid(folder: Path, **changes: Any) -> dict[str, Any]:
    """Two methods × two axes on the tiny graph."""
    small = {"epochs": 3, "hidden": 8, "levels": 2, "seeds": 2, "signal": "labels"}
    return {
        "datasets": [str(npz(folder))],
        "methods": ["random", "ugs"],
        "axes": ["model", "joint"],
        **small,
        **changes,
    }


def merged(sweep: Path) -> list[dict[str, Any]]:
    """The cells of sweep.json, without what the clock says."""
    return [timeless(cell) for cell in json.loads((sweep / "sweep.json").read_text())["cells"]]


def tickets(sweep: Path) -> dict[str, bytes]:
    return {str(path.relative_to(sweep)): path.read_bytes() for path in sorted(sweep.glob("runs/*/tickets/*"))}


class Watches:
    """An observer that remembers, and does something when searches are at certain levels."""

    interval = 0.05

    def __init__(self, act: Callable[[Mapping[str, int]], None] = lambda levels: None) -> None:
        self.act = act
        self.finished: list[str] = []
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.failures: list[tuple[str, str, bool]] = []

    def on_plan(self, cells: Sequence[GridCell], finished: Sequence[GridCell], begun: Mapping[str, str]) -> None:
        self.finished = [cell.name for cell in finished]
        self.begun = list(begun.values())

    def on_end(self, name: str) -> None:
        self.ended.append(name)

    def on_failure(self, name: str, problem: str, again: bool) -> None:
        self.failures.append((name, problem, again))

    def on_levels(self, levels: Mapping[str, int]) -> None:
        self.act(levels)
