"""A user's own graph in an `.npz` file.

Arrays: `x` [N, F] numbers, `edge_index` [2, A] integers, `y` [N] integers, or [N, T] numbers for several labels,
`train_mask`, `val_mask` and `test_mask` [N] booleans (all three may be missing if the split is drawn), and, where
edges have them, weights `edge_weight` [A] and features `edge_attr` [A, D]. Sparse features may take the place of `x`,
as the parts of a scipy CSR matrix: `x_data`, `x_indices`, `x_indptr` and `x_shape`. Other arrays are ignored.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from aceglt.datasets.archive import MAX_BYTES, Array, read_arrays, write_arrays
from aceglt.datasets.base import GraphData
from aceglt.errors import DataError

_SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
_MASKS = ("train_mask", "val_mask", "test_mask")
_EDGES = ("edge_weight", "edge_attr")
_NAMES = ("x", *_SPARSE, "edge_index", "y", *_MASKS, *_EDGES, "batch")

_KINDS = {"numbers": "fiub", "integers": "iu", "booleans (a mask, not indices)": "b"}
_NUMBERS, _INTEGERS, _BOOLEANS = _KINDS


def load_npz(path: str | Path) -> GraphData:
    """Load a graph from an `.npz` file; its name is the file's stem.

    Nothing is unpickled. Raises `DataError`, naming the file and the array, for a file that is missing,
    damaged or too big, and for arrays that are missing, of the wrong type or shape, or contradict each other.
    """
    return _Reader(Path(path).expanduser()).graph()


def save_npz(path: str | Path, data: GraphData) -> None:
    """Write `data` in the format that `load_npz` reads; an existing file is replaced in one step.

    Features with less than a third of their entries non-zero are written as sparse ones.
    """
    x = data.x.detach().cpu().numpy()
    sparse = 3 * np.count_nonzero(x) < x.size
    arrays = _csr(x) if sparse else {"x": x}
    for name in ("edge_index", "y", *_MASKS):
        arrays[name] = getattr(data, name).cpu().numpy()
    for name in _EDGES:
        if (values := getattr(data, name)) is not None:
            arrays[name] = values.detach().cpu().numpy()
    write_arrays(Path(path).expanduser(), arrays)


class _Reader:
    """The arrays of one file, each checked as it is taken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays = read_arrays(path, _NAMES)

    def graph(self) -> GraphData:
        if "batch" in self.arrays:
            raise self.wrong("batch", "a batch of graphs", "one graph: graph-level tasks are not supported")
        x = self.features()
        num_nodes = len(x)
        arcs = self.take("edge_index", _INTEGERS, (2, None))
        self.check_range("edge_index", arcs, num_nodes)
        edges = {name: self.edge_values(name, arcs.shape[1]) for name in _EDGES if name in self.arrays}
        return GraphData(
            self.path.stem, torch.from_numpy(x), _long(arcs), self.targets(num_nodes), *self.masks(num_nodes), **edges
        )

    def masks(self, num_nodes: int) -> list[torch.Tensor]:
        """The split; without any mask, nobody's, since it may yet be drawn."""
        if not any(name in self.arrays for name in _MASKS):
            return [torch.zeros(num_nodes, dtype=torch.bool) for _ in _MASKS]
        return [torch.from_numpy(self.take(name, _BOOLEANS, (num_nodes,))) for name in _MASKS]

    def targets(self, num_nodes: int) -> torch.Tensor:
        if "y" in self.arrays and self.arrays["y"].ndim == 2:
            return torch.from_numpy(self.take("y", _NUMBERS, (num_nodes, None)).astype(np.float32))
        y = self.take("y", _INTEGERS, (num_nodes,))
        self.check_range("y", y, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
        return _long(y)

    def edge_values(self, name: str, num_arcs: int) -> torch.Tensor:
        values = self.take(name, _NUMBERS, (num_arcs,) if name == "edge_weight" else (num_arcs, None))
        return torch.from_numpy(values.astype(np.float32))

    def features(self) -> npt.NDArray[np.float32]:
        sparse = [name for name in _SPARSE if name in self.arrays]
        if "x" in self.arrays and sparse:
            raise self.wrong("x", f"{sparse[0]} as well", "either x or x_data, x_indices, x_indptr and x_shape")
        x = self.sparse_features() if sparse else self.take("x", _NUMBERS, (None, None))
        name = "x_data" if sparse else "x"
        if 0 in x.shape:
            raise self.wrong(name, f"shape {list(x.shape)}", "at least one node and one feature")
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, order="C", copy=False)
        if not np.isfinite(x).all():
            raise self.wrong(name, "NaN, infinite or huge values", "finite numbers that fit float32")
        return x

    def sparse_features(self) -> Array:
        shape = self.take("x_shape", _INTEGERS, (2,))
        num_nodes, num_features = int(shape[0]), int(shape[1])
        if min(num_nodes, num_features) < 0 or 4 * num_nodes * num_features > MAX_BYTES:
            raise self.wrong("x_shape", f"{[num_nodes, num_features]}", f"a matrix of at most {MAX_BYTES} bytes")
        data = self.take("x_data", _NUMBERS, (None,))
        columns = self.take("x_indices", _INTEGERS, (len(data),))
        self.check_range("x_indices", columns, num_features)
        rows = np.repeat(np.arange(num_nodes), self.row_lengths(num_nodes, len(data)))
        x = np.zeros((num_nodes, num_features), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            # Repeated entries add up, as in scipy.
            np.add.at(x, (rows, columns), data.astype(np.float32))
        return x

    def row_lengths(self, num_nodes: int, nonzeros: int) -> npt.NDArray[np.int64]:
        starts = self.take("x_indptr", _INTEGERS, (num_nodes + 1,))
        self.check_range("x_indptr", starts, nonzeros + 1)
        starts = starts.astype(np.int64)
        lengths = starts[1:] - starts[:-1]
        if starts[0] != 0 or starts[-1] != nonzeros or (lengths < 0).any():
            raise self.wrong("x_indptr", "other values", f"a sequence that never falls, from 0 to {nonzeros}")
        return lengths

    def take(self, name: str, kind: str, shape: tuple[int | None, ...]) -> Array:
        """Return the array if its type and shape are as expected; None is any size."""
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        expected = f"{kind} [{sizes}]"
        if name not in self.arrays:
            raise self.wrong(name, f"no such array, only {', '.join(self.arrays) or 'others'}", expected)
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


def _csr(x: Array) -> dict[str, Array]:
    rows, columns = np.nonzero(x)
    ends = np.cumsum(np.bincount(rows, minlength=len(x)))
    parts = (x[rows, columns], columns, np.concatenate([[0], ends]), np.array(x.shape))
    return dict(zip(_SPARSE, parts, strict=True))
