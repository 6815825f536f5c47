"""The searches of Table 1 as results/table1 keeps them: per dataset, backbone and axis a file, a list over methods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aceglt.files import write_atomic
from aceglt.reproduction import Cell, Scale, exhibit
from aceglt.reproduction.layouts import METHODS as PUBLISHED
from aceglt.reproduction.layouts import OURS
from aceglt.reproduction.runs import collect as collect_runs
from aceglt.reproduction.runs import find
from aceglt.rundir import read_json

FOLDER = Path("results/table1")
METHODS = (*PUBLISHED, OURS)
Results = dict[str, Any]
"""A results.json with the search's name and where it comes from."""

_LEFT_OUT = ("excerpt", "fluctuation", "diagnostics")  # most of the bytes, and nothing of the study's
_ENVIRONMENT = ("aceglt", "torch", "device")


def collect(root: Path, code: str, folder: Path = FOLDER) -> list[str]:
    """Add the finished searches of a reproduction's folder to the kept ones; the names of those that changed.

    `code` is the version of the code that searched. What is kept stays unless there are more seeds of it now, or it was
    searched with other settings.
    """
    kept = {result["cell"]: result for result in load(folder)}
    changed = []
    for cell in exhibit("table1").cells:
        found = collect_runs(root / "runs", cell, Scale())
        if found is None:
            continue
        new = {"cell": cell.name, **_origin(root, cell, found, code), **_slim(found)}
        old = kept.get(cell.name)
        if old is None or old["config"] != new["config"] or len(old["seeds"]) < len(new["seeds"]):
            kept[cell.name] = new
            changed.append(cell.name)
    folder.mkdir(parents=True, exist_ok=True)
    for path, group in _files(folder, kept).items():
        write_atomic(path, ("[\n" + ",\n".join(map(json.dumps, group)) + "\n]\n").encode())
    return changed


def load(folder: Path = FOLDER) -> Iterator[Results]:
    """All kept results."""
    for path in sorted(folder.glob("*.json")):
        yield from json.loads(path.read_text())


def _origin(root: Path, cell: Cell, results: Results, code: str) -> Results:
    runs = [run for run in find(root / "runs", cell, Scale()) if run.has(len(results["levels"]))]
    places = [read_json(run.path / "environment.json") for run in runs]
    return {
        "command": f"aceglt reproduce table1 --cell {cell.name} --seeds {','.join(map(str, results['seeds']))}",
        "code": code,
        "environments": [{name: place.get(name) for name in _ENVIRONMENT} for place in places],
        "config": {name: value for name, value in runs[0].config.to_dict().items() if name != "seeds"},
    }


def _slim(results: Results) -> Results:
    levels = [_without(level) for level in results["levels"]]
    return {**_without(results), "levels": levels}


def _without(values: Results) -> Results:
    return {name: value for name, value in values.items() if name not in _LEFT_OUT}


def _files(folder: Path, kept: dict[str, Results]) -> dict[Path, list[Results]]:
    files: dict[Path, list[Results]] = {}
    for cell in exhibit("table1").cells:
        if cell.name in kept:
            path = folder / f"{cell.dataset}-{cell.backbone}-{cell.axis}.json"
            files.setdefault(path, []).append(kept[cell.name])
    return files
