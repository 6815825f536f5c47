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

_EDGES = "edge values"  # among names of parameters


class FusedElements(PlainElements):
    """A single pass over each matrix makes gradients, updates weights, scores and moments, multiplies weights
    and scores for the next forward pass, and keeps the old values of runs that were better than ever before."""

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        self._decay, self._score_decay = decay, score_decay
        self._fused = Adam(start.training.lr, self.edge_values.device)
        alive = self.backbone.prunable.split(start.masks.weights)
        self._alive = {name: None if bool(part.all()) else part.contiguous() for name, part in alive.items()}
        self._products = super().effective()
        parts = {**self.weights, **self.others, _EDGES: self.edge_values}
        counts = dict.fromkeys(parts, 2) | dict.fromkeys(self.weights, 4 if self.weight_scores else 2)
        self._moments = {name: part.new_zeros(counts[name], *part.shape) for name, part in parts.items()}
        self._best = [part.clone() for part in self._current()]
        self._better = torch.zeros(start.masks.runs, dtype=torch.bool, device=self.edge_values.device)
        self._never = torch.zeros_like(self._better)
        self._kept = dict(zip(map(id, self._current()), self._best, strict=True))  # where the best of a tensor is

    def effective(self) -> dict[str, Tensor]:
        return self._products if self.weight_scores else self.weights

    def remember(self, better: Tensor) -> None:
        """Noted for the next update, which reads everything anyway; buffers change before it, in the forward pass."""
        self._better.copy_(better)
        for part in self.buffers.values():
            if id(part) in self._kept:
                keep_best(self._kept[id(part)], part, better)

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        self._fused.advance(self.edge_values.dtype)
        scoring = self.scoring
        for name, weight in self.weights.items():
            if scoring is not None and self.weight_scores:
                score = self.weight_scores[name]
                scores, l1 = (score, self._products[name], self._score_decay), scoring.lambda_weights
                self._update(name, weight, grads[name], score, l1=l1, clamp=scoring.clamp, scores=scores)
            else:
                self._update(name, weight, grads[name], weight, alive=self._alive[name])
        for name, part in self.others.items():
            self._update(name, part, grads[name], part)
        if scoring is not None:
            assert edges is not None
            part, l1, clamp = self.edge_values, scoring.lambda_edges, scoring.clamp
            self._update(_EDGES, part, edges, part, self._score_decay, l1=l1, clamp=clamp)
        self._better.zero_()  # an epoch may have further updates, whose old values are not the validated ones

    def _update(
        self, name: str, value: Tensor, grad: Tensor, judged: Tensor, decay: float | None = None, **options: Any
    ) -> None:
        """One tensor, and what is kept of it (or of its scores), which is `judged`."""
        kept = self._kept.get(id(judged))
        target, better = (value, self._never) if kept is None else (kept, self._better)
        decay = self._decay if decay is None else decay
        self._fused.update(value, self._moments[name], grad.contiguous(), target, better, decay, **options)

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
