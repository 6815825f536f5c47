"""GPU kernels in Triton: draws and the fused update. Use them through `aceglt.backends.cuda`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from aceglt.numerics import rng

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # torch's defaults for Adam


@triton.jit
def mixed(x, MIX_1, MIX_2):
    """SplitMix64's finaliser of int64, as uint64."""
    x = x.to(tl.uint64)
    x = ((x ^ (x >> 30)).to(tl.int64) * MIX_1).to(tl.uint64)
    x = ((x ^ (x >> 27)).to(tl.int64) * MIX_2).to(tl.uint64)
    return x ^ (x >> 31)


@triton.jit
def kept(row, key, hashes, threshold, GOLDEN, MIX_1, MIX_2, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """[ROWS, WIDTH] the first of what `rng.keep_mask` draws for rows of a matrix, with so many hashes for a row."""
    word = row[:, None] * hashes + tl.arange(0, WIDTH // 4)[None, :]
    x = mixed((word + 1) * GOLDEN + key, MIX_1, MIX_2)
    lane = (x[:, :, None] >> (tl.arange(0, 4) * 16).to(tl.uint64)[None, None, :]) & 0xFFFF
    lane = tl.reshape(lane.to(tl.int32), [ROWS, WIDTH])
    return tl.where(lane >= 32768, lane - 65536, lane) >= threshold


@triton.jit(do_not_specialize=["count", "threshold", "total"])
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
    x = mixed((element // 4 + 1) * GOLDEN + tl.load(key + run, mask=inside, other=0), MIX_1, MIX_2)
    lane = ((x >> ((element % 4) * 16).to(tl.uint64)) & 0xFFFF).to(tl.int32)
    lane = tl.where(lane >= 32768, lane - 65536, lane)
    tl.store(out + place, (lane >= threshold).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["added"])
def _fold_kernel(out, key, value, added, FACTOR, MIX_1, MIX_2, runs, GIVEN: tl.constexpr, BLOCK: tl.constexpr):
    """What `aceglt.numerics.rng.fold` makes of keys and a number, which is on the device if GIVEN."""
    place = tl.arange(0, BLOCK)
    if GIVEN:
        added += tl.load(value)
    x = mixed(tl.load(key + place, mask=place < runs, other=0) + added * FACTOR, MIX_1, MIX_2)
    tl.store(out + place, x.to(tl.int64), mask=place < runs)


@triton.jit(do_not_specialize=["count", "threshold"])
def _drop_kernel(
    out,
    h,
    key,
    rows,
    count,
    width,
    scale,
    threshold,
    GOLDEN,
    MIX_1,
    MIX_2,
    PICKED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Elements of some rows of one run that stay, scaled, and 0 for the others."""
    row, run = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64)
    offset = tl.arange(0, WIDTH)
    both = (row < count)[:, None] & (offset < width)[None, :]
    node = row
    if PICKED:
        node = tl.load(rows + row, mask=row < count, other=0)
    stays = kept(node, tl.load(key + run), width // 4, threshold, GOLDEN, MIX_1, MIX_2, ROWS, WIDTH)
    cells = (run * count + row)[:, None] * width + offset[None, :]
    tile = tl.load(h + cells, mask=both, other=0.0)
    tl.store(out + cells, tl.where(stays, tile * scale, 0.0), mask=both)


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


def keep(key: Tensor, out: Tensor, rows: Tensor | None, drop: float) -> None:
    """Fill out [S, …] with 1 where elements stay; with `rows`, out is [S, len(rows), width] of a larger matrix."""
    if out.numel():
        grid, picked = (triton.cdiv(out.numel(), 1024),), rows is not None
        shape, constants = (out[0].numel(), out.shape[-1], out.numel()), (rng.GOLDEN, rng.MIX_1, rng.MIX_2)
        _keep_kernel[grid](out, key, rows if picked else key, *shape, *constants, rng.threshold(drop), picked, 1024)


def fold(key: Tensor, value: int | Tensor) -> Tensor:
    """New keys [S] from old ones and a number."""
    out, given = torch.empty_like(key), isinstance(value, Tensor)
    added = 1 if given else 1 + int(value)
    sizes = len(key), given, triton.next_power_of_2(max(1, len(key)))
    _fold_kernel[(1,)](out, key, value if given else key, added, rng.FOLD, rng.MIX_1, rng.MIX_2, *sizes)
    return out


def drop(key: Tensor, h: Tensor, rows: Tensor | None, p: float) -> Tensor:
    """h [S, n, width] with what `keep` keeps of it scaled up, and 0 elsewhere; the width is divisible by 4."""
    out, (runs, count, width) = torch.empty_like(h), h.shape
    if out.numel():
        wide = triton.next_power_of_2(width)
        lines = max(1, 2048 // wide)
        _drop_kernel[(triton.cdiv(count, lines), runs)](
            *(out, h, key, key if rows is None else rows, count, width, 1.0 / (1.0 - p), rng.threshold(p)),
            *(rng.GOLDEN, rng.MIX_1, rng.MIX_2, rows is not None, lines, wide),
        )
    return out


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
