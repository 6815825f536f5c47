"""Which quantity stands where in a table, and the table made from what was found, the paper's numbers beside ours.

Numbers that are printed in the paper (Wang et al., ECAI 2023) are quoted in paper.json as printed: "89.64±0.45 b*" is
bold and has a star, "u" is underlined, "-" is the paper's sign for "no ticket was found". Of figures, only numbers that
the text states are quoted; nothing is read off a plot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from aceglt.reproduction.cells import Cell
from aceglt.reproduction.measures import Quantity, Sample
from aceglt.reproduction.tables import HERE, PAPER, Entry, Line, Table
from aceglt.searches.statistics import SIGNIFICANCE, TOLERANCE, mean_std, paired_t_test

Position = tuple[str, str]
"""Keys of row and column."""
Contents = dict[Position, "Quantity | str"]
"""What stands where; plain text where nothing is measured."""

STAR_SEEDS = 3  # as many trials as the paper tests
BOLD, UNDERLINE, STAR = "bold", "underline", "star"
_QUOTED_MARKS = {"b": "best", "u": "second", None: ""}
_QUOTED = re.compile(r"(?P<mean>[\d.]+)(?:±(?P<std>[\d.]+)| (?P<unit>[sM]))?(?: (?P<mark>[bu]))?(?P<star>\*)?")


@dataclass(frozen=True)
class Row:
    """A line of the paper's table."""

    key: str
    labels: tuple[str, ...]
    block: str = ""


@dataclass(frozen=True)
class Column:
    """A column of the paper's table, under the heading of its group."""

    key: str
    group: str
    name: str


@dataclass(frozen=True)
class Grid:
    """A table's layout."""

    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    contents: Contents
    marks: frozenset[str] = frozenset()
    """What the paper's table marks: bold, underline, star."""
    quoted: str = ""
    """The table of the paper whose numbers stand beside ours."""

    @property
    def cells(self) -> list[Cell]:
        contents = (self.contents[row.key, column.key] for row in self.rows for column in self.columns)
        return [cell for one in contents if isinstance(one, Quantity) for cell in one.cells]


def fill(grid: Grid, title: str, found: Mapping[Cell, Mapping[str, Any]]) -> Table:
    """The table: under each line of ours the paper's, where it has one."""
    quoted, ours, lines = quotes(grid.quoted), _ours(grid, found), []
    for row in grid.rows:
        places = [(row.key, column.key) for column in grid.columns]
        lines.append(Line((*row.labels, HERE), tuple(ours[place] for place in places), row.block))
        if any(place in quoted for place in places):
            printed = tuple(quoted.get(place, Entry()) for place in places)
            lines.append(Line((*row.labels, PAPER), printed, row.block))
    columns = tuple((column.group, column.name) for column in grid.columns)
    return Table(title, (*grid.heads, "Source"), columns, tuple(lines))


@cache
def quotes(exhibit: str) -> dict[Position, Entry]:
    """What the paper prints in a table or about a figure."""
    paper = json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
    table = paper.get(exhibit, {"columns": [], "rows": {}})
    return {
        (row, column): _quote(text)
        for row, texts in table["rows"].items()
        for column, text in zip(table["columns"], texts, strict=True)
    }


def _quote(text: str) -> Entry:
    found = _QUOTED.fullmatch(text)
    if found is None:
        return Entry(text)  # "-", or a formula
    mean, std, unit = found["mean"], found["std"], found["unit"]
    shown = mean + (f" ± {std}" if std else "") + (f" {unit}" if unit else "")
    return Entry(shown, float(mean), float(std) if std else None, _QUOTED_MARKS[found["mark"]], bool(found["star"]))


_UNITS = {
    "seconds": (1.0, 0, " s"),
    "macs": (1e-6, 0, " M"),
    "count": (1.0, 0, ""),
    **dict.fromkeys(("change", "fluctuation of edges", "fluctuation of weights"), (1.0, 3, "")),
}
"""Factor, digits and unit of what is not in percent."""


def entry_of(values: Sequence[float], measure: str) -> Entry:
    """Mean ± standard deviation over seeds, in the unit of the measure; percent for most."""
    factor, digits, unit = _UNITS.get(measure, (100.0, 2, ""))
    mean, std = (factor * value for value in mean_std(values))
    deviation = f" ± {std:.{digits}f}" if len(values) > 1 and measure != "count" else ""
    return Entry(f"{mean:.{digits}f}{deviation}{unit}", mean, std if deviation else None)


def _ours(grid: Grid, found: Mapping[Cell, Mapping[str, Any]]) -> dict[Position, Entry]:
    """What was found, with the marks that the paper's table has, by block and column."""
    entries: dict[Position, Entry] = {}
    samples: dict[Position, Sample] = {}
    for place, quantity in grid.contents.items():
        sample = None if isinstance(quantity, str) else quantity.sample(found)
        if isinstance(quantity, str) or sample is None:
            entries[place] = Entry(quantity if isinstance(quantity, str) else "")
        elif quantity.measure == "winner" and not any(sample.values()):
            entries[place] = Entry("-")
        else:
            entries[place], samples[place] = entry_of(list(sample.values()), quantity.measure), sample
    for block in dict.fromkeys(row.block for row in grid.rows):
        for column in grid.columns:
            places = [(row.key, column.key) for row in grid.rows if row.block == block]
            if sum(bool(entries[place].text) for place in places) > 1:  # else there is nothing to be better than
                ranked = _ranking({place: samples[place] for place in places if place in samples}, grid.marks)
                entries |= {place: replace(entries[place], **marks) for place, marks in ranked.items()}
    return entries


def _ranking(samples: Mapping[Position, Sample], marks: frozenset[str]) -> dict[Position, dict[str, Any]]:
    """Best and second, and whether the best is significantly better; places that tie share their rank."""
    if BOLD not in marks or not samples:
        return {}
    means = {place: mean_std(list(sample.values()))[0] for place, sample in samples.items()}
    ranked = sorted(means, key=lambda place: -means[place])
    best = [place for place in ranked if means[place] >= means[ranked[0]] - TOLERANCE]
    rest = ranked[len(best) :]
    changes: dict[Position, dict[str, Any]] = {place: {"mark": "best"} for place in best}
    if len(best) > 1 or not rest:
        return changes
    if STAR in marks and _significant(samples[best[0]], samples[rest[0]]):
        changes[best[0]]["star"] = True
    if UNDERLINE in marks:
        changes |= {place: {"mark": "second"} for place in rest if means[place] >= means[rest[0]] - TOLERANCE}
    return changes


def _significant(first: Sample, second: Sample) -> bool:
    """A two-sided paired t-test over the seeds that both have."""
    shared = [seed for seed in first if seed in second]
    if len(shared) < STAR_SEEDS:
        return False
    p = paired_t_test([first[seed] for seed in shared], [second[seed] for seed in shared])
    return p is not None and p < SIGNIFICANCE
