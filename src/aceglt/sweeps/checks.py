"""Every search of a sweep is put together before the first is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aceglt import datasets
from aceglt.backbones import Backbone
from aceglt.config import Config
from aceglt.config.own import take
from aceglt.errors import AcegltError, ConfigError
from aceglt.numerics.sparse import stored_bytes
from aceglt.problems import build_problem
from aceglt.problems.base import Problem
from aceglt.problems.own import customise
from aceglt.runner import build_backbone, build_method
from aceglt.sweeps.grid import Cell


def check(cells: Sequence[Cell], data_root: str | Path | None) -> int:
    """Raise ConfigError for a search that cannot begin; returns the main memory in bytes of the largest.

    Datasets are loaded one after the other, which also means that workers need not download them all at once.
    """
    same_problem: dict[str, list[Cell]] = {}
    for cell in cells:
        c = cell.config
        same_problem.setdefault(repr((c.dataset, c.task, c.directed, c.task_options)), []).append(cell)
    return max(_check(group, data_root) for group in same_problem.values())


def _check(cells: Sequence[Cell], data_root: str | Path | None) -> int:
    cell = cells[0]
    try:
        problem = build_problem(cell.config, datasets.load(cell.config.dataset, data_root))
        needs = []
        for cell in cells:
            _, own = take(cell.settings)
            build_method(cell.config, own)
            backbone = build_backbone(cell.config, customise(problem, own.loss, own.metric), own)
            needs.append(memory(cell.config, problem, backbone))
    except AcegltError as trouble:
        raise ConfigError(f"{cell.name}: {trouble}") from None
    return max(needs)


def memory(config: Config, problem: Problem, backbone: Backbone) -> int:
    """Bytes of main memory that a search takes, roughly; the factors are those of measured searches on the CPU."""
    program = 2**29
    trained = len(config.seeds) * (backbone.prunable.size + problem.graph.num_edges)
    widths = sum(shape[-1] for _, shape in backbone.prunable.shapes)
    return program + 4 * (12 * trained + 8 * problem.graph.num_nodes * widths) + 2 * stored_bytes(problem.x)
