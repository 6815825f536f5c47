"""What a sweep leaves: all results in one file, one table, one report; every cell is in each exactly once."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aceglt.config import as_call
from aceglt.files import write_atomic, write_json
from aceglt.report import NAMING, ReportUnavailable, RunView, distinct_names, write_report
from aceglt.runs.directory import results_of
from aceglt.searches.statistics import best_level, mean_std
from aceglt.sweeps.folder import SweepDir
from aceglt.sweeps.grid import GridCell


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
    """Write sweep.json, sweep.csv and the report of what is there."""
    entries = [_entry(folder, cell, failures.get(cell.name)) for cell in cells]
    write_json(folder.merged, {"format": 1, "cells": entries})
    write_atomic(folder.table, _csv([_row(entry) for entry in entries]).encode())
    views = _views(folder, [(cell, entry) for cell, entry in zip(cells, entries, strict=True) if entry["results"]])
    try:
        if views:
            write_report(views, folder.report)
    except ReportUnavailable as problem:
        return SweepResult(entries, folder.path, [str(problem)])
    return SweepResult(entries, folder.path)


def _entry(folder: SweepDir, cell: GridCell, error: str | None) -> dict[str, Any]:
    finished = folder.finished(cell)
    return {
        "name": cell.name,
        "status": "finished" if finished else "failed" if error else "unfinished",
        "error": None if finished else error,
        "log": str(folder.log(cell).relative_to(folder.path)),
        "varied": cell.varied,
        "config": cell.config.to_dict(),
        "results": results_of(folder.run(cell).path) if finished else None,
    }


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A cell in one line: means over seeds, of dense and of the sparsest level that wins on validation."""
    config, results = entry["config"], entry["results"]
    row = {name: config[name] for name in ("dataset", "backbone", "method", "axis")}
    row = {"name": entry["name"], **row, "seeds": len(config["seeds"]), **entry["varied"], "status": entry["status"]}
    if results is None:
        return row
    best = best_level(results) or {}
    sparsities = {f"best_{name}": best.get(name) for name in ("level", "model_sparsity", "graph_sparsity")}
    return {**row, **_means("dense", results["dense"]), **sparsities, **_means("best", best)}


def _means(name: str, readings: Mapping[str, Any]) -> dict[str, float | None]:
    return {f"{name}_{key}": mean_std(readings[key])[0] if readings.get(key) else None for key in ("val", "test")}


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _views(folder: SweepDir, found: Sequence[tuple[GridCell, Mapping[str, Any]]]) -> list[RunView]:
    views = [_view(folder, cell, entry) for cell, entry in found]
    names = distinct_names(views, [Path(cell.name) for cell, _ in found])
    return [replace(view, name=name) for view, name in zip(views, names, strict=True)]


def _view(folder: SweepDir, cell: GridCell, entry: Mapping[str, Any]) -> RunView:
    special = [f"{name} {value}" for name, value in cell.varied.items() if name not in (*NAMING, "method", "signal")]
    name = ", ".join([f"{cell.config.method} ({cell.config.scoring.signal})", *special])
    tickets = sorted(path.relative_to(folder.path).as_posix() for path in folder.run(cell).tickets.glob("level_*"))
    return RunView(name, entry["results"], entry["config"], as_call(cell.settings), tickets)
