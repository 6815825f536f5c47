"""Graphs that PyG has loaders for: Amazon, Coauthor, CoraFull, WikiCS, Actor, Flickr, Reddit, heterophilous ones.

PyG downloads the raw files. They are read here, since PyG would keep a pickled copy, and go through the checks of
`load_npz`: a reader turns the raw files of a folder into the arrays that it knows. The graphs are those of PyG's
loaders, undirected, with the same splits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aceglt.datasets.archive import Array, read_array, read_arrays
from aceglt.datasets.base import GraphData
from aceglt.datasets.npz import SPARSE, graph_of
from aceglt.datasets.roots import allowed, cache_root, downloading, first_folder, one_line
from aceglt.errors import AcegltError, DataError, is_shortage

Arrays = dict[str, Array]


@dataclass(frozen=True)
class _Raw:
    """Where PyG has a dataset, its raw files, and what reads them."""

    loader: str
    files: tuple[str, ...]
    read: Callable[[Path, tuple[str, ...]], Arrays]
    name: str | None = None  # among those of the loader


def _shchur(folder: Path, files: tuple[str, ...]) -> Arrays:
    """Adjacency and features in CSR, and classes, from Shchur et al. (2018); features are 0 or 1."""
    parts = ("indices", "indptr", "shape")
    adjacency, features = ([f"{matrix}_{part}" for part in parts] for matrix in ("adj", "attr"))
    found = _arrays(folder / files[0], *adjacency, "attr_data", *features, "labels")
    x = np.where(found["attr_data"] > 0, 1, found["attr_data"])
    columns, rowptr, _ = (found[name] for name in adjacency)
    return {
        **dict(zip(SPARSE, (x, *(found[name] for name in features)), strict=True)),
        "edge_index": _arcs(rowptr, columns), "y": found["labels"],
    }  # fmt: skip


def _platonov(folder: Path, files: tuple[str, ...]) -> Arrays:
    """The heterophilous graphs of Platonov et al. (2023), with ten splits."""
    names = {"node_features": "x", "node_labels": "y", "edges": "edge_index"}
    found = _arrays(folder / files[0], *names, "train_masks", "val_masks", "test_masks")
    return {names.get(name, name): array.T if name == "edges" else array for name, array in found.items()}


def _wikics(folder: Path, files: tuple[str, ...]) -> Arrays:
    """Twenty splits into training and validation nodes, one set of test nodes."""
    found = _json(folder / files[0])
    links = found["links"]
    source = np.repeat(np.arange(len(links)), [len(targets) for targets in links])
    target = np.array([target for targets in links for target in targets], dtype=np.int64)
    train, val = (np.array(found[f"{part}_masks"], dtype=bool) for part in ("train", "val"))
    test = np.array(found["test_mask"], dtype=bool)
    if test.shape != train.shape[1:]:  # or a small file would make a large array
        raise DataError(f"{folder / files[0]}: test_mask is {list(test.shape)}, train_masks {list(train.shape)}")
    return {
        "x": np.array(found["features"], dtype=np.float32), "y": np.array(found["labels"], dtype=np.int64),
        "edge_index": np.stack([source, target]), "train_masks": train, "val_masks": val,
        "test_masks": np.tile(test, (len(train), 1)),
    }  # fmt: skip


def _actor(folder: Path, files: tuple[str, ...]) -> Arrays:
    """Geom-GCN's tables of nodes (number, features that are 1, class) and edges, and ten splits."""
    nodes, edges, *splits = (folder / file for file in files)
    lines = sorted((int(number), words, label) for number, words, label in _table(nodes, 3))
    if [number for number, _, _ in lines] != list(range(len(lines))):
        raise DataError(f"{nodes}: must have one line for each node from 0")
    words = [np.unique(np.array(row.split(","), dtype=np.int64)) for _, row, _ in lines]
    columns = np.concatenate(words)
    rowptr = np.cumsum([0, *map(len, words)])
    shape = np.array([len(lines), int(columns.max()) + 1])
    masks = [_arrays(split, "train_mask", "val_mask", "test_mask") for split in splits]
    return {
        **dict(zip(SPARSE, (np.ones(len(columns), np.float32), columns, rowptr, shape), strict=True)),
        "y": np.array([label for _, _, label in lines], dtype=np.int64),
        "edge_index": np.array(_table(edges, 2), dtype=np.int64).T,
        **{f"{name}s": np.stack([mask[name].astype(bool) for mask in masks]) for name in masks[0]},
    }


def _flickr(folder: Path, files: tuple[str, ...]) -> Arrays:
    """GraphSAINT's files: adjacency in CSR, features, and by node its class and role."""
    adjacency, features, classes, roles = (folder / file for file in files)
    found = _arrays(adjacency, "indices", "indptr")
    x = read_array(features)
    y = np.full(len(x), -1)
    for node, label in _json(classes).items():
        y[int(node)] = label
    role, masks = _json(roles), {}
    for name, key in (("train_mask", "tr"), ("val_mask", "va"), ("test_mask", "te")):
        masks[name] = np.zeros(len(x), dtype=bool)
        masks[name][role[key]] = True
    return {"x": x.astype(np.float32), "y": y, "edge_index": _arcs(found["indptr"], found["indices"]), **masks}


def _reddit(folder: Path, files: tuple[str, ...]) -> Arrays:
    nodes = _arrays(folder / files[0], "feature", "label", "node_types")
    arcs = _arrays(folder / files[1], "row", "col")
    masks = {name: nodes["node_types"] == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"), start=1)}
    return {"x": nodes["feature"], "y": nodes["label"], "edge_index": np.stack([arcs["row"], arcs["col"]]), **masks}


_ACTOR = ("out1_node_feature_label.txt", "out1_graph_edges.txt", *(f"film_split_0.6_0.2_{i}.npz" for i in range(10)))

COLLECTIONS: Mapping[str, _Raw] = {
    "amazon-computers": _Raw("Amazon", ("amazon_electronics_computers.npz",), _shchur, "computers"),
    "amazon-photo": _Raw("Amazon", ("amazon_electronics_photo.npz",), _shchur, "photo"),
    "coauthor-cs": _Raw("Coauthor", ("ms_academic_cs.npz",), _shchur, "CS"),
    "coauthor-physics": _Raw("Coauthor", ("ms_academic_phy.npz",), _shchur, "Physics"),
    "cora-full": _Raw("CitationFull", ("cora.npz",), _shchur, "cora"),
    "wikics": _Raw("WikiCS", ("data.json",), _wikics),
    "actor": _Raw("Actor", _ACTOR, _actor),
    **{
        name.replace("_", "-"): _Raw("HeterophilousGraphDataset", (f"{name}.npz",), _platonov, name)
        for name in ("roman_empire", "amazon_ratings", "minesweeper", "tolokers", "questions")
    },
    **{  # filtered by the same authors, from the same place
        f"{name}-filtered": _Raw("HeterophilousGraphDataset", (f"{name}_filtered.npz",), _platonov, f"{name}_filtered")
        for name in ("squirrel", "chameleon")
    },
    "flickr": _Raw("Flickr", ("adj_full.npz", "feats.npy", "class_map.json", "role.json"), _flickr),
    "reddit": _Raw("Reddit", ("reddit_data.npz", "reddit_graph.npz"), _reddit),
}


def load_collection(name: str, data_root: str | Path | None = None, download: bool = True) -> GraphData:
    """Load a dataset of `COLLECTIONS`, downloading its raw files if no folder has them.

    Raises `DataError` if a raw file is damaged, or if the files are missing and cannot be downloaded.
    """
    folder, raw = find_raw(name, data_root) or allowed(download, _download, name), COLLECTIONS[name]
    try:
        arrays = raw.read(folder, raw.files)
    except AcegltError:
        raise
    # What a damaged file leads to has no common base but Exception.
    except Exception as error:
        if is_shortage(error):
            raise
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"{folder}: the raw files of {name} cannot be read ({reason[:200]})") from error
    return graph_of(name, folder, arrays)


def raw_names(name: str) -> Sequence[str]:
    """Return the names of the raw files of `name`."""
    return COLLECTIONS[name].files


def cache_folder(name: str) -> Path:
    """Return the folder that downloaded raw files of `name` go to."""
    return cache_root() / "pyg" / name / "raw"


def find_raw(name: str, data_root: str | Path | None = None) -> Path | None:
    """Return the first folder that has all raw files of `name`, or None."""
    layouts = (f"pyg/{name}/raw", f"{name}/raw", name)
    files = COLLECTIONS[name].files
    return first_folder(data_root, layouts, lambda at: all(os.path.isfile(at / file) for file in files))


def _download(name: str) -> Path:
    """Let PyG fetch the raw files into the cache; return their folder."""
    import torch_geometric.datasets

    target, raw = cache_folder(name), COLLECTIONS[name]
    advice = (
        f"put {', '.join(raw.files)} into {target}, or into {name} in a folder that --data-root or $ACEGLT_DATA names"
    )
    with downloading(name, advice) as temporary:
        loader: Any = getattr(torch_geometric.datasets, raw.loader)
        source = loader.__new__(loader)  # its addresses alone: no processing
        source.root, source.name = str(temporary), raw.name
        fetched = Path(source.raw_dir)
        fetched.mkdir(parents=True)
        source.download()
        target.mkdir(parents=True, exist_ok=True)
        for file in raw.files:
            os.replace(fetched / file, target / file)
    return target


def _arrays(path: Path, *names: str) -> Arrays:
    """The arrays of a file, all of which it must have."""
    found = read_arrays(path, dict.fromkeys(names, 36))
    if missing := [name for name in names if name not in found]:
        raise DataError(f"{path}: has no array {', '.join(missing)}")
    return found


def _arcs(rowptr: Array, columns: Array) -> Array:
    """[2, A] of an adjacency matrix in CSR."""
    if len(rowptr) < 1 or rowptr[0] != 0 or rowptr[-1] != len(columns) or bool((np.diff(rowptr) < 0).any()):
        raise DataError("an adjacency matrix in CSR whose row pointers do not fit its columns")
    rows = np.repeat(np.arange(len(rowptr) - 1), np.diff(rowptr))
    return np.stack([rows, columns.astype(np.int64)])


def _table(path: Path, columns: int) -> list[list[str]]:
    """The lines of a text file after the first, cut at tabs."""
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    if wrong := next((number for number, line in enumerate(lines, start=2) if len(line) != columns), None):
        raise DataError(f"{path}: line {wrong} must have {columns} columns")
    return lines


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
