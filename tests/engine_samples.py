"""Workers of a sweep that are calls in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aceglt.sweeps import run as sweeping
from aceglt.sweeps.engines import Ended, Need
from aceglt.sweeps.worker import Job, work

Trouble = Callable[[Job], Ended | None]
Work = Callable[[Job], str | None]


class InThisProcess:
    """Runs a job as soon as it is asked what ended; `trouble` may fail it instead."""

    trouble: Trouble = staticmethod(lambda job: None)
    work: Work = staticmethod(work)
    started: list[str] = []  # noqa: RUF012
    device = "cpu"

    def __init__(self, need: Need, workers: int | None = None) -> None:
        self.jobs: list[Job] = []

    def close(self) -> None:
        pass

    def has_room(self) -> bool:
        return len(self.jobs) < 2

    def start(self, job: Job) -> None:
        self.jobs.append(job)
        self.started.append(job.name)

    def wait(self, seconds: float) -> list[Ended]:
        job = self.jobs.pop(0)
        failed = type(self).trouble(job)
        if failed is not None:
            return [failed]
        problem = type(self).work(job)
        return [Ended(job, problem, hopeless=problem is not None)]


def without_processes(patch: pytest.MonkeyPatch) -> type[InThisProcess]:
    """Sweeps start no process of their own."""
    kind = InThisProcess
    kind.started, kind.trouble, kind.work = [], staticmethod(lambda job: None), staticmethod(work)
    patch.setattr(sweeping, "LocalEngine", kind)
    return kind
