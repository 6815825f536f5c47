"""GPU kernels in Triton: sparse products and the fused update. Sums have a fixed order, so results repeat bit by bit.

Use them through `aceglt.backends.cuda`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from aceglt.numerics import rng

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # torch's defaults for Adam


@triton.jit
def _spmm_kernel(out, rowptr, col, values, dense, columns, width, ENTRIES: tl.constexpr, WIDTH: tl.constexpr):
    """Some columns of one row of one run's result: the sum over the row's entries, in their order.

    Programs that run side by side work on the same columns, so that what they read of `dense` stays in the cache.
    """
    row, run = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    offset = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = offset < width
    source = dense + run * columns * width + offset
    first, last = tl.load(rowptr + row), tl.load(rowptr + row + 1)
    total = tl.zeros([WIDTH], dtype=out.dtype.element_ty)
    for start in range(first, last, ENTRIES):
        for step in tl.static_range(ENTRIES):  # several reads under way at a time
            there = start + step < last
            line = tl.load(col + start + step, mask=there, other=0).to(tl.int64)
            value = tl.load(values + start + step, mask=there, other=0.0)
            total += value * tl.load(source + line * width, mask=inside & there, other=0.0)
    line = run * tl.num_programs(0) + row
    tl.store(out + line * width + offset, total, mask=inside)


@triton.jit
def _sddmm_kernel(out, rowptr, col, left, right, width, ENTRIES: tl.constexpr, WIDTH: tl.constexpr):
    """The inner products of one row of `left` with the rows of `right` that its entries name."""
    row = tl.program_id(0).to(tl.int64)
    first, last = tl.load(rowptr + row), tl.load(rowptr + row + 1)
    for start in range(first, last, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        there = entry < last
        source = tl.load(col + entry, mask=there, other=0).to(tl.int64)
        total = tl.zeros([ENTRIES], dtype=out.dtype.element_ty)
        for begin in range(0, width, WIDTH):
            offset = begin + tl.arange(0, WIDTH)
            inside = offset < width
            line = tl.load(left + row * width + offset, mask=inside, other=0.0)
            tile = tl.load(
                right + source[:, None] * width + offset[None, :], mask=there[:, None] & inside[None, :], other=0.0
            )
            total += tl.sum(tile * line[None, :], axis=1)
        tl.store(out + entry, total, mask=there)


@triton.jit
def _keep_kernel(
    out, key, rows, count, width, total, GOLDEN, MIX_1, MIX_2, threshold, PICKED: tl.constexpr, BLOCK: tl.constexpr
):
    """What `aceglt.numerics.rng.keep_mask` draws: SplitMix64 of key and counter, four elements to a number."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    run = place // count
    element = place - run * count
    if PICKED:
        row = element // width
        element = tl.load(rows + row, mask=inside, other=0) * width + element - row * width
    x = ((element // 4 + 1) * GOLDEN + tl.load(key + run, mask=inside, other=0)).to(tl.uint64)
    x = ((x ^ (x >> 30)).to(tl.int64) * MIX_1).to(tl.uint64)
    x = ((x ^ (x >> 27)).to(tl.int64) * MIX_2).to(tl.uint64)
    x = x ^ (x >> 31)
    lane = ((x >> ((element % 4) * 16).to(tl.uint64)) & 0xFFFF).to(tl.int32)
    lane = tl.where(lane >= 32768, lane - 65536, lane)
    tl.store(out + place, (lane >= threshold).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _step(value, grad, moments, place, inside, total, corrections, lr, BETA1, BETA2, EPSILON):
    """New values of elements after a step of Adam; their moments are updated in place."""
    mean = tl.load(moments + place, mask=inside, other=0.0)
    square = tl.load(moments + total + place, mask=inside, other=0.0)
    mean = mean + (1.0 - BETA1) * (grad - mean)
    square = BETA2 * square + (1.0 - BETA2) * grad * grad
    tl.store(moments + place, mean, mask=inside)
    tl.store(moments + total + place, square, mask=inside)
    rate = lr / tl.load(corrections)
    denominator = tl.sqrt(square) / tl.load(corrections + 1) + EPSILON
    return value - rate * (mean / denominator)


@triton.jit
def _sign(value):
    return tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))


@triton.jit
def _update_kernel(
    value,
    score,
    product,
    alive,
    moments,
    grad,
    kept,
    better,
    corrections,
    lr,
    decay,
    score_decay,
    l1,
    size,
    total,
    SCORED: tl.constexpr,
    MASKED: tl.constexpr,
    CLAMP: tl.constexpr,
    BLOCK: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
):
    """Adam for elements that act as they are; if SCORED, for weights and their scores from the gradient of their
    product, and the new product. Old values (or scores) are kept where their run was better than ever before.

    Where a weight and its score are 0, both gradients are: what is dead stays dead.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    v = tl.load(value + place, mask=inside, other=0.0)
    g = tl.load(grad + place, mask=inside, other=0.0)
    keep = inside & (tl.load(better + place // size, mask=inside, other=0) != 0)
    if SCORED:
        s = tl.load(score + place, mask=inside, other=0.0)
        tl.store(kept + place, s, mask=keep)
        to_value, to_score = g * s + decay * v, g * v + l1 * _sign(s) + score_decay * s
        v = _step(v, to_value, moments, place, inside, total, corrections, lr, BETA1, BETA2, EPSILON)
        score_moments = moments + total + total  # added one by one: a product could exceed 32 bits
        s = _step(s, to_score, score_moments, place, inside, total, corrections, lr, BETA1, BETA2, EPSILON)
        if CLAMP:
            s = tl.minimum(tl.maximum(s, 0.0), 1.0)
        tl.store(score + place, s, mask=inside)
        tl.store(product + place, v * s, mask=inside)
    else:
        tl.store(kept + place, v, mask=keep)
        if MASKED:
            g = tl.where(tl.load(alive + place, mask=inside, other=0) != 0, g, 0.0)
        g += l1 * _sign(v) + decay * v
        v = _step(v, g, moments, place, inside, total, corrections, lr, BETA1, BETA2, EPSILON)
        if CLAMP:
            v = tl.minimum(tl.maximum(v, 0.0), 1.0)
    tl.store(value + place, v, mask=inside)


def spmm(matrix: Tensor, dense: Tensor, out: Tensor, shared: bool = False) -> None:
    """out = CSR matrix · dense, both [lines, width]; `shared` if one matrix serves all runs' lines."""
    lines, width = out.shape
    rows, columns = matrix.shape if shared else (lines, 0)
    if lines and width:
        wide = min(128, triton.next_power_of_2(width))
        grid = (rows, triton.cdiv(width, wide), lines // rows)
        parts = matrix.crow_indices(), matrix.col_indices(), matrix.values()
        _spmm_kernel[grid](out, *parts, dense, columns, width, 8, wide, num_warps=1)


def sddmm(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """[entries] inner products left[row] · right[col]."""
    out = left.new_empty(len(col))
    width = left.shape[1]
    if len(col):
        wide = min(512, triton.next_power_of_2(width))
        _sddmm_kernel[(left.shape[0],)](out, rowptr, col, left, right, width, 4, wide, num_warps=1 if wide < 128 else 4)
    return out


def keep(key: Tensor, out: Tensor, rows: Tensor | None, drop: float) -> None:
    """Fill out [S, …] with 1 where elements stay; with `rows`, out is [S, len(rows), width] of a larger matrix."""
    if out.numel():
        grid, picked = (triton.cdiv(out.numel(), 1024),), rows is not None
        shape, constants = (out[0].numel(), out.shape[-1], out.numel()), (rng.GOLDEN, rng.MIX_1, rng.MIX_2)
        _keep_kernel[grid](out, key, rows if picked else key, *shape, *constants, rng.threshold(drop), picked, 1024)


class Adam:
    """The steps' count and what follows from it, on the device."""

    def __init__(self, lr: float, device: torch.device) -> None:
        self.lr = lr
        self._betas = torch.tensor([_BETA1, _BETA2], dtype=torch.float64, device=device)
        self._powers, self._ones = torch.ones_like(self._betas), torch.ones_like(self._betas)
        self._corrections = torch.ones(2, dtype=torch.float64, device=device)

    def advance(self, dtype: torch.dtype) -> None:
        """Begin a step: 1 - β1^t, and the root of 1 - β2^t."""
        self._powers.mul_(self._betas)
        torch.sub(self._ones, self._powers, out=self._corrections)
        self._corrections[1].sqrt_()
        self.corrections = self._corrections.to(dtype)

    def update(
        self,
        value: Tensor,
        moments: Tensor,
        grad: Tensor,
        kept: Tensor,
        better: Tensor,
        decay: float,
        l1: float = 0.0,
        clamp: bool = False,
        alive: Tensor | None = None,
        scores: tuple[Tensor, Tensor, float] | None = None,
    ) -> None:
        """One step of `value` [S, …] in place; moments [2, S, …], better [S] says whose old values go to `kept`.

        `scores` are those of weights, their product and the scores' decay, which are updated too, from the gradient of
        the product; moments [4, S, …], and the old scores are kept. L1 and clamping are then theirs.
        """
        total, block = value.numel(), 1024
        if total:
            score, product, score_decay = scores or (value, value, 0.0)
            _update_kernel[(triton.cdiv(total, block),)](
                *(value, score, product, value if alive is None else alive, moments, grad, kept, better),
                *(self.corrections, self.lr, decay, score_decay, l1, total // len(value), total),
                *(scores is not None, alive is not None, clamp, block, _BETA1, _BETA2, _EPSILON),
            )
