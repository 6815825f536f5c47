"""The public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from search_samples import environment

import aceglt


@pytest.mark.parametrize("name", aceglt.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    namespace: dict[str, object] = {}
    exec(f"from aceglt import {name}", namespace)
    assert namespace[name] is getattr(aceglt, name)


def test_the_public_names_are_these() -> None:
    assert sorted(aceglt.__all__) == [
        "AcegltError", "ApplyTicket", "Benchmark", "CompareResult", "Config", "Evaluation", "Observer",
        "Problem", "Reproduction", "SearchResult", "SweepResult", "Ticket", "TicketSearch", "Tuned",
        "__version__", "benchmark", "compare", "evaluate", "load_run", "load_sweep", "reproduce", "resolve",
        "search", "sweep", "tune",
    ]  # fmt: skip
    assert dir(aceglt) == sorted(aceglt.__all__)


def test_no_public_name_is_a_modules_name() -> None:
    """Importing `aceglt.resolve`, were there such a module, would put it in the place of the function."""
    folder = Path(aceglt.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert modules.isdisjoint(aceglt.__all__)


def test_importing_the_package_gives_its_datasets_on_first_use() -> None:
    code = "import aceglt; print(aceglt.datasets.KNOWN['citeseer'].nodes)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert found.stdout.strip() == "3327"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        aceglt.serach  # noqa: B018


def test_public_things_have_a_docstring() -> None:
    for name in aceglt.__all__:
        if name != "__version__":
            assert getattr(aceglt, name).__doc__, name


def test_errors_of_every_kind_are_aceglt_errors() -> None:
    from aceglt import errors
    from aceglt.report import ReportUnavailable

    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    assert len(kinds) == 7
    assert all(issubclass(kind, aceglt.AcegltError) for kind in (*kinds, ReportUnavailable))


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, aceglt, aceglt.config; print([m for m in ('torch', 'numpy', 'scipy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert found.stdout.strip() == "[]"
