"""A run directory: every file name, the lock, and what is written when."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

from aceglt.config import Config, difference
from aceglt.config.formats import FORMAT, FORMATS, IncompleteError, read_config
from aceglt.errors import ConfigError, RunError, RunInUse
from aceglt.files import (
    append_line,
    check_regular,
    json_digest,
    leftovers,
    parse_json,
    read_regular,
    short_digest,
    write_checked_json,
)
from aceglt.files.schema import COUNT, TEXT, check, shortened
from aceglt.searches.results import check_results

Self = TypeVar("Self", bound="LockedFolder")

_NO_CONFIG = "restore it from a copy or choose another --out"
_NO_ENVIRONMENT = "without this file the same command writes it anew"
_ENVIRONMENT = {"runs_at_once": (COUNT,), "peak_memory": (COUNT,), "tickets": (TEXT,)}  # what is read of it again
_TICKET = re.compile(r"level_(\d+)_seed_(\d+)\.safetensors")


class LockedFolder:
    """A folder that one process at a time may write to; one that holds someone else's files is left as it is."""

    kind: ClassVar[str]
    """What it is called."""
    claim_file: ClassVar[str]
    """The file that tells that it is one."""
    folders: ClassVar[Sequence[str]]
    files: ClassVar[Sequence[str]]
    """Those that are written to a temporary name first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self: Self) -> Self:
        try:
            self._open()
        except BaseException as problem:
            self._release()
            if isinstance(problem, OSError):
                raise RunError(f"{self.path}: cannot write there ({problem.strerror}); choose another --out") from None
            raise
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        self._release()
        if isinstance(value, OSError) and Path(value.filename or "").is_relative_to(self.path):
            raise RunError(
                f"{value.filename}: cannot write it ({value.strerror}); mend that, then the same command continues"
            ) from None

    def _hold(self, locked: Path) -> None:
        """Hold the folder until it is released or the process ends; RunInUse where another one holds it."""
        check_regular(locked)
        self._lock = open(locked, "a")  # noqa: SIM115  (where it is a link, what that leads to is not cut)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunInUse(f"{self.path}: another process is working in this directory") from None

    def _open(self) -> None:
        try:
            str(self.path).encode()
        except UnicodeEncodeError:  # safetensors opens no other path
            raise RunError(f"{self.path}: its name is not UTF-8; choose another --out") from None
        self.path.mkdir(parents=True, exist_ok=True)
        locked = self.path / ".lock"
        new = not locked.exists()
        self._hold(locked)
        leftover = [path for file in self.files for path in leftovers(self.path / file)]
        ours = {locked, *(self.path / name for name in self.folders), *leftover}
        claimed = (self.path / self.claim_file).exists()
        if not claimed and any(entry not in ours for entry in self.path.iterdir()):  # under the lock: others may start
            if new:
                locked.unlink(missing_ok=True)
            raise RunError(f"{self.path} is not empty and is no {self.kind}; choose another --out")
        for name in self.folders:
            (self.path / name).mkdir(exist_ok=True)
        for path in leftover:  # of a process that was killed while writing
            path.unlink()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


class RunDir(LockedFolder):
    """Everything about one search, in one folder."""

    kind = "run directory"
    claim_file = "config.json"
    folders = ("tickets",)
    files = (
        "config.json",
        "environment.json",
        "results.json",
        "checkpoint",
        "savings.json",
        "report.html",
        "tickets/level_*.safetensors",
    )

    def __init__(self, path: str | Path) -> None:
        super().__init__(Path(path))
        self.config = self.path / "config.json"
        self.environment = self.path / "environment.json"
        self.results = self.path / "results.json"
        self.events = self.path / "events.jsonl"
        self.checkpoint = self.path / "checkpoint"
        self.final = self.path / "final"
        """The checkpoint of a finished search, from which more levels can be searched."""
        self.tickets = self.path / "tickets"
        self.report = self.path / "report.html"
        self.savings = self.path / "savings.json"
        """What the best ticket saves, as it was measured when the search ended."""
        self.more_seeds = self.path / "more_seeds"
        """A run directory inside this one, while seeds are added."""
        self.tensorboard = self.path / "tensorboard"

    def ticket(self, level: int, seed: int) -> Path:
        return self.tickets / f"level_{level:02d}_seed_{seed}.safetensors"

    def inputs(self) -> list[Path]:
        """What a report is made of."""
        known = (self.config, self.environment, self.results, self.events, self.checkpoint, self.final, self.savings)
        return [*known, *self.tickets.glob("*")]

    def saved_tickets(self, seeds: Collection[int]) -> dict[Path, int]:
        """The tickets of these seeds that are there, in order, with their levels; what else lies there is not ours."""
        names = {path: _TICKET.fullmatch(path.name) for path in sorted(self.tickets.glob("level_*"))}
        levels = {path: int(name[1]) for path, name in names.items() if name and int(name[2]) in seeds}
        return {path: level for path, level in levels.items() if path.is_file()}

    def claim(self, config: Config, data: str, tickets: str = "best") -> None:
        """Make the directory this configuration's and data's (a fingerprint), or check that it is.

        Another one's is refused with the difference, and so is another choice of tickets than it was begun with.
        """
        if self.config.exists():
            found, format, its_data = self._read_config()
            kept = self.read_environment().get("tickets") or tickets  # earlier versions did not record it
            old = {**found.identity(), "data": its_data, "tickets": kept}
            changes = difference(old, {**config.identity(), "data": data, "tickets": tickets})
            if changes:
                again = f"name its settings, --method {found.method} first," if format == 1 else "repeat its command"
                raise RunError(
                    f"{self.path} belongs to another configuration ({'; '.join(changes)}); "
                    f"choose another --out, or {again} to continue it"
                )
            # The search may go on: results that say it has finished must not be found beside the new configuration.
            if found.stopping != config.stopping and (results := finished_results(self.path)) is not None:
                write_checked_json(self.results, {**results, "finished": False})
        self.change(config, data)

    def seeds_to_add(self, config: Config, planned: Sequence[str]) -> tuple[Config, tuple[int, ...]]:
        """The configuration with the seeds that the run has, where those asked for are among them; and the seeds that
        are still to be searched, where a finished run has some of those asked for. What else differs, but for the
        settings that a search plans itself, is left for `claim` to refuse."""
        if not self.config.exists():
            return config, ()
        found = self.read_config()
        have, wanted = set(found.seeds), set(config.seeds)
        open_fields = dict.fromkeys(("seeds", *planned))
        if have == wanted or {**found.identity(), **open_fields} != {**config.identity(), **open_fields}:
            return config, ()
        if wanted < have:
            return config.replace(seeds=found.seeds), ()
        if not have < wanted or not self.final.exists():
            return config, ()
        return config, tuple(seed for seed in config.seeds if seed not in have)

    def change(self, config: Config, data: str) -> None:
        """Go on with a configuration that differs in how memory is used."""
        write_checked_json(self.config, {"format": FORMAT, "data": data, **config.to_dict()})

    def read_config(self) -> Config:
        """The configuration; RunError where it is damaged or of another version."""
        return self._read_config()[0]

    def read_environment(self) -> dict[str, Any]:
        """The environment of the last session; empty before the first."""
        if not self.environment.exists():
            return {}
        recorded = read_json(self.environment, _NO_ENVIRONMENT)
        try:
            check({**dict.fromkeys(_ENVIRONMENT), **recorded}, _ENVIRONMENT, "environment")
        except ValueError as problem:
            raise RunError(f"{self.environment}: damaged ({problem}); {_NO_ENVIRONMENT}") from None
        return recorded

    def read_savings(self) -> dict[str, Any]:
        """What was measured of the best ticket; empty where nothing was, or the file is damaged: it is for people."""
        try:
            return read_json(self.savings) if self.savings.exists() else {}
        except RunError:
            return {}

    def _read_config(self) -> tuple[Config, int, Any]:
        """The configuration, the format it was in, and the data's fingerprint."""
        values = read_json(self.config, _NO_CONFIG)
        format, data = values.pop("format", None), values.pop("data", None)
        _check_format(format, FORMATS, self.config)
        try:
            return read_config(values, format), format, data
        except IncompleteError as problem:
            raise RunError(f"{self.config}: from an earlier version ({problem}); choose another --out") from None
        except ConfigError as problem:
            raise RunError(f"{self.config}: damaged ({problem}); {_NO_CONFIG}") from None

    def log(self, event: str, **facts: Any) -> None:
        """Append a line to the log; the log is for people and plots, nothing is resumed from it."""
        append_line(self.events, json.dumps({"time": round(time.time(), 3), "event": event, **facts}))


def read_json(path: Path, way_out: str = "restore it from a copy") -> dict[str, Any]:
    """What `write_checked_json` wrote, or RunError with what is wrong; an older file without a checksum is read too."""
    try:
        values = parse_json(read_regular(path))
        stated = values.pop("sha256", None) if isinstance(values, dict) else None
        damaged = stated is not None and stated != json_digest(values)
    except OSError as problem:
        raise RunError(f"{path}: cannot read it ({problem.strerror})") from None
    except ValueError as problem:
        raise RunError(f"{path}: damaged, not JSON ({problem}); {way_out}") from None
    if not isinstance(values, dict):
        raise RunError(f"{path}: damaged, expected a JSON object; {way_out}")
    if damaged:
        raise RunError(f"{path}: damaged (the checksum does not match); {way_out}")
    return values


def _check_format(found: Any, known: Sequence[int], path: Path) -> None:
    if found not in known:
        raise RunError(
            f"{path}: format {shortened(found)} is not known to this version, which reads "
            f"{' and '.join(map(str, known))}; "
            "use the aceglt that wrote it, or another --out"
        )


def is_run(path: Path) -> bool:
    return (path / "config.json").is_file()


def results_of(path: Path) -> Mapping[str, Any]:
    """The results of a run, finished or not."""
    run = RunDir(path)
    if not run.results.exists():
        raise RunError(f"{path}: no results yet; the search has not finished its dense baseline")
    results = read_json(run.results, "the search's command writes it anew")
    _check_format(results.get("format"), (1,), run.results)
    try:
        check_results(results)
    except ValueError as problem:
        raise RunError(f"{run.results}: damaged ({problem})") from None
    if run.config.exists() and (results["method"] == "ace" or "label" not in results):
        config = run.read_config()
        results["method"] = config.method  # ace of format 1, without rounds, is ugs
        results.setdefault("label", config.label)
    return results


def finished_results(path: Path) -> Mapping[str, Any] | None:
    """The results of a search that is there to its end, else None; also where they are damaged, to be written anew."""
    try:
        results = results_of(path)
    except RunError:
        return None
    return results if results["finished"] else None


def default_name(config: Config) -> str:
    """A folder name for a configuration: the same command finds its run again."""
    digest = short_digest(json.dumps({**config.identity(), "seeds": None}, sort_keys=True))
    words = (Path(config.dataset).stem, config.backbone, config.label, config.pruning.axis, digest)
    return os.path.join("runs", re.sub(r"[^\w.]+", "-", " ".join(words)))
