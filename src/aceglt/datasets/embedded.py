"""CiteSeer, shipped inside the package, so that a first search needs no network.

The file is made by `tools/build_citeseer.py`. A binary matrix is stored row by row as the number of non-zeros
and the gaps between their columns, which fit 16 bits and compress well: features as they are, edges as the
upper triangle of the adjacency matrix.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from aceglt.datasets.archive import read_arrays, write_arrays
from aceglt.datasets.base import GraphData
from aceglt.datasets.planetoid import both_directions, row_normalised
from aceglt.errors import DataError

PATH = Path(__file__).with_name("citeseer.npz")

_ARRAYS = ("x_counts", "x_gaps", "num_features", "edge_counts", "edge_gaps", "y", "split")
_TRAIN, _VAL, _TEST = 1, 2, 3  # values of `split`; 0 is none of them

Ints = npt.NDArray[np.int64]


def load_citeseer() -> GraphData:
    """Load the embedded CiteSeer with row-normalised features."""
    return row_normalised(read_compact(PATH, "citeseer"))


def read_compact(path: Path, name: str) -> GraphData:
    """Read what `write_compact` wrote; features are 0 and 1."""
    arrays = read_arrays(path, _ARRAYS)
    if missing := [array for array in _ARRAYS if array not in arrays]:
        raise DataError(f"{path}: array {missing[0]} is missing; install aceglt anew")
    split = arrays["split"]
    num_nodes = len(split)
    x = torch.zeros(num_nodes, int(arrays["num_features"][0]))
    x[_decode(arrays["x_counts"], arrays["x_gaps"])] = 1
    u, v = (index.numpy() for index in _decode(arrays["edge_counts"], arrays["edge_gaps"]))
    return GraphData(
        name=name,
        x=x,
        edge_index=torch.from_numpy(both_directions(u, v, num_nodes)),
        y=torch.from_numpy(arrays["y"].astype(np.int64)),
        train_mask=torch.from_numpy(split == _TRAIN),
        val_mask=torch.from_numpy(split == _VAL),
        test_mask=torch.from_numpy(split == _TEST),
    )


def write_compact(path: Path, data: GraphData, attribution: str) -> None:
    """Write an undirected graph with binary features, less than 2^16 nodes and features, 2^8 classes."""
    u, v = data.edge_index.numpy()
    split = np.zeros(len(data.y), dtype=np.uint8)
    for value, mask in ((_TRAIN, data.train_mask), (_VAL, data.val_mask), (_TEST, data.test_mask)):
        split[mask.numpy()] = value
    rows, columns = np.nonzero(data.x.numpy())
    x_counts, x_gaps = _encode(rows, columns, len(split))
    edge_counts, edge_gaps = _encode(u[u < v], v[u < v], len(split))
    arrays = {
        "attribution": np.array([attribution]),
        "x_counts": x_counts,
        "x_gaps": x_gaps,
        "num_features": np.array([data.x.shape[1]], dtype="<u2"),
        "edge_counts": edge_counts,
        "edge_gaps": edge_gaps,
        "y": data.y.numpy().astype(np.uint8),
        "split": split,
    }
    write_arrays(path, arrays)


def _encode(rows: Ints, columns: Ints, num_rows: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    gaps = np.diff(columns, prepend=0)
    starts = np.diff(rows, prepend=-1) > 0
    gaps[starts] = columns[starts]  # the first gap of a row is counted from column 0
    return np.bincount(rows, minlength=num_rows).astype("<u2"), gaps.astype("<u2")


def _decode(counts: npt.NDArray[np.uint16], gaps: npt.NDArray[np.uint16]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the row and column of each non-zero."""
    lengths = counts.astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(gaps, dtype=np.int64)])
    before = sums[np.cumsum(lengths) - lengths]  # what the rows above have added
    columns = sums[1:] - np.repeat(before, lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return torch.from_numpy(rows), torch.from_numpy(columns)
