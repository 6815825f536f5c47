"""Weights, scores and Adam's moments of a batch of runs on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Params
from aceglt.backends.base import Start, keep_best
from aceglt.backends.cuda.kernels import Adam
from aceglt.backends.reference import PlainElements
from aceglt.numerics.masks import Scores


class FusedElements(PlainElements):
    """A single pass over each matrix makes gradients, updates weights, scores and moments, multiplies weights
    and scores for the next forward pass, and keeps the old values of runs that were better than ever before."""

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        self._decay, self._score_decay = decay, score_decay
        self._fused = Adam(start.training.lr, self.edge_values.device)
        alive = self.backbone.prunable.split(start.masks.weights)
        self._alive = {name: None if bool(part.all()) else part.contiguous() for name, part in alive.items()}
        self._products = super().effective()
        counts = dict.fromkeys(self.weights, 4 if self.weight_scores else 2) | dict.fromkeys(self.others, 2)
        parts = {**self.weights, **self.others}
        self._moments = {name: parts[name].new_zeros(count, *parts[name].shape) for name, count in counts.items()}
        self._edge_moments = self.edge_values.new_zeros(2, *self.edge_values.shape)
        self._best = [part.clone() for part in self._current()]
        self._better = torch.zeros(start.masks.runs, dtype=torch.bool, device=self.edge_values.device)
        self._never = torch.zeros_like(self._better)

    def effective(self) -> dict[str, Tensor]:
        return self._products if self.weight_scores else self.weights

    def remember(self, better: Tensor) -> None:
        """Noted for the next update, which reads everything anyway; buffers change before it, in the forward pass."""
        self._better.copy_(better)
        best = self._best_of()
        for part in self.buffers.values():
            if id(part) in best:
                keep_best(best[id(part)], part, better)

    def _best_of(self) -> dict[int, Tensor]:
        """Where the best of each tensor is kept, by its id."""
        return dict(zip(map(id, self._current()), self._best, strict=True))

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        self._fused.advance(self.edge_values.dtype)
        best = self._best_of()
        for name, weight in self.weights.items():
            grad = grads[name].contiguous()
            if self.weight_scores:
                self._update_product(name, grad, best)
            else:
                self._update(weight, self._moments[name], grad, best, self._decay, alive=self._alive[name])
        for name, part in self.others.items():
            self._update(part, self._moments[name], grads[name].contiguous(), best, self._decay)
        if self.scoring is not None:
            assert edges is not None
            l1, clamp = self.scoring.lambda_edges, self.scoring.clamp
            self._update(
                self.edge_values, self._edge_moments, edges.contiguous(), best, self._score_decay, l1=l1, clamp=clamp
            )
        self._better.zero_()  # an epoch may have further updates, whose old values are not the validated ones

    def _update(
        self, value: Tensor, moments: Tensor, grad: Tensor, best: Mapping[int, Tensor], decay: float, **options: Any
    ) -> None:
        kept = best.get(id(value))
        target, better = (value, self._never) if kept is None else (kept, self._better)
        self._fused.update(value, moments, grad, target, better, decay, **options)

    def _update_product(self, name: str, grad: Tensor, best: Mapping[int, Tensor]) -> None:
        assert self.scoring is not None
        weight, score = self.weights[name], self.weight_scores[name]
        self._fused.update_product(
            weight,
            score,
            self._products[name],
            self._moments[name],
            grad,
            best[id(score)],
            self._better,
            self._decay,
            self._score_decay,
            self.scoring.lambda_weights,
            self.scoring.clamp,
        )

    def best_params(self) -> Params:
        self._keep_last()
        return super().best_params()

    def best_scores(self) -> Scores:
        self._keep_last()
        return super().best_scores()

    def _keep_last(self) -> None:
        """What was to be remembered after the last update."""
        for best, part in zip(self._best, self._current(), strict=True):
            keep_best(best, part, self._better)
