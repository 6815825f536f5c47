"""When a search has pruned enough (line 1 of Algorithm 3)."""

from __future__ import annotations

from itertools import takewhile

from aceglt.searches.levels import Search
from aceglt.searches.state import LevelRecord, State
from aceglt.searches.statistics import winning


def enough(search: Search, state: State) -> bool:
    """Whether a stopping rule holds: levels, a target sparsity, patience, or nothing left to prune."""
    c, dense = search.config, state.dense

    def loses(record: LevelRecord) -> bool:
        """By the `strict` criterion, which reads validation alone."""
        return dense is not None and not winning(dense, record.outcome)["strict"]

    if state.level >= c.levels:
        return True
    if state.records:
        model, graph = state.records[-1].sparsity(search.total)
        reached = (c.target_model is not None and model >= c.target_model) or (
            c.target_graph is not None and graph >= c.target_graph
        )
        streak = len(list(takewhile(loses, reversed(state.records))))
        if reached or (c.patience is not None and streak >= c.patience):
            return True
    keep, alive = search.keep(state), search.start_masks(state).alive
    shrinks = {"model": keep.weights < alive.weights, "graph": keep.edges < alive.edges}
    idle = not (any(shrinks.values()) if c.axis == "joint" else shrinks[c.axis])
    return idle or 0 in (keep.weights, keep.edges)
