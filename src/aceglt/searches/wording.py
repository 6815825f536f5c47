"""Numbers as people read them, in the terminal and in the report, and text as HTML."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aceglt.searches.statistics import enough_patience, mean_std

UNKNOWN = "–"
VERDICTS = {True: "yes", False: "no", None: "undetermined"}
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[TGMkhs]|min)\b|%)")


def escape(text: object) -> str:
    """Text that no HTML parser takes for markup, in which a number stays beside its unit."""
    return html.escape(_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", str(text)))


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction as a percentage."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f} %"


def plus_minus(values: Sequence[float | None] | None) -> str:
    """Mean ± standard deviation of the known ones, in percent; a single one has no deviation to show.

    Without a list they were not read at all, as test is not in tuning mode.
    """
    if values is None:
        return "not read"
    known = [value for value in values if value is not None]
    if not known:
        return UNKNOWN
    mean, std = mean_std(known)
    return f"{100 * mean:.2f}" if len(known) == 1 else f"{100 * mean:.2f} ± {100 * std:.2f}"


def teacher_in_words(r: Mapping[str, Any]) -> str:
    """What of a search's settings its teachers were better without, in how many runs; nothing if they have them all."""
    without = {"smoothing": "without smoothing", "temperature": "at temperature 1"}
    left = {name: runs.count(False) for name, runs in (r.get("teacher") or {}).items()}
    told = [f"{without.get(name, name)} in {count} of {len(r['seeds'])} runs" for name, count in left.items() if count]
    return f"{', '.join(told)}: it was worse on validation otherwise" if told else ""


def quantity(value: float | None, beside: float | None = None) -> str:
    """A large count with an SI prefix, that of the count it stands `beside` where one is given."""
    if value is None:
        return UNKNOWN
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if (beside or value) >= factor:
            return f"{value / factor:.3f} {prefix}"
    return f"{value:.0f}"


def byte_count(count: int) -> str:
    """Bytes in kB or MB."""
    return f"{count / 1e6:.2f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def duration(seconds: float | None) -> str:
    """Seconds, or minutes and hours where those read better."""
    if seconds is None:
        return UNKNOWN
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def counted(number: int, thing: str, things: str = "") -> str:
    """`1 level`, `2 levels`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


SIDE_OF = {"model_sparsity": "weights", "graph_sparsity": "edges"}


def level_in_words(results: Mapping[str, Any], levels: int = 0) -> str:
    """The last level of results.json, or dense, in a line; `levels` is how many there will be."""
    done = results["levels"]
    last = done[-1] if done else results["dense"]
    means = {key: f"{100 * mean_std(last[key])[0]:.2f}" for key in ("val", "test") if last[key]}
    read = " · ".join(f"{key} {mean}" for key, mean in means.items())
    if not done:
        return f"dense · {read}"
    pruned = ", ".join(f"−{percent(last[key], 1)} {side}" for key, side in SIDE_OF.items())
    verdict = "wins" if last["winning"]["strict"] else "loses"
    return f"level {last['level']}/{max(levels, last['level'])} · {pruned} · {read} · {verdict}"


def patience_in_words(levels: Sequence[Mapping[str, Any]]) -> str | None:
    """How a search could have ended sooner with the same winner; None where it could not."""
    patience = enough_patience(levels)
    if patience is None:
        return None
    last = max(place for place, level in enumerate(levels, start=1) if level["winning"]["strict"])
    spared = levels[last + patience :]
    seconds = sum(level.get("seconds") or 0.0 for level in spared)
    time = f" and {duration(seconds)}" if seconds else ""
    return f"--patience {patience} would have found the same winner with {counted(len(spared), 'level')}{time} less"


def text_table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of columns, so many of them flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """The same for a notebook; the first row is the head."""

    def cell(kind: str, place: int, words: str) -> str:
        return f'<{kind} style="text-align:{"right" if place else "left"}">{escape(words)}</{kind}>'

    lines = ["".join(cell("td" if n else "th", i, c) for i, c in enumerate(row)) for n, row in enumerate(rows)]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
