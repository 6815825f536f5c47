"""Fixtures: the raw Planetoid files where the machine has them, and a small graph."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from aceglt.datasets import GraphData

_RAW_ROOT = os.environ.get("ACEGLT_DATA")


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own data."""
    monkeypatch.delenv("ACEGLT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def raw_root() -> Path:
    """The folder with the raw Planetoid files."""
    if not _RAW_ROOT:
        pytest.skip("needs raw Planetoid files: set ACEGLT_DATA")
    return Path(_RAW_ROOT)


@pytest.fixture
def small() -> GraphData:
    """Four nodes in a path, three features."""
    mask = torch.eye(4, dtype=torch.bool)
    return GraphData(
        name="small",
        x=torch.tensor([[1.0, 0.0, 2.0], [0.5, 1.0, 1.0], [0.0, 0.0, 0.0], [3.0, 1.0, 1.0]]),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        y=torch.tensor([0, 1, 1, 0]),
        train_mask=mask[0] | mask[1],
        val_mask=mask[2],
        test_mask=mask[3],
    )
