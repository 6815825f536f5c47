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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aceglt.graph import GraphBatch

INSTALLED = find_spec("numba") is not None
_LARGE = 1 << 16  # elements from which on an operation is worth a compiled kernel
_PASSES = 8  # over the arcs that normalisation is counted as
_NARROW = 8  # columns below which a row has nothing to vectorise
_CACHE = 1 << 22  # bytes of a matrix from which on its rows are fetched ahead
_LINES = 1 << 8  # bytes of a row up to which they are
_FETCHED = 12
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


def multiplies(entries: int, width: int) -> bool:
    """Whether `matmul` serves a product of so many entries with a matrix of this width."""
    return width >= _NARROW and entries * width >= _LARGE and kernels() is not None


def matmul(csr: Tensor, dense: Tensor, out: Tensor) -> Tensor | None:
    """CSR · dense, into `out`."""
    compiled = _compiled(dense, csr.values().numel() * dense.shape[1])
    if compiled is None or dense.shape[1] < _NARROW or not _plain(csr.values(), dense, out):
        return None
    entries = (csr.crow_indices(), csr.col_indices(), csr.values())
    _divided(compiled.matmul, len(out), *map(_array, entries), _array(dense), _array(out), _ahead(dense))
    return out


def inner(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    """[A] inner products left[row] · right[col] at the entries of a CSR matrix."""
    compiled = _compiled(left, len(col) * left.shape[1])
    if compiled is None or not _plain(left, right):
        return None
    out = left.new_empty(len(col))
    _divided(compiled.inner, len(left), *map(_array, (rowptr, col, left, right, out)), _ahead(right))
    return out


def normalises(block: GraphBatch, values: Tensor) -> bool:
    """Whether `normalised` is to be had, and worth it."""
    return values.dtype in _FLOATS and _compiled(values, _PASSES * block.num_arcs) is not None


def normalised(block: GraphBatch, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[A] arcs' values from those of slots, scaled by the inverse roots of both ends' sums of magnitudes; also the
    values unscaled, and the roots [S·N]."""
    compiled = kernels()
    assert compiled is not None
    values, root = slots.new_empty(block.num_arcs), slots.new_empty(len(block.rowptr) - 1)
    rowptr, weight = _array(block.rowptr), _weights(block, slots)
    places = (block.slot32, slots, weight, values, root)
    _divided(compiled.arc_roots, len(root), rowptr, *map(_array, places), _ahead(slots))
    out = torch.empty_like(values)
    _divided(compiled.scale_arcs, len(root), rowptr, *map(_array, (block.col32, values, root, out)))
    return out, values, root


def normalised_gradient(block: GraphBatch, values: Tensor, root: Tensor, grad: Tensor) -> Tensor:
    """Of the slots, from that of what `normalised` returned first."""
    compiled = kernels()
    assert compiled is not None
    at_target, at_source = torch.empty_like(root), torch.empty_like(root)
    arcs = tuple(map(_array, (block.rowptr, block.col32, values, root, grad.contiguous())))
    _divided(compiled.root_gradients, len(root), *arcs, _array(at_target))
    _divided(compiled.source_gradients, len(root), *arcs, _array(at_source))
    slope = at_target.add_(at_source).mul_(root**3).mul_(-0.5)
    out = root.new_empty(len(block.arcs_of_slot))
    ends = (block.arcs_of_slot, block.row, block.col32, values, _weights(block, values), root, slope)
    _divided(compiled.slot_gradients, len(out), *map(_array, ends), arcs[-1], _array(out), _ahead(grad))
    return out


def _ahead(dense: Tensor) -> int:
    """How many entries ahead the rows of a matrix are fetched that no cache holds; long rows fetch themselves."""
    return _FETCHED if dense.nbytes > _CACHE and dense[0].nbytes <= _LINES else 0


def _weights(block: GraphBatch, like: Tensor) -> Tensor:
    """Of the arcs, as the kernels read them: empty if all are 1."""
    return like.new_empty(0) if block.weight is None else block.weight.to(like.dtype)


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
