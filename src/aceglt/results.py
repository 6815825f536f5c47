"""results.json: what a search found, as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aceglt.levels import LevelRecord, Search, State
from aceglt.stats import Readings, highest_winning, highest_winning_per_seed, winning


def summarise(search: Search, state: State, finished: bool) -> dict[str, Any]:
    """The content of results.json: fractions in [0, 1], lists over seeds in the order of `seeds`."""
    assert state.dense is not None
    c, dense = search.config, Readings(state.dense.val, state.dense.test)
    levels = [_level(search, record, dense) for record in state.records]
    return {
        "format": 1,
        "finished": finished,
        "dataset": c.dataset,
        "backbone": c.backbone,
        "method": c.method,
        "axis": c.axis,
        "metric": search.problem.metric,
        "task": c.task,
        "signal": c.signal,
        "preset": c.preset,
        "epochs": c.epochs,
        "seeds": list(c.seeds),
        "dense": {**asdict(state.dense), "macs": search.macs()},
        "excerpt": {"seed": c.seeds[0], "edges": search.excerpt.ends(search.problem.graph)},
        "levels": levels,
        "highest_winning_per_seed": highest_winning_per_seed(dense, levels),
        "highest_winning": highest_winning(levels),
    }


def _level(search: Search, record: LevelRecord, dense: Readings) -> dict[str, Any]:
    outcome, total = record.outcome, search.total
    full = search.full_graph_sparsity(record.alive)
    return {
        "level": record.level,
        "model_sparsity": 1 - record.alive.weights / total.weights,
        "graph_sparsity": 1 - record.alive.edges / total.edges,
        **({} if full is None else {"graph_sparsity_full": full}),
        "val": outcome.val,
        "test": outcome.test,
        "epoch": outcome.epoch,
        "macs": search.macs(record.alive),
        "seconds": record.select_seconds + outcome.seconds,
        "phases": {"select": record.select_seconds, "retrain": outcome.seconds},
        "epochs": {"select": record.select_epochs, "retrain": search.config.epochs},
        "winning": winning(dense, Readings(outcome.val, outcome.test)),
        "fluctuation": record.fluctuation,
        "excerpt": record.excerpt,
        "diagnostics": record.diagnostics,
    }
