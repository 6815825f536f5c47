"""ogbn-arxiv, ogbn-proteins and ogbl-collab from the files of the Open Graph Benchmark (Hu et al., 2020).

The raw files are read here and not by ogb's dataset classes, which unpickle a processed copy without a check: raw
graphs and node splits are CSV, read by pandas, and ogbl-collab's edge splits, which exist as pickles alone, go through
torch's restricted unpickler, which makes tensors, arrays and containers and nothing else. Files are downloaded by the
package ogb, which is imported when that is needed.
"""

from __future__ import annotations

import csv
import gzip
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from aceglt.datasets.base import GraphData, LinkData
from aceglt.datasets.roots import allowed, cache_root, downloading, first_folder, one_line
from aceglt.datasets.unpickle import PickledArray, PickledDtype
from aceglt.errors import AcegltError, DataError, is_shortage
from aceglt.files import check_claim

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Release:
    """Where ogb keeps a dataset, and which of its files are read."""

    family: str
    split: str
    raw: tuple[str, ...]
    split_suffix: str = "csv.gz"

    @property
    def files(self) -> list[str]:
        raw = [f"raw/{name}.csv.gz" for name in self.raw]
        return raw + [f"split/{self.split}/{part}.{self.split_suffix}" for part in ("train", "valid", "test")]


RELEASES = {
    "ogbn-arxiv": _Release("nodeproppred", "time", ("edge", "num-node-list", "node-feat", "node-label")),
    "ogbn-proteins": _Release(
        "nodeproppred", "species", ("edge", "num-node-list", "edge-feat", "node-label", "node_species")
    ),
    "ogbl-collab": _Release("linkproppred", "time", ("edge", "num-node-list", "node-feat"), "pt"),
}

RATIO = 64  # as for .npz files; the longest of these is 30 times its packed size
_PER_BYTE = 16  # of text: what a number of two characters takes, with the tables that pandas makes of it
_LONGEST_LINE = 1 << 16

_OLD_NAMES = {"raw/node_species.csv.gz": "raw/species.csv.gz"}  # as the zip file has it, before ogb renames it


def load_ogb(name: str, data_root: str | Path | None = None, download: bool = True) -> GraphData | LinkData:
    """Load a dataset of `RELEASES` with its official split, downloading it if no folder has it.

    Edges are listed once, as in the files; `Problem` makes the graph undirected. ogbn-proteins has species as one-hot
    node features, eight features per edge and `y` [N, 112] of 0 and 1. ogbl-collab is a `LinkData`.

    Raises `DataError` if a file is damaged, or if files are missing and cannot be downloaded.
    """
    reader = _Reader(name, find_raw(name, data_root) or allowed(download, _download, name))
    return reader.link_data() if name == "ogbl-collab" else reader.node_data()


def raw_names(name: str) -> list[str]:
    """Return the names of the files of `name`, older ones too."""
    return [*RELEASES[name].files, *_OLD_NAMES.values()]


def cache_folder(name: str) -> Path:
    """Return the folder that a download goes to."""
    return cache_root() / "ogb" / _folder(name)


def find_raw(name: str, data_root: str | Path | None = None) -> Path | None:
    """Return the first folder that has all files of `name`, laid out as ogb does, or None."""
    layouts = [f"{parent}{_folder(name)}{suffix}" for parent in ("ogb/", "") for suffix in ("", "_pyg")]
    return first_folder(data_root, layouts, lambda at: all(_path(at, f).is_file() for f in RELEASES[name].files))


class _Reader:
    """The files of one dataset, each checked as it is read."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        counts = self.table("num-node-list", np.int64, None, 1)
        if len(counts) != 1:
            raise DataError(f"{folder}/raw/num-node-list.csv.gz: names {len(counts)} graphs, expected one")
        self.nodes = int(counts)

    def node_data(self) -> GraphData:
        edge_index, edge_attr = self.edges(), None
        if self.name == "ogbn-proteins":
            species = self.table("node_species", np.int64, self.nodes, 1).flatten()
            kinds, number = species.unique(return_inverse=True)
            needed, size = 12 * self.nodes * len(kinds), self.path("node_species").stat().st_size
            check_claim(needed, size, f"{self.path('node_species')}: {len(kinds)} species", DataError, RATIO)
            x = torch.nn.functional.one_hot(number).float()
            edge_attr = self.table("edge-feat", np.float32, edge_index.shape[1])
            y = self.table("node-label", np.float32, self.nodes)
        else:
            x = self.table("node-feat", np.float32, self.nodes)
            y = self.table("node-label", np.float32, self.nodes, 1).squeeze(1).long()
        train, val, test = (self.mask(part) for part in ("train", "valid", "test"))
        return GraphData(self.name, x, edge_index, y, train, val, test, edge_attr=edge_attr)

    def link_data(self) -> LinkData:
        x = self.table("node-feat", np.float32, self.nodes)
        kinds = ("edge", "edge_neg")
        val, no_val, test, no_test = (self.pairs(part, kind) for part in ("valid", "test") for kind in kinds)
        return LinkData(self.name, x, self.edges(), val, no_val, test, no_test, metric="hits@50")

    def edges(self) -> torch.Tensor:
        return self.nodes_in(self.table("edge", np.int64, None, 2).T, "raw/edge.csv.gz")

    def mask(self, part: str) -> torch.Tensor:
        file = f"split/{RELEASES[self.name].split}/{part}.csv.gz"
        nodes = self.nodes_in(_read_csv(self.folder / file, np.int64), file)
        return torch.zeros(self.nodes, dtype=torch.bool).index_fill_(0, nodes.flatten(), True)

    def pairs(self, part: str, key: str) -> torch.Tensor:
        """[2, n] pairs of nodes of a split's pickle."""
        file = f"split/{RELEASES[self.name].split}/{part}.pt"
        content = _load_arrays(self.folder / file)
        found = content.get(key) if isinstance(content, dict) else None
        pairs: Array = found.values if isinstance(found, PickledArray) else np.zeros(0)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind != "i":
            raise DataError(f"{self.folder / file}: '{key}' must be integers of shape [pairs, 2]")
        return self.nodes_in(torch.from_numpy(pairs.astype(np.int64)).T, file)

    def table(self, name: str, kind: type, rows: int | None, columns: int | None = None) -> torch.Tensor:
        """A raw table [rows, columns]; None stands for any number."""
        path = self.path(name)
        table = _read_csv(path, kind)
        if len(table) != (rows if rows is not None else len(table)) or columns not in (None, table.shape[1]):
            raise DataError(
                f"{path}: has {len(table)} rows and {table.shape[1]} columns, expected "
                f"{'any number of' if rows is None else rows} rows and {columns or 'any number of'} columns"
            )
        return table

    def path(self, name: str) -> Path:
        return _path(self.folder, f"raw/{name}.csv.gz")

    def nodes_in(self, nodes: torch.Tensor, file: str) -> torch.Tensor:
        """Node numbers, if all are nodes of the graph."""
        if nodes.numel() and not 0 <= nodes.min() <= nodes.max() < self.nodes:
            bad = int(nodes.min() if nodes.min() < 0 else nodes.max())
            raise DataError(f"{self.folder / file}: names node {bad}, but the graph has nodes 0 to {self.nodes - 1}")
        return nodes.long().contiguous()


class _Unpacked(gzip.GzipFile):
    """A packed text that is neither a bomb nor one endless line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path, self._size = path, path.stat().st_size
        if len(self.readline(_LONGEST_LINE)) == _LONGEST_LINE:
            raise DataError(f"{path}: its first line is longer than {_LONGEST_LINE} bytes")
        self.seek(0)

    def read(self, size: int | None = -1) -> bytes:
        return self._within_limit(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._within_limit(super().read1(size))

    def _within_limit(self, chunk: bytes) -> bytes:
        check_claim(self.tell() * _PER_BYTE, self._size, f"{self._path}", DataError, _PER_BYTE * RATIO)
        return chunk


def _read_csv(path: Path, kind: type) -> torch.Tensor:
    try:
        import pandas
    except ImportError:
        raise _needs_ogb(path.name) from None
    try:
        with _Unpacked(path) as file:
            return torch.from_numpy(pandas.read_csv(file, header=None, dtype=kind).to_numpy(copy=True))
    except AcegltError:
        raise
    # pandas passes on what gzip, its parser and numpy raise; no common base but Exception.
    except Exception as error:
        if is_shortage(error):
            raise
        raise DataError(f"{path}: cannot be read as a table of {np.dtype(kind).name} ({one_line(error)})") from error


def _load_arrays(path: Path) -> Any:
    """What torch wrote, if it is made of arrays, tensors and containers alone; nothing else is executed."""
    # numpy has renamed the module of the function that makes arrays: files have either name
    makers = ["numpy.ndarray", *(f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core"))]
    allowed: list[Any] = [(PickledDtype, "numpy.dtype"), *((PickledArray, name) for name in makers)]
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                needed = sum(info.file_size for info in archive.infolist())
            check_claim(2 * needed, path.stat().st_size, f"{path}", DataError)
        with torch.serialization.safe_globals(allowed):
            return torch.load(path, weights_only=True)
    except AcegltError:
        raise
    # A damaged file makes torch raise anything; a forbidden one, an UnpicklingError.
    except Exception as error:
        if is_shortage(error):
            raise
        raise DataError(f"{path}: is damaged, or holds something other than arrays") from error


def _folder(name: str) -> str:
    return name.replace("-", "_")


def _path(folder: Path, file: str) -> Path:
    path = folder / file
    return folder / _OLD_NAMES[file] if file in _OLD_NAMES and not path.is_file() else path


def _download(name: str) -> Path:
    """Let ogb fetch and unpack the zip file into the cache; return its folder."""
    try:
        from ogb.utils.url import download_url, extract_zip
    except ImportError:
        raise _needs_ogb(name) from None
    import ogb

    target, release = cache_folder(name), RELEASES[name]
    advice = (
        f"put the files {', '.join(release.files)} of its zip file into {target}, or into {_folder(name)} in a folder "
        "that --data-root or $ACEGLT_DATA names"
    )
    with downloading(name, advice) as temporary:
        with open(Path(ogb.__file__).parent / release.family / "master.csv", newline="") as lines:
            facts = {row[""]: row[name] for row in csv.DictReader(lines)}
        extract_zip(download_url(facts["url"], str(temporary)), str(temporary))
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary / facts["download_name"], target)
    return target


def _needs_ogb(what: str) -> DataError:
    return DataError(f"{what}: OGB datasets need the package ogb: pip install 'aceglt[ogb]'")
