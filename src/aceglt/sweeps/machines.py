"""Where the searches of a sweep run, as it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from aceglt.config.checks import count, suggest
from aceglt.errors import ConfigError

ENGINES = ("local", "ray")
DEVICES = ("auto", "cpu", "cuda")
MOST_AT_ONCE = 1024
"""Processes of a machine, and threads of each."""


@dataclass(frozen=True)
class Machines:
    """Where searches run, what each may take, and how often it is tried again.

    Written once: these are keywords of `sweep`, `compare` and `tune`, whose types tools/write_keywords.py writes down,
    and options of those commands.
    """

    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    cpus: int = 1
    gpus: float | None = None
    memory: float | None = None
    retries: int = 2
    device: str = "auto"
    data_root: str | Path | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("engine", self.engine, ENGINES), ("device", self.device, DEVICES)):
            if value not in known:
                raise ConfigError(f"unknown {name} '{value}'; known are {', '.join(known)}")
        workers, gpus, memory = self.workers, self.gpus, self.memory
        elsewhere = "workers are for the engine local; a Ray cluster starts as many as its nodes have room for"
        for fine, message in (
            (self.address is None or self.engine == "ray", "an address is for the engine ray"),
            (workers is None or self.engine == "local", elsewhere),
            (gpus is None or 0 <= gpus <= 1, f"gpus must be between 0 and 1, found {gpus}"),
            (memory is None or 0.001 <= memory <= 1e9, f"memory must be between 0.001 and 1e9 GiB, found {memory}"),
        ):
            if not fine:
                raise ConfigError(message)
        count(1, MOST_AT_ONCE)("workers", 1 if workers is None else workers)
        count(1, MOST_AT_ONCE)("cpus", self.cpus)
        count(0, 1000)("retries", self.retries)

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Machines:
        """From the keywords of a call; ConfigError for one that there is not."""
        known = [part.name for part in fields(cls)]
        for name in keywords:
            if name not in known:
                raise ConfigError(f"unknown keyword '{name}'{suggest(name, known)}")
        return cls(**keywords)
