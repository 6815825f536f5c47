"""Fixtures: every small dataset is one tiny graph, and searches take a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reproduction_samples import TINY, Reproduce
from samples import sparse_split_data

from aceglt import Reproduction, datasets, reproduce, runner
from aceglt.datasets import GraphData


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's own data; small datasets are stand-ins, and no run has an HTML report."""
    monkeypatch.delenv("ACEGLT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read, available = datasets.read, datasets.available

    def stand_in(name: str, data_root: str | Path | None = None) -> Any:
        return read(name, data_root) if name.startswith("ogb") else GraphData(name, **vars(sparse_split_data()))

    def listing(data_root: str | Path | None = None) -> list[tuple[str, bool, str]]:
        return [(n, there or not n.startswith("ogb"), where) for n, there, where in available(data_root)]

    monkeypatch.setattr(datasets, "read", stand_in)
    monkeypatch.setattr(datasets, "available", listing)
    monkeypatch.setattr(runner, "write_report", lambda runs, path: path.write_text("report"))


@pytest.fixture
def tiny(tmp_path: Path) -> Reproduce:
    """`reproduce` on the tiny graph, scaled down, into a folder of the test."""

    def run(name: str, **options: Any) -> Reproduction:
        return reproduce(name, **{**TINY, "out": tmp_path / "out", **options})

    return run
