"""How a sweep shows itself while it runs: one bar for all of it on a terminal, a line per search elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console

from aceglt.searches.progress import Bar, time_left
from aceglt.searches.wording import counted
from aceglt.sweeps.grid import GridCell


class SweepProgress(Bar):
    """Searches that are finished, run and failed, and the time left, by levels."""

    def __init__(
        self, console: Console, words: tuple[str, str] = ("search", "searches"), total: int | None = None
    ) -> None:
        """`total` where there will be more than a plan has, as of a tuning."""
        super().__init__(console, "checking", None)
        self._words, self._at_least = words, total or 0
        self._began = time.monotonic()
        self._total = self._finished = self._failed = 0
        self._levels: dict[str, int] = {}  # of each unfinished search; 1 where dense is all
        self._before: dict[str, int] = {}  # of them, those that were there when it was first seen at work
        self._work = self._done = 0  # levels of the searches that were missing; those that have ended since

    def on_plan(self, cells: Sequence[GridCell], finished: Sequence[GridCell], begun: Mapping[str, str]) -> None:
        self._total, self._finished = max(len(cells) + self._failed, self._at_least), len(finished)
        self._began = time.monotonic()
        there = {cell.name for cell in finished}
        self._levels = {cell.name: max(1, cell.config.stopping.levels) for cell in cells if cell.name not in there}
        later = self._total - self._failed - len(cells)
        self._work, self._done = sum(self._levels.values()) + later, 0
        self._bar.update(self._task, total=self._work or 1)
        facts = [f"{self._finished} finished"] if finished else []
        facts += [f"{len(begun)} {'goes' if len(begun) == 1 else 'go'} on"] if begun else []
        self._say(": ".join([counted(self._total, *self._words), *filter(None, [", ".join(facts)])]))
        for name, so_far in begun.items():
            self._say(f"{name} goes on: {so_far}")

    def on_end(self, name: str) -> None:
        self._finished += 1
        self._over(name)
        left = self._left(self._done)
        self._say(f"{self._finished}/{self._total} {name} finished{left and f' · {left}'}")

    def on_failure(self, name: str, problem: str, again: bool) -> None:
        if not again:
            self._failed += 1
            self._over(name)
        self._say(f"{name} {'will be continued' if again else 'given up'}: {problem}")

    def _over(self, name: str) -> None:
        """A search has ended; what it had before is no work of this session."""
        before = self._before.pop(name, 0)
        self._done += self._levels.pop(name) - before
        self._work -= before

    def on_levels(self, levels: Mapping[str, int]) -> None:
        ended = {name: max(0, level - 1) for name, level in levels.items()}  # a search is at the one after
        self._before = {**ended, **self._before}
        done = self._done + sum(ended[name] - self._before[name] for name in ended)
        text = f"{self._finished}/{self._total} {self._words[1]} · {len(levels)} under way"
        text += f" · {self._failed} failed" if self._failed else ""
        self._bar.update(self._task, total=self._missing or 1, completed=done, description=text, left=self._left(done))

    def _say(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _left(self, done: int) -> str:
        """By the levels that have ended; nothing before the first."""
        return time_left((time.monotonic() - self._began) * (self._missing - done) / done) if done else ""

    @property
    def _missing(self) -> int:
        """Levels that were not there when this session began."""
        return self._work - sum(self._before.values())
