"""Every search of a sweep is put together before the first is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aceglt import datasets
from aceglt.config.own import take
from aceglt.errors import AcegltError, ConfigError
from aceglt.methods.base import batches
from aceglt.methods.build import build_method
from aceglt.problems import build_problem
from aceglt.problems.own import customise
from aceglt.sweeps.grid import GridCell
from aceglt.training.memory import Planner
from aceglt.training.setup import build_backbone


def check(cells: Sequence[GridCell], data_root: str | Path | None) -> int:
    """Raise ConfigError for a search that cannot begin; returns the main memory in bytes of the largest.

    Datasets are loaded one after the other, which also means that workers need not download them all at once.
    """
    same_problem: dict[str, list[GridCell]] = {}
    for cell in cells:
        c = cell.config
        same_problem.setdefault(repr((c.dataset, c.task, c.directed, c.task_options)), []).append(cell)
    return max(_check(group, data_root) for group in same_problem.values())


def _check(cells: Sequence[GridCell], data_root: str | Path | None) -> int:
    cell = cells[0]
    try:
        problem = build_problem(cell.config, datasets.load(cell.config.dataset, data_root))
        needs = []
        for cell in cells:
            _, own = take(cell.settings)
            method = build_method(cell.config, own)
            own_problem = customise(problem, own.loss, own.metric)
            backbone = build_backbone(cell.config, own_problem, own)
            planner = Planner(own_problem, backbone, cell.config, None, frozenset(), batches(method))
            needs.append(planner.whole_program())
    except AcegltError as trouble:
        raise ConfigError(f"{cell.name}: {trouble}") from None
    return max(needs)
