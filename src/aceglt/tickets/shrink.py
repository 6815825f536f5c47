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
    if wanted is not None:
        layer = _units(layer, wanted)
    read = _reads(layer)
    return _inputs(layer, read), read


def _trim_block(block: BlockSpec, wanted: Tensor | None) -> tuple[BlockSpec, Tensor | None]:
    """Units are wanted one by one of a step that is not residual only: a step without a norm never follows another."""
    if wanted is not None:
        block = replace(block, weight=block.weight[:, wanted], bias=block.bias[wanted])
    read = _not_none((block.weight != 0).any(dim=1))
    block = replace(block, weight=block.weight[read])
    if block.edge_weight is not None and block.edge_bias is not None:
        block = replace(block, edge_weight=block.edge_weight[:, read], edge_bias=block.edge_bias[read])
    if block.scale is None or block.shift is None:
        return block, read
    units = None if bool(read.all()) else read.nonzero().squeeze(1)
    return replace(block, read=units, scale=block.scale[read], shift=block.shift[read]), None


def _reads(layer: LayerSpec) -> Tensor:
    """[in] bool: which inputs an alive weight reads; one stays in any case, for tensors of width 0 are no good."""
    reads = (layer.weight != 0).any(dim=1)
    if layer.attention is not None:
        reads |= (layer.attention != 0).any(dim=1)
    return _not_none(reads)


def _not_none(chosen: Tensor) -> Tensor:
    if not chosen.any():
        chosen = chosen.clone()
        chosen[0] = True
    return chosen


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
        shift=None if layer.shift is None else layer.shift[keep],
        bias=None if layer.bias is None else layer.bias[keep],
        attention=None if layer.attention is None else layer.attention[:, heads],
        attention_shift=None if layer.attention_shift is None else layer.attention_shift[heads],
    )


def _fold(layer: LayerSpec, after: LayerSpec) -> tuple[LayerSpec, LayerSpec]:
    """Units without alive inputs are activation(bias) at every node: a constant shift of the next layer."""
    varies = (layer.weight != 0).any(dim=0)
    if layer.shift is not None:
        varies |= layer.shift != 0
    varies = _not_none(varies)
    if layer.bias is not None:
        constant = ACTIVATIONS[layer.activation](layer.bias[~varies].clone())
        after = replace(
            after,
            shift=_add(after.shift, constant @ after.weight[~varies]),
            attention_shift=None
            if after.attention is None
            else _add(after.attention_shift, constant @ after.attention[~varies]),
        )
    return _units(layer, varies), _inputs(after, varies)


def _add(shift: Tensor | None, more: Tensor) -> Tensor | None:
    total = more if shift is None else shift + more
    return total if bool(total.any()) else None
