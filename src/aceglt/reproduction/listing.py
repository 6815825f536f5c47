"""What the command line prints about reproductions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from aceglt import datasets
from aceglt.config import Config
from aceglt.methods.build import build_method
from aceglt.reproduction import EXHIBITS, Cell, Exhibit, Reproduction, Scale
from aceglt.reproduction.cost import epochs_per_seed, estimator
from aceglt.reproduction.runs import collect, missing
from aceglt.reproduction.tables import HERE, Table
from aceglt.searches.observer import Observer
from aceglt.searches.progress import SearchProgress

_ROUGH = (
    "Time: a rough estimate for this machine, from a short measurement; levels that get cheaper are not considered."
)

_WHERE = (
    "not on this machine; the search tries to download them. Without a network, lay the files out as "
    "`aceglt datasets` and docs/guides/large-graphs.md say, in a folder that --data-root or $ACEGLT_DATA names."
)


def print_exhibits(console: Console, scale: Scale, device: str, data_root: Path | None) -> None:
    """All tables and figures with the number of their searches, the data they need and their cost."""
    table = _rich("name", "what", "cells", "searches", "epochs", "time", "needs data")
    seconds, absent = estimator(device), _absent(data_root)
    for exhibit in EXHIBITS.values():
        configs = [cell.config(scale) for cell in exhibit.cells]
        needs = sorted({cell.dataset for cell in exhibit.cells} & absent)
        epochs = sum(epochs_per_seed(config) * len(config.seeds) for config in configs)
        table.add_row(
            exhibit.name, exhibit.title, _pattern(exhibit.cells), str(len(configs)), f"{epochs:,}",
            _time(sum(seconds(config, len(config.seeds)) for config in configs)), ", ".join(needs),
        )  # fmt: skip
    console.print(table)
    shared = "Tables and figures with the same searches share them, as do figureS2, tableS8 and table1."
    _line(console, f"{_ROUGH} {shared}")
    _line(console, "`aceglt reproduce NAME --list` lists the cells of one. Needs data: " + _WHERE)


def print_cells(
    console: Console, what: Exhibit, cells: Sequence[Cell], scale: Scale, device: str, data_root: Path | None, out: Path
) -> None:
    """The searches of one table or figure, how far they are, and what is left to do."""
    table = _rich("cell", "seeds found", "levels", "epochs left", "time left", "data")
    seconds, absent = estimator(device), _absent(data_root)
    for cell in cells:
        config = cell.config(scale)
        found = collect(out / "runs", cell, scale)
        left = sum(len(seeds) for _, seeds in missing(out / "runs", cell, scale))
        table.add_row(
            cell.name, str(len(found["seeds"]) if found else 0), str(config.stopping.levels),
            f"{epochs_per_seed(config) * left:,}", _time(seconds(config, left)),
            "missing" if cell.dataset in absent else "here",
        )  # fmt: skip
    _line(console, f"{what.name}: {what.title}")
    console.print(table)
    _line(console, _ROUGH)
    if {cell.dataset for cell in cells} & absent:
        _line(console, "Missing data: " + _WHERE)


def print_reproduction(console: Console, result: Reproduction) -> None:
    """The table, what should be known about it, and where everything is."""
    console.print(_shown(result.table))  # the files have the lines that are still empty too
    for text in (*result.notes, *result.files):
        _line(console, str(text))


class Progress:
    """Announces each search, and shows its progress."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def __call__(self, cell: Cell, config: Config) -> Iterator[Observer]:
        _line(self._console, f"{cell.name}, seeds {', '.join(map(str, config.seeds))}")
        with SearchProgress(self._console, config, build_method(config)) as progress:
            yield progress


def _time(seconds: float) -> str:
    """To one unit: it is an estimate."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def _pattern(cells: Sequence[Cell]) -> str:
    """What the cells are all combinations of; the name of the first where they are something else."""
    words = ("datasets", "backbones", "axes", "methods")
    parts = zip(*((cell.dataset, cell.backbone, cell.axis, (cell.method, cell.variant)) for cell in cells), strict=True)
    sizes = {word: len(set(part)) for word, part in zip(words, parts, strict=True)}
    if math.prod(sizes.values()) != len(cells):
        return f"{cells[0].name} …"
    if len({cell.method for cell in cells}) == 1:
        sizes["variants"] = sizes.pop("methods")
    return " × ".join(f"{size} {word}" for word, size in sizes.items() if size > 1)


def _absent(data_root: Path | None) -> set[str]:
    return {name for name, present, _ in datasets.available(data_root) if not present}


def _shown(table: Table) -> RichTable:
    shown = _rich(*table.heads, *(f"{group} {name}".strip() for group, name in table.columns))
    styles = {"best": "bold", "second": "underline", "": ""}
    begun = {line.labels[:-1] for line in table.lines if line.labels[-1] == HERE and any(e.text for e in line.entries)}
    for line in table.lines:
        if line.labels[:-1] in begun:
            entries = [(e.text + "*" * e.star, styles[e.mark]) for e in line.entries]
            shown.add_row(*line.labels, *(Text(text, style) for text, style in entries))
    return shown


def _rich(*heads: str) -> RichTable:
    table = RichTable(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
