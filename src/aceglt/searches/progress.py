"""How a search shows itself while it runs: a bar on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from aceglt.methods.base import level_epochs
from aceglt.searches.observer import Observer
from aceglt.searches.wording import level_in_words

if TYPE_CHECKING:
    from aceglt.config import Config
    from aceglt.methods import Method

_QUIET_SECONDS = 30.0  # between plain lines inside a phase
_READ_SECONDS = 0.5  # between readings of the validation metric

Shown = TypeVar("Shown", bound="Bar")


def visible(console: Console) -> bool:
    """Whether somebody watches: on a terminal or in a notebook."""
    return console.is_terminal or console.is_jupyter


class Bar:
    """A bar with a description and the time left, and lines that stay. Use as a context manager.

    A notebook without ipywidgets, and what is no terminal, get the lines alone.
    """

    def __init__(self, console: Console, description: str, total: int | None) -> None:
        self._console = console
        self._moves = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        elapsed = [TimeElapsedColumn()] if console.width > 88 else []  # on 80 columns it would be cut off
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[left]}"),
            *elapsed, console=console, transient=True, expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task(description, total=total, left="")

    def __enter__(self: Shown) -> Shown:
        if self._moves:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._moves:
            self._bar.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def time_left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} left"


class TrainingProgress(Bar, Observer):
    """Phases of training: epoch, best validation metric and time left; each phase leaves a line."""

    def __init__(self, console: Console, total: int) -> None:
        self._total = total  # epochs · runs
        self._done = 0  # of them, in this session
        self._skipped = 0  # those that an earlier session had done
        self._first: tuple[float, int] | None = None  # when the first epoch had ended, and what was done then
        self._shown = time.monotonic()
        self._level, self._phase = 0, ""
        self._begun: Counter[str] = Counter()  # how often each phase of the level has
        self._start(1)
        super().__init__(console, "starting", total)

    def _start(self, runs: int) -> None:
        self._runs, self._in_phase = runs, 0  # runs of the phase, and their epochs
        self._best, self._read = math.nan, 0.0
        self._ended, self._sum = 0, 0.0  # runs that this phase has brought to its end, and their metrics

    def on_phase(self, level: int, phase: str) -> None:
        if level != self._level:
            self._begun.clear()
        self._begun[phase] += 1
        often = self._begun[phase]  # ACE trains several tickets of a level and keeps one
        self._level, self._phase = level, phase if often == 1 else f"{phase} ({often})"

    def on_training(self, runs: int, epochs: int) -> None:
        self._start(runs)

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self._done += runs
        self._in_phase += runs
        now = time.monotonic()
        self._first = self._first or (now, self._done)
        if now - self._read >= _READ_SECONDS or epoch == epochs:
            self._best, self._read = best(), now
        if self._moves:
            done, text = self._skipped + self._done, self._text(epochs)
            self._bar.update(self._task, completed=done, description=text, left=self._left())
        elif now - self._shown >= _QUIET_SECONDS:
            self._line(self._text(epochs))
        if epoch == epochs:
            self._ended += runs
            self._sum += runs * self._best
            if self._ended == self._runs:
                self._end(self._sum / self._runs)

    def _end(self, best: float) -> None:
        """A phase has ended."""
        self._line(f"{self._where()} · best val {100 * best:.2f}")

    def _line(self, text: str) -> None:
        self._shown = time.monotonic()
        left = "" if self._moves else self._left()
        self._say(f"{text} · {left}" if left else text)

    def _where(self) -> str:
        return self._phase

    def _text(self, epochs: int) -> str:
        """Runs need not be at the same epoch: what is shown is their mean, which only grows."""
        known = "" if math.isnan(self._best) else f" · best val {100 * self._best:.2f}"
        return f"{self._where()} · epoch {self._in_phase // self._runs}/{epochs}{known}"

    def _left(self) -> str:
        """By the epochs after the first, during which kernels may be compiled; nothing before."""
        since, before = self._first or (0.0, self._done)
        if self._done == before:
            return ""
        return time_left(max(0, self._total - self._done) * (time.monotonic() - since) / (self._done - before))


class SearchProgress(TrainingProgress):
    """Level and phase as well; dense and each level leave a line with their result."""

    def __init__(self, console: Console, config: Config, method: Method) -> None:
        runs, self._levels = len(config.seeds), config.stopping.levels
        self._dense = config.training.epochs * runs
        self._per_level = level_epochs(method, config.scoring_epochs, config.training.epochs) * runs
        self._reached, self._ends = 0, list[float]()  # when the first whole level of this session began, and each ended
        super().__init__(console, self._dense + self._levels * self._per_level)

    def on_phase(self, level: int, phase: str) -> None:
        if level and not self._phase:  # a resumed search: what was done before costs no time now
            self._skipped = self._dense + (level - 1) * self._per_level
        if level and not self._ends and not self._skipped:
            self._ends.append(time.monotonic())
        super().on_phase(level, phase)

    def on_level(self, results: Mapping[str, Any]) -> None:
        if self._ends or self._skipped:  # of a resumed search, the first level may have been half done
            self._ends.append(time.monotonic())
        self._reached = len(results["levels"])
        self._line(level_in_words(results, self._levels))

    def _left(self) -> str:
        """By the levels that this session has seen from beginning to end: what dense took says little about them."""
        if self._levels == 0:
            return super()._left()
        if len(self._ends) < 2:
            return ""
        per_level = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        left = (self._levels - self._reached) * per_level - (time.monotonic() - self._ends[-1])
        return time_left(max(0.0, left))

    def _end(self, best: float) -> None:
        """What matters comes with the level."""

    def _where(self) -> str:
        level = f"level {self._level}/{max(self._levels, self._level)}"
        return self._phase if self._level == 0 else f"{level} · {self._phase}"
