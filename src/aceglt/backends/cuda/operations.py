"""What a GPU computes with Triton's kernels, with gradients; dense products are on tensor cores, in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from aceglt.backends.cuda import arcs, kernels, losses, sums, units
from aceglt.numerics.batch import Block, ByLength, GraphBatch
from aceglt.numerics.kernels import Gradients, Kernels

_NARROW = 16  # columns of an output that are computed one by one
_WIDEST = 1024  # units that one program has in registers
_SWITCH = Lock()  # torch has one precision for the process: a thread that changes it puts it back before others do
_ALIGNED = 4  # numbers: a row of a matrix for tensor cores begins at a multiple of 16 bytes


class TritonKernels(Kernels):
    """Sums have a fixed order, so results repeat bit by bit."""

    sparse_gradient = sparse_product = 0.03

    def __init__(self, tensor_cores: bool = True) -> None:
        """`tensor_cores` says whether dense products are in TF32: operands with 10 bits, sums in float32."""
        self._precision = "tf32" if tensor_cores else "ieee"
        self._rows: Any = WeakTensorKeyDictionary()  # of matrices, while they last

    def product(self, left: Tensor, dense: Tensor, out: Tensor | None = None) -> Tensor:
        if not left.is_sparse_csr:
            return super().product(left, dense, out)
        out = dense.new_empty(left.shape[0], dense.shape[1]) if out is None else out
        rows = ByLength(torch.arange(left.shape[0], device=left.device), 0)  # to count long ones would be waited for
        sums.spmm(_matrix(left, rows), dense.contiguous(), out)
        return out

    def along(self, block: Block, values: Tensor, dense: Tensor, relu: bool = False) -> Tensor:
        """[S, T, H] sums along arcs, or their ReLU."""
        width = dense.shape[-1]
        out = dense.new_empty(block.runs, block.targets, width)
        matrix = sums.Matrix(block.rowptr, block.col32, values, (0, 0), block.by_length)
        sums.spmm(matrix, dense.reshape(-1, width), out.view(-1, width), relu=relu)
        return out

    def spread(
        self, block: Block, values: Tensor, grad: Tensor, dense: Tensor | None, width: int, symmetric: bool
    ) -> Gradients:
        if width > _WIDEST:
            return super().spread(block, values, grad, dense, width, symmetric)
        return sums.spread(block, values, grad.contiguous(), None if dense is None else dense.contiguous())

    def each_run(self, left: Tensor, right: Tensor) -> Tensor:
        if not left.is_sparse_csr:
            return self._dense(left, right)
        runs, _, width = right.shape
        out = right.new_empty(runs, left.shape[0], width)
        if left not in self._rows:
            self._rows[left] = ByLength.of(left.crow_indices())
        matrix = _matrix(left, self._rows[left])
        sums.spmm(matrix, right.reshape(-1, width), out.view(-1, width), shared=True)
        return out

    def _dense(self, left: Tensor, right: Tensor) -> Tensor:
        """[S, n, H]; left [n, m], or transposed, is filled up where its rows are not aligned."""
        turned = left.stride(0) == 1 and left.shape[0] > 1
        width = left.shape[0] if turned else left.shape[1]
        missing = -width % _ALIGNED
        if not missing:
            return self.times(left, right)
        if turned:
            filled = F.pad(left.t(), (0, missing)).t()
            return self.times(filled, right)[:, :width]
        return self.times(F.pad(left, (0, missing)), F.pad(right, (0, 0, 0, missing)))

    def times(self, left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor:
        """A dense product, plus what is added, without a gradient."""
        with _precision(self._precision):
            return torch.matmul(left, right) if added is None else torch.baddbmm(added, left, right)

    def matmul(self, left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor:
        result: Tensor = _Product.apply(left, right, added, self)
        return result

    def linear(self, h: Tensor, weight: Tensor) -> Tensor:
        if weight.shape[2] > _NARROW or h.shape[2] > _WIDEST:
            return self.matmul(h, weight)
        result: Tensor = _Narrow.apply(h, weight)
        return result

    def inner(self, block: Block, left: Tensor, right: Tensor) -> Tensor:
        return sums.sddmm(block.rowptr, block.col32, left.contiguous(), right.contiguous())

    def normalised(self, batch: GraphBatch, edge_values: Tensor) -> Tensor | None:
        result: Tensor = _Normalised.apply(edge_values.contiguous(), batch)
        return result

    def soft_cross_entropy(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not outputs.shape[1]:
            return super().soft_cross_entropy(outputs, targets)
        result: Tensor = _SoftCrossEntropy.apply(outputs, targets)
        return result

    def fold(self, key: Tensor, value: int | Tensor) -> Tensor:
        return kernels.fold(key, value)

    def keep_mask(
        self, key: Tensor, n: int, drop: float, dtype: torch.dtype = torch.bool, rows: Tensor | None = None
    ) -> Tensor:
        shape = (len(key), n) if rows is None else (len(key), len(rows), n)
        out = torch.empty(shape, dtype=dtype, device=key.device)
        kernels.keep(key, out, rows, drop)
        return out

    def dropped(
        self, key: Tensor, h: Tensor, rows: Tensor | None, drop: float, whole: int | None, units: Tensor | None
    ) -> Tensor | None:
        """In one pass; the gradient draws again, so that no mask is kept."""
        if h.shape[2] % 4 or h.shape[2] > _WIDEST or whole is not None or units is not None:
            return None
        result: Tensor = _Dropped.apply(h, key, rows, drop)
        return result


def _matrix(csr: Tensor, rows: ByLength) -> sums.Matrix:
    return sums.Matrix(csr.crow_indices(), csr.col_indices(), csr.values(), (csr.shape[0], csr.shape[1]), rows)


@contextmanager
def _precision(wanted: str) -> Iterator[None]:
    """Of torch's float32 matrix products."""
    matmul: Any = torch.backends.cuda.matmul
    name, value = ("fp32_precision", wanted) if hasattr(matmul, "fp32_precision") else ("allow_tf32", wanted == "tf32")
    with _SWITCH:
        before = getattr(matmul, name)
        setattr(matmul, name, value)
        try:
            yield
        finally:
            setattr(matmul, name, before)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, added: Tensor | None, by: TritonKernels) -> Tensor:
        ctx.by = by
        ctx.save_for_backward(left, right)
        return by.times(left, right, added)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        to_left = to_right = None
        if ctx.needs_input_grad[0]:
            to_left = ctx.by.times(grads[0], right.transpose(-1, -2))
        if ctx.needs_input_grad[1]:
            to_right = ctx.by.times(left.transpose(-1, -2), grads[0])
        return to_left, to_right, grads[0] if ctx.needs_input_grad[2] else None, None


class _Narrow(torch.autograd.Function):
    """A product with few columns: its gradient by the weight is a sum over nodes, in parts."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor) -> Tensor:
        h, narrow = h.contiguous(), weight.transpose(1, 2).contiguous()
        ctx.save_for_backward(h, narrow)
        return units.narrow_layer(h, narrow)[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        h, narrow = ctx.saved_tensors
        to_weight, to_h = units.narrow_gradients(h, narrow, grads[0].contiguous())
        return to_h, to_weight


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edge_values: Tensor, batch: GraphBatch) -> Tensor:
        made, root = arcs.coefficients(batch, edge_values)
        ctx.batch = batch
        ctx.save_for_backward(edge_values, made, root)
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        edge_values, made, root = ctx.saved_tensors
        return arcs.edge_gradient(ctx.batch, edge_values, made, root, grads[0].contiguous()), None


class _SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor, targets: Tensor) -> Tensor:
        loss, grad = losses.soft_cross_entropy(outputs.contiguous(), targets.contiguous())
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = ctx.saved_tensors
        return grad * grads[0].view(-1, 1, 1), None


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, key: Tensor, rows: Tensor | None, drop: float) -> Tensor:
        ctx.rows, ctx.drop = rows, drop
        ctx.save_for_backward(key)
        return kernels.drop(key, h.contiguous(), rows, drop)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (key,) = ctx.saved_tensors
        return kernels.drop(key, grads[0].contiguous(), ctx.rows, ctx.drop), None, None, None


class _NormRelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor, draw: units.Draw | None
    ) -> Tensor:
        h, scale, shift = h.contiguous(), scale.contiguous(), shift.contiguous()
        bias = None if bias is None else bias.contiguous()
        result, moments = units.norm_relu(h, (bias, scale, shift), draw)
        ctx.drop = draw.p if draw is not None else 0.0
        ctx.save_for_backward(h, bias, scale, result, moments)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, bias, scale, *made = ctx.saved_tensors
        to_h, to_scale, to_shift, to_bias = units.norm_relu_gradient(
            grads[0].contiguous(), h, (bias, scale), made, ctx.drop
        )
        return to_h, None if bias is None else to_bias, to_scale, to_shift, None


def norm_relu(h: Tensor, parts: tuple[Tensor | None, Tensor, Tensor], draw: units.Draw | None = None) -> Tensor:
    """See `units.norm_relu`."""
    result: Tensor = _NormRelu.apply(h, *parts, draw)
    return result
