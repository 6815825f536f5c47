"""Results of one configuration, searched for other seeds in other runs, as if one search had found them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aceglt.searches.statistics import Readings, highest_winning, highest_winning_per_seed, winning

Results = Mapping[str, Any]
"""The content of results.json, its dense baseline or one of its levels."""

_READINGS = ("val", "test", "epoch")
_PER_SEED = (*_READINGS, "fluctuation", "diagnostics")  # what has lists over seeds in a level


def merge(runs: Sequence[Results], levels: int | None = None, seeds: Collection[int] | None = None) -> dict[str, Any]:
    """The content of one results.json over all seeds, in their order, with verdicts made anew; a seed counts once.

    Only the first `levels` are taken, and of the seeds those in `seeds`, if given. Beside what results.json has, `cost`
    holds lists over seeds: the epochs and the seconds of the whole search, where seeds that were trained together share
    their seconds equally.
    """
    owners = [(run, place) for run, place in _owners(runs) if seeds is None or run["seeds"][place] in seeds]
    first = owners[0][0]
    depth = min(len(run["levels"][:levels]) for run, _ in owners)
    dense = {**first["dense"], **_gather([(run["dense"], place) for run, place in owners], _READINGS)}
    readings = Readings(dense["val"], dense["test"])
    merged = [_level([(run["levels"][i], place) for run, place in owners], readings) for i in range(depth)]
    return {
        **first,
        "seeds": [run["seeds"][place] for run, place in owners],
        "dense": dense,
        "levels": merged,
        "cost": {
            "epochs": [_epochs(run, depth) for run, _ in owners],
            "seconds": [_seconds(run, depth) / len(run["seeds"]) for run, _ in owners],
        },
        "highest_winning": highest_winning(merged),
        "highest_winning_per_seed": highest_winning_per_seed(readings, merged),
    }


def _owners(runs: Sequence[Results]) -> list[tuple[Results, int]]:
    """For each seed, in order, the first run that has it and its place there."""
    owners: dict[int, tuple[Results, int]] = {}
    for run in runs:
        for place, seed in enumerate(run["seeds"]):
            owners.setdefault(seed, (run, place))
    return [owners[seed] for seed in sorted(owners)]


def _level(parts: Sequence[tuple[Results, int]], dense: Readings) -> dict[str, Any]:
    level = {**parts[0][0], **_gather(parts, _PER_SEED)}
    level["seconds"] = sum(part["seconds"] / len(part["val"]) for part, _ in parts)
    return {**level, "winning": winning(dense, Readings(level["val"], level["test"]))}


def _gather(parts: Sequence[tuple[Results, int]], names: Sequence[str]) -> dict[str, Any]:
    """Lists over all seeds from those of the runs, at any depth."""
    return {name: _lists([(part.get(name), place) for part, place in parts]) for name in names}


def _lists(values: Sequence[tuple[Any, int]]) -> Any:
    first = values[0][0]
    if isinstance(first, Mapping):
        return {name: _lists([(value[name], place) for value, place in values]) for name in first}
    return [value[place] for value, place in values] if isinstance(first, list) else first


def _epochs(run: Results, depth: int) -> int:
    return int(run["epochs"] + sum(sum(level["epochs"].values()) for level in run["levels"][:depth]))


def _seconds(run: Results, depth: int) -> float:
    return float(run["dense"]["seconds"] + sum(level["seconds"] for level in run["levels"][:depth]))
