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

    data: PickledArray  # [nnz]
    indices: PickledArray  # [nnz]
    indptr: PickledArray  # [rows + 1]
    _shape: tuple[int, int]

    def to_dense(self) -> npt.NDArray[np.float32]:
        """Return the matrix as a dense array."""
        dense = np.zeros(self._shape, dtype=np.float32)
        rows = np.repeat(np.arange(self._shape[0]), np.diff(self.indptr.values))
        dense[rows, self.indices.values] = self.data.values
        return dense


# numpy's own types put a pickled state into place unchecked, and a forged one crashes the process; these do not.


class PickledDtype:
    """Stands in for `numpy.dtype`."""

    def __init__(self, code: str, align: int, copy: int) -> None:
        self.name = f"<{code}"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.name = state[1] + self.name[1:]


class PickledArray:
    """Stands in for `numpy.ndarray`, and for the function that makes one."""

    values: Array

    def __init__(self, *_: Any) -> None:
        self.values = np.zeros(0)

    def __setstate__(self, state: tuple[int, tuple[int, ...], PickledDtype, bool, bytes | str]) -> None:
        _, shape, dtype, by_columns, content = state
        content = content.encode("latin1") if isinstance(content, str) else content  # Python 2 pickled bytes as text
        numbers = np.frombuffer(content, np.dtype(dtype.name))
        self.values = numbers.reshape(shape, order="F" if by_columns else "C").copy()


_ALLOWED = {
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): collections.defaultdict,
    ("numpy", "dtype"): PickledDtype,
    ("numpy", "ndarray"): PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
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
    found = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    return found.values if isinstance(found, PickledArray) else found
