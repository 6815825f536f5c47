"""How a sweep shows itself while it runs: one bar for all of it on a terminal, a line per search elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console

from aceglt.searches.progress import Bar, time_left
from aceglt.sweeps.grid import GridCell


class SweepProgress(Bar):
    """Searches that are finished, run and failed, and the time left, by levels."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "checking", None)
        self._began = time.monotonic()
        self._stages: dict[str, int] = {}  # of each unfinished search: dense and its levels
        self._total = self._finished = self._failed = 0
        self._done = self._work = 0  # stages, of the searches that were missing when they were planned

    def on_plan(self, cells: Sequence[GridCell], finished: Sequence[GridCell]) -> None:
        self._total, self._finished, self._began, self._done = len(cells), len(finished), time.monotonic(), 0
        there = {cell.name for cell in finished}
        self._stages = {cell.name: cell.config.stopping.levels + 1 for cell in cells if cell.name not in there}
        self._work = sum(self._stages.values())
        self._bar.update(self._task, total=self._work or 1)
        self._say(f"{self._total} search{'' if self._total == 1 else 'es'}, {self._finished} of them finished")

    def on_end(self, name: str) -> None:
        self._finished += 1
        self._done += self._stages.pop(name)
        self._say(f"{self._finished}/{self._total} {name} finished · {self._left(self._done)}")

    def on_failure(self, name: str, problem: str, again: bool) -> None:
        if not again:
            self._failed += 1
            self._done += self._stages.pop(name)
        self._say(f"{name} {'will be continued' if again else 'given up'}: {problem}")

    def on_levels(self, levels: Mapping[str, int]) -> None:
        done = self._done + sum(levels.values())
        text = f"{self._finished}/{self._total} searches · {len(levels)} under way"
        text += f" · {self._failed} failed" if self._failed else ""
        self._bar.update(self._task, completed=done, description=text, left=self._left(done))

    def _say(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _left(self, done: int) -> str:
        return time_left((time.monotonic() - self._began) * (self._work - done) / done) if done else ""
