"""The keywords of `aceglt.sweep` and its like, for type checkers. Made by tools/write_keywords.py: do not edit."""

from pathlib import Path
from typing import TypedDict

from aceglt.config.keywords import Settings

class MachineKeywords(TypedDict, total=False):
    """Where searches run."""

    engine: str
    address: str | None
    workers: int | None
    cpus: int
    gpus: float | None
    memory: float | None
    retries: int
    device: str
    data_root: str | Path | None

class TuneKeywords(Settings, MachineKeywords):
    """Settings of a search, and where trials run."""
