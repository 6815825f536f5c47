"""UGTs (Huang et al., 2022): subnetworks that need no training. It chooses weights; edges go at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config.methods import UgtsOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics import rng
from aceglt.numerics.adam import TorchAdam
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.pruning.ranking import prune


@dataclass(frozen=True)
class Ugts(UgtsOptions):
    """Leave weights at their initial values and train scores of them; those with the highest scores act.

    Weights are chosen anew from the dense network at every level.
    """

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        start = level.all_weights(rng.uniform(level.key("edges"), level.masks.total.edges))
        falling = level.epochs // 2  # in which the number of weights that act falls to that of the level
        scores = None
        if falling:
            dense_to_sparse = partial(_Untrained, level=level, falling=falling)
            scores = level.train_elements(dense_to_sparse, start, falling, "untrained, falling").scores
        at_target = partial(_Untrained, level=level, scores=scores)
        fit = level.train_elements(at_target, start, level.epochs - falling, "untrained")
        assert fit.scores is not None
        masks = highest(start, fit.scores.weights, level.keep.weights, level, level.key("drop"))
        return Selection(masks, epochs=level.epochs)

    def cost(self, epochs: int) -> int:
        return epochs


def highest(masks: Masks, scores: Tensor, count: int, level: Level, key: Tensor) -> Masks:
    """Masks with so many of the weights, those of the highest scores [S, P], signs counted, and with all their
    edges."""
    above = scores - scores.amin(dim=1, keepdim=True)
    quotas = level.quotas if count == level.keep.weights else ()
    return prune(masks, Scores(above, masks.edges.to(above)), Counts(count, level.keep.edges), key, quotas)


class _Untrained(PlainElements):
    """Weights that stay what they are, and scores that say which of them act. The gradient of a score is that of the
    weight as it acts times the weight, as if the choice were linear (straight through)."""

    def __init__(
        self,
        backbone: Backbone,
        start: Start,
        runs: slice,
        level: Level,
        falling: int = 0,
        scores: Scores | None = None,
    ) -> None:
        self._level, self._runs, self._falling, self._steps = level, runs, falling, 0
        self._given = None if scores is None else scores.weights[runs]
        super().__init__(backbone, start)
        self.edge_values = start.masks.edges.to(start.params.prunable.dtype)
        self._masks = start.masks
        self._choose()

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        given = self._initial() if self._given is None else self._given
        self.weight_scores = self._stored(given)
        self.optimiser = TorchAdam(self.weight_scores.values(), lr=start.training.lr, weight_decay=score_decay)

    def _initial(self) -> Tensor:
        """[S, P] uniform, of the size that Kaiming's initial weights have by the inputs of their matrix."""
        layout = self.backbone.prunable
        drawn = 2 * rng.uniform(self._level.key("scores")[self._runs], layout.size).to(torch.get_default_dtype()) - 1
        bounds = {name: (6 / max(1, shape[0] if shape else 1)) ** 0.5 for name, shape in layout.shapes}
        return layout.join({name: part * bounds[name] for name, part in layout.split(drawn).items()})

    def effective(self) -> dict[str, Tensor]:
        return {name: weight * self._acting[name] * self._scale for name, weight in self.weights.items()}

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        for name, score in self.weight_scores.items():
            score.grad = grads[name] * self.weights[name]
        self.optimiser.step()
        self._steps += 1
        self._choose()

    def _choose(self) -> None:
        total, keep = self.backbone.prunable.size, self._level.keep.weights
        gone = min(1.0, self._steps / self._falling) if self._falling else 1.0
        count = total - round(gone * (total - keep))
        key = self._level.key("drop")[self._runs]
        chosen = highest(self._masks, self._flat(list(self.weight_scores.values())), count, self._level, key)
        self._scale = (total / max(1, count)) ** 0.5  # or few weights have outputs too small to learn from
        self._acting = self.backbone.prunable.split(chosen.weights)
