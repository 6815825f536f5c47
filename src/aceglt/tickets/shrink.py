"""A network for inference without what is dead: features and units that nobody reads, units that never vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Params
from aceglt.backbones.narrow import Narrow, narrowed
from aceglt.backbones.portable import ACTIVATIONS, BlockSpec, LayerSpec, Spec
from aceglt.numerics.masks import Masks

_LANES = 16  # units that aligned widths are multiples of


def alive_layers(backbone: Backbone, trained: Params, masks: Masks) -> tuple[Sequence[Spec], Tensor | None]:
    """The layers of one run's network, and the features that they have weights for, [F] bool (None: all). Those of a
    ticket that was pruned by units are without the dead ones."""
    small = narrowed(backbone, masks.weights)
    network, params = (backbone, trained) if small is None else (small.backbone, small.params(trained))
    layers = network.layers({name: part[0] for name, part in network.weights(params).items()})
    if small is None:
        return layers, None
    if not all(bool(there.all()) for there in small.present.values()):  # heads of one layer differ in width
        layers = [_present(layer, small, number) for number, layer in enumerate(layers) if isinstance(layer, LayerSpec)]
    return layers, small.features


def _present(layer: LayerSpec, small: Narrow, number: int) -> LayerSpec:
    """The layer without the units, its own and those that it reads, that make up for a width."""
    sides = [small.backbone.sides[name] for name in small.backbone.chain[number].weights]
    inputs, units = sides[0][0], [name for _, head in sides for name in head]
    kept = _units(layer, torch.cat([small.present[name][0] for name in units])) if units else layer
    return _inputs(kept, torch.cat([small.present[name][0] for name in inputs]))


def shrink(layers: Sequence[Spec], inputs: Tensor | None = None, aligned: bool = False) -> tuple[Tensor, list[Spec]]:
    """Which features are read, and the same network without units that nobody reads or that never vary. The first layer
    has weights for `inputs`, [F] bool, or for all features.

    Units that a norm is over stay, so that in a residual network only those go that the encoder makes for nobody. With
    `aligned`, hidden layers have multiples of 16 units, as kernels like it, where zeros can make up for it.
    """
    stack = [layer for layer in layers if isinstance(layer, LayerSpec)]
    if stack:
        features, kept = _shrink_stack(stack, aligned)
        return _among(features, inputs), list(kept)
    read: Tensor | None = None  # which units the next layer reads; None is all
    blocks: list[Spec] = []
    for block in reversed(layers):
        assert isinstance(block, BlockSpec)
        trimmed, read = _trim_block(block, read)
        blocks.insert(0, trimmed)
    assert read is not None  # the first layer has no norm
    return _among(read.nonzero().squeeze(1), inputs), blocks


def _among(features: Tensor, inputs: Tensor | None) -> Tensor:
    return features if inputs is None else inputs.nonzero().squeeze(1)[features]


def _shrink_stack(layers: Sequence[LayerSpec], aligned: bool) -> tuple[Tensor, list[LayerSpec]]:
    layers = [replace(layer, reads=layer.reads or (number - 1,)) for number, layer in enumerate(layers)]
    units = {-1: len(layers[0].weight), **{number: layer.weight.shape[1] for number, layer in enumerate(layers)}}
    read = {name: torch.zeros(count, dtype=torch.bool, device=_device(layers)) for name, count in units.items()}
    read[len(layers) - 1][:] = True
    kept = list(layers)
    for number in reversed(range(len(layers))):  # by the time of a layer, all that read it have been seen
        read[number] = torch.ones_like(read[number]) if layers[number].norm else _not_none(read[number])
        kept[number] = _units(layers[number], read[number])
        parts = _reads(kept[number]).split([units[name] for name in kept[number].reads])
        for name, part in zip(kept[number].reads, parts, strict=True):
            read[name] |= part
    read[-1] = _not_none(read[-1])
    kept = [_inputs(layer, torch.cat([read[name] for name in layer.reads])) for layer in kept]
    for number in range(len(kept) - 1):
        _fold(kept, number)
    for number in range(len(kept) - 1 if aligned else 0):
        _align(kept, number)
    return read[-1].nonzero().squeeze(1), kept


def _device(layers: Sequence[LayerSpec]) -> torch.device:
    return layers[0].weight.device


def _reads(layer: LayerSpec) -> Tensor:
    """[in] bool: the inputs that an alive weight reads, or that are added as they are."""
    reads = (layer.weight != 0).any(dim=1)
    for part in (layer.attention, layer.root):
        if part is not None:
            reads |= (part != 0).any(dim=1)
    return reads if layer.identity is None else reads.index_fill(0, layer.identity, True)


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
    attention, root = (None if part is None else part[keep] for part in (layer.attention, layer.root))
    identity = None if layer.identity is None else (keep.cumsum(0) - 1)[layer.identity]
    return replace(layer, weight=layer.weight[keep], attention=attention, root=root, identity=identity)


def _units(layer: LayerSpec, keep: Tensor) -> LayerSpec:
    """The layer with some of its units; heads without any go, and their attention with them."""
    widths = [int(part.sum()) for part in keep.split(layer.widths)]
    heads = torch.tensor([width > 0 for width in widths], device=keep.device).repeat(2)
    names = ("shift", "bias", "root", "identity", "scale", "offset")
    along: dict[str, Any] = {name: _last(getattr(layer, name), keep) for name in names}
    return replace(
        layer,
        weight=layer.weight[:, keep],
        widths=tuple(width for width in widths if width),
        attention=_last(layer.attention, heads),
        attention_shift=_last(layer.attention_shift, heads),
        **along,
    )


def _fold(layers: list[LayerSpec], number: int) -> None:
    """Units without alive inputs are activation(bias) at every node: a constant shift of the layers that read them."""
    layer = layers[number]
    readers = _readers(layers, number)
    if readers is None:
        return
    varies = (layer.weight != 0).any(dim=0)
    if layer.root is not None:
        varies |= (layer.root != 0).any(dim=0)
    if layer.shift is not None:
        varies |= layer.shift != 0
    varies = _not_none(varies)
    constant = torch.zeros_like(layer.weight[0]) if layer.bias is None else layer.bias
    if layer.scale is not None and layer.offset is not None:
        constant = torch.addcmul(layer.offset, constant, layer.scale)
    constant = ACTIVATIONS[layer.activation](constant[~varies].clone())
    widths = {name: layers[name].weight.shape[1] for reader in readers for name in layers[reader].reads if name >= 0}
    for reader in readers:
        keep = torch.cat([varies if name == number else _all(widths[name], varies) for name in layers[reader].reads])
        layers[reader] = _inputs(_shifted(layers[reader], constant, ~keep), keep)
    layers[number] = _units(layer, varies)


def _readers(layers: Sequence[LayerSpec], number: int) -> list[int] | None:
    """The layers that read a layer's units; None where each unit matters, since a norm is over them, or inputs are
    added as they are."""
    found = [later for later, other in enumerate(layers) if number in other.reads]
    fixed = layers[number].norm or any(layers[place].identity is not None for place in (number, *found))
    return None if fixed else found


def _align(layers: list[LayerSpec], number: int) -> None:
    """Give a layer of one head that has more than 16 units a multiple of that, by units that are 0 and nobody reads."""
    layer, readers = layers[number], _readers(layers, number)
    extra = -sum(layer.widths) % _LANES
    if readers is None or not extra or len(layer.widths) > 1 or layer.widths[0] < _LANES:
        return
    names = ("weight", "shift", "bias", "root", "scale", "offset")
    wider: dict[str, Any] = {name: _padded(getattr(layer, name), -1, extra) for name in names}
    widths = {name: layers[name].weight.shape[1] for reader in readers for name in layers[reader].reads if name >= 0}
    for reader in readers:
        reads = layers[reader].reads
        end = sum(widths[name] for name in reads[: reads.index(number) + 1])
        along: dict[str, Any] = {
            name: _padded(getattr(layers[reader], name), end, extra) for name in ("weight", "attention", "root")
        }
        layers[reader] = replace(layers[reader], **along)
    layers[number] = replace(layer, **wider, widths=(layer.widths[0] + extra,))


def _padded(values: Tensor | None, place: int, extra: int) -> Tensor | None:
    """With so many zeros more: rows from a place on, or columns at the end if that is -1."""
    if values is None:
        return None
    if place < 0:
        return torch.cat([values, values.new_zeros(*values.shape[:-1], extra)], dim=-1)
    return torch.cat([values[:place], values.new_zeros(extra, values.shape[1]), values[place:]])


def _shifted(layer: LayerSpec, constant: Tensor, where: Tensor) -> LayerSpec:
    """The layer with what these inputs [in] bool add to it where they have these values, besides."""
    attention = None if layer.attention is None else _add(layer.attention_shift, constant, layer.attention[where])
    bias = layer.bias if layer.root is None else _add(layer.bias, constant, layer.root[where])
    shift = _add(layer.shift, constant, layer.weight[where])
    return replace(layer, shift=shift, attention_shift=attention, bias=bias)


def _all(count: int, like: Tensor) -> Tensor:
    return torch.ones(count, dtype=torch.bool, device=like.device)


def _add(shift: Tensor | None, constant: Tensor, weight: Tensor) -> Tensor | None:
    more = constant @ weight
    total = more if shift is None else shift + more
    return total if bool(total.any()) else None
