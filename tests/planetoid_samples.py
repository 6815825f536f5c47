"""Small graphs in the pickles of the Planetoid release, written as Python 2 did: protocol 0, old numpy's names."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

_ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(%st"
    b"cnumpy\ndtype\n(S'%s'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'%s'\ntb"
)


def array(values: np.ndarray[Any, Any]) -> bytes:
    """An array, without the pickle's final dot."""
    content = "".join(f"\\x{byte:02x}" for byte in values.tobytes()).encode()
    shape = b"".join(b"I%d\n" % size for size in values.shape)
    return _ARRAY % (shape, values.dtype.str[1:].encode(), content)


def csr(dense: np.ndarray[Any, Any]) -> bytes:
    """A csr_matrix, a whole pickle."""
    rows, columns = np.nonzero(dense)
    parts = {
        b"data": dense[rows, columns].astype("<f4"),
        b"indices": columns.astype("<i4"),
        b"indptr": np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))]).astype("<i4"),
    }
    state = b"".join(b"S'%s'\n%ss" % (key, array(values)) for key, values in parts.items())
    return b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81(d" + state + b"S'_shape'\n(I%d\nI%d\ntsb." % dense.shape


def raw() -> dict[str, bytes]:
    """The eight files of a graph of six nodes, four of them known and two to be tested on."""
    x, y = np.eye(6, 5, dtype="<f4"), np.eye(2, dtype="<i4")[[0, 1, 0, 1, 0, 1]]
    graph = {node: [(node + 1) % 6, (node + 2) % 6] for node in range(6)}
    return {
        "x": csr(x[:2]), "tx": csr(x[4:]), "allx": csr(x[:4]),
        "y": array(y[:2]) + b".", "ty": array(y[4:]) + b".", "ally": array(y[:4]) + b".",
        "graph": pickle.dumps(graph, 0), "test.index": b"4\n5\n",
    }  # fmt: skip
