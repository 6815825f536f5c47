"""Every table and figure of the paper, as exhibits.json has them: its searches, its layout and what is drawn."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from aceglt.errors import ConfigError
from aceglt.reproduction.cells import Cell
from aceglt.reproduction.grid import Grid
from aceglt.reproduction.layouts import EXHIBITS_FILE, LAYOUTS, Panel


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper."""

    name: str
    title: str
    grid: Grid
    panels: tuple[Panel, ...] = ()
    plot: str = ""
    """What a figure is: curves or excerpt; nothing for a table."""
    notes: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The searches that it needs, each once."""
        drawn = [cell for panel in self.panels for _, cell in panel.lines]
        return tuple(dict.fromkeys([*self.grid.cells, *drawn]))

    def pick(self, wanted: Sequence[str]) -> tuple[Cell, ...]:
        """The cells that are wanted; see `pick`."""
        return pick(self.name, self.cells, wanted)


def pick(what: str, cells: Sequence[Cell], wanted: Sequence[str]) -> tuple[Cell, ...]:
    """The cells that have all parts of one of the wanted names, such as cora/gcn or ugs; all if none is named.

    The whole name of a cell is that cell alone. `what` the cells are of, for messages.
    """
    whole = {cell.name: {cell} for cell in cells}
    picked: set[Cell] = set() if wanted else set(cells)
    for name in wanted:
        parts = set(name.lower().split("/"))
        chosen = whole.get(name.lower()) or {cell for cell in cells if parts <= set(cell.parts)}
        if not chosen:
            known = dict.fromkeys(part for cell in cells for part in cell.parts)
            raise ConfigError(f"{what} has no cell '{name}'; join any of {', '.join(known)} with /")
        picked |= chosen
    return tuple(cell for cell in cells if cell in picked)


def exhibit(name: str) -> Exhibit:
    """By name, in any case."""
    known = {each.lower(): each for each in EXHIBITS}
    if name.lower() not in known:
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"; did you mean {known[close[0]]}?" if close else ""
        raise ConfigError(f"the paper has no '{name}' to reproduce{hint}; known are {', '.join(EXHIBITS)}")
    return EXHIBITS[known[name.lower()]]


def _read(name: str, entry: Mapping[str, Any]) -> Exhibit:
    """An entry of exhibits.json, whose notes are texts or names of such that several entries share."""
    grid, panels = LAYOUTS[entry["layout"]](**entry["of"])
    grid = replace(grid, marks=frozenset(entry.get("marks", ())), quoted=entry.get("quoted", ""))
    plot = entry.get("plot", "")
    texts = tuple(EXHIBITS_FILE["notes"].get(note, note) for note in entry["notes"])
    return Exhibit(name, entry["title"], grid, panels if plot else (), plot, texts)


EXHIBITS = {name: _read(name, entry) for name, entry in EXHIBITS_FILE["exhibits"].items()}
"""By name, in the order of the paper."""
