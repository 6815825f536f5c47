"""The one table of the campaign: what the tests have counted, in all processes, and where it goes."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

Tell = Callable[..., None]
"""tell(part, kind, outcome, **numbers); see `Table`."""


@dataclass
class _Part:
    """What was counted under one heading."""

    outcome: str
    kinds: set[str] = field(default_factory=set)
    numbers: dict[str, float] = field(default_factory=dict)

    def add(self, kind: str, numbers: Mapping[str, float]) -> None:
        """Whole numbers are added, of others the largest is kept."""
        self.kinds.add(kind)
        for name, value in numbers.items():
            before = self.numbers.get(name, type(value)())
            self.numbers[name] = before + value if isinstance(value, int) else max(before, value)


class Table:
    """A row per part: over how many kinds (of searches, readers, …), with what outcome, and the numbers."""

    def __init__(self, rows: Iterable[tuple[str, str, str, Mapping[str, float]]]) -> None:
        self.parts: dict[str, _Part] = {}
        for part, kind, outcome, numbers in rows:
            self.parts.setdefault(part, _Part(outcome)).add(kind, numbers)

    @property
    def lines(self) -> list[str]:
        found = ["| what | kinds | outcome | numbers |", "| --- | --- | --- | --- |"]
        for name, part in sorted(self.parts.items()):
            told = ", ".join(_number(value, of) for of, value in part.numbers.items())
            found.append(f"| {name} | {len(part.kinds)} | {part.outcome} | {told} |")
        return found


def _number(value: float, of: str) -> str:
    words = of.replace("_", " ")
    return f"{value:,} {words}" if isinstance(value, int) else f"{value:.1f} {words} at most"


def place(seconds: float, processes: int, gpu: str = "") -> str:
    """Where and on what the tests ran, in a sentence."""
    told = f"Python {platform.python_version()}, torch {version('torch')}, {gpu or f'{os.cpu_count()} cores'}"
    beside = f", {processes} processes" if processes > 1 else ""
    return f"Commit `{commit()}`, {told}{beside}, {seconds / 60:.0f} min."


def commit() -> str:
    """The commit that is checked out, with a mark if `src` or `tests` are others; $COMMIT where there is no git."""
    if given := os.environ.get("COMMIT"):
        return given
    root = Path(__file__).parents[1]
    try:
        head, changed = (
            subprocess.run(["git", *line], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for line in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "src", "tests"])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with changes" if changed else head


def write(page: Path, block: str, lines: Iterable[str]) -> None:
    """Puts lines between `<!-- block -->` and `<!-- end of block -->`."""
    marks = f"<!-- {block} -->", f"<!-- end of {block} -->"
    text = page.read_text(encoding="utf-8")
    between = re.compile(f"(?<={re.escape(marks[0])}\n).*(?={re.escape(marks[1])})", re.DOTALL)
    if not between.search(text):
        raise ValueError(f"{page} has no lines {marks[0]} and {marks[1]}")
    page.write_text(between.sub(lambda _: "".join(f"{line}\n" for line in lines), text), encoding="utf-8")
