"""Time per level of a whole search: how much of the first level's time a sparse level takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import aceglt
from benchmarks.machine import synchronise

EPOCHS = 100
# As many epochs for each of level and refinement as in 200 and 6 · 30.
ROUNDS = {"rounds": 2, "refine_epochs": 45, "exchange": 0.05, "keep": "last"}
SPARSE = 0.9


class _Clock(aceglt.Observer):
    """Notes when levels begin, by the wall and by the processor."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.began: dict[int, tuple[float, float]] = {}

    def on_phase(self, level: int, phase: str) -> None:
        if level not in self.began:
            synchronise(self._device)
            self.began[level] = (time.perf_counter(), time.process_time())

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        """Nothing to note."""

    def on_test(self, level: int) -> None:
        """Nothing to note."""


def measure(
    method: str, signal: str, runs: int, levels: int, data_root: str | None, device: str, structure: str | None = None
) -> dict[str, Any]:
    """Seconds of every level of a search on CiteSeer along the model axis, GCN with 512 hidden units."""
    clock = _Clock(device)
    # Divided among matrices, little of the second would be in the pruned part, which would be next to no work.
    settings: dict[str, Any] = {"method_options": ROUNDS, "balance": 0.0} if method == "ace" else {}
    settings |= {"structure": structure} if structure else {}
    result = aceglt.search(
        dataset="citeseer", method=method, signal=signal, seeds=runs, levels=levels, epochs=EPOCHS, tickets="none",
        data_root=data_root, device=device, observer=clock, **settings,
    )  # fmt: skip
    clock.on_phase(levels + 1, "end")
    rows = []
    for level in range(1, levels + 1):
        (wall, cpu), (wall_end, cpu_end) = clock.began[level], clock.began[level + 1]
        sparsity = result.results["levels"][level - 2]["model_sparsity"] if level > 1 else 0.0
        rows.append({"start": round(sparsity, 4), "s": round(wall_end - wall, 3), "cpu_s": round(cpu_end - cpu, 3)})
    return {"method": method, "signal": signal, "runs": runs, "epochs": EPOCHS, "levels": rows, **_ratio(rows)}


def _ratio(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Time of the level that starts nearest to 90 % sparsity over the first one's, if there is one near it."""
    sparse = min(rows, key=lambda row: abs(row["start"] - SPARSE))
    if abs(sparse["start"] - SPARSE) > 0.1:
        return {}
    return {key: round(sparse[name] / rows[0][name], 2) for key, name in (("ratio", "s"), ("cpu_ratio", "cpu_s"))}
