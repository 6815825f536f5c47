"""What a worker does: one search, in a process of its own, with a log."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aceglt.errors import AcegltError, RunInUse
from aceglt.files import append_line, tail

MEND = 2
"""Exit code: the user must mend something."""


@dataclass(frozen=True)
class Job:
    """One search as a worker gets it: plain values, which can travel."""

    name: str
    settings: dict[str, Any]
    run: str
    log: str
    here: str
    """Where relative paths and own modules are looked for."""
    device: str
    data_root: str | None
    tickets: str
    threads: int


def work(job: Job, patience: int = 60, wait: Callable[[float], None] = time.sleep) -> str | None:
    """Search, or continue the search that is there; one that is in use is tried again so many times, after a second.

    A worker whose node was lost may take a while to end.
    Returns None, or what the user must mend, since to try again would not help; anything else is raised. All is logged.
    """
    logs = os.path.dirname(job.log)
    if not os.path.isdir(logs):
        return f"{logs} is not there on {platform.node()}: every node must see the folder of the sweep"
    _log(job, f"process {os.getpid()} on {platform.node()}")
    try:
        _search(job, patience, wait)
    except BaseException as problem:
        _log(job, traceback.format_exc())
        if isinstance(problem, AcegltError) and not isinstance(problem, RunInUse):
            return str(problem)
        raise
    _log(job, "finished")
    return None


def _search(job: Job, patience: int, wait: Callable[[float], None]) -> None:
    import torch

    from aceglt.runner import search

    os.chdir(job.here)
    torch.set_num_threads(job.threads)
    for left in reversed(range(patience + 1)):
        try:
            search(
                out=job.run, device=job.device, data_root=job.data_root, tickets=job.tickets, progress=False,
                report=False, **job.settings,
            )  # fmt: skip
            return
        except RunInUse:
            if not left:
                raise
            wait(1.0)


def _log(job: Job, text: str) -> None:
    append_line(Path(job.log), f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text.rstrip()}")


def last_line(log: str) -> str:
    """What a worker that failed wrote last."""
    return (tail(Path(log)) or ["no log"])[-1]


def _end_with_parent() -> None:
    """The pipe from the sweep closes when the sweep ends, however it does; a search left behind would be in its way."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    """A worker of the local engine: the job comes as a line of JSON on standard input, which then stays open."""
    job = Job(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(0 if work(job) is None else MEND)
