"""What the report knows of a run: results.json read leniently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aceglt.searches.statistics import best_level, mean_std, metric_in_words

READINGS = {"test": "test", "val": "validation"}
PHASES = {"select": "choosing masks", "retrain": "retraining tickets", "total": "whole level"}
SIDES = {"model_sparsity": "weights", "graph_sparsity": "edges"}


@dataclass(frozen=True)
class RunView:
    """One run as the report shows it; `tickets` are paths relative to the report's folder."""

    name: str
    results: dict[str, Any]
    config: dict[str, Any]
    command: str
    tickets: list[str]

    @property
    def dense(self) -> dict[str, Any]:
        """The dense readings and MACs."""
        return dict(self.results["dense"])

    @property
    def levels(self) -> list[dict[str, Any]]:
        """The levels, densest first."""
        return sorted(self.results["levels"], key=lambda level: int(level["level"]))

    @property
    def metric(self) -> str:
        """The metric in words."""
        return metric_in_words(text(self, "metric"))

    @property
    def sparsity(self) -> str:
        """The sparsity that the axis varies; on the joint axis both grow, and the model's is drawn."""
        return "graph_sparsity" if self.results.get("axis") == "graph" else "model_sparsity"

    @property
    def readings(self) -> list[str]:
        """The readings that exist, the one to show first in front."""
        return [key for key in READINGS if self.dense.get(key)]

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The strict winner."""
        return best_level({"levels": [{"winning": {}, **level} for level in self.levels]})

    @property
    def setting(self) -> tuple[str, ...]:
        """What runs must share to be drawn in one chart."""
        return tuple(text(self, key) for key in ("dataset", "backbone", "task", "metric", "axis"))


def by_setting(runs: Sequence[RunView]) -> list[tuple[list[RunView], list[int]]]:
    """The runs that have levels, those of one setting together, and their numbers among all."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, run in enumerate(runs):
        if run.levels:
            groups.setdefault(run.setting, []).append(index)
    return [([runs[i] for i in group], group) for group in groups.values()]


def text(run: RunView, key: str) -> str:
    """A field of results.json as text, a question mark when it is missing."""
    return str(run.results.get(key, "?"))


def seconds_of(level: Mapping[str, Any]) -> dict[str, float]:
    """Seconds per phase of a level; `total` where only the sum is known."""
    phases = level.get("phases")
    if isinstance(phases, Mapping):
        return {phase: float(phases[phase]) for phase in PHASES if phases.get(phase) is not None}
    seconds = level.get("seconds")
    return {} if seconds is None else {"total": float(seconds)}


def changes_of(run: RunView, side: str) -> list[tuple[dict[str, Any], list[float]]]:
    """The levels whose importance fluctuation is known for weights or edges, and that per seed."""
    found = [(level, (level.get("fluctuation") or {}).get(side) or []) for level in run.levels]
    known = [(level, [value for value in values if value is not None]) for level, values in found]
    return [(level, values) for level, values in known if values]


def macs_of(entry: Mapping[str, Any]) -> float | None:
    """MACs of a level or of dense, the mean where they are given per seed."""
    macs = entry.get("macs")
    if isinstance(macs, list):
        return mean_std(macs)[0] if macs else None
    return None if macs is None else float(macs)
