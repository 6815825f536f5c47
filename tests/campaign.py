"""Real searches in processes of their own, each with a fault that strikes at a chosen step of its writing."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from search_samples import files, outcome

from aceglt import cli
from aceglt.config import BACKBONE_OPTIONS, METHOD_OPTIONS, TASK_OPTIONS
from aceglt.runs.directory import results_of
from aceglt.tickets.ticket import Ticket

PROCESSES = multiprocessing.get_context("forkserver")  # one process imports torch, the searches are forked from it
PROCESSES.set_forkserver_preload(
    ["torch_geometric.data", "aceglt.runner", "aceglt.tickets.evaluation", "plotly.graph_objects"]
)

SHORTER = {
    "ace": ("rounds=1", "refine_epochs=2"),
    "gebt": ("max_epochs=6",),
    "fastglt": ("pretrain_epochs=2", "interval=2"),
    "sgcn": ("interval=2",),
    "cgp": ("interval=1",),
}
"""Options of methods, so that a search takes a moment."""
METHODS, BACKBONES, TASKS = (tuple(known) for known in (METHOD_OPTIONS, BACKBONE_OPTIONS, TASK_OPTIONS))


@dataclass(frozen=True)
class Case:
    """A search of a moment; `more` are further options, by which it is then known."""

    method: str
    backbone: str
    task: str
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join([self.method, self.backbone, self.task, *self.more]).replace("--", "")

    def arguments(self, graph: Path, run: Path) -> list[str]:
        tickets = "best" if self.task == "link" else "all"
        shorter = [word for option in SHORTER.get(self.method, ()) for word in ("-m", option)]
        shorter += {"resgcn": ["--layers", "3"], "gat": ["--heads", "2"]}.get(self.backbone, [])
        if (self.method, self.backbone) == ("cgp", "resgcn"):  # whose weights do not say which features they read
            shorter += ["-m", "features=0"]
        return [
            "search", "--dataset", str(graph), "--method", self.method, "--backbone", self.backbone, "--task",
            self.task, "--axis", "joint", "--hidden", "4", "--levels", "2", "--seeds", "2", "--epochs", "4",
            "--tickets", tickets, "--device", "cpu", "--out", str(run), *shorter, *self.more,
        ]  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """A command that makes several searches in a folder, by workers of its own."""

    name: str
    options: tuple[str, ...]
    grid: str = ""

    def __str__(self) -> str:
        return self.name

    def arguments(self, graph: Path, run: Path) -> list[str]:
        given = [*self.options, "--device", "cpu", "--out", str(run)]
        if not self.grid:
            return [self.name, "--dataset", str(graph), *given]
        path = run.parent / "grid.toml"
        path.write_text(f'dataset = "{graph}"\n{self.grid}')
        return [self.name, str(path), *given]


_DEEP = ("--layers", "3", "--output", "linear")
PATHS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("ace", "gcn", "node", ("--partitions", "2")),
    ("ugs", "sage", "node", ("--partitions", "2", "--partition-by", "neighbours", "--signal", "labels")),
    ("ace", "gcn", "node", ("--deterministic",)),
    ("ace", "gcn", "node", ("--precision", "bfloat16")),
    ("ugs", "gin", "node", ("--precision", "bfloat16", "--balance", "0")),
    ("ace", "gcn", "node", ("--directed",)),
    ("ace", "gcn", "node", ("--no-test",)),
    ("ace", "gcn", "node", ("--axis", "model", "--target-model", "0.3")),
    ("ace", "gcn", "node", ("--axis", "graph", "--patience", "1")),
    ("ace", "gcn", "node", ("--tensorboard",)),
    ("ace", "gcn", "node", ("--rewind-epoch", "2", "--drop-edge", "0.2", "--early-stopping", "2")),
    ("ace", "gcn", "link", ("--objective", "infoclust", "--edge-split", "connected")),
    ("ugs", "search_samples:Noisy", "node", ()),
    ("ugs", "gcn", "node", (*_DEEP, "--norm", "layer", "--skip", "linear", "--bias")),
    ("ace", "sage", "node", (*_DEEP, "--norm", "batch", "--jumping", "cat")),
    ("magnitude", "gin", "link", (*_DEEP, "--norm", "batch", "--skip", "identity")),
    ("ace", "gat", "inductive", (*_DEEP, "--norm", "layer", "--skip", "identity")),
    ("ugs", "gcn", "node", ("--structure", "units")),
    ("ace", "sage", "node", ("--structure", "units,features")),
    ("magnitude", "gat", "node", ("--structure", "units")),
    ("gebt", "gin", "node", ("--structure", "features")),
    ("ugs", "resgcn", "node", ("--structure", "units")),
)
"""Searches that take paths of their own."""
_SHORT = ("--epochs", "4", "--seeds", "1", "--hidden", "4")
_GRID = 'methods = ["random", "ugs"]\nlevels = 1\nseeds = 2\nepochs = 4\nhidden = 4'
BATCHES = (
    Batch("sweep", ("--workers", "2"), _GRID),
    Batch("compare", ("--workers", "2"), _GRID),
    Batch("tune", ("--budget", "3", "--workers", "1", *_SHORT)),
)


def _cases() -> list[Case | Batch]:
    """Every task with every method, and with every backbone, in turns; then what takes a path of its own."""
    made: dict[tuple[str, str, str], Case | Batch] = {}
    for t, task in enumerate(TASKS):
        for n in range(max(len(METHODS), len(BACKBONES))):
            method, backbone = METHODS[n % len(METHODS)], BACKBONES[(n + t) % len(BACKBONES)]
            made[method, backbone, task] = Case(method, backbone, task)
    return [*made.values(), *(Case(*path) for path in PATHS), *BATCHES]


CASES = _cases()


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th step of writing below a folder: a signal, or this error there and ever after."""

    folder: Path
    at: int
    error: int | None = None
    number: int = signal.SIGKILL


class _Writing:
    """Counts the steps of writing in this process, and strikes.

    A step is a file opened for writing, a rename, a removal, a new folder, a change of permissions, or an fsync of
    a file, before which half of the content is lost: so ends a write that is cut in the middle.
    """

    def __init__(self, fault: Fault, steps: Any, last: Any) -> None:
        self._fault, self._steps, self._last = fault, steps, last
        self._sync = os.fsync
        os.fsync = self._fsync
        sys.addaudithook(self._hear)

    def _hear(self, event: str, details: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod"):
            return
        path = details[0]
        writes = event != "open" or details[2] & (os.O_WRONLY | os.O_RDWR)
        if writes and isinstance(path, (str, os.PathLike)) and Path(path).is_relative_to(self._fault.folder):
            self._step(event.removeprefix("os."), fails=event in ("open", "os.mkdir"))

    def _fsync(self, handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            self._sync(handle)
            return
        dies = self._fault.error is not None or self._fault.number == signal.SIGKILL  # else a thread may write on
        if dies and self._steps.value + 1 >= self._fault.at:
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
        self._step("write", fails=True)
        self._sync(handle)

    def _step(self, name: str, fails: bool) -> None:
        self._steps.value += 1
        self._last.value = name.encode()
        if self._fault.error is not None and fails and self._steps.value >= self._fault.at:
            raise OSError(self._fault.error, os.strerror(self._fault.error))
        if self._fault.error is None and self._steps.value == self._fault.at:
            os.kill(os.getpid(), self._fault.number)


def _program(arguments: list[str], fault: Fault, steps: Any, last: Any, said: Path) -> None:
    """The command line in this process, with a plain and wide output into a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ |= {"COLUMNS": "200", "NO_COLOR": "1"}
    for stream in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    import torch

    torch.set_num_threads(1)
    _Writing(fault, steps, last)
    sys.argv = ["aceglt", *arguments]
    cli.main()


class Started:
    """A search that is running."""

    def __init__(self, arguments: list[str], run: Path, said: Path, at: int = 0, **fault: Any) -> None:
        self._steps, self._last = PROCESSES.Value("i", 0, lock=False), PROCESSES.Array("c", 16, lock=False)
        self._said = said
        struck = Fault(run, at if at else sys.maxsize, **fault)
        self.process = PROCESSES.Process(target=_program, args=(arguments, struck, self._steps, self._last, self._said))
        self.process.start()

    def begun(self) -> None:
        """Waits until it has begun to write."""
        while not self.steps and self.process.is_alive():
            self.process.join(0.001)

    def send(self, number: int, after: float) -> float:
        """A signal some seconds after its first step; returns the seconds that the process then took to end."""
        self.begun()
        self.process.join(after)
        if self.process.exitcode is None:
            assert self.process.pid is not None
            os.kill(self.process.pid, number)
        began = time.monotonic()
        self.process.join(60)
        return time.monotonic() - began

    def ended(self) -> int:
        """Its exit code."""
        self.process.join(120)
        assert self.process.exitcode is not None, "it hangs"
        return self.process.exitcode

    @property
    def steps(self) -> int:
        return int(self._steps.value)

    @property
    def last(self) -> str:
        """The name of its last step of writing."""
        return bytes(self._last.value).decode()

    @property
    def said(self) -> str:
        return self._said.read_text()


@dataclass
class Undisturbed:
    """How a case ends that nothing disturbs, and how much it writes and how long it takes for that."""

    case: Case | Batch
    graph: Path
    folder: Path
    steps: int = 0
    seconds: float = 0.0
    runs: Iterator[int] = field(default_factory=count)
    started: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        whole = self.start(self.folder / "whole")
        whole.begun()
        began = time.monotonic()
        assert whole.ended() == 0, whole.said
        self.steps, self.seconds = whole.steps, time.monotonic() - began
        self.outcome, self.files = outcomes(self.folder / "whole"), files(self.folder / "whole")

    def start(self, run: Path, at: int = 0, **fault: Any) -> Started:
        said = self.folder / f"{next(self.started)}.said"  # not beside the run, whose disk may be full
        return Started(self.case.arguments(self.graph, run), run, said, at, **fault)

    def fresh(self) -> Path:
        """A run directory that is not there yet."""
        return self.folder / f"run-{next(self.runs)}"

    def continued(self, run: Path) -> None:
        """Asserts that the same command brings a run to the same end."""
        again = self.start(run)
        assert again.ended() == 0, again.said
        self.compare(run)

    def compare(self, run: Path) -> None:
        assert outcomes(run) == self.outcome, f"{self.case}: {run} differs from an undisturbed run"
        if isinstance(self.case, Case) and "--tensorboard" not in self.case.more:  # whose names have the time
            assert files(run) == self.files


def outcomes(folder: Path) -> dict[str, Any]:
    """Those of a run, or of all in a folder."""
    runs = [path.parent for path in sorted(folder.rglob("results.json"))]
    return {str(run.relative_to(folder)): outcome(run) for run in runs}


def whole_files(folder: Path) -> None:
    """Asserts that every file of a run that was killed, or of all in a folder, is readable, but for temporary ones."""
    for path in folder.rglob("results.json"):
        results_of(path.parent)
    for path in folder.rglob("level_*.safetensors"):
        Ticket.load(path)


def kill(undisturbed: Undisturbed, kills: int, draw: random.Random) -> Counter[str]:
    """Kills a case so many times, every second time at a step of writing; returns how often at what.

    A run that ends before it is killed is compared, and a new one begun; the last one is continued to its end.
    """
    tally: Counter[str] = Counter()
    run = undisturbed.fresh()
    while (done := sum(tally.values())) < kills:
        started = undisturbed.start(run, at=draw.randint(1, undisturbed.steps) if done % 2 else 0)
        if not done % 2:
            started.send(signal.SIGKILL, draw.uniform(0, undisturbed.seconds))
        if started.ended() == 0:
            undisturbed.compare(run)
            run = undisturbed.fresh()
            continue
        assert started.ended() == -signal.SIGKILL, started.said
        if isinstance(undisturbed.case, Case):  # workers of a sweep may still write
            whole_files(run)
        tally[started.last if done % 2 else "any moment"] += 1
    undisturbed.continued(run)
    return tally


def fill(undisturbed: Undisturbed, at: int, error: int = errno.ENOSPC) -> str | None:
    """Lets every write fail from a step on; returns what the search said, None where it had ended before."""
    run = undisturbed.fresh()
    started = undisturbed.start(run, at, error=error)
    code = started.ended()
    said = started.said
    if code == 0:
        return None
    assert code == 2, said
    whole_files(run)
    undisturbed.continued(run)
    return said
