"""The paper's tables and figures, each by one call: the searches behind it, a table in its layout, and its plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aceglt import datasets
from aceglt.config import with_options
from aceglt.config.groups import NodeOptions
from aceglt.errors import ConfigError, DataError
from aceglt.files import write_atomic
from aceglt.methods.build import build_method
from aceglt.report.static import check_static
from aceglt.reproduction.cells import IDENTITY, Cell, Scale
from aceglt.reproduction.grid import fill
from aceglt.reproduction.plots import draw
from aceglt.reproduction.registry import EXHIBITS, Exhibit, exhibit
from aceglt.reproduction.runs import Observe, collect, complete
from aceglt.reproduction.summary import levels_csv, page, runs_table
from aceglt.reproduction.tables import Table, comma_separated, latex
from aceglt.searches.wording import counted

__all__ = ["EXHIBITS", "Cell", "Exhibit", "Reproduction", "Scale", "exhibit", "reproduce"]


@dataclass(frozen=True, repr=False)
class Reproduction:
    """A table or figure, as far as it was reproduced."""

    name: str
    table: Table
    """In the paper's layout, with its numbers."""
    results: Mapping[str, Mapping[str, Any]]
    """By the name of a cell: as results.json, over all seeds that were found."""
    files: Sequence[Path]
    notes: Sequence[str]
    """What the user should know, such as cells without data."""

    def __repr__(self) -> str:
        return "\n".join([f"{self.name}: {counted(len(self.results), 'cell')} searched", *map(str, self.files)])


def reproduce(
    name: str,
    *,
    out: str | Path = "reproduction",
    cells: str | Sequence[str] = (),
    seeds: Sequence[int] | int = 3,
    levels: int | None = None,
    epochs: int | None = None,
    preset: str = "paper",
    device: str = "auto",
    data_root: str | Path | None = None,
    runs_at_once: int | None = None,
    search: bool = True,
    observe: Observe | None = None,
    **settings: Any,
) -> Reproduction:
    """Reproduce a table or figure of the paper.

    Searches that are finished in `out` are reused, interrupted ones continued, and only seeds that no run has yet are
    searched; the table is made from all seeds found. Run directories of other machines may be copied into `out`/runs.

    Args:
        name: such as "table1" or "figureS2"; `aceglt reproduce --list` has all.
        out: folder for the runs, shared by all tables and figures, and for one folder per table or figure.
        cells: part of it, such as "cora/gcn" or ["ugs", "default"]; all unless given.
        seeds: how many, or which.
        levels: fewer than the paper's, to try it out.
        epochs: likewise; epochs of refinement shrink in proportion.
        preset: whose settings; "paper" is the paper's own.
        device: as of `aceglt.search`.
        data_root: likewise.
        runs_at_once: likewise.
        search: False makes the table from what is there.
        observe: called with each cell and its configuration before it is searched; gives a context manager whose
            value is told about progress.
        settings: further fields of `Config` for all searches.

    Raises:
        AcegltError: something given is wrong, or no data are there; before anything is searched.

    Examples:
        >>> quick = {"seeds": 1, "levels": 1, "epochs": 1, "hidden": 4, "device": "cpu"}
        >>> len(aceglt.reproduce("table1", out="runs", cells="citeseer/gcn/model/random", **quick).results)
        1
    """
    wanted = exhibit(name)
    _check_settings(wanted, settings)
    scale = Scale(preset, seeds if isinstance(seeds, int) else tuple(seeds), levels, epochs, settings)
    chosen: Sequence[Cell] = wanted.pick([cells] if isinstance(cells, str) else cells)
    configs = {cell: cell.config(scale) for cell in wanted.cells}
    for cell in chosen:
        build_method(configs[cell])  # refuses options that are not the method's
    if wanted.plot:
        check_static("png")
    root = Path(out)
    notes: list[str] = []
    if search:
        chosen, notes = _with_data(chosen, data_root)
        watch = observe or (lambda cell, config: nullcontext())
        for cell in chosen:
            complete(root / "runs", cell, scale, watch, device=device, data_root=data_root, runs_at_once=runs_at_once)
    found = {cell: results for cell in wanted.cells if (results := collect(root / "runs", cell, scale))}
    if not found:
        raise ConfigError(f"{root / 'runs'} has no finished search of {wanted.name} at this scale; search for it first")
    table = fill(wanted.grid, wanted.title, found)
    notes += wanted.notes
    if settings.get("split", NodeOptions.split) != NodeOptions.split:
        drawn = f"Training, validation and test nodes are drawn, split `{settings['split']}`; the paper's are given."
        notes.append(drawn)
    files = _write(root / wanted.name, wanted, table, found, notes)
    return Reproduction(wanted.name, table, {cell.name: results for cell, results in found.items()}, files, notes)


def _check_settings(wanted: Exhibit, settings: Mapping[str, Any]) -> None:
    """Settings that the cells differ in, given for all of them, would put wrong labels on the results."""
    if settings.get("test") is False:
        raise ConfigError(f"{wanted.name} is about test metrics; test=False has none")
    varied = [with_options(cell.settings) for cell in wanted.cells if cell.variant]
    for name in with_options(settings):
        if name in IDENTITY or any(name in theirs for theirs in varied):
            raise ConfigError(f"{name} is not the same in all cells of {wanted.name}, so it cannot be set for them")


def _with_data(cells: Sequence[Cell], data_root: str | Path | None) -> tuple[Sequence[Cell], list[str]]:
    """The cells whose data are there or can be fetched, and a note on each dataset that is not."""
    problems: dict[str, DataError] = {}
    present = {name for name, there, _ in datasets.available(data_root) if there}
    for name in dict.fromkeys(cell.dataset for cell in cells if cell.dataset not in present):
        try:
            datasets.read(name, data_root)
        except DataError as problem:
            problems[name] = problem
    left = [cell for cell in cells if cell.dataset not in problems]
    if not left:
        raise next(iter(problems.values()))
    return left, [f"Left out: {problem}" for problem in problems.values()]


def _write(
    folder: Path, wanted: Exhibit, table: Table, found: Mapping[Cell, Mapping[str, Any]], notes: Sequence[str]
) -> list[Path]:
    """All files of a table or figure, each whole or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(wanted, found, folder / wanted.name) if wanted.plot else []
    texts = {
        f"{wanted.name}.md": page(wanted, table, found, notes, [path.name for path in plots]),
        f"{wanted.name}.csv": comma_separated(table),
        f"{wanted.name}.tex": latex(table),
        f"{wanted.name}-runs.csv": comma_separated(runs_table(found)),
        f"{wanted.name}-levels.csv": levels_csv(found),
    }
    for file, text in texts.items():
        write_atomic(folder / file, text.encode())
    return [folder / file for file in texts] + plots
