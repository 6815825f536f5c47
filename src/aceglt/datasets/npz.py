"""A user's own graph in an `.npz` file.

Arrays: `x` [N, F] numbers, `edge_index` [2, A] integers, `y` [N] integers, or [N, T] numbers for several labels,
`train_mask`, `val_mask` and `test_mask` [N] booleans, or `train_masks`, `val_masks` and `test_masks` [K, N] of K splits
(all may be missing; the split is drawn then), and, where edges have them, weights `edge_weight` [A] and features
`edge_attr` [A, D]. `metric` [] is the name of a metric. Sparse features may take the place of `x`, as the parts of a
scipy CSR matrix: `x_data`, `x_indices`, `x_indptr` and `x_shape`; they are read as a sparse tensor. Other arrays are
ignored.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from aceglt.config import METRICS
from aceglt.datasets.archive import Array, read_arrays, write_arrays
from aceglt.datasets.base import GraphData
from aceglt.errors import DataError
from aceglt.files import check_claim, text_bytes
from aceglt.files.schema import shortened
from aceglt.numerics.csr import as_csr, csr_of

SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
_MASKS = ("train_mask", "val_mask", "test_mask")
_EDGES = ("edge_weight", "edge_attr")
_COSTS = {
    "x": 16, "x_data": 36, "x_indices": 36, "x_indptr": 80, "x_shape": 8, "edge_index": 32, "y": 40, "metric": 8,
    **dict.fromkeys((*_MASKS, *(f"{mask}s" for mask in _MASKS)), 8), **dict.fromkeys(_EDGES, 56), "batch": 8,
}  # fmt: skip
"""Bytes of memory per element, measured up to a problem of any task."""

# A graph's weights have a row for every feature, so a few bytes may not claim any number of them.
_PER_FEATURE, _PER_ENTRY = 1 << 16, 4  # bytes of a search's weights; features that an entry stands for

_KINDS = {"numbers": "fiub", "integers": "iu", "booleans (a mask, not indices)": "b", "text": "U"}
_NUMBERS, _INTEGERS, _BOOLEANS, _TEXT = _KINDS


def load_npz(path: str | Path) -> GraphData:
    """Load a graph from an `.npz` file; its name is the file's stem. Sparse features stay sparse, in CSR.

    Nothing is unpickled. Raises `DataError`, naming the file and the array, for a file that is missing,
    damaged or too big, and for arrays that are missing, of the wrong type or shape, or contradict each other.
    """
    path = Path(os.path.expanduser(path))
    _check_kind(path)
    return graph_of(path.stem, path, read_arrays(path, _COSTS))


def save_npz(path: str | Path, data: Any) -> None:
    """Write a PyG `Data` (or what `aceglt.datasets` reads) as `load_npz` reads it; an existing file is replaced in one
    step.

    Sparse features are written as such, and so are dense ones with less than a third of their entries non-zero. Raises
    `DataError` for data that `load_npz` would refuse.
    """
    if isinstance(data, str | Path):
        raise DataError("save_npz takes the path first, then the data: save_npz('graph.npz', data)")
    path, tensors = Path(os.path.expanduser(path)), {}
    for name in ("x", "edge_index", "y", *_MASKS, *_EDGES):
        if isinstance(values := getattr(data, name, None), torch.Tensor):
            tensors[name] = values.detach().cpu()
    arrays = {name: values.numpy() for name, values in tensors.items() if name != "x"}
    if (x := tensors.get("x")) is not None:
        sparse = x.layout != torch.strided or 3 * int(torch.count_nonzero(x)) < x.numel()
        arrays = {**(_parts(as_csr(x)) if sparse else {"x": x.numpy()}), **arrays}
    for name in _MASKS:
        if name in arrays and arrays[name].ndim == 2:  # of several splits, PyG has them as columns
            arrays[f"{name}s"] = arrays.pop(name).T
    if "y" in arrays and arrays["y"].dtype.kind in "iu" and arrays["y"].shape[1:] == (1,):
        arrays["y"] = arrays["y"][:, 0]
    if "edge_weight" in arrays and arrays["edge_weight"].ndim == 2:
        arrays["edge_weight"] = arrays["edge_weight"][:, 0]
    if "edge_attr" in arrays and arrays["edge_attr"].ndim == 1:
        arrays["edge_attr"] = arrays["edge_attr"][:, None]
    if getattr(data, "metric", None) is not None:
        arrays["metric"] = np.array(data.metric)
    graph_of(path.stem, path, arrays)
    write_arrays(path, arrays)


def graph_of(name: str, path: Path, arrays: dict[str, Array]) -> GraphData:
    """The graph of checked arrays; `path` is for messages."""
    return _Reader(name, path, arrays).graph()


def _check_kind(path: Path) -> None:
    """Say what to call for files that others read."""
    if path.suffix in (".pt", ".pth") and path.exists():
        raise DataError(
            f"{path}: a file of torch, which is not read, since it may run code; if it is yours, load it with "
            f"torch.load('{path}', weights_only=False) and pass the Data to aceglt.search, or write it with "
            f"aceglt.datasets.save_npz('{path.stem}.npz', data)"
        )


class _Reader:
    """The arrays of one graph, each checked as it is taken."""

    def __init__(self, name: str, path: Path, arrays: dict[str, Array]) -> None:
        self.name, self.path, self.arrays = name, path, arrays

    def graph(self) -> GraphData:
        if "batch" in self.arrays:
            raise self.wrong("batch", "a batch of graphs", "one graph: graph-level tasks are not supported")
        x = self.features()
        num_nodes = x.shape[0]
        arcs = self.take("edge_index", _INTEGERS, (2, None))
        self.check_range("edge_index", arcs, num_nodes)
        shapes = {"edge_weight": arcs.shape[1:], "edge_attr": (*arcs.shape[1:], None)}
        edges = {name: _float(self.take(name, _NUMBERS, shapes[name])) for name in _EDGES if name in self.arrays}
        if "y" in self.arrays and self.arrays["y"].ndim == 2:
            targets = _float(self.take("y", _NUMBERS, (num_nodes, None)))
        else:
            y = self.take("y", _INTEGERS, (num_nodes,))
            self.check_range("y", y, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
            targets = _long(y)
        masks = self.masks(num_nodes)
        metric = str(self.take("metric", _TEXT, ())) if "metric" in self.arrays else None
        if metric not in (None, *METRICS):
            raise self.wrong("metric", shortened(metric), f"one of {', '.join(METRICS)}")
        return GraphData(self.name, x, _long(arcs), targets, **masks, **edges, metric=metric)

    def masks(self, num_nodes: int) -> dict[str, torch.Tensor]:
        """Of several splits, if the file has them, of one, or none."""
        if any(f"{name}s" in self.arrays for name in _MASKS):
            splits = [len(self.take(f"{name}s", _BOOLEANS, (None, num_nodes))) for name in _MASKS]
            several = {name: self.take(f"{name}s", _BOOLEANS, (splits[0], num_nodes)) for name in _MASKS}
            if not splits[0]:
                raise self.wrong("train_masks", "no split", "at least one")
            return {name: torch.from_numpy(masks.T) for name, masks in several.items()}
        if not any(name in self.arrays for name in _MASKS):
            return {}
        return {name: torch.from_numpy(self.take(name, _BOOLEANS, (num_nodes,))) for name in _MASKS}

    def features(self) -> torch.Tensor:
        """Dense, or CSR where the file has that."""
        sparse = [name for name in SPARSE if name in self.arrays]
        if "x" in self.arrays and sparse:
            raise self.wrong("x", f"{sparse[0]} as well", "either x or x_data, x_indices, x_indptr and x_shape")
        if sparse:
            return self.sparse_features()
        x = self.take("x", _NUMBERS, (None, None))
        self.check_not_empty("x", x.shape)
        if x.shape[1] * _PER_FEATURE > text_bytes():  # worth counting
            self.check_features("x", x.shape[1], int(np.count_nonzero(x)))
        return torch.from_numpy(self.finite("x", x))

    def sparse_features(self) -> torch.Tensor:
        """What is allocated is bounded by the arrays that are there, whatever `x_shape` says."""
        num_nodes, num_features = (int(size) for size in self.take("x_shape", _INTEGERS, (2,)))
        data = self.take("x_data", _NUMBERS, (None,))
        if min(num_nodes, num_features) < 0:
            raise self.wrong("x_shape", f"{[num_nodes, num_features]}", "sizes from 1")
        self.check_not_empty("x_shape", (num_nodes, num_features))
        self.check_features("x_shape", num_features, len(data))
        columns = self.take("x_indices", _INTEGERS, (len(data),))
        self.check_range("x_indices", columns, num_features)
        starts = self.take("x_indptr", _INTEGERS, (num_nodes + 1,))
        self.check_range("x_indptr", starts, len(data) + 1)
        lengths = _long(starts).diff()
        if starts[0] != 0 or starts[-1] != len(data) or bool((lengths < 0).any()):
            raise self.wrong("x_indptr", "other values", f"a sequence that never falls, from 0 to {len(data)}")
        values = torch.from_numpy(self.finite("x_data", data))
        rows = torch.arange(num_nodes).repeat_interleave(lengths)
        x = csr_of(rows, _long(columns), values, (num_nodes, num_features))  # repeated entries add up, as in scipy
        self.finite("x_data", x.values().numpy())
        return x

    def check_features(self, name: str, count: int, entries: int) -> None:
        """What is allocated for features is bounded by the entries that there are."""
        what = f"{self.path}: array {name}: {count} features for {entries} entries that are not 0"
        check_claim(count * _PER_FEATURE, entries * _PER_ENTRY * _PER_FEATURE, what, DataError, ratio=1)

    def check_not_empty(self, name: str, shape: tuple[int, ...]) -> None:
        if 0 in shape:
            raise self.wrong(name, f"shape {list(shape)}", "at least one node and one feature")

    def finite(self, name: str, array: Array) -> npt.NDArray[np.float32]:
        """Numbers as float32; raises where they do not fit."""
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, order="C", copy=False)
        if not np.isfinite(array).all():
            raise self.wrong(name, "NaN, infinite or huge values", "finite numbers that fit float32")
        return array

    def take(self, name: str, kind: str, shape: tuple[int | None, ...]) -> Array:
        """Return the array if its type and shape are as expected; None is any size."""
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        expected = f"{kind} [{sizes}]"
        if name not in self.arrays:
            found = f"no such array, {'only ' + ', '.join(self.arrays) if self.arrays else 'nor another of a graph'}"
            raise self.wrong(name, found, f"{expected}; aceglt.datasets.save_npz writes such a file from a PyG Data")
        array = self.arrays[name]
        fits = array.ndim == len(shape) and all(
            want is None or size == want for size, want in zip(array.shape, shape, strict=True)
        )
        if array.dtype.kind not in _KINDS[kind] or not fits:
            raise self.wrong(name, f"{array.dtype} {list(array.shape)}", expected)
        return array

    def check_range(self, name: str, array: Array, stop: int, start: int = 0) -> None:
        """Raise unless all entries are at least `start` and less than `stop`."""
        if array.size and not (start <= int(array.min()) and int(array.max()) < stop):
            raise self.wrong(name, f"values from {array.min()} to {array.max()}", f"{start} to {stop - 1}")

    def wrong(self, name: str, found: str, expected: str) -> DataError:
        return DataError(f"{self.path}: array {name}: found {found}, expected {expected}")


def _long(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64, order="C", copy=False))


def _float(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float32))


def _parts(csr: torch.Tensor) -> dict[str, Array]:
    """The arrays of a CSR matrix, with the index type that files have always had."""
    indices, rowptr = csr.col_indices().long(), csr.crow_indices().long()
    parts = (csr.values().numpy(), indices.numpy(), rowptr.numpy(), np.array(csr.shape))
    return dict(zip(SPARSE, parts, strict=True))
