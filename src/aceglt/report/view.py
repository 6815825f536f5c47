"""What the report knows of a run: results.json read leniently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from aceglt.config import METHOD_OPTIONS, STEERING, with_options
from aceglt.searches.statistics import best_level, mean_std, metric_in_words

READINGS = {"test": "test", "val": "validation"}
PHASES = {"select": "choosing masks", "retrain": "retraining tickets", "total": "whole level"}


NAMING = ("dataset", "backbone", "task", "axis", "preset")
"""What is added to the names of runs that differ in it."""
_FIRST = ("ace", "ugs", "random", "gebt")  # colours, whatever methods are added
NEAR_THE_END = 0.95
"""The share of the epochs after which a best one suggests that more would help."""


@dataclass(frozen=True)
class RunView:
    """One run as the report shows it; `tickets` are paths relative to the report's folder."""

    name: str
    """What ran; runs of one page are told apart by `distinct_names`."""
    results: dict[str, Any]
    config: dict[str, Any]
    command: str
    tickets: list[str]
    environment: dict[str, Any] = field(default_factory=dict)
    """Versions, device and date, as environment.json has them."""
    savings: dict[str, Any] = field(default_factory=dict)
    """What the best ticket saves, as savings.json has it; empty where it was not measured."""
    folder: str = ""
    """Where it lies."""
    series: str = ""
    """What ran, without what tells runs apart; runs of one series have one colour."""

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
    def varies(self) -> tuple[str, ...]:
        """The sparsities that grow from level to level."""
        both = ("model_sparsity", "graph_sparsity")
        return both if self.results.get("axis") == "joint" else (self.sparsity,)

    @property
    def readings(self) -> list[str]:
        """The readings that exist, the one to show first in front."""
        return [key for key in READINGS if self.dense.get(key)]

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The strict winner."""
        return best_level({"levels": [{"winning": {}, **level} for level in self.levels]})

    @property
    def near_the_end(self) -> list[str]:
        """Numbers of the levels whose best epoch, in the mean over seeds, is close to the last; of dense, results.json
        has a warning."""
        limit = NEAR_THE_END * float(self.results.get("epochs") or 0)
        known = [(str(level["level"]), mean_std(level["epoch"])[0]) for level in self.levels if level.get("epoch")]
        return [name for name, epoch in known if epoch > limit > 0]

    @property
    def setting(self) -> tuple[str, ...]:
        """What runs must share to be drawn in one chart."""
        return tuple(text(self, key) for key in ("dataset", "backbone", "task", "metric", "axis"))


def by_setting(runs: Sequence[RunView]) -> list[tuple[list[RunView], list[int]]]:
    """The runs that have levels, those of one setting together, and the places of their colours in the palette."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, run in enumerate(runs):
        if run.levels:
            groups.setdefault(run.setting, []).append(index)
    places = colours(runs)
    return [([runs[i] for i in group], [places[i] for i in group]) for group in groups.values()]


def colours(runs: Sequence[RunView]) -> list[int]:
    """The place of each run's colour in the palette: a built-in method's own, whatever else is on the page; a second
    series of a method, and methods of one's own, take those that are left. Runs of one chart never share one."""
    fixed = {name: place for place, name in enumerate(dict.fromkeys((*_FIRST, *METHOD_OPTIONS)))}
    given: dict[str, int] = {}
    for run in runs:
        wanted = fixed.get(text(run, "method"))
        if wanted is not None and wanted not in given.values():
            given.setdefault(run.series or run.name, wanted)
    free = (place for place in count(len(_FIRST)) if place not in given.values())
    for run in runs:
        if (run.series or run.name) not in given:
            given[run.series or run.name] = next(free)
    return [given[run.series or run.name] for run in runs]


def distinct_names(runs: Sequence[RunView]) -> list[RunView]:
    """The runs with names of their own: what ran and the settings that tell it from its like anywhere, then where
    (dataset, axis …), then the folder where that is not enough, or a number where there is none."""
    places = [tuple(text(run, field) for field in NAMING) for run in runs]
    alike: dict[Any, list[int]] = {}
    for i, (run, place) in enumerate(zip(runs, places, strict=True)):
        alike.setdefault((run.series or run.name, place), []).append(i)
    settings = [with_options(run.config) for run in runs]
    differing: dict[str, dict[str, None]] = {}  # by what ran, the settings that it does not have once in one place
    for (name, _), group in alike.items():
        known = [key for i in group for key in settings[i] if key not in STEERING]
        told = [key for key in dict.fromkeys(known) if len({repr(settings[i].get(key)) for i in group}) > 1]
        differing.setdefault(name, {}).update(dict.fromkeys(told))
    series = [
        ", ".join([name, *(f"{key} {_short(of[key])}" for key in differing[name] if of.get(key) is not None)])
        for name, of in ((run.series or run.name, of) for run, of in zip(runs, settings, strict=True))
    ]
    several = [i for i in range(len(NAMING)) if len({place[i] for place in places}) > 1]
    names = [", ".join([one, *(_short(place[i]) for i in several)]) for one, place in zip(series, places, strict=True)]
    last = [run.folder or f"#{i}" for i, run in enumerate(runs, start=1)]
    for i, more in enumerate(last):
        if names.count(names[i]) > 1:
            series[i] = f"{series[i]}, {more}"
    full = [f"{name}, {more}" if names.count(name) > 1 else name for name, more in zip(names, last, strict=True)]
    return [replace(run, name=n, series=s) for run, n, s in zip(runs, full, series, strict=True)]


def setting_in_words(run: RunView) -> str:
    """Where it searched."""
    dataset, backbone, task, _, axis = run.setting
    return f"{_short(dataset)}, {backbone}, {task} task, {axis} axis"


def short_settings(runs: Sequence[RunView]) -> list[str]:
    """The settings of runs, by the graph and by what else they differ in."""
    several = [i for i in range(len(runs[0].setting)) if i == 0 or len({run.setting[i] for run in runs}) > 1]
    return [", ".join(_short(run.setting[i]) for i in several) for run in runs]


def short_names(runs: Sequence[RunView]) -> list[str]:
    """The names of runs of one setting without what they share, where that tells them apart."""
    series = [run.series or run.name for run in runs]
    return series if len(set(series)) == len(series) else [run.name for run in runs]


def _short(value: Any) -> str:
    """A graph in a file by the file's name."""
    return Path(str(value)).name if str(value).endswith(".npz") else str(value)


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


def warnings(runs: Sequence[RunView]) -> list[str]:
    """What results.json warns of, each once, with the runs that it concerns."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for words in run.results.get("warnings", []):
            found.setdefault(words, []).append(run.name)
    whom = {words: "" if len(names) == len(runs) else f"{', '.join(names)}: " for words, names in found.items()}
    return [f"Warning: {whom[words]}{words}" for words in found]


def macs_of(entry: Mapping[str, Any]) -> float | None:
    """MACs of a level or of dense, the mean where they are given per seed."""
    macs = entry.get("macs")
    if isinstance(macs, list):
        return mean_std(macs)[0] if macs else None
    return None if macs is None else float(macs)
