"""Graphs to search tickets on: by name, or from a user's file."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aceglt.datasets import collections, ogb, planetoid, synthetic
from aceglt.datasets.base import GraphData, LinkData
from aceglt.datasets.npz import load_npz, save_npz
from aceglt.datasets.planetoid import load_citeseer, load_planetoid
from aceglt.datasets.roots import allowed, roots
from aceglt.datasets.synthetic import nodes_of_synthetic
from aceglt.errors import DataError

if TYPE_CHECKING:
    from aceglt.datasets.pyg import LoadedData

__all__ = [
    "KNOWN", "DatasetInfo", "GraphData", "LinkData", "available", "info", "load", "load_npz", "name_of",
    "nodes_of_synthetic", "read", "save_npz",
]  # fmt: skip

_LARGE = 1 << 25  # bytes of a file that is not read to show its size


@dataclass(frozen=True)
class DatasetInfo:
    """The size of a known dataset, to show before it is loaded."""

    nodes: int
    features: int
    edges: int  # undirected
    classes: int  # or yes-no questions, or 0 for link prediction
    description: str
    metric: str = "accuracy"


KNOWN = {
    "citeseer": DatasetInfo(3_327, 3_703, 4_552, 6, "citations between computer science papers; embedded"),
    "cora": DatasetInfo(2_708, 1_433, 5_278, 7, "citations between machine learning papers"),
    "pubmed": DatasetInfo(19_717, 500, 44_324, 3, "citations between diabetes papers"),
    "cora-full": DatasetInfo(19_793, 8_710, 63_421, 70, "citations between papers of all fields"),
    "amazon-computers": DatasetInfo(13_752, 767, 245_861, 10, "computers that are bought together"),
    "amazon-photo": DatasetInfo(7_650, 745, 119_081, 8, "cameras that are bought together"),
    "coauthor-cs": DatasetInfo(18_333, 6_805, 81_894, 15, "computer scientists who write together"),
    "coauthor-physics": DatasetInfo(34_493, 8_415, 247_962, 5, "physicists who write together"),
    "wikics": DatasetInfo(11_701, 300, 215_603, 10, "links between articles on computer science; 20 splits"),
    "actor": DatasetInfo(7_600, 932, 26_659, 5, "actors on the same pages; 10 splits"),
    "roman-empire": DatasetInfo(22_662, 300, 32_927, 18, "words of an article; 10 splits"),
    "amazon-ratings": DatasetInfo(24_492, 300, 93_050, 5, "products that are bought together; 10 splits"),
    "minesweeper": DatasetInfo(10_000, 7, 39_402, 2, "a grid with mines; 10 splits", "roc_auc"),
    "tolokers": DatasetInfo(11_758, 10, 519_000, 2, "workers on the same tasks; 10 splits", "roc_auc"),
    "questions": DatasetInfo(48_921, 301, 153_540, 2, "users who answer each other; 10 splits", "roc_auc"),
    "squirrel-filtered": DatasetInfo(2_223, 2_089, 46_998, 5, "links between articles; 10 splits"),
    "chameleon-filtered": DatasetInfo(890, 2_325, 8_854, 5, "links between articles; 10 splits"),
    "flickr": DatasetInfo(89_250, 500, 449_878, 7, "pictures that share properties"),
    "reddit": DatasetInfo(232_965, 602, 57_307_946, 41, "posts that the same users comment on"),
    "ogbn-arxiv": DatasetInfo(169_343, 128, 1_157_799, 40, "citations between computer science preprints"),
    "ogbn-proteins": DatasetInfo(132_534, 8, 39_561_252, 112, "associations of proteins of eight species", "roc_auc"),
    "ogbl-collab": DatasetInfo(235_868, 128, 1_179_052, 0, "collaborations, repeated ones counted", "hits@50"),
    **{
        name: DatasetInfo(s.nodes, s.features, s.edges, s.outputs, f"random; {name}:0.01 is a small one", s.metric)
        for name, s in synthetic.SHAPES.items()
    },
}


def load(name_or_path: str, data_root: str | Path | None = None) -> LoadedData:
    """Load a dataset as a PyG `Data`; see `read` for what there is. A search on it, unchanged, records its name.

    Examples:
        >>> load("CiteSeer").x.shape
        torch.Size([3327, 3703])
    """
    from aceglt.datasets.pyg import as_data

    return as_data(read(name_or_path, data_root), name_or_path)


def name_of(data: Any) -> str | None:
    """The name or path that data was loaded by, if it is as `load` returned it."""
    return data.source if type(data).__name__ == "LoadedData" else None


def read(name_or_path: str, data_root: str | Path | None = None, download: bool = True) -> GraphData | LinkData:
    """Read a known dataset (any case), a synthetic one (`synthetic-arxiv:0.01`) or an `.npz` file (see `load_npz`).

    A name is first looked for as `graphs/NAME.npz`, whether it is known or not, in `data_root`, `$ACEGLT_DATA` and the
    user's cache. Raw files of known datasets are looked for there too, and downloaded into the cache if none has them,
    unless `download` is off. Raises `DataError` if the name is unknown or the data are missing or damaged.
    """
    name = name_or_path.lower()
    data = _read(name, name_or_path, data_root, download)
    if name in KNOWN and data.metric is None:
        return replace(data, metric=KNOWN[name].metric)
    return data


def _read(name: str, given: str, data_root: str | Path | None, download: bool) -> GraphData | LinkData:
    if (file := find_file(name, data_root)) is not None:
        return load_npz(file)
    if name == "citeseer":
        return load_citeseer()
    if name.startswith(synthetic.PREFIX):
        return synthetic.load_synthetic(name)
    if name in ogb.RELEASES:
        return ogb.load_ogb(name, data_root, download)
    if name in planetoid.FOLDERS:
        return load_planetoid(name, data_root, download)
    if name in collections.COLLECTIONS:
        return collections.load_collection(name, data_root, download)
    if name.endswith((".npz", ".pt", ".pth")) or os.path.exists(given):
        return load_npz(given)
    if close := difflib.get_close_matches(name, KNOWN, n=1):
        raise DataError(f"unknown dataset {given!r}; did you mean {close[0]}? The command aceglt datasets lists all")
    raise DataError(f"unknown dataset {given!r}: known are {', '.join(KNOWN)}, or the path of an .npz file")


def find_file(name: str, data_root: str | Path | None = None) -> Path | None:
    """The first `graphs/NAME.npz` among the folders that data are looked for in, or None."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name):
        return None
    files = (root / "graphs" / f"{name}.npz" for root in roots(data_root))
    return next((file for file in files if os.path.isfile(file)), None)


def _raw(name: str) -> Any:
    """The module that reads raw files of this name, and downloads them; None where there are none to download."""
    if name == "citeseer":
        return None
    if name in ogb.RELEASES:
        return ogb
    if name in planetoid.FOLDERS:
        return planetoid
    return collections if name in collections.COLLECTIONS else None


def files_of(name_or_path: str, data_root: str | Path | None = None) -> list[Path]:
    """The files that `read` reads, as far as they are there."""
    name = name_or_path.lower()
    if (file := find_file(name, data_root)) is not None:
        return [file]
    source = _raw(name)
    folder = source.find_raw(name, data_root) if source else None
    return [Path(name_or_path)] if folder is None else [folder / file for file in source.raw_names(name)]


def check_here(name_or_path: str, data_root: str | Path | None = None) -> None:
    """Raise DataError where `read` would download it: only a file names it, and not the user."""
    name = name_or_path.lower()
    source = _raw(name)
    if source and find_file(name, data_root) is None and source.find_raw(name, data_root) is None:
        allowed(False, source.cache_folder, name)


def available(data_root: str | Path | None = None) -> list[tuple[str, bool, str]]:
    """List (name, present, where) of each known dataset, and of other files among the graphs; where an absent one will
    be downloaded to."""
    here = {"citeseer": "embedded", **dict.fromkeys(synthetic.SHAPES, "generated")}
    listing = []
    for name in (*KNOWN, *_own_graphs(data_root)):
        if (file := find_file(name, data_root)) is not None:
            listing.append((name, True, str(file)))
        elif name in here:
            listing.append((name, True, here[name]))
        else:
            source = _raw(name)
            folder = source.find_raw(name, data_root)
            listing.append((name, folder is not None, str(folder or source.cache_folder(name))))
    return listing


def info(name: str, data_root: str | Path | None = None) -> DatasetInfo | None:
    """The size of a known dataset, or of a file among the graphs; None where that is large or cannot be read."""
    if name in KNOWN:
        return KNOWN[name]
    file = find_file(name, data_root)
    if file is None or file.stat().st_size > _LARGE:
        return None
    try:
        data = load_npz(file)
    except DataError:
        return None
    low, high = data.edge_index.aminmax(dim=0)
    edges = len((low * data.num_nodes + high)[low != high].unique())
    several = data.y.dim() == 2
    classes = data.y.shape[1] if several else int(data.y.max()) + 1
    metric = data.metric or ("roc_auc" if several else "accuracy")
    return DatasetInfo(data.num_nodes, data.x.shape[1], edges, classes, "a file of your own", metric)


def _own_graphs(data_root: str | Path | None) -> list[str]:
    """Names of files among the graphs that are of no known dataset."""
    found = {file.stem.lower() for root in roots(data_root) for file in (root / "graphs").glob("*.npz")}
    return sorted(name for name in found - KNOWN.keys() if find_file(name, data_root))
