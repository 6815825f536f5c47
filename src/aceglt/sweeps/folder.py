"""A sweep's folder: every file name, its lock, and how far each search in it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

from aceglt.runs.directory import LockedFolder, RunDir, finished_results, is_run
from aceglt.sweeps.grid import GridCell


class SweepDir(LockedFolder):
    """Run directories and logs of the searches, and what is merged of them."""

    kind = "folder of a sweep"
    claim_file = "grid.json"
    folders = ("runs", "logs")
    files = ("grid.json", "sweep.json", "sweep.csv", "report.html")

    def __init__(self, path: str | Path) -> None:
        super().__init__(Path(path).absolute())
        self.grid, self.merged, self.table, self.report = (self.path / name for name in self.files)
        self.runs, self.logs = (self.path / name for name in self.folders)

    def run(self, cell: GridCell) -> RunDir:
        return RunDir(self.runs / cell.name)

    def log(self, cell: GridCell) -> Path:
        return self.logs / f"{cell.name}.log"

    def finished(self, cell: GridCell) -> bool:
        """Whether the search is there to its end, with the levels that the cell asks for."""
        run = self.run(cell)
        if not is_run(run.path) or finished_results(run.path) is None:
            return False
        config = run.read_config()  # its name tells that the rest is the cell's
        return config.stops() == cell.config.stops()

    def level(self, cell: GridCell) -> int | None:
        """The level that a search is at, by its log; None where it has not begun."""
        try:
            with open(self.run(cell).events, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                return int(json.loads(file.read().splitlines()[-1])["level"])
        except (OSError, ValueError, KeyError, IndexError):  # no log yet, or its last line is being written
            return None
