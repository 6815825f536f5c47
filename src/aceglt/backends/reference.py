"""The reference: a training in plain torch, the one to read. Other backends are held to it by tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Params, Weights
from aceglt.backends.base import Elements, Observer, Passes, Place, Result, Start, Train, concatenated, keep_best
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.kernels import PLAIN, Kernels
from aceglt.numerics.masks import Scores


class Reference:
    """Every node of every run in every pass, all elements in memory, torch's own Adam."""

    name = "reference"
    kernels: Kernels = PLAIN

    def network(self, backbone: Backbone) -> Backbone:
        return backbone

    def features(self, features: Features) -> Features:
        return features

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> Passes:
        return PlainPasses(backbone, train, val, start.masks.edges)

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> Elements:
        return PlainElements(backbone, start)

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        return epoch

    def group_size(self, runs: int, at_once: int | None) -> int:
        return at_once or runs

    def side_by_side(self, backbone: Backbone, graph: Graph, groups: int) -> int:
        return 0

    def train(
        self, groups: Sequence[slice], train: Train[Result], observer: Observer | None, workers: int
    ) -> list[Result]:
        return [train(group, observer) for group in groups]


class PlainPasses:
    """Forward passes over the whole graph: dead edges are not in it."""

    def __init__(self, backbone: Backbone, train: Place, val: Place, alive: Tensor) -> None:
        self.backbone, self.train, self.val = backbone, train, val
        self.train_graph = train.graph.batch(alive, backbone.self_loops)
        self.val_graph = self.train_graph
        if val.scatter is not None:
            self.val_graph = val.graph.batch(val.scatter(alive), backbone.self_loops)

    def step(self, weights: Weights, edge_values: Tensor) -> PlainStep:
        return PlainStep(self, weights, edge_values)


class PlainStep:
    """One pass of validation and one of training, each from the features on."""

    def __init__(self, passes: PlainPasses, weights: Weights, edge_values: Tensor) -> None:
        self.passes, self.weights, self.edge_values = passes, weights, edge_values

    @torch.no_grad()
    def validate(self) -> Callable[[], Tensor]:
        passes, val = self.passes, self.passes.val
        outputs = passes.backbone.apply(self.weights, passes.val_graph, val.values(self.edge_values), val.features)
        return lambda: outputs

    def outputs(self, dropout: Dropout | None) -> Tensor:
        return self._outputs(self.passes.train.features, dropout)

    def outputs_on(self, features: Features) -> Tensor:
        return self._outputs(features, None)

    def _outputs(self, features: Features, dropout: Dropout | None) -> Tensor:
        backbone, graph = self.passes.backbone, self.passes.train_graph
        return backbone.end(
            self.weights, graph, backbone.begin(self.weights, graph, self.edge_values, features), dropout
        )


class PlainElements:
    """All elements as they are. A dead one is 0 and has no gradient, so that neither Adam nor decay wakes it."""

    def __init__(self, backbone: Backbone, start: Start) -> None:
        self.backbone, self.scoring, masks = backbone, start.scoring, start.masks
        self.alive = backbone.prunable.split(masks.weights)
        weights = backbone.prunable.split(start.params.prunable * masks.weights)
        self.weights = {name: part.clone() for name, part in weights.items()}
        others = {name: part.clone() for name, part in backbone.other.split(start.params.other).items()}
        self.others = {name: part for name, part in others.items() if name not in backbone.buffers} | dict(start.extra)
        self.buffers = {name: part for name, part in others.items() if name in backbone.buffers}
        self.edge_values = masks.edges.to(start.params.prunable.dtype)
        self.weight_scores: dict[str, Tensor] = {}
        if start.scores is not None:
            self.edge_values = start.scores.edges.clone()
            if self.scoring is not None and self.scoring.weights:
                scores = backbone.prunable.split(start.scores.weights)
                self.weight_scores = {name: part.clone() for name, part in scores.items()}
        self._adam(start)
        self._best: list[Tensor] = []  # what `_current` listed at each run's best epoch

    def _adam(self, start: Start) -> None:
        decay = start.training.weight_decay
        groups: list[dict[str, Any]] = [
            {"params": [*self.weights.values(), *self.others.values()], "weight_decay": decay}
        ]
        if self.scoring is not None:
            scores = [*self.weight_scores.values(), self.edge_values]
            groups.append({"params": scores, "weight_decay": decay if self.scoring.decay else 0.0})
        self.optimiser = torch.optim.Adam(groups, lr=start.training.lr)

    def effective(self) -> dict[str, Tensor]:
        return {name: w * self.weight_scores[name] if self.weight_scores else w for name, w in self.weights.items()}

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        """The gradient of W · s is that of s times W and that of W times s, plus λ · sign(s) for the L1 term."""
        for name, part in self.others.items():
            part.grad = grads[name]
        for name, weight in self.weights.items():
            weight.grad = grads[name] * self.alive[name]
            if self.scoring is not None and self.weight_scores:
                score = self.weight_scores[name]
                score.grad = grads[name] * weight + self.scoring.lambda_weights * score.sign()
                weight.grad = grads[name] * score
        if self.scoring is not None and edges is not None:
            self.edge_values.grad = edges + self.scoring.lambda_edges * self.edge_values.sign()
        self.optimiser.step()
        if self.scoring is not None and self.scoring.clamp:
            for score in (*self.weight_scores.values(), self.edge_values):
                score.clamp_(0.0, 1.0)

    def remember(self, better: Tensor) -> None:
        current = self._current()
        if not self._best:
            self._best = [part.clone() for part in current]
        for best, part in zip(self._best, current, strict=True):
            keep_best(best, part, better)

    def finite(self) -> Tensor:
        parts = [*self.weights.values(), *self._others(), *self._current()]
        return torch.stack([part.reshape(len(part), -1).isfinite().all(dim=1) for part in parts]).all(dim=0)

    def best_params(self) -> Params:
        weights, others = self._best[: len(self.weights)], self._best[len(self.weights) :]
        return Params(self._flat(weights), self._flat(others))

    def best_scores(self) -> Scores:
        return Scores(self._flat(self._best[:-1]), self._best[-1])

    def scores(self) -> Scores:
        return Scores(self._flat(list((self.weight_scores or self.weights).values())), self.edge_values.clone())

    def _current(self) -> list[Tensor]:
        """What the training is about: scores with scoring, weights and the backbone's other parameters without."""
        if self.scoring is None:
            return [*self.weights.values(), *self._others()]
        return [*(self.weight_scores or self.weights).values(), self.edge_values]

    def _others(self) -> list[Tensor]:
        """The backbone's, in the order of the layout; what an objective owns is not kept."""
        others = {**self.others, **self.buffers}
        return [others[name] for name, _ in self.backbone.other.shapes]

    def _flat(self, parts: Sequence[Tensor]) -> Tensor:
        return concatenated([part.reshape(len(part), -1) for part in parts], self.edge_values)
