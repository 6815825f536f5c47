"""Read the pickles of the Planetoid release, and nothing that is not in them."""

from __future__ import annotations

import collections
import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Csr:
    """Stands in for the pickled `scipy.sparse.csr_matrix`, which scipy has since moved and changed inside."""

    data: Array  # [nnz]
    indices: Array  # [nnz]
    indptr: Array  # [rows + 1]
    _shape: tuple[int, int]

    def to_dense(self) -> npt.NDArray[np.float32]:
        """Return the matrix as a dense array."""
        dense = np.zeros(self._shape, dtype=np.float32)
        rows = np.repeat(np.arange(self._shape[0]), np.diff(self.indptr))
        dense[rows, self.indices] = self.data
        return dense


def _dtype(code: str, align: int, copy: int) -> np.dtype[Any]:
    # Old pickles hold 0 and 1 where current numpy wants booleans, and warns.
    return np.dtype(code, align=bool(align), copy=bool(copy))


_ALLOWED = {
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): collections.defaultdict,
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): np.ndarray,
    # numpy moved this function; an array's own recipe names it wherever it lives.
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("scipy.sparse.csr", "csr_matrix"): Csr,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed") from None


def unpickle(content: bytes) -> Any:
    """Return the array, `Csr` or dictionary in `content`; any other pickled name raises `UnpicklingError`."""
    return _Unpickler(io.BytesIO(content), encoding="latin1").load()
