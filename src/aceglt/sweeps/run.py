"""A sweep: every search of a grid, each in a process of its own, none lost and none run twice."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aceglt.errors import ConfigError
from aceglt.files import write_json
from aceglt.runner import TICKETS
from aceglt.sweeps.checks import check
from aceglt.sweeps.cluster import RayEngine
from aceglt.sweeps.engines import Ended, Engine, Need
from aceglt.sweeps.folder import SweepDir
from aceglt.sweeps.grid import GridCell, plan, read_grid
from aceglt.sweeps.local import LocalEngine
from aceglt.sweeps.merged import SweepResult, publish
from aceglt.sweeps.worker import Common, Job

ENGINES = ("local", "ray")
DEVICES = ("auto", "cpu", "cuda")
_MEMORY = (0.001, 1e9)  # GiB that one search may be given


class SweepObserver(Protocol):
    """Is told how a sweep goes on, at least every `interval` seconds if it has one."""

    def on_plan(self, cells: Sequence[GridCell], finished: Sequence[GridCell]) -> None:
        """What there is to search, and what of it is there already."""

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
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    cpus: int = 1,
    gpus: float | None = None,
    memory: float | None = None,
    retries: int = 2,
    device: str = "auto",
    data_root: str | Path | None = None,
    tickets: str = "best",
    observer: SweepObserver | None = None,
) -> SweepResult:
    """Run every search of a grid; killed or interrupted, the same call continues, and a finished sweep is left alone.

    Args:
        grid: a TOML file or a mapping (docs/scaling.md): fields of `Config`, and `datasets`, `backbones`, `methods` and
            `axes`; a list means one search per value.
        out: the sweep's folder; on a cluster every node must see it under this path.
        engine: "local" (processes of this machine) or "ray".
        address: the Ray cluster, such as "auto" or "host:port"; without it, one is started on this machine.
        workers: searches at a time, for the local engine; without it, as many as fit.
        cpus: cores, and threads, of one search.
        gpus: share of a GPU for one search; by default one whole GPU where there are any.
        memory: GiB of main memory for one search; by default an estimate.
        retries: how many times a search is tried again after its worker failed or was killed.
        device: "auto", "cpu" or "cuda".
        data_root: where datasets are looked for first.
        tickets: which tickets each search keeps: "best", "all" or "none".
        observer: told about progress.

    Returns:
        The results of all searches; `.failed` are those that were given up.

    Raises:
        AcegltError: something given is wrong; nothing has been trained then.
    """
    _check_arguments(engine, address, workers, cpus, gpus, memory, retries, device, tickets)
    cells = plan(grid if isinstance(grid, Mapping) else read_grid(Path(grid)))
    folder = SweepDir(out)
    missing = [cell for cell in cells if not folder.finished(cell)]
    estimate = check(missing, data_root) if missing else 0
    need = Need(cpus, int(memory * 2**30) if memory else estimate, device, gpus)
    watching = observer or _Silent()
    watching.on_plan(cells, [cell for cell in cells if cell not in missing])
    root = None if data_root is None else str(data_root)
    queue = _Queue(missing, folder, retries, watching)
    with folder:  # before anything is started, since another sweep may be at work there
        write_json(folder.grid, {"format": 1, "cells": [cell.settings for cell in cells]})
        if missing:
            machines = _engine(engine, need, workers, address)
            try:
                with machines:
                    queue.work_off(machines, Common(os.getcwd(), machines.device, root, tickets, cpus))
            except BaseException:  # interrupted, most likely: workers have ended, and what they finished is of use
                publish(folder, cells, queue.failures)
                raise
        return publish(folder, cells, queue.failures)


def _engine(name: str, need: Need, workers: int | None, address: str | None) -> Engine:
    return LocalEngine(need, workers) if name == "local" else RayEngine(need, address)


def _check_arguments(
    engine: str, address: str | None, workers: int | None, cpus: int, gpus: float | None, memory: float | None,
    retries: int, device: str, tickets: str,
) -> None:  # fmt: skip
    for name, value, known in (("engine", engine, ENGINES), ("device", device, DEVICES), ("tickets", tickets, TICKETS)):
        if value not in known:
            raise ConfigError(f"unknown {name} '{value}'; known are {', '.join(known)}")
    if address is not None and engine != "ray":
        raise ConfigError("an address is for the engine ray")
    if workers is not None and engine != "local":
        raise ConfigError("workers are for the engine local; a Ray cluster starts as many as its nodes have room for")
    for name, number, ok, expected in (
        ("workers", workers, workers is None or workers >= 1, "1 or more"),
        ("cpus", cpus, cpus >= 1, "1 or more"),
        ("gpus", gpus, gpus is None or 0 <= gpus <= 1, "between 0 and 1"),
        ("memory", memory, memory is None or _MEMORY[0] <= memory <= _MEMORY[1], "between 0.001 and 1e9 GiB"),
        ("retries", retries, retries >= 0, "0 or more"),
    ):
        if not ok:
            raise ConfigError(f"{name} must be {expected}, found {number}")


class _Silent:
    """Nobody watches."""

    def on_plan(self, cells: Sequence[GridCell], finished: Sequence[GridCell]) -> None: ...
    def on_end(self, name: str) -> None: ...
    def on_failure(self, name: str, problem: str, again: bool) -> None: ...
    def on_levels(self, levels: Mapping[str, int]) -> None: ...


class _Queue:
    """The searches that wait for a worker, those that have one, and those that were given up."""

    def __init__(self, cells: Sequence[GridCell], folder: SweepDir, retries: int, observer: SweepObserver) -> None:
        self._cells = {cell.name: cell for cell in cells}
        self._folder, self._retries, self._observer = folder, retries, observer
        self._waiting, self._running = deque(self._cells), set[str]()
        self._tries = Counter[str]()
        self.failures: dict[str, str] = {}
        """Why searches were given up, by name."""

    def work_off(self, engine: Engine, common: Common) -> None:
        """Keep the engine busy until every search has finished or was given up."""
        interval = getattr(self._observer, "interval", 1.0)
        while self._waiting or self._running:
            while self._waiting and engine.has_room():
                name = self._waiting.popleft()
                engine.start(self._job(self._cells[name], common))
                self._running.add(name)
                self._tries[name] += 1
            for ended in engine.wait(interval):
                self._end(ended)
            levels = {name: self._folder.level(self._cells[name]) for name in self._running}
            self._observer.on_levels({name: level for name, level in levels.items() if level is not None})

    def _job(self, cell: GridCell, common: Common) -> Job:
        return Job(cell.name, cell.settings, str(self._folder.run(cell).path), str(self._folder.log(cell)), common)

    def _end(self, ended: Ended) -> None:
        name, problem = ended.job.name, ended.problem
        self._running.remove(name)
        if problem is None and not self._folder.finished(self._cells[name]):
            problem = "its worker ended before the search did"
        if problem is None:
            self._observer.on_end(name)
            return
        again = not ended.hopeless and self._tries[name] <= self._retries
        if again:
            self._waiting.append(name)
        else:
            self.failures[name] = problem
        self._observer.on_failure(name, problem, again)
