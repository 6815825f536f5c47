"""When a search has pruned enough (line 1 of Algorithm 3)."""

from __future__ import annotations

from aceglt.searches.levels import Search
from aceglt.searches.results import summarise
from aceglt.searches.state import State


def enough(search: Search, state: State) -> bool:
    """Whether a stopping rule holds: levels, a target sparsity, patience, or nothing left to prune."""
    c = search.config
    if state.level >= c.stopping.levels:
        return True
    if state.records:
        model, graph = _sparsities(search, state)
        reached = (c.stopping.target_model is not None and model >= c.stopping.target_model) or (
            c.stopping.target_graph is not None and graph >= c.stopping.target_graph
        )
        if reached or (c.stopping.patience is not None and _losing_streak(search, state) >= c.stopping.patience):
            return True
    keep, alive = search.keep(state), search.start_masks(state).alive
    shrinks = {"model": keep.weights < alive.weights, "graph": keep.edges < alive.edges}
    idle = not (any(shrinks.values()) if c.pruning.axis == "joint" else shrinks[c.pruning.axis])
    return idle or 0 in (keep.weights, keep.edges)


def _sparsities(search: Search, state: State) -> tuple[float, float]:
    alive, total = state.records[-1].alive, search.total
    return 1 - alive.weights / total.weights, 1 - alive.edges / total.edges


def _losing_streak(search: Search, state: State) -> int:
    """How many levels in a row, up to the last, lose by the `strict` criterion, which reads validation alone."""
    streak = 0
    for level in reversed(summarise(search, state, finished=False)["levels"]):
        if level["winning"]["strict"]:
            break
        streak += 1
    return streak
