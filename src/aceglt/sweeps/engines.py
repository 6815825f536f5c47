"""What the sweep asks of the machines that it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from aceglt.errors import ConfigError
from aceglt.sweeps.worker import Job


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
    """Runs jobs; leaving the context ends those that still run."""

    device: str
    """What the jobs are to run on: cpu or cuda."""

    def __enter__(self) -> Engine: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def has_room(self) -> bool:
        """Whether another job may be started now."""

    def start(self, job: Job) -> None:
        """Begin a job, or queue it where the engine has a queue of its own."""

    def wait(self, seconds: float) -> list[Ended]:
        """What ended by now, or within so many seconds."""
