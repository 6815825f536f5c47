"""Searches that are missing, each in a process of its own and kept as soon as it has ended."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from aceglt.files import write_json
from aceglt.sweeps.board import SweepProgress
from aceglt.sweeps.grid import GridCell
from aceglt.sweeps.machines import Machines
from aceglt.sweeps.merged import SweepDir
from aceglt.sweeps.run import need_of, run_cells

Keep = Callable[[SweepDir, GridCell], None]
"""Writes down a finished search."""


class Keeper(SweepProgress):
    """Shows how the searches go on, and keeps each that has finished."""

    def __init__(self, folder: SweepDir, wanted: Sequence[GridCell], keep: Keep) -> None:
        super().__init__(Console(stderr=True))
        self._folder, self._wanted, self._keep = folder, {cell.name: cell for cell in wanted}, keep

    def on_end(self, name: str) -> None:
        super().on_end(name)
        self._keep(self._folder, self._wanted[name])


def search_missing(
    wanted: Sequence[GridCell], out: Path, keep: Keep, minutes: float | None = None, **machines: Any
) -> dict[str, str]:
    """Search in run directories under `out`, where interrupted searches go on; the failures by name."""
    where, folder, failures = Machines.of(machines), SweepDir(out), dict[str, str]()
    end = time.monotonic() + 60 * (minutes or 1e6)
    need = need_of(where, wanted)
    with folder, Keeper(folder, wanted, keep) as keeper:
        write_json(folder.grid, {"format": 1, "cells": [cell.settings for cell in wanted]})
        ended = [cell for cell in wanted if folder.finished(cell)]  # a kill came between its end and keeping it
        for cell in ended:
            keep(folder, cell)
        left = [cell for cell in wanted if cell not in ended]
        for cell in left:
            folder.log(cell).parent.mkdir(parents=True, exist_ok=True)
        keeper.on_plan(left, [], folder.begun(left))
        run_cells(left, where, need, folder, "none", keeper, failures, lambda: time.monotonic() < end)
    return failures


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    """How much is searched at a time, and where."""
    parser.add_argument("--out", type=Path, help=f"run directories [default: {out}]")
    parser.add_argument("--minutes", type=float, help="after which no search is started")
    parser.add_argument("--device", default="auto", help="[default: auto]")
    parser.add_argument("--workers", type=int, help="searches at a time")
    parser.add_argument("--gpus", type=float, help="share of a GPU for one search")
    parser.add_argument("--data-root", help="where datasets are looked for first")
    parser.add_argument("--list", action="store_true", help="only name what is missing")


def machines(given: argparse.Namespace) -> dict[str, Any]:
    """Keywords of `search_missing`."""
    return {name: getattr(given, name) for name in ("minutes", "device", "workers", "gpus", "data_root")}


def commit() -> str:
    """The version of the code; unknown on a machine that has a copy of the files alone."""
    if shutil.which("git") is None:
        return "unknown"
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return described.stdout.strip() or "unknown"
