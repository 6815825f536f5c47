"""How a matrix is stored: dense, or as CSR with 32-bit indices, sorted columns, no entry twice and no zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from aceglt.numerics.batch import pointers

LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
"""That `as_csr` reads."""
_BLOCK = 1 << 22  # elements of a dense block of rows


def full(values: Tensor) -> Tensor:
    """In float32, if the precision is a lower one: sparse kernels have none below."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def to_csr(x: Tensor) -> Tensor:
    """A dense matrix as CSR; a fraction of the time of torch's own conversion."""
    flat = x.reshape(-1)
    # numpy finds booleans in a quarter of torch's time
    place = flat.nonzero().squeeze(1) if x.is_cuda else torch.from_numpy(np.flatnonzero((flat != 0).numpy()))
    return _csr(place, flat[place], (x.shape[0], x.shape[1]))


def _csr(code: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """CSR of entries at row · columns + column, in ascending order."""
    row = code // shape[1]
    return torch.sparse_csr_tensor(pointers(row, shape[0]), (code - row * shape[1]).int(), values, shape)


def as_csr(x: Tensor) -> Tensor:
    """A matrix of any of the `LAYOUTS` as CSR; x itself if it is stored so already."""
    if x.layout == torch.strided:
        return to_csr(x)
    row, col, values = entries(x)
    if x.layout == torch.sparse_csr and col.dtype == torch.int32:
        increasing = (row.diff() > 0) | (col.diff() > 0)
        if bool(increasing.all()) and bool((values != 0).all()):
            return x
    return csr_of(row, col, values, (x.shape[0], x.shape[1]))


def entries(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and value of each entry of a sparse matrix, as they are stored."""
    if x.layout == torch.sparse_coo:
        x = x.coalesce()
        row, col = x.indices()
        return row, col, x.values()
    if x.layout == torch.sparse_csr:
        numbers = torch.arange(x.shape[0], device=x.device)
        return numbers.repeat_interleave(x.crow_indices().diff()), x.col_indices(), x.values()
    numbers = torch.arange(x.shape[1], device=x.device)
    return x.row_indices(), numbers.repeat_interleave(x.ccol_indices().diff()), x.values()


def csr_of(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """CSR of entries in any order; those of the same place are added up, in their order."""
    code = row.long() * shape[1] + col
    if not bool((code.diff() > 0).all()):
        code, order = code.sort(stable=True)
        code, place = code.unique_consecutive(return_inverse=True)
        values = values.new_zeros(len(code)).index_add_(0, place, values[order])
    kept = values != 0
    return _csr(code[kept], values[kept], shape)


def transposed(csr: Tensor) -> Tensor:
    """The transpose of a CSR matrix, as CSR."""
    row, col, values = entries(csr)
    return csr_of(col, row, values, (csr.shape[1], csr.shape[0]))


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows [n] of a matrix, dense or CSR as it is."""
    if x.layout == torch.strided:
        return x[rows]
    places, counts = places_of(x, rows)
    rowptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(x.crow_indices().dtype)
    return torch.sparse_csr_tensor(rowptr, x.col_indices()[places], x.values()[places], (len(rows), x.shape[1]))


def take_columns(x: Tensor, kept: Tensor) -> Tensor:
    """Some columns ([F] bool) of a matrix, dense or CSR as it is."""
    if x.layout == torch.strided:
        return x[:, kept]
    rowptr, col, inside = x.crow_indices(), x.col_indices(), kept[x.col_indices()]
    before = torch.cat([rowptr.new_zeros(1), inside.cumsum(0, dtype=rowptr.dtype)])
    number = kept.cumsum(0, dtype=col.dtype) - 1
    shape = (x.shape[0], int(kept.sum()))
    return torch.sparse_csr_tensor(before[rowptr], number[col[inside]], x.values()[inside], shape)


def places_of(csr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Where the entries of some rows [n] are among those of a CSR matrix, and how many each of them has."""
    rowptr = csr.crow_indices().long()
    first, counts = rowptr[rows], rowptr.diff()[rows]
    before = counts.cumsum(0) - counts
    return torch.arange(int(counts.sum()), device=rows.device) + (first - before).repeat_interleave(counts), counts


def dense_blocks(x: Tensor) -> Iterator[Tensor]:
    """A tensor in one piece if it is dense; of a CSR matrix, dense blocks of rows, of which one at a time is made."""
    if x.layout == torch.strided:
        yield x
        return
    size = max(1, _BLOCK // max(1, x.shape[1]))
    for first in range(0, x.shape[0], size):
        rows = torch.arange(first, min(first + size, x.shape[0]), device=x.device)
        yield take_rows(x, rows).to_dense()


def stored_bytes(x: Tensor) -> int:
    """What a dense or CSR tensor takes."""
    parts = [x] if x.layout == torch.strided else [x.crow_indices(), x.col_indices(), x.values()]
    return sum(part.numel() * part.element_size() for part in parts)
