"""Which quantity stands where in a table, and the table made from what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aceglt.reproduction.cells import Cell
from aceglt.reproduction.measures import Quantity, Sample
from aceglt.reproduction.quotes import quote
from aceglt.reproduction.tables import HERE, PAPER, Entry, Line, Table
from aceglt.searches.statistics import SIGNIFICANCE, TOLERANCE, mean_std, paired_t_test

Contents = dict[tuple[str, str], "Quantity | str"]
"""By keys of row and column: what stands there; plain text where nothing is measured."""

STAR_SEEDS = 3  # as many trials as the paper tests
BOLD, UNDERLINE, STAR = "bold", "underline", "star"


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
    ours = _marked(grid, {row.key: [_filled(grid, row, column, found) for column in grid.columns] for row in grid.rows})
    lines: list[Line] = []
    for row in grid.rows:
        lines.append(Line((*row.labels, HERE), tuple(ours[row.key]), row.block))
        quotes = tuple(quote(grid.quoted, row.key, column.key) for column in grid.columns)
        if any(quotes):
            lines.append(Line((*row.labels, PAPER), tuple(q or Entry() for q in quotes), row.block))
    columns = tuple((column.group, column.name) for column in grid.columns)
    return Table(title, (*grid.heads, "Source"), columns, tuple(lines))


@dataclass(frozen=True)
class _Filled:
    """An entry with the readings behind it."""

    entry: Entry
    sample: Sample | None = None


def _filled(grid: Grid, row: Row, column: Column, found: Mapping[Cell, Mapping[str, Any]]) -> _Filled:
    quantity = grid.contents[row.key, column.key]
    if isinstance(quantity, str):
        return _Filled(Entry(quantity))
    sample = quantity.sample(found)
    if sample is None:
        return _Filled(Entry())
    if quantity.measure == "winner" and not any(sample.values()):
        return _Filled(Entry("-"))
    return _Filled(entry_of(list(sample.values()), quantity.measure), sample)


_UNITS = {
    "seconds": (1.0, 0, " s"),
    "macs": (1e-6, 0, " M"),
    "count": (1.0, 0, ""),
    "change": (1.0, 3, ""),
    "fluctuation of edges": (1.0, 3, ""),
    "fluctuation of weights": (1.0, 3, ""),
}
"""Factor, digits and unit of what is not in percent."""


def entry_of(values: Sequence[float], measure: str) -> Entry:
    """Mean ± standard deviation over seeds, in the unit of the measure; percent for most."""
    factor, digits, unit = _UNITS.get(measure, (100.0, 2, ""))
    mean, std = (factor * value for value in mean_std(values))
    deviation = f" ± {std:.{digits}f}" if len(values) > 1 and measure != "count" else ""
    return Entry(f"{mean:.{digits}f}{deviation}{unit}", mean, std if deviation else None)


def _marked(grid: Grid, filled: dict[str, list[_Filled]]) -> dict[str, list[Entry]]:
    """Best and second of each block's column, and whether the best is significantly better than the second."""
    entries = {key: [one.entry for one in row] for key, row in filled.items()}
    for block in dict.fromkeys(row.block for row in grid.rows):
        keys = [row.key for row in grid.rows if row.block == block]
        for c in range(len(grid.columns)):
            if sum(bool(filled[key][c].entry.text) for key in keys) < 2:
                continue  # nothing to be better than
            samples = {key: sample for key in keys if (sample := filled[key][c].sample) is not None}
            for key, changes in _ranking(samples, grid.marks).items():
                entries[key][c] = replace(entries[key][c], **changes)
    return entries


def _ranking(samples: Mapping[str, Sample], marks: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Which of the rows are marked how; rows that tie share their place."""
    if BOLD not in marks or not samples:
        return {}
    means = {key: mean_std(list(sample.values()))[0] for key, sample in samples.items()}
    ranked = sorted(means, key=lambda key: -means[key])
    best = [key for key in ranked if means[key] >= means[ranked[0]] - TOLERANCE]
    rest = ranked[len(best) :]
    changes: dict[str, dict[str, Any]] = {key: {"mark": "best"} for key in best}
    if len(best) > 1 or not rest:
        return changes
    if STAR in marks and _significant(samples[best[0]], samples[rest[0]]):
        changes[best[0]]["star"] = True
    if UNDERLINE in marks:
        changes |= {key: {"mark": "second"} for key in rest if means[key] >= means[rest[0]] - TOLERANCE}
    return changes


def _significant(first: Sample, second: Sample) -> bool:
    """A two-sided paired t-test over the seeds that both have."""
    shared = [seed for seed in first if seed in second]
    if len(shared) < STAR_SEEDS:
        return False
    p = paired_t_test([first[seed] for seed in shared], [second[seed] for seed in shared])
    return p is not None and p < SIGNIFICANCE
