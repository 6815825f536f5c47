"""The reference: a training in plain torch, the one to read. Other backends are held to it by tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Params
from aceglt.backends.base import Observer, Place, Result, Start, Train, keep_best
from aceglt.backends.fields import Passes, Site
from aceglt.numerics.adam import TorchAdam
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.kernels import PLAIN, Kernels
from aceglt.numerics.masks import Scores

Self = TypeVar("Self", bound="Reference")


class Reference:
    """A backend: every node of every run in every pass, all elements in memory, torch's own Adam.

    Other backends override what they compute otherwise. They keep what several trainings of a search have in common.
    """

    name = "reference"
    kernels: Kernels = PLAIN
    look_every = 1
    """Epochs after which the device is waited for, to see whether a training is over."""

    @property
    def description(self) -> str:
        """Its name and what it computes with, for the record: another one gives the same to rounding only."""
        return self.name

    def afresh(self: Self) -> Self:
        """The same backend for a graph or features of one training alone, of which nothing is kept for others."""
        return self

    def able_to(self, own_elements: bool, changing_arcs: bool) -> Reference:
        """A backend like this one for such a training, or the reference where there is none: elements with a method's
        own rule, or arcs that change from step to step."""
        return self

    def network(self, backbone: Backbone) -> Backbone:
        """The backbone with forward passes of this backend."""
        return backbone

    def features(self, features: Features) -> Features:
        """The features with products of this backend."""
        return features

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> Passes:
        """The forward passes of one training of a group of runs: over the whole graph, without its dead edges."""
        alive, loops = start.masks.edges, backbone.self_loops
        graph = train.graph.batch(alive, loops)
        there = graph if val.scatter is None else val.graph.batch(val.scatter(alive), loops)
        return Passes(backbone, Site(graph, train.features, train), Site(there, val.features, val), self.kernels)

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> PlainElements:
        """What that training changes; `passes` are its own, or None where others than the backend's are made."""
        return PlainElements(backbone, start)

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        """The function of one epoch, which may be recorded; `fixed` says that it does the same work every time."""
        return epoch

    def group_size(self, runs: int, at_once: int | None) -> int:
        """How many of the runs share their tensors, if `at_once` (None: any number) are asked for."""
        return at_once or runs

    def side_by_side(self, backbone: Backbone, graph: Graph, groups: int) -> int:
        """How many groups are in training at the same time; 0 where one follows the other."""
        return 0

    def train(
        self, groups: Sequence[slice], train: Train[Result], observer: Observer | None, workers: int
    ) -> list[Result]:
        """Train all groups, `workers` of them at the same time (0: one after the other)."""
        return [train(group, observer) for group in groups]


class PlainElements:
    """Weights, scores and Adam's moments of the runs of one training.

    A dead element is 0 and has no gradient, so that neither Adam nor decay wakes it.
    """

    def __init__(self, backbone: Backbone, start: Start) -> None:
        self.backbone, self.scoring, masks = backbone, start.scoring, start.masks
        self.weights = self._stored(start.params.prunable * masks.weights)
        others = {name: part.clone() for name, part in backbone.other.split(start.params.other).items()}
        self.others = {name: part for name, part in others.items() if name not in backbone.buffers} | dict(start.extra)
        """What is trained and not pruned."""
        self.buffers = {name: part for name, part in others.items() if name in backbone.buffers}
        self.edge_values = masks.edges.to(start.params.prunable.dtype)
        """[S, E] scores of the edges, or 1 where alive."""
        self.weight_scores: dict[str, Tensor] = {}
        if start.scores is not None:
            self.edge_values = start.scores.edges.clone()
            if self.scoring is not None and self.scoring.weights:
                self.weight_scores = self._stored(start.scores.weights)
        self._best: list[Tensor] = []  # what `_current` listed at each run's best epoch
        decay = start.training.weight_decay
        self._begin(start, decay, decay if self.scoring is not None and self.scoring.decay else 0.0)

    def _stored(self, flat: Tensor) -> dict[str, Tensor]:
        """The prunable matrices of a flat tensor [S, P], as copies."""
        return {name: part.clone() for name, part in self.backbone.prunable.split(flat).items()}

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        """Adam, with weight decay of weights and of scores."""
        self.alive = self.backbone.prunable.split(start.masks.weights)
        groups: list[dict[str, Any]] = [
            {"params": [*self.weights.values(), *self.others.values()], "weight_decay": decay}
        ]
        if self.scoring is not None:
            groups.append({"params": [*self.weight_scores.values(), self.edge_values], "weight_decay": score_decay})
        self.optimiser = TorchAdam(groups, lr=start.training.lr)

    def effective(self) -> dict[str, Tensor]:
        """The prunable weights as they act, [S, *shape] by name: W, or W times its score; 0 where dead."""
        return {name: w * self.weight_scores[name] if self.weight_scores else w for name, w in self.weights.items()}

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        """One step of Adam, from the gradients of the effective weights, of the others and of the edge values.

        The gradient of W · s is that of s times W and that of W times s, plus λ · sign(s) for the L1 term.
        """
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
        self._clamp()

    def _clamp(self) -> None:
        """Keep scores in [0, 1], where that is asked for."""
        if self.scoring is not None and self.scoring.clamp:
            for score in (*self.weight_scores.values(), self.edge_values):
                score.clamp_(0.0, 1.0)

    def remember(self, better: Tensor) -> None:
        """Keep what the runs have now whose last epoch was better than all before, better [S] bool."""
        current = self._current()
        if not self._best:
            self._best = [part.clone() for part in current]
        elif bool(better.any()):
            for best, part in zip(self._best, current, strict=True):
                if len(better) == 1:
                    best.copy_(part)
                else:
                    keep_best(best, part, better)

    def forget(self) -> None:
        """Judge epochs from here on alone."""
        self._best = []

    def finite(self) -> Tensor:
        """[S] whether nothing has diverged."""
        parts = [part.reshape(len(part), -1) for part in (*self.weights.values(), *self._others(), *self._current())]
        if self.edge_values.device.type == "cpu":  # sums take a fortieth of the time; one that overflows is looked into
            sums = torch.stack([part.sum(dim=1) for part in parts]).isfinite().all(dim=0)
            if bool(sums.all()):
                return sums
        return torch.stack([part.isfinite().all(dim=1) for part in parts]).all(dim=0)

    def params(self) -> Params:
        """Weights as they are now."""
        return Params(self._flat(list(self.weights.values())), PlainElements._flat(self, self._others()))

    def best_params(self) -> Params:
        """Weights of each run's best epoch, without scoring."""
        weights, others = self._best[: len(self.weights)], self._best[len(self.weights) :]
        return Params(self._flat(weights), PlainElements._flat(self, others))

    def best_scores(self) -> Scores:
        """Scores of each run's best epoch, with scoring."""
        return Scores(self._flat(self._best[:-1]), self._best[-1])

    def scores(self) -> Scores:
        """The scores as they are now; what has none is its own."""
        return Scores(self._flat(list((self.weight_scores or self.weights).values())), self.edge_values.clone())

    def _current(self) -> list[Tensor]:
        """What the training is about: scores with scoring, weights and the backbone's other parameters without."""
        matrices = (self.weight_scores or self.weights).values()
        return [*matrices, *(self._others() if self.scoring is None else [self.edge_values])]

    def _others(self) -> list[Tensor]:
        """The backbone's, in the order of the layout; what an objective owns is not kept."""
        others = {**self.others, **self.buffers}
        return [others[name] for name, _ in self.backbone.other.shapes]

    def _flat(self, parts: Sequence[Tensor]) -> Tensor:
        """[S, P] of what `_stored` made, side by side; of no parts, [S, 0]."""
        flat = [part.reshape(len(part), -1) for part in parts]
        return torch.cat(flat, dim=1) if flat else self.edge_values.new_zeros(len(self.edge_values), 0)
