"""Fixtures of the engine's tests."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from campaign_table import Table, Tell, place, write
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:  # the process that hands out the tests needs neither torch nor aceglt
    from aceglt.problems import NodeProblem

pytest.register_assert_rewrite("contract")

BEGAN = time.monotonic()
MEMORY = Path("/dev/shm")


os.environ.setdefault("OUTDATED_IGNORE", "1")  # ogb's import asks the network for a newer version
if not any(Path("/dev").glob("nvidia*")):  # before anything imports Triton
    os.environ.setdefault("TRITON_INTERPRET", "1")
settings.register_profile("aceglt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("aceglt")  # a machine with other work is slow, and no input is at fault


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--table", type=Path, metavar="PAGE", help="write the campaign's table into this page")
    parser.addoption("--tenth", action="store_true", help="a tenth of the campaign's inputs, lengths and bits")


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Puts numbers into the table of the campaign; properties of tests come back from all processes."""
    return lambda part, kind, outcome, **numbers: record_property("campaign", (part, kind, outcome, numbers))


@pytest.fixture
def share(request: pytest.FixtureRequest) -> float:
    """How much of the campaign is asked for."""
    return 0.1 if request.config.getoption("--tenth") else 1.0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """The table of the campaign, whatever of it was run; into a page if nothing failed in any process."""
    if "not slow" in config.option.markexpr or hasattr(config, "workerinput"):  # in short, or one of its processes
        return
    reports = [report for of in ("passed", "failed") for report in terminalreporter.stats.get(of, [])]
    rows = [value for report in reports for name, value in report.user_properties if name == "campaign"]
    if not rows:
        return
    processes = getattr(config.option, "numprocesses", None) or 1
    on_gpu = config.option.markexpr == "gpu"
    lines = [place(time.monotonic() - BEGAN, processes, _gpu() if on_gpu else ""), "", *Table(rows).lines]
    terminalreporter.write_line("\n" + "\n".join(lines))
    page = config.option.table
    if page and exitstatus != pytest.ExitCode.OK:
        terminalreporter.write_line(f"{page} is left as it was: tests failed")
    elif page:
        write(page, "campaign-gpu" if on_gpu else "campaign", ["", *lines, ""])


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


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
