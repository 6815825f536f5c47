"""Structured pruning: whole units and features go, the least important first, until few enough weights are alive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aceglt.backbones.base import FEATURES, Axis, Backbone
from aceglt.backbones.narrow import alive_units, layer_of, narrowed, unit_sums, weights_between
from aceglt.config import Pruning
from aceglt.config.groups import by_layer
from aceglt.errors import ConfigError
from aceglt.numerics import rng

_HALVINGS = 60  # of the interval in which a common share of the units is found


@dataclass(frozen=True)
class Structure:
    """Which units may go, and how many stay in each layer at least."""

    kinds: Sequence[str]
    """`units`, `features` or both."""
    balance: float = 0.0
    """Of the units that layers would keep if all kept the same share, the part that each keeps at least."""
    round_to: int = 1
    """Widths are multiples of this, but for layers that have lost nothing."""
    ignored: Sequence[str] = ()
    """Layers that keep all their units."""
    floors: Mapping[str, float] = field(default_factory=dict)
    """By layer, the share of its units that stays at least."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """By layer, by how much its share is above that of others, where layers are balanced."""

    def check(self, backbone: Backbone) -> None:
        """Raise ConfigError where the backbone does not say what its units are, or has no layer of a name."""
        known = list(dict.fromkeys(map(layer_of, backbone.widths)))
        if not known:
            raise ConfigError(
                f"structure is for the built-in backbones; {backbone.name} does not say what its units are"
            )
        for name in (*self.ignored, *self.floors, *self.ratios):
            if name not in known:
                raise ConfigError(f"structure: {backbone.name} has no layer '{name}'; it has {', '.join(known)}")

    def prunes(self, layer: str) -> bool:
        """Whether units of a layer may go."""
        kind = "features" if layer == FEATURES else "units"
        return kind in self.kinds and layer_of(layer) not in self.ignored

    def fewest(self, layer: str, width: int) -> int:
        """Units that a layer of this width keeps in any case."""
        share = math.ceil(self.floors.get(layer_of(layer), 0.0) * width - 1e-9)
        return min(width, self.round_to * max(1, math.ceil(share / self.round_to)))


class Units:
    """The units of a backbone that may go, in one row [S, U]: elements as weights [S, P] are."""

    def __init__(self, backbone: Backbone, structure: Structure) -> None:
        structure.check(backbone)
        self._backbone, self._structure = backbone.with_whole_units(), structure
        self._layers = [layer for layer in backbone.widths if structure.prunes(layer)]
        if not self._layers:
            raise ConfigError(f"structure: {backbone.name} has no layer whose {' or '.join(structure.kinds)} may go")
        self._sizes = [backbone.widths[layer] for layer in self._layers]
        ends = np.cumsum(self._sizes).tolist()
        self.parts = [slice(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]
        """Where the units of each layer are."""
        self.count: int = ends[-1]
        self._fewest = [structure.fewest(*layer) for layer in zip(self._layers, self._sizes, strict=True)]

    @property
    def least(self) -> int:
        """Weights between the fewest units that layers keep."""
        return int(self._weights_of(self._fewest))

    def alive(self, weights: Tensor) -> Tensor:
        """[S, U] bool: the units with an alive weight, of alive [S, P]."""
        return self._joined(alive_units(self._backbone, weights))

    def weights(self, alive: Tensor) -> Tensor:
        """[S, P] bool: the weights between alive units [S, U]."""
        units = {layer: alive.new_ones(len(alive), width) for layer, width in self._backbone.widths.items()}
        units |= {layer: alive[:, part] for layer, part in zip(self._layers, self.parts, strict=True)}
        return weights_between(self._backbone, units)

    def means(self, scores: Tensor, alive: Tensor) -> Tensor:
        """[S, U] float64: the mean magnitude of scores [S, P] over the alive weights of each unit."""
        runs = zip(scores.split(1), alive.split(1), strict=True)
        return torch.cat([self._joined(self._means(*run)) for run in runs])  # run by run: the batch has no influence

    def _means(self, scores: Tensor, alive: Tensor) -> Mapping[str, Tensor]:
        """By layer, of one run."""
        backbone, small = self._backbone, narrowed(self._backbone, alive)  # so that sums are over few weights
        if small is not None:
            places = small.weights
            backbone, scores, alive = small.backbone, scores.gather(1, places), alive.gather(1, places)
        sums, counts = (unit_sums(backbone, part) for part in (scores.double().abs() * alive, alive.double()))
        means = {layer: total / counts[layer].clamp(min=1) for layer, total in sums.items()}
        if small is None:
            return means
        widths = self._backbone.widths
        return {n: mean.new_zeros(1, widths[n]).scatter(1, small.kept[n], mean) for n, mean in means.items()}

    def widths(self, weights: Tensor) -> dict[str, list[int]]:
        """By layer, heads together, the units of each run that are alive, of alive [S, P]."""
        found: dict[str, Tensor] = {}
        for name, there in alive_units(self._backbone, weights).items():
            found[layer_of(name)] = there.sum(dim=1) + found.get(layer_of(name), 0)
        return {layer: total.tolist() for layer, total in found.items()}

    def cut(self, alive: Tensor, importance: Tensor, keep: int, key: Tensor) -> Tensor:
        """[S, U] bool: those of the alive units that stay, so that at most `keep` weights do.

        The least important go first, equal ones in a random order, and every layer keeps its floor.
        """
        floors, noise = self._floors(keep), rng.uniform(key, self.count)
        runs = zip(*(part.cpu().numpy() for part in (alive, importance, noise)), strict=True)
        return torch.from_numpy(np.stack([self._cut(floors, keep, *run) for run in runs])).to(alive.device)

    def _cut(self, floors: Sequence[int], keep: int, alive: Any, importance: Any, noise: Any) -> Any:
        """One run: each layer offers its units in blocks, the least important first, and so blocks go."""
        offers = [self._blocks(alive, importance, noise, *of) for of in zip(self.parts, floors, strict=True)]
        layer = np.concatenate([np.full(len(units), place) for place, (units, _, _) in enumerate(offers)])
        units = [block for blocks, _, _ in offers for block in blocks]
        order = np.lexsort([np.concatenate([offer[column] for offer in offers]) for column in (2, 1)])
        sizes = np.array([len(block) for block in units], dtype=np.int64)[order]
        gone = np.cumsum(sizes[:, None] * (layer[order][:, None] == np.arange(len(offers))), axis=0)
        start = np.array([alive[part].sum() for part in self.parts])
        counts = np.vstack([start, start - gone])
        enough = self._weights_of(counts.T) <= keep
        number = int(np.argmax(enough)) if enough.any() else len(order)
        left = alive.copy()
        for block in order[:number]:
            left[units[block]] = False
        return left

    def _blocks(self, alive: Any, importance: Any, noise: Any, part: slice, floor: int) -> tuple[list[Any], Any, Any]:
        """The units of a layer that may go, in blocks that leave a multiple of `round_to`, and of each block the mean
        importance and the place among equals, which never fall."""
        there, to = alive[part].nonzero()[0] + part.start, self._structure.round_to
        there = there[np.lexsort([noise[there], importance[there]])]
        ends = [end for end in range(len(there) % to or to, len(there) + 1, to) if len(there) - end >= floor]
        blocks = np.split(there[: ends[-1]], ends[:-1]) if ends else []
        means, places = [importance[block].mean() for block in blocks], [noise[block[0]] for block in blocks]
        return blocks, np.maximum.accumulate(means), np.maximum.accumulate(places)

    def _floors(self, keep: int) -> list[int]:
        """Units that each layer keeps: `balance` of what it would keep if all kept the same share, times its ratio."""
        structure, shares = self._structure, [1.0] * len(self._layers)
        if structure.balance:
            ratios = [structure.ratios.get(layer_of(layer), 1.0) for layer in self._layers]
            low, high = 0.0, 1.0 / min(ratios)
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                fits = self._weights_of(self._shared(middle, ratios)) <= keep
                low, high = (middle, high) if fits else (low, middle)
            shares = self._shared(low, ratios)
        floors = [int(structure.balance * share / structure.round_to) * structure.round_to for share in shares]
        return [max(pair) for pair in zip(floors, self._fewest, strict=True)]

    def _shared(self, share: float, ratios: Sequence[float]) -> list[float]:
        """Widths of the layers, as fractions, if all keep a share of their units times their ratio."""
        wanted = zip(self._sizes, ratios, self._fewest, strict=True)
        return [max(fewest, min(size, share * ratio * size)) for size, ratio, fewest in wanted]

    def _weights_of(self, counts: Any) -> Any:
        """Weights between so many units, a number (or an array of them) for each layer."""
        widths: dict[str, Any] = {**self._backbone.widths, **dict(zip(self._layers, counts, strict=True))}

        def side(axis: Axis, size: int) -> Any:
            return sum(widths[layer] for layer in axis) if axis else size

        shapes = self._backbone.prunable.shapes
        sides = [[side(*of) for of in zip(self._backbone.sides[name], shape, strict=True)] for name, shape in shapes]
        return sum(rows * columns for rows, columns in sides)

    def _joined(self, units: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([units[layer] for layer in self._layers], dim=1)


def build_units(options: Pruning, backbone: Backbone) -> Units | None:
    """What the configuration prunes as a whole; None where weights go one by one."""
    if options.structure is None:
        return None
    floors, ratios = by_layer("floors", options.floors), by_layer("ratios", options.ratios)
    kinds = options.structure.split(",")
    return Units(backbone, Structure(kinds, options.balance, options.round_to, options.ignored or (), floors, ratios))
