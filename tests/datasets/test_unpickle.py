"""The restricted reader of pickles."""

from __future__ import annotations

import os
import pickle

import numpy as np
import planetoid_samples as samples
import pytest

from aceglt.datasets.unpickle import unpickle


class _Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_arrays_of_old_numpy_are_read() -> None:
    assert unpickle(samples.array(np.arange(3, dtype="<i4")) + b".").tolist() == [0, 1, 2]


def test_csr_matrices_of_old_scipy_are_read() -> None:
    dense = np.array([[0, 1, 0], [0, 0, 0], [2, 0, 3]])
    assert unpickle(samples.csr(dense)).to_dense().tolist() == dense.tolist()


@pytest.mark.parametrize("content", [pickle.dumps(_Attack()), b"c__builtin__\neval\n."])
def test_other_names_are_refused(content: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not allowed"):
        unpickle(content)
