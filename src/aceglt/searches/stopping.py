"""When a search ends: levels, a target sparsity, patience, or nothing left to prune."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from aceglt.searches.state import LevelRecord, State
from aceglt.searches.statistics import winning

if TYPE_CHECKING:
    from aceglt.searches.levels import Search


def enough(search: Search, state: State) -> bool:
    """Whether a stopping rule holds: levels, a target sparsity, patience, or nothing left to prune."""
    return reason_to_stop(search, state) is not None


def reason_to_stop(search: Search, state: State) -> str | None:
    """The stopping rule that holds, in words."""
    c, dense = search.config, state.dense

    def loses(record: LevelRecord) -> bool:
        """By the `strict` criterion, which reads validation alone."""
        return dense is not None and not winning(dense, record.outcome)["strict"]

    if state.level >= c.stopping.levels:
        return "all levels are done"
    if state.records:
        model, graph = state.records[-1].sparsity(search.total)
        reached = (c.stopping.target_model is not None and model >= c.stopping.target_model) or (
            c.stopping.target_graph is not None and graph >= c.stopping.target_graph
        )
        streak = len(list(takewhile(loses, reversed(state.records))))
        if reached or (c.stopping.patience is not None and streak >= c.stopping.patience):
            return "the target is reached" if reached else f"{streak} level(s) in a row did not win"
    keep, alive = search.keep(state), search.start_masks(state).alive
    shrinks = {"model": keep.weights < alive.weights, "graph": keep.edges < alive.edges}
    idle = not (any(shrinks.values()) if c.pruning.axis == "joint" else shrinks[c.pruning.axis])
    if search.units is not None:
        if keep.weights < search.units.least:
            return (
                f"level {state.level + 1} would keep {keep.weights} weights, and the units that each layer keeps have "
                f"{search.units.least}"
            )
        idle = c.pruning.axis == "graph" and idle
    if not idle and 0 not in (keep.weights, keep.edges):
        return None
    return (
        f"level {state.level + 1} would keep {keep.weights} of {alive.weights} weights and {keep.edges} of "
        f"{alive.edges} edges; with other shares to prune (--prune-model, --prune-graph) there is more to search"
    )
