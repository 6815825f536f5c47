"""What the sweep asks of the machines that it runs on; and this machine, whose processes are searches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch

from aceglt.errors import ConfigError
from aceglt.files import check_regular
from aceglt.sweeps.worker import MEND, Job, last_line
from aceglt.training.memory import free_memory

_GRACE = 10.0  # seconds that a worker has to end when it is told to


@dataclass(frozen=True)
class Need:
    """What one search takes of a machine."""

    cpus: int
    memory: int
    """Bytes of main memory."""
    device: str = "auto"
    gpus: float | None = None
    """Share of a GPU; None is a whole one where there are any and the device allows it."""

    def on(self, gpus: int) -> float:
        """The share of a GPU that a search gets where there are so many; 0 is a search on the CPU."""
        if self.device == "cpu" and self.gpus:
            raise ConfigError(f"device 'cpu' does not go with a share of {self.gpus:g} of a GPU")
        if self.device == "cuda" and self.gpus == 0:
            raise ConfigError("device 'cuda' does not go with no share of a GPU; leave gpus out for a whole one")
        if not gpus and (self.device == "cuda" or self.gpus):
            raise ConfigError("there is no GPU here for a search on one; try device 'cpu' or 'auto'")
        usual = 0.0 if self.device == "cpu" or not gpus else 1.0
        return usual if self.gpus is None else self.gpus


@dataclass(frozen=True)
class Ended:
    """A job is over."""

    job: Job
    problem: str | None = None
    hopeless: bool = False
    """Whether the same would happen again."""


class Engine(Protocol):
    """Runs jobs."""

    device: str
    """What the jobs are to run on: cpu or cuda."""

    def has_room(self) -> bool:
        """Whether another job may be started now."""

    def start(self, job: Job) -> None:
        """Begin a job, or queue it where the engine has a queue of its own."""

    def wait(self, seconds: float) -> list[Ended]:
        """What ended by now, or within so many seconds."""

    def close(self) -> None:
        """End the jobs that still run."""


class LocalEngine:
    """Processes of this machine, each with its own threads and GPU, as many at a time as fit."""

    def __init__(self, need: Need, workers: int | None = None) -> None:
        gpus = visible_gpus()
        share = need.on(len(gpus))
        self.device, self._gpus = ("cuda", gpus) if share else ("cpu", [])
        limits = [cores() // need.cpus, free_memory(torch.device("cpu")) // need.memory]
        limits += [len(gpus) * int(1 / share)] if share else []
        self.workers = workers or max(1, min(limits))
        self._running: dict[subprocess.Popen[bytes], tuple[Job, str]] = {}

    def has_room(self) -> bool:
        return len(self._running) < self.workers

    def start(self, job: Job) -> None:
        busy = Counter(gpu for _, gpu in self._running.values())
        gpu = min(self._gpus, key=lambda name: busy[name], default="")
        check_regular(Path(job.log))
        with open(job.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", "from aceglt.sweeps.worker import main; main()"], cwd=job.here,
                env=_environment(job.threads, gpu), bufsize=0,
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._running[process] = job, gpu
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has died already, which `wait` will find
            process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")

    def wait(self, seconds: float) -> list[Ended]:
        until = time.monotonic() + seconds
        while True:
            over = [process for process in self._running if process.poll() is not None]
            if over or time.monotonic() > until:
                return [self._end(process) for process in over]
            time.sleep(0.05)

    def _end(self, process: subprocess.Popen[bytes]) -> Ended:
        job, _ = self._running.pop(process)
        with process:  # closes its pipe
            code = process.returncode
        if code < 0:
            return Ended(job, f"its worker was killed by {signal_name(-code)}")
        return Ended(job, last_line(job.log), hopeless=code == MEND) if code else Ended(job)

    def close(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            with process:  # waits, and closes its pipe
                try:
                    process.wait(_GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
        self._running.clear()


def signal_name(number: int) -> str:
    """Most real-time signals have none of their own."""
    return {each.value: each.name for each in signal.Signals}.get(number, f"signal {number}")


def _environment(threads: int, gpu: str) -> dict[str, str]:
    """For a worker: modules from where this process has them, few threads (they slow each other down), one GPU."""
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {
        **os.environ, **limits, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1",
        "CUDA_VISIBLE_DEVICES": gpu,
    }  # fmt: skip


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The GPUs as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    chosen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (chosen or [str(number) for number in range(count)])[:count]
