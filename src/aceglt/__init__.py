"""Graph lottery tickets: a sparse subgraph and a sparse subnetwork that train as well as the dense pair."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aceglt.version import __version__

__all__ = [
    "AcegltError",
    "ApplyTicket",
    "Benchmark",
    "CompareResult",
    "Config",
    "Evaluation",
    "Observer",
    "Problem",
    "Reproduction",
    "SearchResult",
    "SweepResult",
    "Ticket",
    "TicketSearch",
    "Tuned",
    "__version__",
    "benchmark",
    "compare",
    "evaluate",
    "load_run",
    "load_sweep",
    "reproduce",
    "resolve",
    "search",
    "sweep",
    "tune",
]

if TYPE_CHECKING:
    from aceglt import datasets as datasets
    from aceglt.config import Config, resolve
    from aceglt.errors import AcegltError
    from aceglt.estimator import TicketSearch
    from aceglt.problems.base import Problem
    from aceglt.report.result import SearchResult, load_run
    from aceglt.reproduction import Reproduction, reproduce
    from aceglt.runner import search
    from aceglt.searches.observer import Observer
    from aceglt.sweeps.compare import CompareResult, compare
    from aceglt.sweeps.merged import SweepResult, load_sweep
    from aceglt.sweeps.run import sweep
    from aceglt.sweeps.tune import Tuned, tune
    from aceglt.tickets.bench import Benchmark, benchmark
    from aceglt.tickets.evaluation import Evaluation, evaluate
    from aceglt.tickets.ticket import Ticket
    from aceglt.tickets.transforms import ApplyTicket

_HOMES = {
    "AcegltError": "errors",
    "ApplyTicket": "tickets.transforms",
    "Benchmark": "tickets.bench",
    "CompareResult": "sweeps.compare",
    "Config": "config",
    "Evaluation": "tickets.evaluation",
    "Observer": "searches.levels",
    "Problem": "problems.base",
    "Reproduction": "reproduction",
    "SearchResult": "report.result",
    "SweepResult": "sweeps.merged",
    "Ticket": "tickets.ticket",
    "TicketSearch": "estimator",
    "Tuned": "sweeps.tune",
    "benchmark": "tickets.bench",
    "compare": "sweeps.compare",
    "evaluate": "tickets.evaluation",
    "load_run": "report.result",
    "load_sweep": "sweeps.merged",
    "reproduce": "reproduction",
    "resolve": "config",
    "search": "runner",
    "sweep": "sweeps.run",
    "tune": "sweeps.tune",
}


def __getattr__(name: str) -> Any:
    """Public names, and the module of datasets, are loaded on first use, so that `aceglt --help` need not wait for
    torch."""
    if name == "datasets":
        return import_module("aceglt.datasets")
    if name not in _HOMES:
        raise AttributeError(f"module 'aceglt' has no attribute '{name}'")
    return getattr(import_module(f"aceglt.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
