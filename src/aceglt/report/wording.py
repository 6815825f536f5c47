"""Numbers as people read them, in the terminal and in the report, and text as HTML."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from aceglt.searches.statistics import mean_std

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


def quantity(value: float | None, beside: float | None = None) -> str:
    """A large count with an SI prefix, that of the count it stands `beside` where one is given."""
    if value is None:
        return UNKNOWN
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if (beside or value) >= factor:
            return f"{value / factor:.3f} {prefix}"
    return f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """Seconds, or minutes and hours where those read better."""
    if seconds is None:
        return UNKNOWN
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def counted(number: int, thing: str) -> str:
    """`1 level`, `2 levels`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
