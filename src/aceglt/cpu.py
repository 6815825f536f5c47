"""The compiled kernels behind a few operations on the CPU: what they give, or None where plain torch has to do.

numba is optional (the extra `fast`) and imported with the first operation that is worth it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

INSTALLED = find_spec("numba") is not None
_LARGE = 1 << 16  # elements from which on an operation is worth a compiled kernel
_NARROW = 8  # columns below which a row has nothing to vectorise
_FLOATS = (torch.float32, torch.float64)


@cache
def kernels() -> ModuleType | None:
    """The compiled kernels; None without numba, or with one that does not go with the rest."""
    try:
        from aceglt import cpu_kernels
    except Exception:  # whatever keeps an optional package from working
        return None
    return cpu_kernels


def uniform(key: Tensor, n: int) -> Tensor | None:
    """See `rng.uniform`."""
    compiled = _compiled(key, n)
    if compiled is None:
        return None
    out = torch.empty(len(key), n, dtype=torch.float64)
    for run, number in enumerate(_unsigned(key)):
        _divided(compiled.uniform, n, number, _array(out[run]))
    return out


def keep_rows(key: Tensor, rows: Tensor, width: int, threshold: int, dtype: torch.dtype) -> Tensor | None:
    """See `rng.keep_rows`; an element stays where a lane is at least the threshold."""
    compiled = _compiled(key, len(rows) * width)
    if compiled is None or width % 4 or dtype not in (torch.bool, *_FLOATS):
        return None
    out = torch.empty(len(key), len(rows), width, dtype=dtype)
    for run, number in enumerate(_unsigned(key)):
        _divided(compiled.keep, len(rows), number, _array(rows), threshold, _array(out[run]))
    return out


def matmul(csr: Tensor, dense: Tensor, out: Tensor) -> Tensor | None:
    """CSR · dense, into `out`."""
    compiled = _compiled(dense, csr.values().numel() * dense.shape[1])
    if compiled is None or dense.shape[1] < _NARROW or not _plain(csr.values(), dense, out):
        return None
    entries = (csr.crow_indices(), csr.col_indices(), csr.values())
    _divided(compiled.matmul, len(out), *map(_array, entries), _array(dense), _array(out))
    return out


def inner(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    """[A] inner products left[row] · right[col] at the entries of a CSR matrix."""
    compiled = _compiled(left, len(col) * left.shape[1])
    if compiled is None or not _plain(left, right):
        return None
    out = left.new_empty(len(col))
    _divided(compiled.inner, len(left), *map(_array, (rowptr, col, left, right, out)))
    return out


def _compiled(like: Tensor, size: int) -> Any:
    return kernels() if size >= _LARGE and like.device.type == "cpu" else None


def _plain(*tensors: Tensor) -> bool:
    return all(t.dtype in _FLOATS and t.dtype == tensors[0].dtype and t.is_contiguous() for t in tensors)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy()


def _unsigned(key: Tensor) -> Any:
    return _array(key).view("uint64")


def _divided(kernel: Callable[..., None], count: int, *arguments: Any) -> None:
    """The kernel on all of its `count` elements, divided between torch's threads."""
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        return kernel(0, count, *arguments)
    mine, *others = pairwise(count * i // threads for i in range(threads + 1))
    parts = [_pool(threads).submit(kernel, *part, *arguments) for part in others]
    kernel(*mine, *arguments)
    for part in parts:
        part.result()
    return None


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="aceglt-kernel")
