"""How a search shows itself while it runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_QUIET_SECONDS = 30.0  # between plain lines inside a phase
_READ_SECONDS = 0.5  # between readings of the validation metric
_ISOLATED = ("dense", "retrain", "ticket")  # phases that train in isolation, and end a level

Shown = TypeVar("Shown", bound="Bar")


class Bar:
    """A bar with a description and the time left, shown on a terminal alone. Use as a context manager."""

    def __init__(self, console: Console, description: str, total: int | None) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), TimeElapsedColumn(),
            console=console, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(description, total=total, left="")

    def __enter__(self: Shown) -> Shown:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()


def time_left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} left"


class SearchProgress(Bar):
    """Level, phase, epoch, best validation metric and time left."""

    def __init__(self, console: Console, levels: int, dense_epochs: int, level_epochs: int, runs: int) -> None:
        self._levels, self._runs = levels, runs
        self._dense, self._per_level = dense_epochs * runs, level_epochs * runs
        self._total = self._dense + levels * self._per_level
        self._done = 0  # epochs · runs of this session
        self._skipped = 0  # those that an earlier session had done
        self._began = self._shown = time.monotonic()
        self._phase = ""
        super().__init__(console, "starting", self._total)

    def on_phase(self, level: int, phase: str) -> None:
        if level and not self._phase:  # a resumed search: what was done before costs no time now
            self._skipped = self._dense + (level - 1) * self._per_level
        self._level, self._phase, self._best, self._read = level, phase, float("nan"), 0.0
        self._ended, self._sum = 0, 0.0  # runs that this phase has brought to its end, and their metrics

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self._done += runs
        now = time.monotonic()
        if now - self._read >= _READ_SECONDS or epoch == epochs:
            self._best, self._read = best(), now
        if self._console.is_terminal:
            done, text = self._skipped + self._done, self._text(epoch, epochs)
            self._bar.update(self._task, completed=done, description=text, left=self._left())
        elif epoch == epochs and self._phase in _ISOLATED:  # worth a line in a log, once all runs have ended
            self._ended += runs
            self._sum += runs * self._best
            if self._ended == self._runs:
                self._say(now, f"{self._where()} · best val {self._sum / self._runs:.4f}")
        elif now - self._shown >= _QUIET_SECONDS:
            self._say(now, self._text(epoch, epochs))

    def on_test(self, level: int) -> None:
        """Nothing to show."""

    def _say(self, now: float, text: str) -> None:
        self._shown = now
        self._console.print(f"{text} · {self._left()}", highlight=False)

    def _where(self) -> str:
        level = "dense" if self._level == 0 else f"level {self._level}/{max(self._levels, self._level)}"
        return level if self._phase == "dense" else f"{level} · {self._phase}"

    def _text(self, epoch: int, epochs: int) -> str:
        return f"{self._where()} · epoch {epoch}/{epochs} · best val {self._best:.4f}"

    def _left(self) -> str:
        elapsed = time.monotonic() - self._began
        return time_left(max(0, self._total - self._skipped - self._done) * elapsed / max(1, self._done))
