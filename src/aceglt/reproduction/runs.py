"""The run directories behind a reproduction: found by their configuration, continued, and put together over seeds.

Folders are named after everything in the configuration but the seeds, so tables and figures that need the same search
share it, and runs that were made elsewhere can be copied beside those here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aceglt.config import Config
from aceglt.errors import RunError
from aceglt.files import short_digest
from aceglt.reproduction.cells import Cell, Results, Scale
from aceglt.runner import search
from aceglt.runs.directory import RunDir, finished_results, read_json, results_of
from aceglt.searches.observer import Observer
from aceglt.searches.statistics import Readings, highest_winning, highest_winning_per_seed, winning
from aceglt.training.memory import PLANNED

Observe = Callable[[Cell, Config], AbstractContextManager[Observer | None]]
"""Told about each search before it starts; what it gives is told about its progress."""

_READINGS = ("val", "test", "epoch")
_PER_SEED = (*_READINGS, "fluctuation", "diagnostics")  # what has lists over seeds in a level


@dataclass(frozen=True)
class FoundRun:
    """A run directory of a configuration."""

    path: Path
    config: Config
    data: str
    """Fingerprint of the graph."""
    finished: bool

    def has(self, levels: int) -> bool:
        """Whether nothing is left to do for so many levels."""
        return self.finished and self.config.stopping.levels >= levels


def find(root: Path, cell: Cell, scale: Scale) -> list[FoundRun]:
    """The run directories of a cell, whatever their seeds."""
    config = cell.config(scale)
    paths = sorted(path.parent for path in _folder(root, config).glob("*/config.json"))
    if not paths:
        return []
    choices = cell.choices(scale)
    open_fields = ("seeds", *(name for name in PLANNED if choices.get(name) is None))
    mine = _without(config, open_fields)
    runs = [run for path in paths if _without((run := _read(path)).config, open_fields) == mine]
    for run in runs[1:]:
        if run.data != runs[0].data:
            raise RunError(f"{run.path} and {runs[0].path} are about different data; move one of them elsewhere")
    return runs


def collect(root: Path, cell: Cell, scale: Scale) -> dict[str, Any] | None:
    """The results over the seeds of all finished runs of a cell; None if there are none."""
    runs = find(root, cell, scale)
    if not runs:
        return None
    levels = cell.config(scale).stopping.levels
    done = [run for run in runs if run.has(levels)]
    return merge([results_of(run.path) for run in done], levels) if done else None


def missing(root: Path, cell: Cell, scale: Scale) -> list[tuple[Path, tuple[int, ...]]]:
    """What is to be searched for the scale's seeds: run directories, to continue or new, and their seeds."""
    config = cell.config(scale)
    open_seeds, jobs = list(config.seeds), []
    runs = find(root, cell, scale)
    for run in sorted(runs, key=lambda run: not run.has(config.stopping.levels)):
        mine = run.config.seeds
        done = run.has(config.stopping.levels)
        if not set(mine) & set(open_seeds) or not (done or set(mine) <= set(config.seeds)):
            continue
        if not done:
            jobs.append((run.path, mine))
        open_seeds = [seed for seed in open_seeds if seed not in mine]
    if open_seeds:
        jobs.append((_folder(root, config) / f"seeds-{_span(open_seeds)}", tuple(open_seeds)))
    return jobs


def complete(root: Path, cell: Cell, scale: Scale, observe: Observe, **place: Any) -> None:
    """Search what a cell still lacks; `place` says where: device, data_root, runs_at_once."""
    config = cell.config(scale)
    for path, seeds in missing(root, cell, scale):
        choices = {**cell.choices(scale), "seeds": seeds}
        path.parent.mkdir(parents=True, exist_ok=True)
        with observe(cell, config.replace(seeds=seeds)) as observer:
            search(out=path, preset=scale.preset, tickets="none", observer=observer, progress=False, **place, **choices)


def _folder(root: Path, config: Config) -> Path:
    digest = short_digest(json.dumps(_without(config, ("seeds",)), sort_keys=True))
    parts = (Path(config.dataset).stem, config.backbone, config.pruning.axis, config.method, config.task, digest)
    return root / "-".join(parts)


def _without(config: Config, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in config.identity().items() if name not in names}


def _read(path: Path) -> FoundRun:
    run = RunDir(path)
    data = str(read_json(run.config).get("data"))
    return FoundRun(path, run.read_config(), data, finished_results(path) is not None)


def _span(seeds: Sequence[int]) -> str:
    """`0-4` for seeds in a row, `0,4,7` for others; shortened where a name would get too long."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    text = ",".join(map(str, seeds))
    return text if len(text) <= 60 else f"{seeds[0]}-and-{len(seeds) - 1}-more-{short_digest(text)}"


def merge(runs: Sequence[Results], levels: int | None = None, seeds: Collection[int] | None = None) -> dict[str, Any]:
    """The content of one results.json over all seeds, in their order, with verdicts made anew; a seed counts once.

    Only the first `levels` are taken, and of the seeds those in `seeds`, if given. Beside what results.json has, `cost`
    holds lists over seeds: the epochs and the seconds of the whole search, where seeds that were trained together share
    their seconds equally.
    """
    by_seed: dict[int, tuple[Results, int]] = {}  # the first run that has it, and its place there
    for run in runs:
        for place, seed in enumerate(run["seeds"]):
            if seeds is None or seed in seeds:
                by_seed.setdefault(seed, (run, place))
    owners = [by_seed[seed] for seed in sorted(by_seed)]
    first = owners[0][0]
    depth = min(len(run["levels"][:levels]) for run, _ in owners)
    dense = {**first["dense"], **_gathered([(run["dense"], place) for run, place in owners], _READINGS)}
    readings = Readings(dense["val"], dense["test"])
    merged = [_merged_level([(run["levels"][i], place) for run, place in owners], readings) for i in range(depth)]
    cost: dict[str, list[float]] = {"epochs": [], "seconds": []}
    for run, _ in owners:
        done = run["levels"][:depth]
        cost["epochs"].append(run["epochs"] + sum(sum(level["epochs"].values()) for level in done))
        seconds = run["dense"]["seconds"] + sum(level["seconds"] for level in done)
        cost["seconds"].append(seconds / len(run["seeds"]))
    return {
        **first,
        "seeds": sorted(by_seed),
        "dense": dense,
        "levels": merged,
        "cost": cost,
        "highest_winning": highest_winning(merged),
        "highest_winning_per_seed": highest_winning_per_seed(readings, merged),
    }


def _merged_level(parts: Sequence[tuple[Results, int]], dense: Readings) -> dict[str, Any]:
    level = {**parts[0][0], **_gathered(parts, _PER_SEED)}
    level["seconds"] = sum(part["seconds"] / len(part["val"]) for part, _ in parts)
    return {**level, "winning": winning(dense, Readings(level["val"], level["test"]))}


def _gathered(values: Sequence[tuple[Any, int]], names: Sequence[str] | None = None) -> Any:
    """Lists over all seeds from those of the runs, at any depth; of mappings, what is under the names, or all."""
    first = values[0][0]
    if isinstance(first, Mapping):
        return {name: _gathered([(value.get(name), place) for value, place in values]) for name in names or first}
    return [value[place] for value, place in values] if isinstance(first, list) else first
