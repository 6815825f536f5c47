"""Cora, CiteSeer and PubMed from the raw files of the Planetoid release (Yang et al., 2016).

The result equals PyG's `Planetoid(..., transform=NormalizeFeatures())`. The raw files are pickles, so their
SHA-256 is checked before anything in them is read.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from aceglt.datasets.base import GraphData
from aceglt.datasets.roots import cache_root, roots
from aceglt.datasets.unpickle import Array, unpickle
from aceglt.errors import DataError

FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}

SHA256 = {
    "cora": {
        "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    },
    "citeseer": {
        "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    },
    "pubmed": {
        "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    },
}

VALIDATION_NODES = 500  # the public split: the nodes right after the training ones


def load_planetoid(name: str, data_root: str | Path | None = None) -> GraphData:
    """Load a Planetoid graph with row-normalised features, downloading its raw files if no folder has them.

    Raises `DataError` if a raw file is damaged, or if the files are missing and cannot be downloaded.
    """
    folder = find_raw(name, data_root) or _download(name)
    data = build(name, read_raw(name, folder))
    return row_normalised(data)


def raw_names(name: str) -> list[str]:
    """Return the names of the eight raw files of `name`."""
    return [f"ind.{name}.{part}" for part in SHA256[name]]


def cache_folder(name: str) -> Path:
    """Return the folder that downloaded raw files of `name` go to."""
    return cache_root() / "planetoid" / FOLDERS[name] / "raw"


def find_raw(name: str, data_root: str | Path | None = None) -> Path | None:
    """Return the first folder that has all eight raw files of `name`, or None."""
    layouts = [f"planetoid/{FOLDERS[name]}/raw", f"{FOLDERS[name]}/raw", "raw", "."]
    for folder in (root / layout for root in roots(data_root) for layout in layouts):
        if all(os.path.isfile(folder / file) for file in raw_names(name)):
            return folder
    return None


def read_raw(name: str, folder: Path) -> dict[str, bytes]:
    """Read the eight raw files in `folder` and check them; the keys are `x`, `tx`, …, `test.index`."""
    files = {}
    for part in SHA256[name]:
        path = folder / f"ind.{name}.{part}"
        try:
            files[part] = path.read_bytes()
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
    nodes = np.arange(num_nodes)
    return GraphData(
        name=name,
        x=torch.from_numpy(features),
        edge_index=torch.from_numpy(_arcs(unpickle(files["graph"]), num_nodes)),
        y=torch.from_numpy(labels.argmax(axis=1)),
        train_mask=torch.from_numpy(nodes < num_train),
        val_mask=torch.from_numpy((num_train <= nodes) & (nodes < num_train + VALIDATION_NODES)),
        test_mask=torch.from_numpy(np.isin(nodes, test)),
    )


def row_normalised(data: GraphData) -> GraphData:
    """Return `data` with each feature row divided by its sum; zero rows stay zero."""
    # No row of these graphs sums to something between 0 and 1, so the clamp only spares the zero rows. It is
    # what PyG does, and keeps the result equal to the last bit.
    x = data.x / data.x.sum(dim=1, keepdim=True).clamp(min=1)
    return replace(data, x=x)


def both_directions(u: npt.NDArray[np.int64], v: npt.NDArray[np.int64], num_nodes: int) -> npt.NDArray[np.int64]:
    """Return each edge {u, v} as two arcs [2, A], without repeats or self-loops, by target, then source."""
    proper = u != v
    u, v = u[proper], v[proper]
    keys = np.unique(np.concatenate([v * num_nodes + u, u * num_nodes + v]))
    return np.stack([keys % num_nodes, keys // num_nodes])


def _scatter(known: Array, tested: Array, test: npt.NDArray[np.int64]) -> Array:
    """Return the rows of all nodes: `known` first, row i of `tested` at node test[i].

    CiteSeer has isolated nodes between the test nodes that the release leaves out: their rows are zero.
    """
    rows = np.zeros((int(test.max()) + 1, known.shape[1]), dtype=known.dtype)
    rows[: len(known)] = known
    rows[test] = tested
    return rows


def _arcs(graph: Mapping[int, list[int]], num_nodes: int) -> npt.NDArray[np.int64]:
    degrees = [len(neighbours) for neighbours in graph.values()]
    sources = np.repeat(np.fromiter(graph, dtype=np.int64), degrees)
    targets = np.concatenate([np.array(neighbours, dtype=np.int64) for neighbours in graph.values()])
    return both_directions(sources, targets, num_nodes)


def _download(name: str) -> Path:
    """Let PyG fetch the raw files into the cache; return their folder."""
    target = cache_folder(name)
    try:
        cache_root().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=cache_root()) as temporary:
            fetched = _fetch(name, Path(temporary))
            read_raw(name, fetched)
            target.mkdir(parents=True, exist_ok=True)
            # Only whole, checked files: a kill in between leaves a folder that does not count as complete.
            for file in raw_names(name):
                os.replace(fetched / file, target / file)
    except DataError as error:
        raise DataError(f"download of {name} failed: {error}; {_by_hand(name)}") from error
    # PyG's download passes on whatever its network stack raises; no common base but Exception.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{name} is not on this machine and cannot be downloaded ({reason}); {_by_hand(name)}"
        ) from error
    return target


def _fetch(name: str, root: Path) -> Path:
    """Download with PyG's own addresses, but without its processing, which unpickles unchecked files."""
    from torch_geometric.datasets import Planetoid

    source = Planetoid.__new__(Planetoid)
    source.root, source.name, source.split = str(root), FOLDERS[name], "public"
    folder = Path(source.raw_dir)
    folder.mkdir(parents=True)
    source.download()
    return folder


def _by_hand(name: str) -> str:
    return (
        f"put the files {', '.join(raw_names(name))} into {cache_folder(name)}, "
        "or into a folder that --data-root or $ACEGLT_DATA names"
    )
