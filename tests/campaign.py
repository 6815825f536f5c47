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
from itertools import count, product
from pathlib import Path
from typing import Any

from search_samples import files, outcome

from aceglt import cli
from aceglt.runs.directory import results_of
from aceglt.tickets.ticket import Ticket

PROCESSES = multiprocessing.get_context("forkserver")  # one process imports torch, the searches are forked from it
PROCESSES.set_forkserver_preload(
    ["torch_geometric.data", "aceglt.runner", "aceglt.tickets.evaluation", "plotly.graph_objects"]
)

METHODS, BACKBONES, TASKS = ("random", "ugs", "gebt", "ace"), ("gcn", "gat"), ("node", "link")


@dataclass(frozen=True)
class Case:
    """A search of a moment."""

    method: str
    backbone: str
    task: str

    def __str__(self) -> str:
        return f"{self.method}-{self.backbone}-{self.task}"

    def arguments(self, graph: Path, run: Path) -> list[str]:
        tickets = "best" if self.task == "link" else "all"
        rounds = ["-m", "rounds=1", "-m", "refine_epochs=4"] if self.method == "ace" else []
        return [
            "search", "--dataset", str(graph), "--method", self.method, "--backbone", self.backbone, "--task",
            self.task, "--axis", "joint", "--hidden", "4", "--levels", "2", "--seeds", "2", "--epochs", "8",
            "--tickets", tickets, "--device", "cpu", "--out", str(run), *rounds,
        ]  # fmt: skip


CASES = [Case(*names) for names in product(METHODS, BACKBONES, TASKS)]


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
        if self._steps.value + 1 >= self._fault.at:
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


_NUMBERS = count()


class Started:
    """A search that is running."""

    def __init__(self, arguments: list[str], run: Path, at: int = 0, **fault: Any) -> None:
        self._steps, self._last = PROCESSES.Value("i", 0, lock=False), PROCESSES.Array("c", 16, lock=False)
        self._said = run.with_name(f"{run.name}.{next(_NUMBERS)}.said")
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

    case: Case
    graph: Path
    folder: Path
    steps: int = 0
    seconds: float = 0.0
    runs: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        whole = self.start(self.folder / "whole")
        whole.begun()
        began = time.monotonic()
        assert whole.ended() == 0, whole.said
        self.steps, self.seconds = whole.steps, time.monotonic() - began
        self.outcome, self.files = outcome(self.folder / "whole"), files(self.folder / "whole")

    def start(self, run: Path, at: int = 0, **fault: Any) -> Started:
        return Started(self.case.arguments(self.graph, run), run, at, **fault)

    def fresh(self) -> Path:
        """A run directory that is not there yet."""
        return self.folder / f"run-{next(self.runs)}"

    def continued(self, run: Path) -> None:
        """Asserts that the same command brings a run to the same end."""
        again = self.start(run)
        assert again.ended() == 0, again.said
        self.compare(run)

    def compare(self, run: Path) -> None:
        assert outcome(run) == self.outcome, f"{self.case}: {run} differs from an undisturbed run"
        assert files(run) == self.files


def whole_files(run: Path) -> None:
    """Asserts that every file of a run that was killed is readable, but for temporary ones."""
    if (run / "results.json").exists():
        results_of(run)
    for path in (run / "tickets").glob("level_*.safetensors"):
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
