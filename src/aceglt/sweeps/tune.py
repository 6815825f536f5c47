"""Tuning: training settings of the dense model, chosen on validation by a small search.

The first trial has the settings of the preset. Half of the budget goes to settings drawn at random from the backbone's
`space`, the rest to the best trial with one setting changed. The trials are searches without levels, of all seeds at
once, and run as those of a sweep do; the test set is never read.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from aceglt.config import BACKBONE_OPTIONS, Config, Training, resolve
from aceglt.config.checks import count
from aceglt.config.fields import settings_of
from aceglt.config.groups import BackboneOptions
from aceglt.config.own import PARTS, is_own
from aceglt.errors import ConfigError
from aceglt.files import write_atomic, write_json
from aceglt.runs.directory import read_json
from aceglt.searches.statistics import mean_std, metric_in_words, unfinished
from aceglt.searches.wording import counted, plus_minus
from aceglt.sweeps.grid import MAX_CELLS, GridCell, cells_of, refuse_graph
from aceglt.sweeps.machines import Machines
from aceglt.sweeps.merged import SweepDir
from aceglt.sweeps.run import Silent, SweepObserver, need_of, run_cells

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack

    from aceglt.sweeps.keywords import TuneKeywords

Values = dict[str, Any]
_ROUND = 4  # trials between two looks at what is best


class TuneDir(SweepDir):
    """The run directories of the trials, and what was chosen."""

    kind = "folder of a tuning"
    files = ("grid.json", "trials.csv", "tuned.json")

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.trials, self.tuned = self.path / "trials.csv", self.path / "tuned.json"


@dataclass(frozen=True)
class Trial:
    """One training of the dense model."""

    values: Values
    """The settings that are tuned."""
    val: list[float] | None
    """The best validation metric of each seed; None where training failed."""
    epoch: list[int] | None
    """The epoch that had it."""
    seconds: float | None
    error: str | None = None

    @property
    def score(self) -> float:
        """The mean over seeds."""
        return mean_std(self.val)[0] if self.val else -1.0


@dataclass(frozen=True, repr=False)
class Tuned:
    """What a tuning found."""

    settings: Values
    """Keywords of `aceglt.search`: those that were given, and the best trial's; without your own code."""
    trials: Sequence[Trial]
    """Best first."""
    metric: str
    path: Path
    notes: Sequence[str] = field(default_factory=list)
    """What the user should know."""

    @property
    def file(self) -> Path:
        """For `aceglt search --config`."""
        return self.path / "tuned.json"

    def __repr__(self) -> str:
        best = self.trials[0]
        found = f"best validation {metric_in_words(self.metric)} {plus_minus(best.val)} %"
        values = ", ".join(f"{name} {value}" for name, value in best.values.items())
        return "\n".join([f"{counted(len(self.trials), 'trial')}, {found}", values, f"file {self.file}"])


def tune(
    out: str | Path,
    *others: Never,
    budget: int | None = None,
    minutes: float | None = None,
    observer: SweepObserver | None = None,
    preset: str = "tuned",
    **settings: Unpack[TuneKeywords],
) -> Tuned:
    """Choose training settings of the dense model on validation; killed, the same call continues.

    Args:
        out: the folder of the trials and of `tuned.json`, which `aceglt search --config` takes.
        budget: how many settings are tried [20, or any number with `minutes`].
        minutes: when no further trial is started.
        observer: told about progress.
        preset: what settings are that are neither given nor tuned.
        settings: engine, address, workers, cpus, gpus, memory, retries, device and data_root as in `aceglt.sweep`, and
            fields of `Config`. Those that are given stay as they are; what else the backbone's `space` has is
            tuned. Your own code is named as "module:attribute".

    Raises:
        AcegltError: something given is wrong, or no training ended well.

    Examples:
        >>> quick = {"hidden": 4, "epochs": 2, "seeds": 1, "device": "cpu"}
        >>> len(aceglt.tune("tuned", budget=1, dataset=grid["dataset"], **quick).trials)
        1
    """
    refuse_graph(out, *others, settings.get("dataset"))
    if others:
        raise ConfigError('tune takes the folder to write alone by its place: tune("tuned", dataset="mine.npz")')
    where = {part.name for part in fields(Machines)}
    machines = Machines.of({name: value for name, value in settings.items() if name in where})
    if budget is not None:
        count(1, MAX_CELLS)("budget", budget)
    if minutes is not None and not 0 < minutes < 1e6:
        raise ConfigError(f"minutes must be above 0 and below 1e6, found {minutes}")
    given: Values = {name: value for name, value in settings.items() if value is not None and name not in where}
    if unnamed := [name for name in PARTS if not isinstance(given.get(name, ""), str)]:
        raise ConfigError(f"{unnamed[0]} must be named as module:attribute: trials run in processes of their own")
    trials = _Trials(preset, given, TuneDir(out), machines, observer or Silent())
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with trials.folder:
        trials.run(trials_of(budget, minutes), lambda: time.monotonic() > end)
        return trials.publish()


def trials_of(budget: int | None, minutes: float | None) -> int | None:
    """How many settings are tried; None is as many as time allows."""
    return budget or (20 if minutes is None else None)


class _Trials:
    """The trials of a tuning, as far as they are."""

    def __init__(
        self, preset: str, given: Values, folder: TuneDir, machines: Machines, observer: SweepObserver
    ) -> None:
        self.given, self.folder, self.machines, self.observer = {"preset": preset, **given}, folder, machines, observer
        resolve(preset, **given)  # tuned.json holds all of it, what trials do without too
        others = {name: value for name, value in given.items() if name not in ("epochs", "rewind_epoch")}
        self.usual_epochs = resolve(preset, **others).training.epochs
        self.base = self._resolved({})
        kind = BACKBONE_OPTIONS.get(self.base.backbone, BackboneOptions)
        had = settings_of(Training).keys() | (settings_of(kind).keys() if not is_own(self.base.backbone) else set())
        self.space = {name: values for name, values in kind.space.items() if name in had and name not in given}
        if not self.space:
            raise ConfigError("there is nothing to tune: every setting is given")
        self.cells: dict[tuple[Any, ...], GridCell] = {}
        self.proposed: set[tuple[Any, ...]] = set()
        self.failures: dict[str, str] = {}

    def run(self, budget: int | None, over: Callable[[], bool]) -> None:
        """Trials until the budget is spent, time is over, or everything has been tried."""
        draws = Random(0)
        drawn, changed = self._drawn(draws), self._changed(draws)
        explored = _ROUND * _ROUND if budget is None else max(1, budget // 2)
        while not over() and (left := (budget or 1 << 30) - len(self.cells)) > 0:
            exploring = len(self.cells) < explored or not any(trial.val for trial in self.trials())
            size = min(left, _ROUND if budget is None or not exploring else explored)
            source = drawn if exploring else changed
            fresh = [self._own_values()] if self._new(self._own_values()) else []
            fresh += islice(source, size - len(fresh))
            if not fresh:
                return
            self._try(fresh, over)

    def _try(self, proposals: Sequence[Values], over: Callable[[], bool]) -> None:
        for values, cell in zip(proposals, cells_of([self._settings(values) for values in proposals]), strict=True):
            self.cells[self._key(values)] = cell
        cells = list(self.cells.values())
        alive = [cell for cell in cells if cell.name not in self.failures]
        missing = [cell for cell in alive if not self.folder.finished(cell)]
        need = need_of(self.machines, missing)
        self.observer.on_plan(alive, [cell for cell in alive if cell not in missing], self.folder.begun(missing))
        write_json(self.folder.grid, {"format": 1, "cells": [cell.settings for cell in cells]})
        try:
            more, observer = (lambda: not over()), self.observer
            run_cells(missing, self.machines, need, self.folder, "none", observer, self.failures, more)
        except BaseException:  # interrupted, most likely: what is finished is of use
            if any(trial.val for trial in self.trials()):
                self.publish()
            raise

    def _drawn(self, draws: Random) -> Iterator[Values]:
        """Settings that have not been tried, at random, until there seem to be none."""
        misses = 0
        while misses < 1000:
            values = {name: draws.choice(known) for name, known in self.space.items()}
            if self._new(values):
                misses = 0
                yield values
            misses += 1

    def _changed(self, draws: Random) -> Iterator[Values]:
        """The best trial's settings with one changed, numbers to the next; then as drawn."""
        while True:
            best = max(self.trials(), key=lambda trial: trial.score).values
            moves = [{**best, name: v} for name, known in self.space.items() for v in _next_to(best[name], known)]
            draws.shuffle(moves)
            move = next(filter(self._new, moves), None) or next(self._drawn(draws), None)
            if move is None:
                return
            yield move

    def _new(self, values: Values) -> bool:
        """Whether these settings make sense and have not been proposed before; from now on they have."""
        key = self._key(values)
        if key in self.proposed:
            return False
        self.proposed.add(key)
        try:
            self._resolved(values)
        except ConfigError:
            return False
        return True

    def _settings(self, values: Values) -> Values:
        return {**self.given, **values, "levels": 0, "test": False}

    def _resolved(self, values: Values) -> Config:
        settings = self._settings(values)
        return resolve(settings.pop("preset"), **settings)

    def _key(self, values: Values) -> tuple[Any, ...]:
        """What tells trials apart: the values of all settings that are tuned."""
        return tuple(values[name] for name in self.space)

    def _own_values(self) -> Values:
        flat = self.base.flat()
        return {name: flat[name] for name in self.space}

    def trials(self) -> list[Trial]:
        """Those that have ended."""
        ended = []
        for key, cell in self.cells.items():
            values = dict(zip(self.space, key, strict=True))
            if (results := self.folder.finished(cell)) is not None:
                dense = results["dense"]
                ended.append(Trial(values, dense["val"], dense["epoch"], dense["seconds"]))
            elif cell.name in self.failures:
                ended.append(Trial(values, None, None, None, self.failures[cell.name]))
        return ended

    def publish(self) -> Tuned:
        """Write trials.csv and tuned.json."""
        trials = sorted(self.trials(), key=lambda trial: -trial.score)
        if not trials or trials[0].val is None:
            reason = trials[0].error if trials else "no trial was finished in time"
            raise ConfigError(f"no trial ended well: {reason}")
        text = io.StringIO()
        writer = csv.DictWriter(text, ["val", *self.space, "seconds", "error"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**asdict(t), **t.values, "val": t.score if t.val else None} for t in trials)
        write_atomic(self.folder.trials, text.getvalue().encode())
        given = {name: v for name, v in self.given.items() if not (name in PARTS and is_own(v))}
        settings = {**given, **trials[0].values}
        write_json(self.folder.tuned, settings)
        warning = unfinished(self.base.training.epochs, trials[0].epoch or [], self.base.preset)
        notes = [] if warning is None else [warning]
        if self.base.training.epochs < self.usual_epochs:
            notes.append(
                f"{self.folder.tuned} has the epochs that were given, {self.base.training.epochs}; the preset's are "
                f"{self.usual_epochs}: search --config {self.folder.tuned} --epochs {self.usual_epochs}"
            )
        metric = next(r["metric"] for cell in self.cells.values() if (r := self.folder.finished(cell)))
        return Tuned(settings, trials, metric, self.folder.path, notes)


def _next_to(value: Any, known: Sequence[Any]) -> list[Any]:
    """Values to change to: of numbers, the next below and above."""
    if isinstance(value, str):
        return [other for other in known if other != value]
    below, above = [v for v in known if v < value], [v for v in known if v > value]
    return [*below[-1:], *above[:1]]


def read_settings(path: Path, given: Mapping[str, Any]) -> Values:
    """The settings of a file such as `tuned.json`, under those that are given; own code must be named again."""
    if path.suffix == ".toml":
        raise ConfigError(f"{path}: a grid, which aceglt sweep and aceglt compare take; --config takes a tuned.json")
    values = read_json(path)
    for part in PARTS:
        if is_own(str(values.get(part) or "")) and part not in given:
            raise ConfigError(f"{path}: names code, {part} {values[part]}; to run it, name it again: --{part}")
    return {**values, **given}
