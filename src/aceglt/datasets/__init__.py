"""Graphs to search tickets on: by name, or from a user's file."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from aceglt.datasets import ogb, planetoid, synthetic
from aceglt.datasets.base import GraphData, LinkData
from aceglt.datasets.npz import load_npz, save_npz
from aceglt.datasets.planetoid import load_citeseer, load_planetoid
from aceglt.datasets.roots import cache_root, roots
from aceglt.errors import DataError

__all__ = ["KNOWN", "DatasetInfo", "GraphData", "LinkData", "available", "load", "load_npz", "save_npz"]


@dataclass(frozen=True)
class DatasetInfo:
    """The size of a known dataset, to show before it is loaded."""

    nodes: int
    features: int
    edges: int  # undirected
    classes: int  # or yes-no questions, or 0 for link prediction
    description: str
    metric: str | None = None  # where it is not what its classes or labels say


KNOWN = {
    "citeseer": DatasetInfo(3_327, 3_703, 4_552, 6, "citations between computer science papers; embedded"),
    "cora": DatasetInfo(2_708, 1_433, 5_278, 7, "citations between machine learning papers"),
    "pubmed": DatasetInfo(19_717, 500, 44_324, 3, "citations between diabetes papers"),
    "ogbn-arxiv": DatasetInfo(169_343, 128, 1_157_799, 40, "citations between computer science preprints"),
    "ogbn-proteins": DatasetInfo(132_534, 8, 39_561_252, 112, "associations of proteins of eight species"),
    "ogbl-collab": DatasetInfo(235_868, 128, 1_179_052, 0, "collaborations of authors, repeated ones counted"),
    "tolokers": DatasetInfo(11_758, 10, 519_000, 2, "workers of a crowdsourcing platform", "roc_auc"),
    "minesweeper": DatasetInfo(10_000, 7, 39_402, 2, "a grid with mines", "roc_auc"),
    **{
        name: DatasetInfo(s.nodes, s.features, s.edges, s.outputs, f"made at random; {name}:0.01 is a small one")
        for name, s in synthetic.SHAPES.items()
    },
}


def load(name_or_path: str, data_root: str | Path | None = None) -> GraphData | LinkData:
    """Load a known dataset (any case), a synthetic one (`synthetic-arxiv:0.01`) or an `.npz` file (see `load_npz`).

    A name is first looked for as `graphs/NAME.npz`, whether it is known or not, in `data_root`, `$ACEGLT_DATA` and the
    user's cache. Raw files of known datasets are looked for there too, and downloaded into the cache if none has them.
    Raises `DataError` if the name is unknown or the data are missing or damaged.

    >>> load("CiteSeer").x.shape
    torch.Size([3327, 3703])
    """
    name = name_or_path.lower()
    if (file := find_file(name, data_root)) is not None:
        data = load_npz(file)
        return data if data.metric or name not in KNOWN else replace(data, metric=KNOWN[name].metric)
    if name == "citeseer":
        return load_citeseer()
    if name.startswith(synthetic.PREFIX):
        return synthetic.load_synthetic(name)
    if name in ogb.RELEASES:
        return ogb.load_ogb(name, data_root)
    if name in planetoid.FOLDERS:
        return load_planetoid(name, data_root)
    if name in KNOWN:
        raise DataError(f"{name} is not on this machine; put it into {cache_root() / 'graphs' / f'{name}.npz'}")
    if name.endswith(".npz") or os.path.exists(name_or_path):
        return load_npz(name_or_path)
    close = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise DataError(
        f"unknown dataset {name_or_path!r}: known are {', '.join(KNOWN)}, or the path of an .npz file{hint}"
    )


def find_file(name: str, data_root: str | Path | None = None) -> Path | None:
    """The first `graphs/NAME.npz` among the folders that data are looked for in, or None."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name):
        return None
    files = (root / "graphs" / f"{name}.npz" for root in roots(data_root))
    return next((file for file in files if os.path.isfile(file)), None)


def available(data_root: str | Path | None = None) -> list[tuple[str, bool, str]]:
    """List (name, present, where) of each known dataset; where an absent one will be downloaded to."""
    here = {"citeseer": "embedded", **dict.fromkeys(synthetic.SHAPES, "generated")}
    listing = []
    for name in KNOWN:
        if name in here:
            listing.append((name, True, here[name]))
            continue
        if (file := find_file(name, data_root)) is not None:
            listing.append((name, True, str(file)))
            continue
        if name not in ogb.RELEASES and name not in planetoid.FOLDERS:
            listing.append((name, False, str(cache_root() / "graphs" / f"{name}.npz")))
            continue
        source = ogb if name in ogb.RELEASES else planetoid
        folder = source.find_raw(name, data_root)
        listing.append((name, folder is not None, str(folder or source.cache_folder(name))))
    return listing
