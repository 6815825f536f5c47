"""Cora, CiteSeer and PubMed from the raw files of the Planetoid release (Yang et al., 2016).

The result equals PyG's `Planetoid(..., transform=NormalizeFeatures())`. The raw files are pickles, so their
SHA-256 is checked before anything in them is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from aceglt.datasets.base import GraphData
from aceglt.datasets.npz import load_npz
from aceglt.datasets.roots import allowed, cache_root, downloading, first_folder
from aceglt.datasets.unpickle import Array, unpickle
from aceglt.errors import DataError
from aceglt.files import read_regular

FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}

SHA256: dict[str, dict[str, str]] = {}  # by dataset and part, from what `sha256sum` says of the release's files
for _line in Path(__file__).with_suffix(".sha256").read_text().splitlines():
    _digest, _, _file = _line.partition("  ind.")
    _dataset, _, _part = _file.partition(".")
    SHA256.setdefault(_dataset, {})[_part] = _digest

EMBEDDED = Path(__file__).with_name("citeseer.npz")
"""CiteSeer, made by `tools/build_citeseer.py`, so that a first search needs no network."""
VALIDATION_NODES = 500  # the public split: the nodes right after the training ones


def load_citeseer() -> GraphData:
    """Load the embedded CiteSeer with row-normalised features."""
    return row_normalised(load_npz(EMBEDDED).dense())


def load_planetoid(name: str, data_root: str | Path | None = None, download: bool = True) -> GraphData:
    """Load a Planetoid graph with row-normalised features, downloading its raw files if no folder has them.

    Raises `DataError` if a raw file is damaged, or if the files are missing and cannot be downloaded.
    """
    folder = find_raw(name, data_root) or allowed(download, _download, name)
    return row_normalised(build(name, read_raw(name, folder)))


def raw_names(name: str) -> list[str]:
    """Return the names of the eight raw files of `name`."""
    return [f"ind.{name}.{part}" for part in SHA256[name]]


def cache_folder(name: str) -> Path:
    """Return the folder that downloaded raw files of `name` go to."""
    return cache_root() / "planetoid" / FOLDERS[name] / "raw"


def find_raw(name: str, data_root: str | Path | None = None) -> Path | None:
    """Return the first folder that has all eight raw files of `name`, or None."""
    layouts = [f"planetoid/{FOLDERS[name]}/raw", f"{FOLDERS[name]}/raw", "raw", "."]
    return first_folder(data_root, layouts, lambda at: all(os.path.isfile(at / file) for file in raw_names(name)))


def read_raw(name: str, folder: Path) -> dict[str, bytes]:
    """Read the eight raw files in `folder` and check them; the keys are `x`, `tx`, …, `test.index`."""
    files = {}
    for part in SHA256[name]:
        path = folder / f"ind.{name}.{part}"
        try:
            files[part] = read_regular(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        check(name, part, files[part], str(path))
    return files


def check(name: str, part: str, content: bytes, where: str) -> None:
    """Raise `DataError` naming `where` unless `content` is the released file."""
    found, expected = hashlib.sha256(content).hexdigest(), SHA256[name][part]
    if found != expected:
        raise DataError(
            f"{where}: SHA-256 is {found}, expected {expected}; "
            "it is damaged, or not the Planetoid release's: replace it"
        )


def build(name: str, files: Mapping[str, bytes]) -> GraphData:
    """Put checked raw files together into a graph with the public split; features are left as they are."""
    test = np.array(files["test.index"].split(), dtype=np.int64)
    num_nodes = int(test.max()) + 1
    num_train = len(unpickle(files["y"]))
    features = _scatter(unpickle(files["allx"]).to_dense(), unpickle(files["tx"]).to_dense(), test)
    labels = _scatter(unpickle(files["ally"]), unpickle(files["ty"]), test)
    neighbours = unpickle(files["graph"]).items()
    u, v = np.array([(u, v) for u, others in neighbours for v in others if u != v], dtype=np.int64).T
    arcs = np.unique(np.concatenate([v * num_nodes + u, u * num_nodes + v]))  # by target, then source
    nodes = np.arange(num_nodes)
    return GraphData(
        name=name,
        x=torch.from_numpy(features),
        edge_index=torch.from_numpy(np.stack([arcs % num_nodes, arcs // num_nodes])),
        y=torch.from_numpy(labels.argmax(axis=1)),
        train_mask=torch.from_numpy(nodes < num_train),
        val_mask=torch.from_numpy((num_train <= nodes) & (nodes < num_train + VALIDATION_NODES)),
        test_mask=torch.from_numpy(np.isin(nodes, test)),
    )


def row_normalised(data: GraphData) -> GraphData:
    """Return `data` with each feature row divided by its sum; zero rows stay zero."""
    # No row of these graphs sums to something between 0 and 1, so the clamp only spares the zero rows. It is
    # what PyG does, and keeps the result equal to the last bit.
    return replace(data, x=data.x / data.x.sum(dim=1, keepdim=True).clamp(min=1))


def _scatter(known: Array, tested: Array, test: npt.NDArray[np.int64]) -> Array:
    """Return the rows of all nodes: `known` first, row i of `tested` at node test[i].

    CiteSeer has isolated nodes between the test nodes that the release leaves out: their rows are zero.
    """
    rows = np.zeros((int(test.max()) + 1, known.shape[1]), dtype=known.dtype)
    rows[: len(known)] = known
    rows[test] = tested
    return rows


def _download(name: str) -> Path:
    """Let PyG fetch the raw files into the cache; return their folder."""
    from torch_geometric.datasets import Planetoid

    target = cache_folder(name)
    advice = (
        f"put the files {', '.join(raw_names(name))} into {target}, "
        "or into a folder that --data-root or $ACEGLT_DATA names"
    )
    with downloading(name, advice) as temporary:
        # PyG's own addresses, but without its processing, which unpickles unchecked files.
        source = Planetoid.__new__(Planetoid)
        source.root, source.name, source.split = str(temporary), FOLDERS[name], "public"
        fetched = Path(source.raw_dir)
        fetched.mkdir(parents=True)
        source.download()
        read_raw(name, fetched)
        target.mkdir(parents=True, exist_ok=True)
        # Only whole, checked files: a kill in between leaves a folder that does not count as complete.
        for file in raw_names(name):
            os.replace(fetched / file, target / file)
    return target
