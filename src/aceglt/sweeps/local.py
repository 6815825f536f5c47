"""Searches in processes of this machine, as many at a time as fit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType

import torch

from aceglt.sweeps.engines import Ended, Need
from aceglt.sweeps.worker import MEND, Job, last_line
from aceglt.training.memory import free_memory

_GRACE = 10.0  # seconds that a worker has to end when it is told to


class LocalEngine:
    """Processes of this machine, each with its own threads and GPU."""

    def __init__(self, need: Need, workers: int | None = None) -> None:
        gpus = visible_gpus()
        share = need.on(len(gpus))
        self.device, self._gpus = ("cuda", gpus) if share else ("cpu", [])
        self.workers = workers or _how_many_fit(need, len(gpus) * int(1 / share) if share else None)
        self._running: dict[subprocess.Popen[bytes], tuple[Job, str]] = {}

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close(process)
        self._running.clear()

    def has_room(self) -> bool:
        return len(self._running) < self.workers

    def start(self, job: Job) -> None:
        busy = Counter(gpu for _, gpu in self._running.values())
        gpu = min(self._gpus, key=lambda name: busy[name], default="")
        with open(job.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", "from aceglt.sweeps.worker import main; main()"], cwd=job.common.here,
                env=_environment(job.common.threads, gpu), bufsize=0,
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
        _close(process)
        code = process.returncode
        if code == 0:
            return Ended(job)
        if code < 0:
            return Ended(job, f"its worker was killed by {_signal_name(-code)}")
        return Ended(job, last_line(job.log), hopeless=code == MEND)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def _environment(threads: int, gpu: str) -> dict[str, str]:
    """For a worker: modules from where this process has them, few threads (they slow each other down), one GPU."""
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {
        **os.environ, **limits, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1",
        "CUDA_VISIBLE_DEVICES": gpu,
    }  # fmt: skip


def _how_many_fit(need: Need, gpu_slots: int | None) -> int:
    """Searches at a time, by cores, by the main memory that is free and by GPUs; at least one."""
    limits = [cores() // need.cpus, free_memory(torch.device("cpu")) // need.memory]
    return max(1, min(limits if gpu_slots is None else [*limits, gpu_slots]))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The GPUs as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    chosen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (chosen or [str(number) for number in range(count)])[:count]
