"""The restricted reader of pickles."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

from aceglt.datasets._unpickle import unpickle

# Protocol 0, as Python 2 wrote it: a csr_matrix with numpy.core names that no longer exist.
_ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I%d\nt"
    b"cnumpy\ndtype\n(S'%s'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'%s'\ntb"
)


def _pickled(array: np.ndarray[tuple[int], np.dtype[Any]]) -> bytes:
    content = "".join(f"\\x{byte:02x}" for byte in array.tobytes()).encode()
    return _ARRAY % (len(array), array.dtype.str[1:].encode(), content)


class _Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_arrays_of_old_numpy_are_read() -> None:
    assert unpickle(_pickled(np.arange(3, dtype="<i4")) + b".").tolist() == [0, 1, 2]


def test_csr_matrices_of_old_scipy_are_read() -> None:
    parts = {
        b"data": np.array([1, 2, 3], dtype="<f4"),
        b"indices": np.array([1, 0, 2], dtype="<i4"),
        b"indptr": np.array([0, 1, 1, 3], dtype="<i4"),
    }
    state = b"".join(b"S'%s'\n%ss" % (key, _pickled(array)) for key, array in parts.items())
    content = b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81(d" + state + b"S'_shape'\n(I3\nI3\ntsb."
    assert unpickle(content).to_dense().tolist() == [[0, 1, 0], [0, 0, 0], [2, 0, 3]]


@pytest.mark.parametrize("content", [pickle.dumps(_Attack()), b"c__builtin__\neval\n."])
def test_other_names_are_refused(content: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not allowed"):
        unpickle(content)
