"""What can go wrong in a way the user can mend."""

from __future__ import annotations


class AcegltError(Exception):
    """Something the user gave is wrong; the message says what, and what to do about it."""


class DataError(AcegltError):
    """A dataset is unknown, missing, corrupt or unusable."""


class ConfigError(AcegltError):
    """A setting is out of range, unknown or contradicts another."""


class RunError(AcegltError):
    """A run directory is in use, belongs to another configuration or cannot be written."""


class RunInUse(RunError):  # noqa: N818
    """Another process is working in a run directory."""


class TicketError(AcegltError):
    """A ticket file is damaged or does not fit the graph it is applied to."""


class TrainingError(AcegltError):
    """Training diverged."""
