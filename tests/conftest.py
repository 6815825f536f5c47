"""Fixtures of the engine's tests."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the process that hands out the tests needs neither torch nor aceglt
    from aceglt.problems import NodeProblem

pytest.register_assert_rewrite("contract")

MEMORY = Path("/dev/shm")


def pytest_configure() -> None:
    """Where there is room for them, files of tests are kept in memory: every step of a search is synced to the disk."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


LONGEST = (
    "test_contract", "test_docs", "test_agreement", "test_local", "test_browser", "test_faults", "test_processes",
    "test_reproduce", "test_study", "test_fuzz", "test_export", "test_cli", "test_ogb", "test_deep_agreement",
    "test_runs", "test_own_search", "test_examples", "test_runner", "test_partitions", "test_fit", "test_kills",
)  # fmt: skip
"""Modules that begin first, so that no worker ends long after the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of the campaign, whatever of it was run."""
    rows = getattr(sys.modules.get("campaign"), "ROWS", [])
    if "not slow" in terminalreporter.config.option.markexpr:  # of its short version
        rows = []
    if rows:
        terminalreporter.write_line("\n| what | outcome | how much |\n| --- | --- | --- |")
    for row in rows:
        terminalreporter.write_line(f"| {' | '.join(row)} |")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """The graphs are tiny, and threads that wait for a busy core cost seconds per test."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def problem() -> NodeProblem:
    """A small problem that a GCN can learn."""
    from samples import tiny_problem

    return tiny_problem()


@pytest.fixture
def double() -> Iterator[None]:
    """Everything the engine makes is float64, so that references can be compared closely."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
