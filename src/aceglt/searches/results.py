"""results.json: what a search found, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aceglt.config.own import is_own
from aceglt.files.schema import COUNT, FLAG, NUMBER, OBJECT, TEXT, Kind, check
from aceglt.searches.statistics import (
    CRITERIA,
    Readings,
    highest_winning,
    highest_winning_per_seed,
    mean_std,
    unfinished,
    winning,
)

if TYPE_CHECKING:
    from aceglt.problems.base import Problem
    from aceglt.searches.levels import Search
    from aceglt.searches.state import LevelRecord, State

_TEXTS = ("dataset", "backbone", "method", "axis", "metric", "task", "signal", "preset")
_POSITIVE = Kind("above 0", lambda value: NUMBER.fits(value) and value > 0)
_READINGS = {"val": [NUMBER], "test": ([NUMBER],), "epoch": [COUNT], "macs": _POSITIVE}
_SPARSITIES = {"model_sparsity": NUMBER, "graph_sparsity": NUMBER}
_LEVEL = {
    **_READINGS,
    **_SPARSITIES,
    "level": COUNT,
    "seconds": NUMBER,
    "phases": {"select": NUMBER, "retrain": NUMBER},
    "epochs": {"select": COUNT, "retrain": COUNT},
    "winning": dict.fromkeys(CRITERIA, (FLAG,)),
    "diagnostics": OBJECT,
}
_CHOICE = {key: [(NUMBER,)] for key in ("distinct", "ties_at_threshold", "noise_correlation")}
_SIDES = ("weights", "edges")
_FLUCTUATION = {side: [(NUMBER,)] for side in _SIDES}
_EXCERPT = {"seed": COUNT, "edges": [[COUNT]]}
_SEEN = {"alive": [FLAG], "importance": ([(NUMBER,)],), "rank": ([(NUMBER,)],)}
_MOST_EDGES = 1000
_LISTS = ("val", "test", "epoch")
_GRAPH = {**dict.fromkeys(("nodes", "edges", "features", "outputs"), COUNT), "split": OBJECT}
_RESULTS = {
    **dict.fromkeys(_TEXTS, TEXT),
    "finished": FLAG,
    "epochs": COUNT,
    "seeds": [COUNT],
    "dense": _READINGS,
    "levels": [_LEVEL],
    "highest_winning_per_seed": ({key: [NUMBER] for key in _SPARSITIES},),
    "highest_winning": dict.fromkeys(CRITERIA, ({**_SPARSITIES, "level": COUNT},)),
}


def check_results(results: Mapping[str, Any]) -> None:
    """Raise ValueError unless this is what `summarise` makes, possibly with more in it.

    Earlier results lack label, graph, teacher, fluctuation, excerpt and warnings; of the diagnostics, a method may
    leave out any, or say more.
    """
    check(results, _RESULTS, "results")
    check(results.get("label"), (TEXT,), "label")
    check(results.get("graph"), (_GRAPH,), "graph")
    split = (results.get("graph") or {}).get("split", {})
    check(split, dict.fromkeys(split, COUNT), "graph.split")
    entries = {"dense": results["dense"]} | {f"level {level['level']}": level for level in results["levels"]}
    if len(entries) != 1 + len(results["levels"]):
        raise ValueError("two levels have the same number")
    if not results["seeds"]:
        raise ValueError("there are no seeds")
    check(results.get("warnings", []), [TEXT], "warnings")
    check_taught(taught := results.get("teacher"), "teacher")
    check(results.get("excerpt"), (_EXCERPT,), "excerpt")
    edges = results["excerpt"]["edges"] if results.get("excerpt") else []
    if len(edges) > _MOST_EDGES or any(len(pair) != 2 for pair in edges):
        raise ValueError(f"excerpt.edges must be at most {_MOST_EDGES} pairs of nodes")
    for level in results["levels"]:
        for side in _SIDES:
            found = level["diagnostics"].get(side) or {}
            check(found, OBJECT, f"diagnostics.{side}")
            check(found, {name: kind for name, kind in _CHOICE.items() if name in found}, f"diagnostics.{side}")
        seen = level.get("excerpt")
        check(level.get("fluctuation"), (_FLUCTUATION,), "fluctuation")
        check(seen, (_SEEN,), "excerpt of a level")
        if seen and any(seen[name] is not None and len(seen[name]) != len(edges) for name in _SEEN):
            raise ValueError("the excerpt of a level is not of the excerpt's edges")
    if len({entry["test"] is None for entry in entries.values()}) == 2:
        raise ValueError("test was read at some levels and not at others")
    lists = {f"{reading} of {name}": entry[reading] for name, entry in entries.items() for reading in _LISTS}
    for name, found in (lists | (taught or {})).items():
        if found is not None and len(found) != len(results["seeds"]):
            raise ValueError(f"{name} has {len(found)} values for {len(results['seeds'])} seeds")


def check_taught(taught: Any, name: str) -> None:
    """Raise ValueError unless this says how teachers were changed, or nothing."""
    check(taught, ({key: [FLAG] for key in taught} if isinstance(taught, dict) else OBJECT,), name)


def per_level(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for dense (level 0) and each level: mean and standard deviation over seeds, and whether it wins."""
    rows = []
    for entry in _entries(results):
        row = {name: entry.get(name) for name in ("level", *_SPARSITIES, "macs", "seconds")}
        for reading in ("val", "test"):
            mean, std = mean_std(entry[reading]) if entry[reading] else (None, None)
            row |= {reading: mean, f"{reading}_std": std}
        rows.append({**row, **{f"wins_{name}": entry["winning"].get(name) for name in CRITERIA}})
    return rows


def per_seed(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each level (0 is dense) and seed."""
    return [
        {"level": entry["level"], "seed": seed, **{name: entry[name] for name in _SPARSITIES}}
        | {name: entry[name][i] if entry.get(name) else None for name in ("val", "test", "epoch")}
        | {"macs": entry["macs"], "wins_strict": entry["winning"].get("strict")}
        for entry in _entries(results)
        for i, seed in enumerate(results["seeds"])
    ]


def _entries(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    dense = {"level": 0, **dict.fromkeys(_SPARSITIES, 0.0), "winning": {}, **results["dense"]}
    return [dense, *results["levels"]]


def summarise(search: Search, state: State, finished: bool) -> dict[str, Any]:
    """The content of results.json: fractions in [0, 1], lists over seeds in the order of `seeds`."""
    assert state.dense is not None
    c, dense = search.config, state.dense
    levels = [_level(search, record, dense) for record in state.records]
    warning = unfinished(c.training.epochs, dense.epoch, c.preset)
    return {
        "format": 1,
        "finished": finished,
        "label": search.method.name if is_own(c.method) else c.label,
        "graph": _graph(search.problem),
        "dataset": c.dataset,
        "backbone": c.backbone,
        "method": c.method,
        "axis": c.pruning.axis,
        "metric": search.problem.metric,
        "task": c.task,
        "signal": c.scoring.signal,
        **({"teacher": dict(state.taught)} if state.taught else {}),
        **({} if c.pruning.structure is None else {"structure": c.pruning.structure}),
        "preset": c.preset,
        "epochs": c.training.epochs,
        "seeds": list(c.seeds),
        "dense": {**asdict(dense), "macs": search.macs()},
        "excerpt": {"seed": c.seeds[0], "edges": search.excerpt.ends(search.problem.graph)},
        "levels": levels,
        "highest_winning_per_seed": highest_winning_per_seed(dense, levels),
        "highest_winning": highest_winning(levels),
        "warnings": [warning] if warning else [],
    }


def _graph(problem: Problem) -> dict[str, Any]:
    """Sizes: of the whole graph, and of the split's nodes (in link prediction, edges)."""
    place = problem.measured("test")
    sizes = {split: getattr(place, split, None) for split in ("train", "val", "test")}
    return {
        "nodes": place.graph.num_nodes,
        "edges": place.graph.num_edges,
        "features": problem.x.shape[1],
        "outputs": problem.out_features,
        "split": {split: place.graph.num_edges if of is None else of.shape[-1] for split, of in sizes.items()},
    }


def _level(search: Search, record: LevelRecord, dense: Readings) -> dict[str, Any]:
    outcome, full = record.outcome, search.full_graph_sparsity(record.alive, record.unseen)
    model, graph = record.sparsity(search.total)
    return {
        "level": record.level,
        "model_sparsity": model,
        "graph_sparsity": graph,
        **({} if full is None else {"graph_sparsity_full": full}),
        "val": outcome.val,
        "test": outcome.test,
        "epoch": outcome.epoch,
        "macs": search.macs(record.alive, unseen=record.unseen)
        if record.structure is None
        else _mean(record.structure["macs"]),
        **({} if record.structure is None else {"units": record.structure["units"]}),
        "seconds": record.select_seconds + outcome.seconds,
        "phases": {"select": record.select_seconds, "retrain": outcome.seconds},
        "epochs": {"select": record.select_epochs, "retrain": _trained(search, outcome.epoch)},
        "winning": winning(dense, outcome),
        "fluctuation": record.fluctuation,
        "excerpt": record.excerpt,
        "diagnostics": record.diagnostics,
    }


def _mean(counts: Sequence[int]) -> int:
    return int(sum(counts) / len(counts) + 0.5)


def _trained(search: Search, best: Sequence[int]) -> int:
    """Epochs of a training on labels, of the seed that went on longest. An epoch is judged in the next one, and
    whether a training is over is looked up every few epochs on a GPU."""
    training, every = search.config.training, search.backend.look_every
    if training.early_stopping is None:
        return training.epochs
    waited = max(best) + training.early_stopping + 1
    return min(training.epochs, -(-waited // every) * every)
