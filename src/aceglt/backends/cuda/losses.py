"""GPU kernels in Triton for the loss: cross-entropy to soft targets, in one pass with its gradient."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["count"])
def _soft_kernel(losses, grad, outputs, targets, count, classes, ROWS: tl.constexpr, CLASSES: tl.constexpr):
    """Some nodes' part of a run's mean, and the gradient of their outputs."""
    run = tl.program_id(1).to(tl.int64)
    row, number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, CLASSES)
    both = (row < count)[:, None] & (number < classes)[None, :]
    cells = (run * count + row)[:, None] * classes + number[None, :]
    output = tl.load(outputs + cells, mask=both, other=float("-inf"))
    target = tl.load(targets + cells, mask=both, other=0.0)
    output = tl.where(both, output - tl.where(row < count, tl.max(output, axis=1), 0.0)[:, None], 0.0)
    share = tl.where(both, tl.exp(output), 0.0)
    total = tl.where(row < count, tl.sum(share, axis=1), 1.0)
    loss = tl.sum(target * (tl.log(total)[:, None] - output), axis=1)
    tl.store(losses + run * tl.num_programs(0) + tl.program_id(0), tl.sum(loss, axis=0) / count)
    slope = share / total[:, None] * tl.sum(target, axis=1)[:, None] - target
    tl.store(grad + cells, slope / count, mask=both)


def soft_cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """[S] mean over nodes of the cross-entropy of outputs [S, n, C] to soft targets, and its gradient."""
    runs, count, classes = outputs.shape
    wide = triton.next_power_of_2(classes)
    rows = max(1, 1024 // wide)
    losses, grad = outputs.new_empty(runs, triton.cdiv(count, rows)), torch.empty_like(outputs)
    _soft_kernel[(losses.shape[1], runs)](losses, grad, outputs, targets, count, classes, rows, wide)
    return losses.sum(dim=1), grad
