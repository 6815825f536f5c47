"""A sweep's folder, and what a sweep leaves in it: all results in one file, one table, one report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from aceglt.config import Config, as_call
from aceglt.errors import ConfigError, RunError
from aceglt.files import tail, write_atomic, write_json
from aceglt.files.schema import OBJECT, TEXT, check
from aceglt.report import ReportUnavailable, RunView, distinct_names, write_report
from aceglt.report.result import data_frame, plot, sketch
from aceglt.report.terminal import sweep_tables
from aceglt.runs.directory import LockedFolder, RunDir, finished_results, is_run, read_json, results_of
from aceglt.searches.results import check_results, per_level, per_seed
from aceglt.searches.statistics import best_level, mean_std
from aceglt.searches.wording import counted, escape, html_table, text_table
from aceglt.sweeps.grid import GridCell

if TYPE_CHECKING:
    from pandas import DataFrame

_CELL = {
    "name": TEXT, "status": TEXT, "error": (TEXT,), "log": TEXT, "varied": OBJECT, "config": OBJECT,
    "results": (OBJECT,),
}  # fmt: skip


class SweepDir(LockedFolder):
    """Run directories and logs of the searches, and what is merged of them."""

    kind = "folder of a sweep"
    claim_file = "grid.json"
    folders = ("runs", "logs")
    files: ClassVar[Sequence[str]] = ("grid.json", "sweep.json", "sweep.csv", "levels.csv", "report.html")

    def __init__(self, path: str | Path) -> None:
        super().__init__(Path(path).absolute())
        self.grid, self.merged, self.table, self.levels, self.report = (self.path / name for name in SweepDir.files)
        self.runs, self.logs = (self.path / name for name in self.folders)

    def run(self, cell: GridCell) -> RunDir:
        return RunDir(self.runs / cell.name)

    def log(self, cell: GridCell) -> Path:
        return self.logs / f"{cell.name}.log"

    def finished(self, cell: GridCell) -> Mapping[str, Any] | None:
        """The results of a search that is there to its end, with the levels that the cell asks for; else None."""
        run = self.run(cell)
        results = finished_results(run.path) if is_run(run.path) else None
        if not results:
            return None
        try:
            found = run.read_config()  # its name tells that the rest of the configuration is the cell's
        except RunError:  # damaged: its own search says so, the others go on
            return None
        has_all = set(cell.config.seeds) <= set(found.seeds)
        return results if has_all and found.stopping == cell.config.stopping else None

    def begun(self, cells: Sequence[GridCell]) -> dict[str, str]:
        """How far those of these searches are that have begun, by name."""
        return {cell.name: found for cell in cells if (found := self._so_far(cell))}

    def _so_far(self, cell: GridCell) -> str | None:
        run = self.run(cell)
        try:
            found, results = run.read_config(), results_of(run.path)
        except RunError:  # not begun, without any result, or damaged
            return None
        wanted = cell.config
        so_far = [f"{len(results['levels'])} of {counted(wanted.stopping.levels, 'level')}"]
        if not set(wanted.seeds) <= set(found.seeds):
            so_far.append(f"{len(found.seeds)} of {counted(len(wanted.seeds), 'seed')}")
        return " with ".join(so_far)

    def level(self, cell: GridCell) -> int | None:
        """The level that a search is at, by its log; None where it has not begun."""
        try:
            return int(json.loads(tail(self.run(cell).events, 4096)[-1])["level"])
        except (ValueError, TypeError, KeyError, IndexError):  # no log yet, or its last line is being written
            return None


@dataclass(frozen=True, repr=False)
class SweepResult:
    """What a sweep found.

    Examples:
        >>> result = aceglt.sweep(grid, "sweep", device="cpu")
        >>> len(result.to_dataframe())
        8
    """

    cells: Sequence[Mapping[str, Any]]
    """One per search, in the grid's order: name, config, varied, status, error and results (as results.json)."""
    path: Path
    notes: Sequence[str] = ()
    """What the user should know, such as why there is no report."""

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """The searches that did not finish; `error` says why, `log` where to read more."""
        return [cell for cell in self.cells if cell["status"] != "finished"]

    @property
    def views(self) -> list[RunView]:
        """The searches with results, as reports and plots know them."""
        return distinct_names([_view(SweepDir(self.path), cell) for cell in self.cells if cell["results"]])

    def to_dataframe(self) -> DataFrame:
        """A row for each search, level (0 is dense) and seed, as a pandas data frame."""
        rows = [
            {**place_of(cell), **row} for cell in self.cells if cell["results"] for row in per_seed(cell["results"])
        ]
        return data_frame(rows)

    def plot(self) -> Any:
        """Quality against sparsity as a plotly figure; for searches of one dataset, backbone, task and axis."""
        return plot(self.views)

    def report(self, path: str | Path) -> Path:
        """Write one HTML report of all searches, and return where it is."""
        write_report(self.views, Path(path))
        return Path(path)

    def __repr__(self) -> str:
        views = self.views
        more = [f"{cell['name']}: {cell['status']}" for cell in self.failed]
        told = [line for heading, *rows in sweep_tables(views) for line in (*heading, *text_table(rows))]
        return "\n".join([f"Sweep of {counted(len(self.cells), 'search', 'searches')} in {self.path}", *told, *more])

    def _repr_html_(self) -> str:
        views = self.views
        return sketch(views) + "".join(
            "".join(f"<p>{escape(words)}</p>" for words in heading) + html_table(rows)
            for heading, *rows in sweep_tables(views)
        )


def load_sweep(path: str | Path) -> SweepResult:
    """Open the folder of a sweep: what `sweep` returned when it ended.

    Raises:
        AcegltError: there is no sweep, or its file is damaged.

    Examples:
        >>> _ = aceglt.sweep(grid, "sweep", device="cpu")
        >>> [cell["results"]["label"] for cell in aceglt.load_sweep("sweep").cells]
        ['random', 'ugs (labels)']
    """
    folder = SweepDir(path)
    if not folder.merged.exists():
        hint = "; it is a run directory: aceglt.load_run opens it" if is_run(folder.path) else ""
        if (folder.path / "tuned.json").exists():
            file = Path(path) / "tuned.json"
            hint = f"; it is a tuning's: see trials.csv, or use it with aceglt search --config {file}"
        raise ConfigError(f"{path} is not the folder of a sweep (it has no sweep.json){hint}")
    merged: dict[str, Any] = read_json(folder.merged)
    try:
        check(merged, {"cells": [_CELL]}, "sweep")
        cells = merged["cells"]
        for cell in cells:
            if cell["results"] is not None:
                check_results(cell["results"])
                cell["results"].setdefault("label", Config.from_dict(cell["config"]).label)
    except (TypeError, ValueError, ConfigError) as problem:
        raise RunError(f"{folder.merged}: damaged ({problem}); the sweep's command writes it anew") from None
    return SweepResult(cells, folder.path)


def publish(folder: SweepDir, cells: Sequence[GridCell], failures: Mapping[str, str]) -> SweepResult:
    """Write sweep.json, sweep.csv, levels.csv and the report of what is there; every cell is in each exactly once."""
    entries = [_entry(folder, cell, failures.get(cell.name)) for cell in cells]
    write_json(folder.merged, {"format": 1, "cells": entries})
    write_table(folder.table, [_row(entry) for entry in entries])
    done = [entry for entry in entries if entry["results"]]
    write_table(folder.levels, [{**place_of(entry), **row} for entry in done for row in per_level(entry["results"])])
    result = SweepResult(entries, folder.path)
    try:
        if done:
            write_report(result.views, folder.report)
    except ReportUnavailable as problem:
        return replace(result, notes=[str(problem)])
    return result


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as CSV, with the columns that any of them has."""
    text = io.StringIO()
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())


def _entry(folder: SweepDir, cell: GridCell, error: str | None) -> dict[str, Any]:
    results = folder.finished(cell)
    return {
        "name": cell.name,
        "status": "finished" if results else "failed" if error else "unfinished",
        "error": None if results else error,
        "log": str(folder.log(cell).relative_to(folder.path)),
        "varied": cell.varied,
        "config": cell.config.to_dict(),
        "results": results,
    }


def place_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says of its search."""
    config, results = entry["config"], entry["results"]
    named = {name: config[name] for name in ("dataset", "backbone", "method", "axis")}
    ran = {"ran": results["label"]} if results else {}
    seeds = (results or config)["seeds"]  # a run may have more than were asked for
    return {"name": entry["name"], **named, **ran, "seeds": len(seeds), **entry["varied"]}


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A cell in one line: over seeds, dense, the sparsest level that wins on validation, and the last, win or lose."""
    results, row = entry["results"], {**place_of(entry), "status": entry["status"]}
    if results is None:
        return row
    levels = {"best": best_level(results), "last": results["levels"][-1] if results["levels"] else None}
    row |= _readings("dense", results["dense"])
    for name, found in levels.items():
        level = found or {}
        row |= {f"{name}_{key}": level.get(key) for key in ("level", "model_sparsity", "graph_sparsity", "macs")}
        row |= _readings(name, level)
    return row


def _readings(name: str, entry: Mapping[str, Any]) -> dict[str, float | None]:
    """Mean and standard deviation over seeds."""
    found = {key: mean_std(entry[key]) if entry.get(key) else (None, None) for key in ("val", "test")}
    return {f"{name}_{key}{end}": pair[i] for key, pair in found.items() for i, end in enumerate(("", "_std"))}


def _view(folder: SweepDir, entry: Mapping[str, Any]) -> RunView:
    results, config = dict(entry["results"]), dict(entry["config"])
    if "environment" in entry:  # of a search whose run directory is not here
        return RunView(
            str(results["label"]), results, config, as_call(config), [], entry["environment"], {}, entry["name"]
        )
    run = RunDir(folder.runs / entry["name"])
    tickets = [path.relative_to(folder.path).as_posix() for path in run.saved_tickets(results["seeds"])]
    environment = run.read_environment() if run.path.exists() else {}
    known = (environment, run.read_savings(), entry["name"])
    return RunView(str(results["label"]), results, config, as_call(config), tickets, *known)
