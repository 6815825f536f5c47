"""A sweep: every search of a grid, each in a process of its own, none lost and none run twice."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console

from aceglt import datasets
from aceglt.config.own import take
from aceglt.errors import AcegltError, ConfigError
from aceglt.files import write_json
from aceglt.methods.base import batches
from aceglt.methods.build import build_method
from aceglt.problems import build_problem
from aceglt.problems.base import Split
from aceglt.problems.own import customise
from aceglt.runner import TICKETS
from aceglt.searches.progress import visible
from aceglt.sweeps.board import SweepProgress
from aceglt.sweeps.cluster import RayEngine
from aceglt.sweeps.engines import Engine, LocalEngine, Need
from aceglt.sweeps.grid import GridCell, plan, read_grid, refuse_graph
from aceglt.sweeps.machines import Machines
from aceglt.sweeps.merged import SweepDir, SweepResult, publish
from aceglt.sweeps.worker import Job
from aceglt.training.memory import Planner
from aceglt.training.setup import build_backbone

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aceglt.sweeps.keywords import MachineKeywords


class SweepObserver(Protocol):
    """Is told how a sweep goes on, at least every `interval` seconds if it has one."""

    def on_plan(self, cells: Sequence[GridCell], finished: Sequence[GridCell], begun: Mapping[str, str]) -> None:
        """What there is to search, what of it is there already, and how far searches are that go on, by name."""

    def on_end(self, name: str) -> None:
        """A search has finished."""

    def on_failure(self, name: str, problem: str, again: bool) -> None:
        """A worker has failed; its search will be continued, or is given up."""

    def on_levels(self, levels: Mapping[str, int]) -> None:
        """The level that each search with a worker is at, once it has begun; 0 is dense."""


def sweep(
    grid: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    tickets: str = "best",
    observer: SweepObserver | None = None,
    progress: bool = True,
    **machines: Unpack[MachineKeywords],
) -> SweepResult:
    """Run every search of a grid; killed or interrupted, the same call continues, and a finished sweep is left alone.

    Args:
        grid: a TOML file or a mapping (docs/guides/comparing.md): fields of `Config`, and `datasets`, `backbones`,
            `methods` and `axes`; a list means one search per value.
        out: the sweep's folder; on a cluster every node must see it under this path.
        tickets: which tickets each search keeps: "best", "all" or "none".
        observer: told about progress.
        progress: without an observer, show a bar on a terminal and in a notebook.
        machines: where searches run:

            - `engine`: "local" (processes of this machine) or "ray".
            - `address`: the Ray cluster, such as "auto" or "host:port"; without it, one is started on this machine.
            - `workers`: searches at a time, for the local engine; without it, as many as fit.
            - `cpus`: cores, and threads, of one search.
            - `gpus`: share of a GPU for one search; by default one whole GPU where there are any.
            - `memory`: GiB of main memory for one search; by default an estimate.
            - `retries`: how many times a search is tried again after its worker failed or was killed.
            - `device`: "auto", "cpu" or "cuda".
            - `data_root`: where datasets are looked for first.

    Returns:
        The results of all searches; `.failed` are those that were given up.

    Raises:
        AcegltError: something given is wrong; nothing has been trained then.

    Examples:
        >>> aceglt.sweep(grid, "sweep", device="cpu").failed
        []
    """
    if observer is None and progress and visible(console := Console(stderr=True)):
        with SweepProgress(console) as bar:
            return sweep(grid, out, tickets=tickets, observer=bar, **machines)
    refuse_graph(grid)
    where = Machines.of(machines)
    if tickets not in TICKETS:
        raise ConfigError(f"unknown tickets '{tickets}'; known are {', '.join(TICKETS)}")
    cells = plan(grid if isinstance(grid, Mapping) else read_grid(Path(grid)))
    folder, watching = SweepDir(out), observer or Silent()
    missing = [cell for cell in cells if not folder.finished(cell)]
    need = need_of(where, missing)
    watching.on_plan(cells, [cell for cell in cells if cell not in missing], folder.begun(missing))
    failures: dict[str, str] = {}  # why searches were given up, by name
    with folder:  # before anything is started, since another sweep may be at work there
        write_json(folder.grid, {"format": 1, "cells": [cell.settings for cell in cells]})
        try:
            run_cells(missing, where, need, folder, tickets, watching, failures)
        except BaseException:  # interrupted, most likely: workers have ended, and what they finished is of use
            publish(folder, cells, failures)
            raise
        return publish(folder, cells, failures)


def need_of(machines: Machines, cells: Sequence[GridCell]) -> Need:
    """What the largest of these searches takes; ConfigError for one that cannot begin."""
    estimate = _check_searches(cells, machines.data_root) if cells else 0
    memory = int(machines.memory * 2**30) if machines.memory else estimate
    return Need(machines.cpus, memory, machines.device, machines.gpus)


def run_cells(
    cells: Sequence[GridCell], machines: Machines, need: Need, folder: SweepDir, tickets: str, observer: SweepObserver,
    failures: dict[str, str], more: Callable[[], bool] = lambda: True,
) -> None:  # fmt: skip
    """Search all of them, those that are given up go into `failures`; none is started once there is no `more`."""
    if not cells:
        return
    local = machines.engine == "local"
    engine: Engine = LocalEngine(need, machines.workers) if local else RayEngine(need, machines.address)
    root = None if machines.data_root is None else str(machines.data_root)
    place = (os.getcwd(), engine.device, root, tickets, machines.cpus)
    with closing(engine):
        _work_off(cells, place, engine, folder, machines.retries, observer, failures, more)


def _check_searches(cells: Sequence[GridCell], data_root: str | Path | None) -> int:
    """Raise ConfigError for a search that cannot begin; returns the main memory in bytes of the largest.

    Datasets are loaded one after the other, which also means that workers need not download them all at once.
    """
    same_problem: dict[str, list[GridCell]] = {}
    for cell in cells:
        config = cell.config
        key = repr((config.dataset, config.task, config.directed, config.task_options))
        same_problem.setdefault(key, []).append(cell)
    needs = []
    for group in same_problem.values():
        cell = group[0]
        try:
            problem = build_problem(cell.config, datasets.read(cell.config.dataset, data_root))
            for cell in group:
                _, own = take(cell.settings)
                method = build_method(cell.config, own)
                splits: Sequence[Split] = ("val", "test") if cell.config.test else ("val",)
                own_problem = customise(problem, own.loss, own.metric, splits)
                backbone = build_backbone(cell.config, own_problem, own)
                planner = Planner(own_problem, backbone, cell.config, None, frozenset(), batches(method))
                needs.append(planner.whole_program())
        except AcegltError as trouble:
            raise ConfigError(f"{cell.name}: {trouble}") from None
    return max(needs)


class Silent:
    """Nobody watches."""

    def on_plan(self, cells: Sequence[GridCell], finished: Sequence[GridCell], begun: Mapping[str, str]) -> None: ...
    def on_end(self, name: str) -> None: ...
    def on_failure(self, name: str, problem: str, again: bool) -> None: ...
    def on_levels(self, levels: Mapping[str, int]) -> None: ...


def _work_off(
    cells: Sequence[GridCell], place: tuple[str, str, str | None, str, int], engine: Engine, folder: SweepDir,
    retries: int, observer: SweepObserver, failures: dict[str, str], more: Callable[[], bool],
) -> None:  # fmt: skip
    """Keep the engine busy until every search has finished or was given up, which goes into `failures`."""
    waiting, running, tries = deque(cells), dict[str, GridCell](), Counter[str]()
    while (waiting and more()) or running:
        while waiting and engine.has_room() and more():
            cell = waiting.popleft()
            engine.start(Job(cell.name, cell.settings, str(folder.run(cell).path), str(folder.log(cell)), *place))
            running[cell.name] = cell
            tries[cell.name] += 1
        for ended in engine.wait(getattr(observer, "interval", 1.0)):
            name, problem = ended.job.name, ended.problem
            cell = running.pop(name)
            if problem is None and not folder.finished(cell):
                problem = "its worker ended before the search did"
            if problem is None:
                observer.on_end(name)
                continue
            again = not ended.hopeless and tries[name] <= retries
            if again:
                waiting.append(cell)
            else:
                failures[name] = problem
            observer.on_failure(name, problem, again)
        levels = {name: folder.level(cell) for name, cell in running.items()}
        observer.on_levels({name: level for name, level in levels.items() if level is not None})
