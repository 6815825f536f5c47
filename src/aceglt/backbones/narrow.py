"""A network without its dead units: smaller tensors of the same kind, which every backend computes as it does any."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import FEATURES, Axis, Backbone, Params
from aceglt.numerics.masks import Masks, Scores

ByLayer = Mapping[str, Tensor]
"""By layer, a value for each of its units, [S, width]."""


@dataclass(frozen=True)
class Narrow:
    """The network of some runs with the units that have an alive weight.

    All runs have the widths of the widest. The others have dead units at the end of a layer to make up for it: their
    weights are masked, and norms leave them out.
    """

    backbone: Backbone
    features: Tensor | None
    """[F] bool: those that some run reads; None is all."""
    kept: ByLayer
    """[S, width] the numbers of its units among all."""
    present: ByLayer
    """[S, width] bool: the units that are not there to make up for the width."""
    weights: Tensor  # [S, P'] where its weights are among all
    _others: Tensor  # [S, Q'] where its other parameters are
    _present: Tensor  # [S, Q'] which of these are not of dead units
    _sizes: tuple[int, int]

    def params(self, params: Params) -> Params:
        """Its own, of those of all units."""
        return Params(params.prunable.gather(1, self.weights), params.other.gather(1, self._others) * self._present)

    def masks(self, masks: Masks) -> Masks:
        return Masks(masks.weights.gather(1, self.weights), masks.edges)

    def scores(self, scores: Scores) -> Scores:
        return Scores(scores.weights.gather(1, self.weights), scores.edges)

    def all_params(self, params: Params) -> Params:
        """Of all units, from its own; those of dead ones are 0."""
        other = _scattered(params.other * self._present, self._others, self._sizes[1])
        return Params(_scattered(params.prunable, self.weights, self._sizes[0]), other)

    def all_scores(self, scores: Scores) -> Scores:
        return Scores(_scattered(scores.weights, self.weights, self._sizes[0]), scores.edges)


def narrowed(backbone: Backbone, alive: Tensor) -> Narrow | None:
    """The network of runs with these alive weights [S, P]; None where that is the whole, or dead units do not go."""
    if not backbone.whole_units or bool(alive.all()):
        return None
    units = alive_units(backbone, alive)
    features = units[FEATURES].any(dim=0)
    units |= {FEATURES: features.expand(len(alive), -1)}  # runs share them
    widths = even({layer: max(1, int(there.sum(dim=1).max())) for layer, there in units.items()})
    order = {layer: there.int().argsort(dim=1, descending=True, stable=True) for layer, there in units.items()}
    kept = {layer: places[:, : widths[layer]] for layer, places in order.items()}  # alive ones come first
    present = {layer: there.gather(1, kept[layer]) for layer, there in units.items()}
    padded = not all(bool(there.all()) for there in present.values())
    dtype = torch.get_default_dtype()
    made = backbone.narrowed(widths, {n: p.unsqueeze(1).to(dtype) for n, p in present.items()} if padded else {})
    there = [_along(backbone, *part, present) for part in backbone.other.shapes]
    return Narrow(
        made,
        None if bool(features.all()) else features,
        kept,
        present,
        _places(backbone, backbone.prunable.shapes, kept),
        _places(backbone, [(name, (1, math.prod(shape))) for name, shape in backbone.other.shapes], kept),
        torch.cat([alive[:, :0], *there], dim=1),
        (backbone.prunable.size, backbone.other.size),
    )


def alive_units(backbone: Backbone, alive: Tensor) -> dict[str, Tensor]:
    """By layer, which units have an alive weight, of alive [S, P]."""
    found = _over_weights(backbone, alive.view(torch.uint8), torch.amax, torch.maximum)  # `any` takes far longer
    return {layer: there.bool() for layer, there in found.items()}


def unit_sums(backbone: Backbone, values: Tensor) -> dict[str, Tensor]:
    """By layer, the sum of values [S, P] over each unit's weights, incoming and outgoing ones."""
    return _over_weights(backbone, values, torch.sum, torch.add)


def _over_weights(backbone: Backbone, values: Tensor, along: Any, join: Any) -> dict[str, Tensor]:
    """By layer, values [S, P] of each unit's weights, taken together `along` a side and from all sides."""
    found = {layer: values.new_zeros(len(values), width) for layer, width in backbone.widths.items()}
    for name, part in backbone.prunable.split(values).items():
        for axis, side in zip(backbone.sides[name], (2, 1), strict=True):
            if axis:
                parts = along(part, dim=side).split([backbone.widths[layer] for layer in axis], dim=1)
                for layer, more in zip(axis, parts, strict=True):
                    found[layer] = join(found[layer], more)
    return found


def weights_between(backbone: Backbone, units: ByLayer) -> Tensor:
    """[S, P] bool: the weights whose units, at both ends, are alive."""
    runs = len(next(iter(units.values())))
    masks = []
    for name, shape in backbone.prunable.shapes:
        rows, columns = (
            torch.cat([units[layer] for layer in axis], dim=1) if axis else units[FEATURES].new_ones(runs, size)
            for axis, size in zip(backbone.sides[name], shape, strict=True)
        )
        masks.append((rows.unsqueeze(2) & columns.unsqueeze(1)).flatten(1))
    return torch.cat(masks, dim=1)


def even(widths: Mapping[str, int]) -> dict[str, int]:
    """Widths of a network whose heads have as many units as the widest of their layer."""
    widest: dict[str, int] = {}
    for name, width in widths.items():
        widest[layer_of(name)] = max(width, widest.get(layer_of(name), 0))
    return {name: widest[layer_of(name)] for name in widths}


def layer_of(name: str) -> str:
    """`layer0` of its head `layer0.head1`."""
    return name.partition(".")[0]


def _along(backbone: Backbone, name: str, shape: tuple[int, ...], present: ByLayer) -> Tensor:
    """[S, entries] of a narrow parameter: which are of units that are present."""
    axis = backbone.sides[name][1] if name in backbone.sides else ()
    some = next(iter(present.values()))
    return torch.cat([present[n] for n in axis], dim=1) if axis else some.new_ones(len(some), math.prod(shape))


def _places(backbone: Backbone, shapes: Sequence[tuple[str, tuple[int, ...]]], kept: ByLayer) -> Tensor:
    """[S, n] where the entries of narrow matrices are among those of the whole ones."""
    found, begin = [], 0
    for name, (rows, columns) in shapes:
        sides = backbone.sides.get(name, ((), ()))
        along = [_numbers(backbone, axis, size, kept) for axis, size in zip(sides, (rows, columns), strict=True)]
        found.append((begin + along[0].unsqueeze(2) * columns + along[1].unsqueeze(1)).flatten(1))
        begin += rows * columns
    some = next(iter(kept.values()))
    return torch.cat([some[:, :0], *found], dim=1)


def _numbers(backbone: Backbone, axis: Axis, size: int, kept: ByLayer) -> Tensor:
    """[S, n] the kept ones of `size` rows or columns."""
    some = next(iter(kept.values()))
    if not axis:
        return torch.arange(size, device=some.device).expand(len(some), -1)
    begins = [sum(backbone.widths[layer] for layer in axis[:place]) for place in range(len(axis))]
    return torch.cat([begin + kept[layer] for begin, layer in zip(begins, axis, strict=True)], dim=1)


def _scattered(values: Tensor, places: Tensor, size: int) -> Tensor:
    return values.new_zeros(len(values), size).scatter(1, places, values)
