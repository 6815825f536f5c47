"""A sweep's folder, and what a sweep leaves in it: all results in one file, one table, one report."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from aceglt.config import as_call
from aceglt.files import write_atomic, write_json
from aceglt.report import NAMING, ReportUnavailable, RunView, distinct_names, write_report
from aceglt.runs.directory import LockedFolder, RunDir, finished_results, is_run
from aceglt.searches.statistics import best_level, mean_std
from aceglt.sweeps.grid import GridCell


class SweepDir(LockedFolder):
    """Run directories and logs of the searches, and what is merged of them."""

    kind = "folder of a sweep"
    claim_file = "grid.json"
    folders = ("runs", "logs")
    files: ClassVar[Sequence[str]] = ("grid.json", "sweep.json", "sweep.csv", "report.html")

    def __init__(self, path: str | Path) -> None:
        super().__init__(Path(path).absolute())
        self.grid, self.merged, self.table, self.report = (self.path / name for name in SweepDir.files)
        self.runs, self.logs = (self.path / name for name in self.folders)

    def run(self, cell: GridCell) -> RunDir:
        return RunDir(self.runs / cell.name)

    def log(self, cell: GridCell) -> Path:
        return self.logs / f"{cell.name}.log"

    def finished(self, cell: GridCell) -> Mapping[str, Any] | None:
        """The results of a search that is there to its end, with the levels that the cell asks for; else None."""
        run = self.run(cell)
        results = finished_results(run.path) if is_run(run.path) else None
        # Its name tells that the rest of the configuration is the cell's.
        return results if results and run.read_config().stopping == cell.config.stopping else None

    def level(self, cell: GridCell) -> int | None:
        """The level that a search is at, by its log; None where it has not begun."""
        try:
            with open(self.run(cell).events, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                return int(json.loads(file.read().splitlines()[-1])["level"])
        except (OSError, ValueError, KeyError, IndexError):  # no log yet, or its last line is being written
            return None


@dataclass(frozen=True)
class SweepResult:
    """What a sweep found."""

    cells: Sequence[Mapping[str, Any]]
    """One per search, in the grid's order: name, config, varied, status, error and results (as results.json)."""
    path: Path
    notes: Sequence[str] = ()
    """What the user should know, such as why there is no report."""

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """The searches that did not finish; `error` says why, `log` where to read more."""
        return [cell for cell in self.cells if cell["status"] != "finished"]


def publish(folder: SweepDir, cells: Sequence[GridCell], failures: Mapping[str, str]) -> SweepResult:
    """Write sweep.json, sweep.csv and the report of what is there; every cell is in each exactly once."""
    entries = [_entry(folder, cell, failures.get(cell.name)) for cell in cells]
    write_json(folder.merged, {"format": 1, "cells": entries})
    rows = [_row(entry) for entry in entries]
    text = io.StringIO()
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(folder.table, text.getvalue().encode())
    found = [(cell, entry) for cell, entry in zip(cells, entries, strict=True) if entry["results"]]
    views = [_view(folder, cell, entry) for cell, entry in found]
    names = distinct_names(views, [Path(cell.name) for cell, _ in found])
    try:
        if views:
            write_report([replace(view, name=name) for view, name in zip(views, names, strict=True)], folder.report)
    except ReportUnavailable as problem:
        return SweepResult(entries, folder.path, [str(problem)])
    return SweepResult(entries, folder.path)


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


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A cell in one line: means over seeds, of dense and of the sparsest level that wins on validation."""
    config, results = entry["config"], entry["results"]
    row = {"name": entry["name"], **{name: config[name] for name in ("dataset", "backbone", "method", "axis")}}
    row |= {"seeds": len(config["seeds"]), **entry["varied"], "status": entry["status"]}
    if results is None:
        return row
    best = best_level(results) or {}
    row |= _means("dense", results["dense"])
    row |= {f"best_{name}": best.get(name) for name in ("level", "model_sparsity", "graph_sparsity")}
    return row | _means("best", best)


def _means(name: str, readings: Mapping[str, Any]) -> dict[str, float | None]:
    return {f"{name}_{key}": mean_std(readings[key])[0] if readings.get(key) else None for key in ("val", "test")}


def _view(folder: SweepDir, cell: GridCell, entry: Mapping[str, Any]) -> RunView:
    special = [f"{name} {value}" for name, value in cell.varied.items() if name not in (*NAMING, "method", "signal")]
    name = ", ".join([f"{cell.config.method} ({cell.config.scoring.signal})", *special])
    tickets = sorted(path.relative_to(folder.path).as_posix() for path in folder.run(cell).tickets.glob("level_*"))
    return RunView(name, entry["results"], entry["config"], as_call(cell.settings), tickets)
