"""A network for inference without what is dead: features and units that nobody reads, units that never vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from aceglt.backbones.portable import ACTIVATIONS, BlockSpec, LayerSpec, Spec


def shrink(layers: Sequence[Spec]) -> tuple[Tensor, list[Spec]]:
    """Which features are read, and the same network without units that nobody reads or that never vary.

    Units that a norm is over stay, so that in a residual network only those go that the encoder makes for nobody.
    """
    read: Tensor | None = None  # which units the next layer reads; None is all
    kept: list[Spec] = []
    for layer in reversed(layers):
        trimmed, read = _trim_layer(layer, read) if isinstance(layer, LayerSpec) else _trim_block(layer, read)
        kept.insert(0, trimmed)
    for i in range(1, len(kept)):
        layer, after = kept[i - 1], kept[i]
        if isinstance(layer, LayerSpec) and isinstance(after, LayerSpec):
            kept[i - 1], kept[i] = _fold(layer, after)
    assert read is not None  # the first layer has no norm
    return read.nonzero().squeeze(1), kept


def _trim_layer(layer: LayerSpec, wanted: Tensor | None) -> tuple[LayerSpec, Tensor]:
    """With the wanted units, and the inputs that an alive weight reads."""
    if wanted is not None:
        layer = _units(layer, wanted)
    reads = (layer.weight != 0).any(dim=1)
    if layer.attention is not None:
        reads |= (layer.attention != 0).any(dim=1)
    reads = _not_none(reads)
    return _inputs(layer, reads), reads


def _trim_block(block: BlockSpec, wanted: Tensor | None) -> tuple[BlockSpec, Tensor | None]:
    """Units are wanted one by one of a step that is not residual only: a step without a norm never follows another."""
    if wanted is not None:
        block = replace(block, weight=block.weight[:, wanted], bias=block.bias[wanted])
    read = _not_none((block.weight != 0).any(dim=1))
    edge_weight, edge_bias = _last(block.edge_weight, read), _last(block.edge_bias, read)
    block = replace(block, weight=block.weight[read], edge_weight=edge_weight, edge_bias=edge_bias)
    if block.scale is None:
        return block, read
    units = None if bool(read.all()) else read.nonzero().squeeze(1)
    return replace(block, read=units, scale=_last(block.scale, read), shift=_last(block.shift, read)), None


def _last(values: Tensor | None, keep: Tensor) -> Tensor | None:
    """Those of the last dimension that are kept."""
    return None if values is None else values[..., keep]


def _not_none(chosen: Tensor) -> Tensor:
    """One stays in any case, for tensors of width 0 are no good."""
    return chosen if chosen.any() else torch.arange(len(chosen), device=chosen.device) == 0


def _inputs(layer: LayerSpec, keep: Tensor) -> LayerSpec:
    attention = None if layer.attention is None else layer.attention[keep]
    return replace(layer, weight=layer.weight[keep], attention=attention)


def _units(layer: LayerSpec, keep: Tensor) -> LayerSpec:
    """The layer with some of its units; heads without any go, and their attention with them."""
    widths = [int(part.sum()) for part in keep.split(layer.widths)]
    heads = torch.tensor([width > 0 for width in widths], device=keep.device).repeat(2)
    return replace(
        layer,
        weight=layer.weight[:, keep],
        widths=tuple(width for width in widths if width),
        shift=_last(layer.shift, keep),
        bias=_last(layer.bias, keep),
        attention=_last(layer.attention, heads),
        attention_shift=_last(layer.attention_shift, heads),
    )


def _fold(layer: LayerSpec, after: LayerSpec) -> tuple[LayerSpec, LayerSpec]:
    """Units without alive inputs are activation(bias) at every node: a constant shift of the next layer."""
    varies = (layer.weight != 0).any(dim=0)
    if layer.shift is not None:
        varies |= layer.shift != 0
    varies = _not_none(varies)
    if layer.bias is not None:
        constant = ACTIVATIONS[layer.activation](layer.bias[~varies].clone())
        shift = _add(after.shift, constant, after.weight[~varies])
        more = None if after.attention is None else _add(after.attention_shift, constant, after.attention[~varies])
        after = replace(after, shift=shift, attention_shift=more)
    return _units(layer, varies), _inputs(after, varies)


def _add(shift: Tensor | None, constant: Tensor, weight: Tensor) -> Tensor | None:
    more = constant @ weight
    total = more if shift is None else shift + more
    return total if bool(total.any()) else None
