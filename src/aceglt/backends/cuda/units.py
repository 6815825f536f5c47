"""GPU kernels in Triton over the units of nodes: a narrow layer with dropout, its gradients, norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aceglt.backends.cuda.kernels import kept
from aceglt.numerics import rng
from aceglt.numerics.ops import NORM_EPSILON

_PROGRAMS = 1056  # eight for each multiprocessor of an H200, when partial sums are made


@triton.jit
def _widened(x):
    """As what sums are made of: float32 for bfloat16, as in torch's products."""
    if x.dtype == tl.bfloat16:
        x = x.to(tl.float32)
    return x


@triton.jit(do_not_specialize=["count", "hashes", "threshold", "GOLDEN", "MIX_1", "MIX_2"])
def _narrow_kernel(
    out, mask, h, narrow, count, width, key, rows, scale, hashes, threshold, GOLDEN, MIX_1, MIX_2,
    COLUMNS: tl.constexpr, DROPPED: tl.constexpr, PICKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some rows of h · narrowᵀ for one run, of what dropout leaves of h; the mask says where that is above 0."""
    row, run = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64)
    offset = tl.arange(0, WIDTH)
    inside = offset < width
    both = (row < count)[:, None] & inside[None, :]
    line = run * count + row
    cells = line[:, None] * width + offset[None, :]
    tile = _widened(tl.load(h + cells, mask=both, other=0.0))
    if DROPPED:
        node = row
        if PICKED:
            node = tl.load(rows + row, mask=row < count, other=0)
        stays = kept(node, tl.load(key + run), hashes, threshold, GOLDEN, MIX_1, MIX_2, ROWS, WIDTH)
        tile = tl.where(stays, tile * scale, 0.0)
        tl.store(mask + cells, (tile > 0).to(tl.uint8), mask=both)
    for number in tl.static_range(COLUMNS):
        column = tl.load(narrow + (run * COLUMNS + number) * width + offset, mask=inside, other=0.0)
        tl.store(out + line * COLUMNS + number, tl.sum(tile * column[None, :], axis=1), mask=row < count)


@triton.jit(do_not_specialize=["count", "chunk"])
def _narrow_gradient_kernel(
    sums, to_h, h, mask, grad, narrow, count, width, chunk, scale,
    COLUMNS: tl.constexpr, MASKED: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Of some rows of one run: gradᵀ · h [COLUMNS, width], and grad · narrow, both of what the mask keeps, scaled."""
    part, run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    offset, number = tl.arange(0, WIDTH), tl.arange(0, PADDED)
    inside = offset < width
    both = (number < COLUMNS)[:, None] & inside[None, :]
    lines = _widened(
        tl.load(narrow + (run * COLUMNS + number)[:, None] * width + offset[None, :], mask=both, other=0.0)
    )
    total = tl.zeros([PADDED, WIDTH], dtype=sums.dtype.element_ty)
    last = tl.minimum((part + 1) * chunk, count)
    for start in range(part * chunk, last, ROWS):
        for step in tl.static_range(ROWS):  # several reads under way at a time
            there = start + step < last
            line = run * count + start + step
            units = _widened(tl.load(h + line * width + offset, mask=inside & there, other=0.0))
            factor = _widened(tl.load(grad + line * COLUMNS + number, mask=(number < COLUMNS) & there, other=0.0))
            slope = tl.sum(factor[:, None] * lines, axis=0)
            if MASKED:
                stays = tl.load(mask + line * width + offset, mask=inside & there, other=0) != 0
                units, slope = tl.where(stays, units * scale, 0.0), tl.where(stays, slope * scale, 0.0)
            tl.store(to_h + line * width + offset, slope, mask=inside & there)
            total += factor[:, None] * units[None, :]
    place = ((run * tl.num_programs(0) + part) * COLUMNS + number)[:, None] * width + offset[None, :]
    tl.store(sums + place, total, mask=both)


@triton.jit(do_not_specialize=["count", "hashes", "threshold", "GOLDEN", "MIX_1", "MIX_2"])
def _norm_kernel(
    out, moments, h, bias, scale, shift, count, width, epsilon,
    key, rows, factor, hashes, threshold, GOLDEN, MIX_1, MIX_2,
    BIASED: tl.constexpr, DROPPED: tl.constexpr, PICKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ReLU of the layer norm of some rows of one run, with the bias before and dropout after it."""
    row, run = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64)
    offset = tl.arange(0, WIDTH)
    inside = offset < width
    both = (row < count)[:, None] & inside[None, :]
    line = run * count + row
    cells = line[:, None] * width + offset[None, :]
    tile = _widened(tl.load(h + cells, mask=both, other=0.0))
    if BIASED:
        tile += tl.load(bias + run * width + offset, mask=inside, other=0.0)[None, :]
    mean = tl.sum(tile, axis=1) / width
    tile = tl.where(both, tile - mean[:, None], 0.0)
    root = 1.0 / tl.sqrt(tl.sum(tile * tile, axis=1) / width + epsilon)
    tl.store(moments + line * 2, mean, mask=row < count)
    tl.store(moments + line * 2 + 1, root, mask=row < count)
    tile *= root[:, None] * tl.load(scale + run * width + offset, mask=inside, other=0.0)[None, :]
    tile = tl.maximum(tile + tl.load(shift + run * width + offset, mask=inside, other=0.0)[None, :], 0.0)
    if DROPPED:
        node = row
        if PICKED:
            node = tl.load(rows + row, mask=row < count, other=0)
        stays = kept(node, tl.load(key + run), hashes, threshold, GOLDEN, MIX_1, MIX_2, ROWS, WIDTH)
        tile = tl.where(stays, tile * factor, 0.0)
    tl.store(out + cells, tile, mask=both)


@triton.jit(do_not_specialize=["count", "chunk"])
def _norm_gradient_kernel(
    to_h, sums, grad, result, moments, h, bias, scale, count, width, chunk, factor,
    BIASED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Of some rows of one run, and their part of the sums [3, width] that are those of scale, shift and bias."""
    part, run = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    offset = tl.arange(0, WIDTH)
    inside = offset < width
    factors = tl.load(scale + run * width + offset, mask=inside, other=0.0)
    if BIASED:
        added = tl.load(bias + run * width + offset, mask=inside, other=0.0)
    to_scale = tl.zeros([WIDTH], dtype=sums.dtype.element_ty)
    to_shift = tl.zeros([WIDTH], dtype=sums.dtype.element_ty)
    to_bias = tl.zeros([WIDTH], dtype=sums.dtype.element_ty)
    last = tl.minimum((part + 1) * chunk, count)
    for start in range(part * chunk, last, ROWS):
        row = start + tl.arange(0, ROWS)
        both = (row < last)[:, None] & inside[None, :]
        line = run * count + row
        cells = line[:, None] * width + offset[None, :]
        tile = _widened(tl.load(h + cells, mask=both, other=0.0))
        if BIASED:
            tile += added[None, :]
        mean = tl.load(moments + line * 2, mask=row < last, other=0.0)
        root = tl.load(moments + line * 2 + 1, mask=row < last, other=0.0)
        tile = tl.where(both, (tile - mean[:, None]) * root[:, None], 0.0)
        g = _widened(tl.load(grad + cells, mask=both, other=0.0))
        g = tl.where(tl.load(result + cells, mask=both, other=0.0) > 0, g * factor, 0.0)
        to_scale += tl.sum(g * tile, axis=0)
        to_shift += tl.sum(g, axis=0)
        g *= factors[None, :]
        level, slope = tl.sum(g, axis=1) / width, tl.sum(g * tile, axis=1) / width
        g = tl.where(both, (g - level[:, None] - tile * slope[:, None]) * root[:, None], 0.0)
        tl.store(to_h + cells, g, mask=both)
        to_bias += tl.sum(g, axis=0)
    place = (run * tl.num_programs(0) + part) * 3 * width + offset
    tl.store(sums + place, to_scale, mask=inside)
    tl.store(sums + place + width, to_shift, mask=inside)
    tl.store(sums + place + width + width, to_bias, mask=inside)


def _summed(h: Tensor) -> torch.dtype:
    """What sums of such numbers are kept in: see `_widened`."""
    return torch.float32 if h.dtype == torch.bfloat16 else h.dtype


@dataclass(frozen=True)
class Draw:
    """Dropout of a layer, for kernels that draw it themselves."""

    key: Tensor  # [S]
    p: float
    units: int
    """That are drawn for: those there are, in a number divisible by 4, or those of the layer before it was narrowed."""
    rows: Tensor | None
    """[n] the nodes' numbers; None is all nodes."""


def _drawn(draw: Draw | None, some: Tensor) -> tuple[Any, ...]:
    """What kernels take: keys, nodes, then numbers."""
    if draw is None:
        return some, some, 1.0, 0, 0, 0, 0, 0
    rows = some if draw.rows is None else draw.rows
    scale, hashes = 1.0 / (1.0 - draw.p), (draw.units + 3) // 4
    return draw.key, rows, scale, hashes, rng.threshold(draw.p), rng.GOLDEN, rng.MIX_1, rng.MIX_2


def narrow_layer(h: Tensor, narrow: Tensor, draw: Draw | None = None) -> tuple[Tensor, Tensor | None]:
    """[S, n, C] = h [S, n, H] · narrowᵀ, narrow [S, C, H]; with a draw of what dropout leaves of h, and where that is
    above 0, [S, n, H] uint8."""
    (runs, count, width), columns = h.shape, narrow.shape[1]
    out = h.new_empty(runs, count, columns)
    mask = None if draw is None else torch.empty(h.shape, dtype=torch.uint8, device=h.device)
    if out.numel():
        wide = max(4, triton.next_power_of_2(width))
        lines = max(1, 2048 // wide)
        picked = draw is not None and draw.rows is not None
        _narrow_kernel[(triton.cdiv(count, lines), runs)](
            *(out, h if mask is None else mask, h, narrow, count, width, *_drawn(draw, h)),
            *(columns, draw is not None, picked, lines, wide),
            num_warps=max(1, wide // 512),
        )
    return out, mask


def narrow_gradients(
    h: Tensor, narrow: Tensor, grad: Tensor, mask: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Gradients of the weight [S, H, C] and of h, from that [S, n, C] of what `narrow_layer` made."""
    (runs, count, width), columns = h.shape, grad.shape[2]
    parts = max(1, min(_PROGRAMS // runs, triton.cdiv(count, 16)))
    sums, to_h = h.new_empty(runs, parts, columns, width, dtype=_summed(h)), torch.empty_like(h)
    _narrow_gradient_kernel[(parts, runs)](
        *(sums, to_h, h, h if mask is None else mask, grad, narrow, count, width),
        *(triton.cdiv(max(1, count), parts), scale, columns, mask is not None),
        *(triton.next_power_of_2(columns), 4, triton.next_power_of_2(width)),
        num_warps=4,
    )
    return sums.sum(dim=1).transpose(1, 2).to(h.dtype), to_h


def norm_relu(
    h: Tensor, parts: tuple[Tensor | None, Tensor, Tensor], draw: Draw | None = None
) -> tuple[Tensor, Tensor]:
    """ReLU of the layer norm of h [S, n, H] plus a bias, with scale and shift, `parts` [S, 1, H]; then dropout. Also
    the means and roots of variances that the gradient needs, [S, n, 2]."""
    bias, scale, shift = parts
    runs, count, width = h.shape
    out, moments = torch.empty_like(h), h.new_empty(runs, count, 2, dtype=_summed(h))
    if out.numel():
        wide = max(4, triton.next_power_of_2(width))
        lines = max(1, 2048 // wide)
        picked = draw is not None and draw.rows is not None
        _norm_kernel[(triton.cdiv(count, lines), runs)](
            *(out, moments, h, h if bias is None else bias, scale, shift, count, width, NORM_EPSILON),
            *(*_drawn(draw, h), bias is not None, draw is not None, picked, lines, wide),
            num_warps=4,
        )
    return out, moments


def norm_relu_gradient(
    grad: Tensor, h: Tensor, parts: tuple[Tensor | None, Tensor], made: tuple[Tensor, Tensor], p: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of h, scale, shift and bias, from that of what `norm_relu` made; `parts` are bias and scale."""
    bias, scale = parts
    (runs, count, width), (result, moments) = h.shape, made
    parts_of_rows = max(1, min(_PROGRAMS // runs, triton.cdiv(count, 16)))
    chunk = triton.cdiv(max(1, count), parts_of_rows)
    to_h, sums = torch.empty_like(h), h.new_empty(runs, parts_of_rows, 3, width, dtype=_summed(h))
    wide = triton.next_power_of_2(width)
    _norm_gradient_kernel[(parts_of_rows, runs)](
        *(to_h, sums, grad, result, moments, h, h if bias is None else bias, scale),
        *(count, width, chunk, 1.0 / (1.0 - p), bias is not None, max(1, 2048 // wide), wide),
        num_warps=4,
    )
    to_scale, to_shift, to_bias = sums.sum(dim=1).unsqueeze(2).to(h.dtype).unbind(1)
    return to_h, to_scale, to_shift, to_bias
