"""The sparse kernels, with gradients, for a batch of runs. Nothing here is ever N×N, nor arcs×width as a whole.

Gathers are `index_select`, which on a CPU takes a half to a quarter of the time of indexing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.numerics.batch import Block, GraphBatch
from aceglt.numerics.csr import full

# How many numbers per arc-sized tensor of softmax_messages: few enough for the cache, enough to keep a GPU busy.
_ARC_ELEMENTS_CPU, ARC_ELEMENTS_GPU = 1 << 20, 1 << 29
_FEWEST_CHANNELS = 8
NORM_EPSILON = 1e-5  # what norms add to a variance, as torch's
_MOMENTUM = 0.1  # of running statistics, as torch's
_EPSILON = 1e-7  # what GENConv adds to a message


def arc_values(batch: GraphBatch, edge_values: Tensor) -> Tensor:
    """[A] value of every arc from edge values [S, E], times the edge's weight; self-loops get 1."""

    def gradient(grad: Tensor) -> Tensor:
        padded, arcs = torch.cat([grad, grad.new_zeros(1)]), batch.arcs_of_slot
        return padded.index_select(0, arcs.flatten()).view(arcs.shape).sum(dim=1)

    result: Tensor = _Gather.apply(slots(edge_values), batch.slot, gradient)
    return result if batch.weight is None else result * batch.weight


def slots(edge_values: Tensor) -> Tensor:
    """[S·(E+1)] edge values with the self-loops' 1."""
    return torch.cat([edge_values, edge_values.new_ones(len(edge_values), 1)], dim=1).reshape(-1)


def pick(block: Block, values: Tensor) -> Tensor:
    """Values of the block's arcs, from those of all arcs of the graph."""
    arcs, total = block.arcs, len(values)
    if arcs is None:
        return values
    result: Tensor = _Gather.apply(values, arcs, lambda grad: scatter_arcs(block, grad, total))
    return result


def scatter_arcs(block: Block, values: Tensor, total: int) -> Tensor:
    """[total] values of all arcs of the graph, from those of the block's; 0 elsewhere."""
    return values if block.arcs is None else values.new_zeros(total).index_copy_(0, block.arcs, values)


def spmm(block: Block, values: Tensor, dense: Tensor, symmetric: bool = False) -> Tensor:
    """[S, T, H]: out[target] = Σ value · dense[source] over arcs, values [A], dense [S, N, H].

    `symmetric` says that an arc and its reverse have the same value, where the block is mirrored.
    """
    result: Tensor = _Spmm.apply(full(values), full(dense), block, symmetric and block.mirrored)
    return result.to(dense.dtype)


def row_sum(block: Block, values: Tensor) -> Tensor:
    """[S·T] sum of arc values [A] at each target."""
    ones = values.new_ones(block.runs, block.sources, 1)
    return spmm(block, values, ones).reshape(-1)


def normalise(batch: GraphBatch, edge_values: Tensor) -> Tensor:
    """[A] value of every arc (see `arc_values`) over the root of the sums of magnitudes at both its ends."""
    shorter = batch.kernels.normalised(batch, edge_values)
    if shorter is not None:
        return shorter
    values = arc_values(batch, edge_values)
    result: Tensor = _ScaleArcs.apply(values, row_sum(batch, values.abs()).rsqrt(), batch)
    return result


def arc_sum(block: Block, source: Tensor, target: Tensor) -> Tensor:
    """[A, K]: source[j] + target[i] for every arc from j to i, values of sources [S·N, K] and of targets [S·T, K]."""

    def to_sources(grad: Tensor) -> Tensor:
        return _reduce_rows(grad.index_select(0, block.transpose), block.transposed_rowptr, "sum")

    result: Tensor = _Gather.apply(full(source), block.col, to_sources)
    result += _Gather.apply(full(target), block.row, lambda grad: _reduce_rows(grad.contiguous(), block.rowptr, "sum"))
    return result.to(source.dtype)


def row_softmax(block: Block, logits: Tensor) -> Tensor:
    """[A, K]: softmax of logits [A, K] over the arcs that share a target."""
    result: Tensor = _RowSoftmax.apply(full(logits), block)
    return result.to(logits.dtype)


def softmax_messages(
    batch: GraphBatch,
    x: Tensor,
    scores: Tensor,
    temperature: Tensor,
    edge_terms: tuple[Tensor, Tensor] | None = None,
    safe_range: float = 80.0,
    arc_elements: int | None = None,
) -> Tensor:
    """[S, N, H]: Σ over the arcs from j to i of score · softmax(t · m) · m with m = ReLU(x[j] + e) + 1e-7.

    The softmax is over the arcs that share a target, channel by channel. x [S, N, H], scores [A], temperature [S].
    `edge_terms` are the weight [S, D, H] and bias [S, H] that make e of the batch's edge features; without, e is 0.
    `safe_range` is that of exponents which share one shift (float32 ends at exp(-87)); `arc_elements` the numbers that
    an arc-sized tensor may have, by default as the device allows.
    """
    if edge_terms is None:
        message = full(x).relu() + _EPSILON
        logits = message * temperature.view(-1, 1, 1)
        top, bottom = logits.detach().amax(dim=1, keepdim=True), logits.detach().amin(dim=1, keepdim=True)
        if float((top - bottom).amax()) < safe_range:
            # Messages depend on their source alone: sums over arcs are sparse products, several times as fast, with one
            # shift of the exponents for all targets, hence a range in which none of them loses all its terms.
            exponential, isolated = (logits - top).exp(), (batch.rowptr.diff() == 0).view(batch.runs, -1, 1)
            total = spmm(batch, torch.ones_like(scores), exponential) + isolated
            return (spmm(batch, scores, exponential * message) / total).to(x.dtype)
    terms = scores, temperature, *(edge_terms or (None, None))
    result: Tensor = _SoftmaxMessages.apply(x, batch, arc_elements, *terms)
    return result


def elu_dropout(h: Tensor, bias: Tensor, keep: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """keep · scale · ELU(h + bias) with three passes over h [S, N, H] and one result to save; bias [S, H].

    Without `keep`, nothing is dropped.
    """
    result: Tensor = _EluDropout.apply(h, bias, keep, scale)
    return result


def layer_norm(h: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Layer normalisation of h [S, n, H], with each run's scale and shift [S, 1, H]."""
    return torch.addcmul(shift, F.layer_norm(h, h.shape[-1:], eps=NORM_EPSILON), scale)


def layer_norm_of(present: Tensor, h: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """`layer_norm` over the units that are present, [S, 1, H] of 0 and 1; 0 for the others."""
    wide, count = full(h) * present, present.sum(dim=2, keepdim=True)
    centred = (wide - wide.sum(dim=2, keepdim=True) / count) * present
    variance = centred.square().sum(dim=2, keepdim=True) / count
    return torch.addcmul(shift, (centred * (variance + NORM_EPSILON).rsqrt()).to(h.dtype), scale) * present.to(h.dtype)


def layer_norm_relu(h: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """ReLU of `layer_norm`, which keeps h and the result for the gradient and nothing else of their size."""
    result: Tensor = _LayerNormRelu.apply(h, scale, shift)
    return result


def batch_norm(training: bool, h: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Normalisation of each unit of h [S, n, H] over the nodes: in training by their mean and variance, which move the
    running ones [S, 1, H] in place; else by the running ones."""
    wide = full(h)
    if training:
        now, centre = torch.var_mean(wide, dim=1, correction=0, keepdim=True)
        with torch.no_grad():  # `data`: weights may be views of one tensor, of which autograd has saved others
            mean.data.lerp_(centre, _MOMENTUM)
            variance.data.lerp_(now * (h.shape[1] / max(1, h.shape[1] - 1)), _MOMENTUM)
    else:
        now, centre = variance, mean
    return torch.addcmul(shift, ((wide - centre) * (now + NORM_EPSILON).rsqrt()).to(h.dtype), scale)


class _Gather(torch.autograd.Function):
    """Rows of a tensor, with the gradient that is given: one without atomics, which is deterministic."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.gradient = gradient
        return values.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.gradient(grads[0]), None, None


class _ScaleArcs(torch.autograd.Function):
    """Values [A] times the factors [S·N] of both ends, where the block's sources are its targets. The factors' gradient
    is summed over rows of the matrix and of its transpose: no atomics, deterministic."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, factor: Tensor, block: Block) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(values, factor)
        return values * factor.index_select(0, block.row) * factor.index_select(0, block.col)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        block: Block = ctx.block
        values, factor = ctx.saved_tensors
        at_target, at_source = factor.index_select(0, block.row), factor.index_select(0, block.col)
        grad = grads[0]
        by_target = grad * values * at_source
        by_source = (grad * values * at_target).index_select(0, block.transpose)
        total = block.kernels.product(block.csr(by_target), torch.ones_like(factor).unsqueeze(1))
        total += block.kernels.product(block.transposed_csr(by_source), torch.ones_like(factor).unsqueeze(1))
        return grad * at_target * at_source, total.squeeze(1), None


class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dense: Tensor, block: Block, own_transpose: bool) -> Tensor:
        ctx.block, ctx.own_transpose, ctx.shape = block, own_transpose, dense.shape
        ctx.save_for_backward(values, dense if ctx.needs_input_grad[0] else None)
        return block.kernels.along(block, values, dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        block: Block = ctx.block
        values, dense = ctx.saved_tensors
        width = ctx.shape[-1]
        grad = grads[0].reshape(-1, width)
        dense = dense.reshape(-1, width) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return (None if dense is None else block.kernels.inner(block, grad, dense)), None, None, None
        grad_values, grad_dense = block.kernels.spread(block, values, grad, dense, width, ctx.own_transpose)
        return grad_values, grad_dense.view(ctx.shape), None, None


class _RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, block: Block) -> Tensor:
        ctx.block = block
        result = softmax_rows(logits, block.rowptr, block.row)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        block: Block = ctx.block
        (result,) = ctx.saved_tensors
        weighted = grads[0] * result
        totals = _reduce_rows(weighted, block.rowptr, "sum")
        return weighted - result * totals.index_select(0, block.row), None


class _SoftmaxMessages(torch.autograd.Function):
    """A few channels at a time, and in the gradient once more: what is kept is of the nodes' size, not of the arcs'.

    Sums and differences of exponentials are in float32 (or float64) whatever the type of x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, batch: GraphBatch, arc_elements: int | None, *terms: Any) -> Tensor:
        arcs = _Messages(batch, arc_elements, x, *terms)
        out = torch.empty_like(arcs.x)
        log_total = torch.empty_like(out, dtype=arcs.dtype)  # of the exponentials at each target
        for channels in arcs.chunks:
            message = arcs.messages(channels)
            logits = message * arcs.temperature
            top = _reduce_rows(logits, batch.rowptr, "max")
            share = logits.sub_(top[batch.row]).exp_()
            total = _reduce_rows(share, batch.rowptr, "sum")
            weighted = _reduce_rows(share.mul_(message).mul_(arcs.scores), batch.rowptr, "sum")
            out[:, channels] = torch.where(total > 0, weighted / total, 0.0).to(out.dtype)  # 0 without neighbours
            log_total[:, channels] = top + total.log()
        ctx.batch, ctx.arc_elements = batch, arc_elements
        ctx.save_for_backward(out, log_total, x, *terms)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        batch: GraphBatch = ctx.batch
        out, log_total, x, *terms = ctx.saved_tensors
        arcs = _Messages(batch, ctx.arc_elements, x, *terms)
        grad, to_x = grads[0].reshape(out.shape), torch.empty_like(arcs.x)
        to_scores, to_logits = arcs.scores.new_zeros(2, batch.num_arcs)
        to_weight, to_bias = (None if term is None else torch.empty_like(term) for term in terms[2:])
        for channels in arcs.chunks:
            message = arcs.messages(channels)
            share = (message * arcs.temperature).sub_(log_total[:, channels][batch.row]).exp_()
            share.mul_(grad[:, channels].to(arcs.dtype)[batch.row])  # the softmax times the gradient at the target
            to_scores += (share * message).sum(dim=1)
            logits = (message * arcs.scores).sub_(out[:, channels].to(arcs.dtype)[batch.row]).mul_(share)
            to_logits += (logits * message).sum(dim=1)
            to_message = logits.mul_(arcs.temperature).addcmul_(share, arcs.scores)
            to_message.mul_(message > _EPSILON)
            sums = _reduce_rows(to_message[batch.transpose], batch.transposed_rowptr, "sum")
            to_x[:, channels] = sums.to(to_x.dtype)
            if to_weight is not None and to_bias is not None:
                for run, attr in enumerate(batch.attr_of_runs):
                    part = to_message[batch.arcs_of_runs[run]]
                    to_weight[run, :, channels] = (attr.t() @ part).to(to_weight.dtype)
                    to_bias[run, channels] = part.sum(dim=0).to(to_bias.dtype)
        to_temperature = torch.stack([to_logits[part].sum() for part in batch.arcs_of_runs])
        return to_x.view(x.shape), None, None, to_scores, to_temperature, to_weight, to_bias


class _Messages:
    """Messages and what goes with them, for a few channels of all arcs at a time."""

    def __init__(self, batch: GraphBatch, arc_elements: int | None, x: Tensor, scores: Tensor, *terms: Any) -> None:
        temperature, self.weight, self.bias = terms
        self.batch, self.x = batch, x.flatten(0, 1)
        self.dtype = torch.promote_types(x.dtype, torch.float32)
        self.scores = scores.to(self.dtype).unsqueeze(1)  # [A, 1]
        run = torch.div(batch.row, batch.num_nodes, rounding_mode="floor")
        self.temperature = temperature.to(self.dtype)[run].unsqueeze(1)  # [A, 1]
        width, most = x.shape[-1], arc_elements or (ARC_ELEMENTS_GPU if x.is_cuda else _ARC_ELEMENTS_CPU)
        step = max(min(width, _FEWEST_CHANNELS), min(width, most // max(1, batch.num_arcs)))
        self.chunks = [slice(first, min(first + step, width)) for first in range(0, width, step)]

    def messages(self, channels: slice) -> Tensor:
        """[A, k]; positive messages are above 1e-7."""
        message = self.x[:, channels].to(self.dtype)[self.batch.col]
        if self.weight is not None:
            for run, attr in enumerate(self.batch.attr_of_runs):
                part = message[self.batch.arcs_of_runs[run]]
                weight, bias = self.weight[run, :, channels], self.bias[run, channels]
                part += torch.addmm(bias.to(attr.dtype), attr, weight.to(attr.dtype))
        return message.relu_().add_(_EPSILON)


class _LayerNormRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        normed, mean, root = torch.native_layer_norm(h, h.shape[-1:], None, None, NORM_EPSILON)
        result = torch.addcmul(shift, normed, scale).relu_()
        ctx.save_for_backward(h, scale, mean, root, result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        h, scale, mean, root, result = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grads[0], result, 0.0)
        normed = (h - mean).mul_(root).to(grad.dtype).mul_(grad)  # times its gradient
        to_scale, to_shift = normed.sum(dim=1, keepdim=True), grad.sum(dim=1, keepdim=True)
        to_h = torch.ops.aten.native_layer_norm_backward(
            grad * scale, h, h.shape[-1:], mean, root, None, None, [True, False, False]
        )[0]
        return to_h, to_scale, to_shift


class _EluDropout(torch.autograd.Function):
    """aten's ELU takes a factor and can tell its gradient from its result, so the result alone is saved."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, bias: Tensor, keep: Tensor | None, scale: float) -> Tensor:
        result: Tensor = torch.ops.aten.elu_(h + bias.unsqueeze(1), 1.0, scale)
        if keep is not None:
            result.mul_(keep)
        ctx.scale = scale
        ctx.save_for_backward(result, keep)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        result, keep = ctx.saved_tensors
        grad = grads[0] if keep is None else grads[0] * keep
        grad = torch.ops.aten.elu_backward(grad, 1.0, ctx.scale, 1.0, True, result)
        return grad, grad.sum(dim=1), None, None


def softmax_rows(logits: Tensor, rowptr: Tensor, row: Tensor) -> Tensor:
    """[A, K] softmax of logits [A, K] within rows, without a gradient."""
    logits = logits.contiguous()
    exps = (logits - _reduce_rows(logits, rowptr, "max")[row]).exp_()
    return exps.div_(_reduce_rows(exps, rowptr, "sum")[row])


def _reduce_rows(values: Tensor, rowptr: Tensor, how: str) -> Tensor:
    """[rows, K] sum or maximum of arc values [A, K] in the order of `rowptr`."""
    result: Tensor = torch.segment_reduce(values, how, offsets=rowptr.long(), axis=0, unsafe=True)
    return result
