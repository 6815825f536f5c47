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

from aceglt.datasets.archive import read_arrays
from aceglt.datasets.base import GraphData
from aceglt.datasets.planetoid import both_directions, row_normalised
from aceglt.errors import DataError

PATH = Path(__file__).with_name("citeseer.npz")

ARRAYS = ("x_counts", "x_gaps", "num_features", "edge_counts", "edge_gaps", "y", "split")
TRAIN, VAL, TEST = 1, 2, 3  # values of `split`; 0 is none of them

Ints = npt.NDArray[np.int64]


def load_citeseer() -> GraphData:
    """Load the embedded CiteSeer with row-normalised features."""
    return row_normalised(read_compact(PATH, "citeseer"))


def read_compact(path: Path, name: str) -> GraphData:
    """Read what the tool's `write_compact` wrote; features are 0 and 1."""
    arrays = read_arrays(path, ARRAYS)
    if missing := [array for array in ARRAYS if array not in arrays]:
        raise DataError(f"{path}: array {missing[0]} is missing; install aceglt anew")
    split = arrays["split"]
    num_nodes = len(split)
    x = np.zeros((num_nodes, int(arrays["num_features"][0])), dtype=np.float32)
    x[_decode(arrays["x_counts"], arrays["x_gaps"])] = 1
    arcs = both_directions(*_decode(arrays["edge_counts"], arrays["edge_gaps"]), num_nodes)
    return GraphData(
        name=name,
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(arcs),
        y=torch.from_numpy(arrays["y"].astype(np.int64)),
        train_mask=torch.from_numpy(split == TRAIN),
        val_mask=torch.from_numpy(split == VAL),
        test_mask=torch.from_numpy(split == TEST),
    )


def _decode(counts: npt.NDArray[np.uint16], gaps: npt.NDArray[np.uint16]) -> tuple[Ints, Ints]:
    """Return the row and column of each non-zero."""
    lengths = counts.astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(gaps, dtype=np.int64)])
    before = sums[np.cumsum(lengths) - lengths]  # what the rows above have added
    columns = sums[1:] - np.repeat(before, lengths)
    return np.repeat(np.arange(len(lengths)), lengths), columns
