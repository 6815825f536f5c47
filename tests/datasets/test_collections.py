"""Small raw files in the formats of PyG's collections: what is read is what PyG's own loaders make of them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.datasets as pyg
from collection_samples import NODES, PARTS, actor, flickr, platonov, reddit, shchur, wikics
from torch_geometric.utils import remove_self_loops, to_undirected

from aceglt.datasets import KNOWN, load, read
from aceglt.datasets.collections import COLLECTIONS
from aceglt.errors import DataError
from aceglt.problems.base import Problem

CASES: dict[str, tuple[Callable[[Path, str], None], Callable[[Path], Any], str]] = {
    "amazon-computers": (shchur, lambda root: pyg.Amazon(str(root), "computers"), "Computers"),
    "amazon-photo": (shchur, lambda root: pyg.Amazon(str(root), "photo"), "Photo"),
    "coauthor-cs": (shchur, lambda root: pyg.Coauthor(str(root), "CS"), "CS"),
    "coauthor-physics": (shchur, lambda root: pyg.Coauthor(str(root), "Physics"), "Physics"),
    "cora-full": (shchur, lambda root: pyg.CoraFull(str(root)), "cora"),
    "roman-empire": (platonov, lambda root: pyg.HeterophilousGraphDataset(str(root), "Roman-empire"), "roman_empire"),
    "questions": (platonov, lambda root: pyg.HeterophilousGraphDataset(str(root), "Questions"), "questions"),
    "wikics": (wikics, lambda root: pyg.WikiCS(str(root), is_undirected=True), "."),
    "actor": (actor, lambda root: pyg.Actor(str(root)), "."),
    "flickr": (flickr, lambda root: pyg.Flickr(str(root)), "."),
    "reddit": (reddit, lambda root: pyg.Reddit(str(root)), "."),
}


def edges_of(data: Any) -> torch.Tensor:
    return remove_self_loops(to_undirected(data.edge_index, num_nodes=NODES))[0]


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_what_pyg_loads(name: str, tmp_path: Path) -> None:
    write, pygs, folder = CASES[name]
    theirs, ours = tmp_path / "pyg" / folder / "raw", tmp_path / "data" / name
    for place in (theirs, ours):
        place.mkdir(parents=True)
        write(place, COLLECTIONS[name].files[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = pygs(tmp_path / "pyg")[0]
    found = load(name, tmp_path / "data")
    assert (found.name, found.metric) == (name, KNOWN[name].metric)
    assert found.x.to_dense().equal(expected.x)
    assert found.y.equal(expected.y)
    assert edges_of(found).equal(edges_of(expected))
    assert ("train_mask" in found) == ("train_mask" in expected)
    for mask in {"train_mask", "val_mask", "test_mask"} & {*expected.keys()}:
        wanted = expected[mask][:, None] if name == "wikics" and mask == "test_mask" else expected[mask]
        assert found[mask].equal(wanted.expand_as(found[mask]))


def test_every_collection_is_known_and_has_a_loader_of_pygs() -> None:
    assert COLLECTIONS.keys() <= KNOWN.keys()
    assert all(hasattr(pyg, raw.loader) for raw in COLLECTIONS.values())


@pytest.mark.parametrize("name", COLLECTIONS)
def test_without_a_network_the_error_says_which_files_go_where(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch_geometric.datasets as loaders

    def offline(self: Any) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(getattr(loaders, COLLECTIONS[name].loader), "download", offline)
    with pytest.raises(DataError, match=f"{name} is not on this machine .*Network is unreachable") as error:
        read(name)
    message = str(error.value)
    assert all(file in message for file in COLLECTIONS[name].files)
    assert str(tmp_path / f"cache/aceglt/pyg/{name}/raw") in message
    assert not list((tmp_path / "cache/aceglt").glob("download-*"))


def test_a_download_goes_to_the_cache_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def download(self: Any) -> None:
        calls.append(self.raw_dir)
        platonov(Path(self.raw_dir), self.raw_file_names)

    monkeypatch.setattr(pyg.HeterophilousGraphDataset, "download", download)
    first, again = read("chameleon-filtered"), read("chameleon-filtered")
    assert first.x.equal(again.x)
    assert len(calls) == 1
    assert os.listdir(tmp_path / "cache/aceglt/pyg/chameleon-filtered/raw") == ["chameleon_filtered.npz"]


@pytest.mark.parametrize("name", ["amazon-photo", "tolokers", "wikics", "actor", "flickr", "reddit"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 50, b"{}", b"a\tb\n1\t2\n"])
def test_damaged_files_are_refused_in_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    write = CASES[name][0] if name in CASES else platonov
    write(folder, COLLECTIONS[name].files[0])
    read(name, tmp_path)
    (folder / COLLECTIONS[name].files[0]).write_bytes(content)
    with pytest.raises(DataError) as error:
        read(name, tmp_path)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_masks_of_wikics_that_do_not_fit_each_other_are_refused_before_they_are_multiplied(tmp_path: Path) -> None:
    (tmp_path / "wikics").mkdir()
    wikics(tmp_path / "wikics", "data.json")
    path = tmp_path / "wikics" / "data.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "train_masks": [[]] * 3}))
    with pytest.raises(DataError, match=r"test_mask is \[30\], train_masks \[3, 0\]"):
        read("wikics", tmp_path)


def test_a_graph_without_a_split_and_one_with_ten_make_problems(tmp_path: Path) -> None:
    for name, write in (("amazon-photo", shchur), ("actor", actor)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, COLLECTIONS[name].files[0])
    sizes = [len(Problem.from_data(read("amazon-photo", tmp_path)).reads(split)) for split in ("train", "val", "test")]  # type: ignore[arg-type]
    assert sizes == [18, 6, 6]
    problem = Problem.from_data(read("actor", tmp_path), split="9")
    assert problem.reads("val").tolist() == (PARTS[9] == 1).nonzero()[0].tolist()  # type: ignore[union-attr]
