"""CGP (Liu et al., 2023): weights, edges and input features are pruned gradually in one training, and regrown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config.methods import CgpOptions
from aceglt.errors import ConfigError
from aceglt.methods.base import Level, Selection
from aceglt.methods.fastglt import exchanged
from aceglt.numerics import rng
from aceglt.numerics.masks import SIDES, Masks, Scores
from aceglt.pruning.ranking import lowest


@dataclass(frozen=True)
class Cgp(CgpOptions):
    """In the first half of one training, prune weights, values of edges and input features by magnitude, more at first
    than later, and replace some of the alive by those with the largest gradients. Every level starts anew."""

    batches: ClassVar[int] = 1

    def check(self, backbone: Backbone) -> None:
        if self.features and not backbone.chain:
            raise ConfigError(
                f"cgp: {backbone.name} does not say which weights read the input features; use -m features=0"
            )

    def select(self, level: Level) -> Selection:
        full, falling = level.anew().masks, level.epochs // 2
        gradual = partial(_Gradual, level=level, method=self, falling=falling)
        fit = level.train_on(gradual, full, level.epochs, falling, "gradual")
        assert fit.scores is not None
        assert level.backbone is not None
        masks = Masks(fit.scores.weights > 0, fit.scores.edges > 0)
        found = {"once": fit.val.tolist(), **dead_features(level.backbone, masks)}
        return Selection(masks, diagnostics={"cgp": found}, epochs=level.epochs)

    def cost(self, epochs: int) -> int:
        return epochs


def readers(backbone: Backbone) -> tuple[int, list[str]]:
    """How many input features there are, and the matrices [F, units] that read them."""
    stages = [stage for stage in backbone.chain if stage.reads == (-1,)]
    names = [name for stage in stages for name in (*stage.weights, *stage.roots)]
    return max((stage.inputs for stage in stages), default=0), names


def dead_features(backbone: Backbone, masks: Masks) -> dict[str, list[int]]:
    """How many input features of each run no alive weight reads; nothing where the backbone does not say."""
    parts, (_, names) = backbone.prunable.split(masks.weights), readers(backbone)
    if not names:
        return {}
    return {"dead_features": (~torch.cat([parts[name] for name in names], dim=2).any(dim=2)).sum(dim=1).tolist()}


def fallen(at: float) -> float:
    """Share of what goes that has gone at a time from 0 to 1."""
    return float(1 - (1 - min(1.0, at)) ** 3)


class _Gradual(PlainElements):
    """Weights, values of edges and values of input features, which multiply the weights that read them. The dead are 0
    and have gradients, by which they grow."""

    def __init__(self, backbone: Backbone, start: Start, runs: slice, level: Level, method: Cgp, falling: int) -> None:
        self._level, self._method, self._falling, self._steps = level, method, falling, 0
        self._key, self._mask = level.key("drop")[runs], start.masks
        inputs, self._readers = readers(backbone) if method.features else (0, [])
        self._values = torch.ones(start.masks.runs, inputs, dtype=start.params.prunable.dtype, device=self._key.device)
        self._read = torch.ones_like(self._values, dtype=torch.bool)  # [S, F]
        self._fewest = inputs - int(method.features * (1 - level.keep.weights / backbone.prunable.size) * inputs)
        super().__init__(backbone, start)
        if not falling:
            self._steps = 1
            self._prune(self._flat(list(self.weights.values())), self.edge_values, self._values)
            self._clear()

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        super()._begin(start, decay, score_decay)
        self.optimiser.add_param_group({"params": [self._values], "weight_decay": score_decay})

    def effective(self) -> dict[str, Tensor]:
        return {n: w * self._values.unsqueeze(2) if n in self._readers else w for n, w in self.weights.items()}

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        assert edges is not None
        of_values = torch.zeros_like(self._values)
        of_weights = {name: grads[name] for name in self.weights}
        for name in self._readers:
            of_values += (grads[name] * self.weights[name]).sum(dim=2)
            of_weights[name] = grads[name] * self._values.unsqueeze(2)
        alive = self.backbone.prunable.split(self._mask.weights)
        self._values.grad = of_values * self._read if self._fewest < self._read.shape[1] else None
        masked = {name: grad * alive[name] for name, grad in of_weights.items()}
        super().update({**grads, **masked}, edges * self._mask.edges if self._level.prunes_edges else None)
        self._steps += 1
        due = self._steps % self._method.interval == 0 and self._steps < self._falling
        if due or self._steps == self._falling:
            self._prune(self._flat(list(of_weights.values())), edges, of_values)
        self._clear()

    def _prune(self, weights: Tensor, edges: Tensor, features: Tensor) -> None:
        """Keep the largest, as many as are left at this step; then replace a share of them by their gradients."""
        level, key, at = self._level, rng.fold(self._key, self._steps), self._steps / max(1, self._falling)
        gone, share = fallen(at), self._method.regrow / 2 * (1 + math.cos(math.pi * min(1.0, at)))

        def renewed(values: Tensor, growth: Tensor, among: Tensor, count: int, salt: int) -> Tensor:
            draw = rng.fold(key, salt)
            kept = lowest(-values.abs(), among, count, draw)
            return exchanged(kept, values.abs(), growth.abs().masked_fill(~among, -1.0), int(share * count), draw)

        def all_but(values: Tensor, growth: Tensor, alive: Tensor, fewest: int, salt: int) -> Tensor:
            """What is alive of edges or features from now on; those that come back start at the mean of the others."""
            count = alive.shape[1] - round(gone * (alive.shape[1] - fewest))
            now = renewed(values, growth, torch.ones_like(alive), count, salt)
            mean = values.sum(dim=1, keepdim=True) / alive.sum(dim=1, keepdim=True).clamp(min=1)
            values.copy_(torch.where(now & ~alive, mean, values))
            return now

        self._read = all_but(self._values, features, self._read, self._fewest, 0)
        alive = all_but(self.edge_values, edges, self._mask.edges, level.keep.edges, 1)
        among, flat = self._readable(), self._flat(list(self.weights.values()))
        count = flat.shape[1] - round(gone * (flat.shape[1] - level.keep.weights))
        kept = torch.zeros_like(among)
        for number, quota in enumerate(level.quotas if gone == 1 else ()):
            part, least = quota.part, min(quota.keep, int(among[0, quota.part].sum()))
            kept[:, part] = renewed(flat[:, part], weights[:, part], among[:, part], least, 3 + number)
        kept |= renewed(flat, weights, among & ~kept, count - int(kept[0].sum()), 2)
        self._mask = Masks(kept, alive)

    def _readable(self) -> Tensor:
        """[S, P] all weights but those that read a dead feature."""
        ones = {name: torch.ones_like(part, dtype=torch.bool) for name, part in self.weights.items()}
        return self.backbone.prunable.join(
            {name: one & self._read.unsqueeze(2) if name in self._readers else one for name, one in ones.items()}
        )

    def _clear(self) -> None:
        """The dead are 0; weights of a dead feature, whose value is 0, stay what they were, should it come back."""
        kept = self.backbone.prunable.split(self._mask.weights | ~self._readable())
        for name, weight in self.weights.items():
            weight.mul_(kept[name])
        self.edge_values.mul_(self._mask.edges)
        self._values.mul_(self._read)

    def scores(self) -> Scores:
        """1 where alive, 0 where dead: what a training is about are its masks."""
        return Scores(*(self._mask.of(side).to(self.edge_values) for side in SIDES))

    def _current(self) -> list[Tensor]:
        now = self.scores()
        return [*self.backbone.prunable.split(now.weights).values(), now.edges]
