"""A sweep's folder: every file name, its lock, and how far each search in it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO

from aceglt.errors import RunError
from aceglt.files import leftovers
from aceglt.runs.directory import RunDir, finished_results, is_run, lock
from aceglt.sweeps.grid import GridCell


class SweepDir:
    """Run directories and logs of the searches, and what is merged of them; one sweep at a time works in it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.grid = self.path / "grid.json"
        self.merged = self.path / "sweep.json"
        self.table = self.path / "sweep.csv"
        self.report = self.path / "report.html"
        self.runs = self.path / "runs"
        self.logs = self.path / "logs"
        self._lock: IO[str] | None = None

    def __enter__(self) -> SweepDir:
        try:
            self._refuse_foreign()
            for folder in (self.runs, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.path)
            for path in self._leftovers():
                path.unlink()
        except OSError as problem:
            raise RunError(f"{self.path}: cannot write there ({problem.strerror}); choose another --out") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

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

    def _refuse_foreign(self) -> None:
        """A folder with someone else's files is left as it is."""
        ours = {self.path / ".lock", self.runs, self.logs, *self._leftovers()}
        if self.path.is_dir() and not self.grid.exists() and any(e not in ours for e in self.path.iterdir()):
            raise RunError(f"{self.path} is not empty and is no folder of a sweep; choose another --out")

    def _leftovers(self) -> list[Path]:
        """Temporary files of a sweep that was killed while writing."""
        return [path for file in (self.grid, self.merged, self.table, self.report) for path in leftovers(file)]
