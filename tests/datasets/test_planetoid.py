"""Cora, CiteSeer and PubMed from raw files."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aceglt.datasets import planetoid
from aceglt.errors import DataError

TENSORS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
SIZES = {
    "cora": ((2708, 1433), 49_216, 10_556, 7, 140),
    "citeseer": ((3327, 3703), 105_165, 9_104, 6, 120),
    "pubmed": ((19_717, 500), 988_031, 88_648, 3, 60),
}


@pytest.mark.parametrize("name", list(SIZES))
def test_sizes_are_those_of_the_release(name: str, raw_root: Path) -> None:
    shape, nonzeros, arcs, classes, train = SIZES[name]
    data = planetoid.load_planetoid(name, raw_root)
    assert (data.name, data.x.shape, int(data.x.count_nonzero())) == (name, shape, nonzeros)
    assert data.edge_index.shape == (2, arcs)
    assert len(data.y.unique()) == classes
    masks = (data.train_mask, data.val_mask, data.test_mask)
    assert [int(mask.sum()) for mask in masks] == [train, 500, 1000]


@pytest.mark.parametrize("name", list(SIZES))
def test_the_result_equals_pyg(name: str, raw_root: Path, tmp_path: Path) -> None:
    from torch_geometric.datasets import Planetoid
    from torch_geometric.transforms import NormalizeFeatures

    folder = planetoid.FOLDERS[name]
    shutil.copytree(raw_root / "planetoid" / folder / "raw", tmp_path / folder / "raw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG unpickles with names that numpy and scipy deprecate
        theirs = Planetoid(str(tmp_path), folder, transform=NormalizeFeatures())[0]
    ours = planetoid.load_planetoid(name, raw_root)
    for tensor in TENSORS:
        assert getattr(ours, tensor).dtype == theirs[tensor].dtype, tensor
        assert getattr(ours, tensor).equal(theirs[tensor]), tensor


def _fill(folder: Path, name: str = "cora") -> Path:
    folder.mkdir(parents=True)
    for file in planetoid.raw_names(name):
        (folder / file).write_bytes(b"damaged")
    return folder


@pytest.mark.parametrize("layout", ["planetoid/Cora/raw", "Cora/raw", "raw", "cora files"])
def test_raw_files_are_found_in_each_layout(tmp_path: Path, layout: str) -> None:
    folder = _fill(tmp_path / layout)
    root = folder if layout == "cora files" else tmp_path
    assert planetoid.find_raw("cora", root) == folder


def test_roots_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_cache = _fill(planetoid.cache_folder("cora"))
    assert planetoid.find_raw("cora") == in_cache
    in_environment = _fill(tmp_path / "environment/Cora/raw")
    monkeypatch.setenv("ACEGLT_DATA", str(tmp_path / "environment"))
    assert planetoid.find_raw("cora") == in_environment
    given = _fill(tmp_path / "given/Cora/raw")
    assert planetoid.find_raw("cora", tmp_path / "given") == given


def test_an_incomplete_folder_does_not_count(tmp_path: Path) -> None:
    (_fill(tmp_path / "raw") / "ind.cora.graph").unlink()
    assert planetoid.find_raw("cora", tmp_path) is None


def test_a_wrong_checksum_names_the_file_and_nothing_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planetoid, "unpickle", lambda content: pytest.fail("unpickled"))
    _fill(tmp_path / "raw")
    with pytest.raises(DataError, match=r"raw/ind\.cora\.x: SHA-256 is .*, expected 23cfa55d"):
        planetoid.load_planetoid("cora", tmp_path)


@pytest.mark.parametrize("part", list(planetoid.SHA256["cora"]))
def test_each_raw_file_is_checked(part: str, raw_root: Path, tmp_path: Path) -> None:
    shutil.copytree(raw_root / "planetoid/Cora/raw", tmp_path / "raw")
    damaged = tmp_path / "raw" / f"ind.cora.{part}"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"ind\.cora\.{part}: SHA-256"):
        planetoid.load_planetoid("cora", tmp_path)


def _pyg_downloads(monkeypatch: pytest.MonkeyPatch, download: Callable[[Path], None]) -> None:
    from torch_geometric.datasets import Planetoid

    def fake(self: Any) -> None:
        download(Path(self.raw_dir))

    monkeypatch.setattr(Planetoid, "download", fake)


def _files_in_cache(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.rglob("*") if path.is_file()]


def test_missing_files_are_downloaded_into_the_cache(
    raw_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = raw_root / "planetoid/Cora/raw"
    _pyg_downloads(monkeypatch, lambda folder: shutil.copytree(source, folder, dirs_exist_ok=True))
    first = planetoid.load_planetoid("cora")
    assert sorted(_files_in_cache(tmp_path)) == sorted(planetoid.raw_names("cora"))
    _pyg_downloads(monkeypatch, lambda folder: pytest.fail("downloaded twice"))
    assert torch.equal(planetoid.load_planetoid("cora").x, first.x)


def test_without_a_network_the_error_says_which_files_go_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "ind.cora.x").write_bytes(b"half")
        raise ConnectionError("no route\nto host")

    _pyg_downloads(monkeypatch, interrupted)
    with pytest.raises(DataError) as caught:
        planetoid.load_planetoid("cora")
    message = str(caught.value)
    assert "\n" not in message
    assert "no route to host" in message
    assert all(file in message for file in planetoid.raw_names("cora"))
    assert str(tmp_path / "cache/aceglt/planetoid/Cora/raw") in message
    assert _files_in_cache(tmp_path) == []


def test_a_download_of_something_else_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def login_page(folder: Path) -> None:
        for file in planetoid.raw_names("cora"):
            (folder / file).write_text("<html>please log in</html>")

    _pyg_downloads(monkeypatch, login_page)
    with pytest.raises(DataError, match=r"download of cora failed: .*ind\.cora\.x: SHA-256"):
        planetoid.load_planetoid("cora")
    assert _files_in_cache(tmp_path) == []


def test_an_unusable_cache_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="cannot be downloaded"):
        planetoid.load_planetoid("cora")
