"""`fit`: the only training loop (lines 2 to 4 of Algorithm 1, and the retraining of a ticket).

A run has weights W and a hard mask; with scoring, also a score for every alive weight and edge. What acts is W times
its score, and edge values that multiply the messages (Equation 2). An epoch is a forward pass, the gradient of the
loss, λ · sign(score) added to the scores' gradients, and a step of Adam. Selection is by validation alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Params
from aceglt.backbones.narrow import Narrow, narrowed
from aceglt.backends import Backend, choose
from aceglt.backends.base import Observer, ScoreTraining, Start
from aceglt.backends.reference import PlainElements
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Masks, Scores
from aceglt.problems.base import Problem, Soft
from aceglt.training.dropedge import passes_of_step
from aceglt.training.group import RunGroup, places
from aceglt.training.in_parts import InParts
from aceglt.training.losses import gradients, training_loss
from aceglt.training.partitions import WHOLE, Parts
from aceglt.training.scores import initial_scores
from aceglt.training.tracker import Tracker

Watch = Callable[[slice, int, Scores], bool]
"""(runs, epoch, scores): sees the scores of some runs after each of their epochs; True ends their training."""
MakeElements = Callable[[Backbone, Start, slice], PlainElements]
"""(backbone, start, runs): what the training of some runs changes, where a method has a rule of its own."""


@dataclass(frozen=True)
class Fit:
    """What a training left behind, for each of its runs."""

    val: Tensor  # [S] best validation metric
    epoch: Tensor  # [S] its epoch, from 1
    params: Params | None
    """Weights of the best-validation epoch (hard masks)."""
    scores: Scores | None
    """Scores of the chosen epoch (score training)."""

    def __getitem__(self, runs: slice) -> Fit:
        params, scores = self.params and self.params[runs], self.scores and self.scores[runs]
        return Fit(self.val[runs], self.epoch[runs], params, scores)

    @staticmethod
    def cat(fits: list[Fit]) -> Fit:
        """The runs of several trainings as those of one."""
        params = [f.params for f in fits if f.params is not None]
        scores = [f.scores for f in fits if f.scores is not None]
        return Fit(
            torch.cat([f.val for f in fits]),
            torch.cat([f.epoch for f in fits]),
            Params.cat(params) if params else None,
            Scores.cat(scores) if scores else None,
        )

    def of_all_units(self, small: Narrow) -> Fit:
        """Of networks with all their units, from one of networks without the dead ones."""
        params, scores = self.params and small.all_params(self.params), self.scores and small.all_scores(self.scores)
        return replace(self, params=params, scores=scores)


def fit(
    problem: Problem,
    backbone: Backbone,
    start: Params,
    masks: Masks,
    epochs: int,
    training: Training,
    key: Tensor,
    *,
    scoring: ScoreTraining | None = None,
    soft: Soft | None = None,
    watch: Watch | None = None,
    observer: Observer | None = None,
    backend: Backend | None = None,
    runs_at_once: int | None = None,
    parts: Parts = WHOLE,
    elements: MakeElements | None = None,
) -> Fit:
    """Train a batch of runs from `start` with hard `masks`; with `scoring`, train scores of the alive elements too.

    With `watch` as well, training may end before `epochs`; runs of a group end when the last of them may. Runs do not
    influence each other. `backend` says how it is computed, by default as fast as the device allows, and in groups of
    how many runs, unless `runs_at_once` does. With several `parts`, an epoch is a step for each of them (or for several
    together), and processes share the parts of a step. `elements` makes what is trained; all weights are alive then.
    """
    backend, total = backend or choose(problem.device), masks.runs
    size = 1 if parts.sampled else backend.group_size(total, runs_at_once)  # each run draws a part of its own
    backend = backend.able_to(own_elements=elements is not None, changing_arcs=training.drop_edge > 0)
    groups = [slice(first, min(first + size, total)) for first in range(0, total, size)]
    there, val = places(problem, labels_alone=soft is None)

    def train(g: slice, observer: Observer | None) -> Fit:
        scores = initial_scores(key[g], masks[g], backend.kernels.uniform) if scoring is not None else None
        extra = problem.contrast.start(masks[g].runs, problem.device) if problem.contrast is not None else {}
        begun, taught = Start(start[g], masks[g], training, scoring, scores, extra), soft[g] if soft else None
        made = partial(elements, backbone, begun, g) if elements is not None else None
        at = there, val.with_unseen(masks[g].unseen)
        group = RunGroup(problem, backbone, begun, key[g], taught, at, backend, parts, made)
        return _train(group, epochs, observer, partial(watch, g) if watch is not None else None)

    workers = backend.side_by_side(backbone, problem.graph, len(groups)) if parts.count == 1 else 0
    return Fit.cat(backend.train(groups, train, observer, workers))


def _train(group: RunGroup, epochs: int, observer: Observer | None, watch: Callable[[int, Scores], bool] | None) -> Fit:
    """Train a group of runs without the units that are dead; what is left behind is of all units."""
    small = narrowed(group.backbone, group.start.masks.weights) if group.elements is None else None
    if small is None:
        return _Trainer(group).run(epochs, observer, watch)
    seen = (lambda epoch, scores: watch(epoch, small.all_scores(scores))) if watch is not None else None
    return _Trainer(group.narrow(small)).run(epochs, observer, seen).of_all_units(small)


class _Trainer:
    """One group of runs in training."""

    def __init__(self, group: RunGroup) -> None:
        start, backend, backbone = group.start, group.backend, group.backbone
        patience = start.training.early_stopping if start.scoring is None else None
        self.group, self.start = group, start
        self.tracker = Tracker(group.runs, group.problem.device, patience, backend.look_every)
        self.in_parts = InParts(group) if group.parts.count > 1 else None
        self.passes = None if self.in_parts else backend.passes(backbone, *group.places, start)
        self.elements = group.elements() if group.elements else backend.elements(backbone, start, self.passes)

    def run(self, epochs: int, observer: Observer | None, watch: Callable[[int, Scores], bool] | None) -> Fit:
        elements, tracker = self.elements, self.tracker
        train_one = self._recorded()  # not kept by self: it would outlive the training until garbage is collected
        for epoch in range(1, epochs + 1):
            train_one()
            if observer is not None:
                observer.on_epoch(epoch, epochs, self.group.runs, tracker.mean)
            if watch is not None:
                tracker.check(elements.finite())
                if watch(epoch, elements.scores()):
                    break
            if tracker.over(epoch):
                for left in range(epoch + 1, epochs + 1):  # counts as done
                    if observer is not None:
                        observer.on_epoch(left, epochs, self.group.runs, tracker.mean)
                break
        self._judge(self._validate())
        tracker.check(elements.finite())
        return self._result()

    def _recorded(self) -> Callable[[], None]:
        """One epoch; a backend may record it where loss and metric read fixed nodes."""
        if self.in_parts is not None:
            return partial(self._epoch_in_parts, self.in_parts)
        problem = self.group.problem
        fixed = problem.reads("train") is not None and problem.reads("val") is not None
        return self.group.backend.record(self._epoch, self.group.backbone, fixed)

    def _epoch(self) -> None:
        """Validate what the last epoch left, and train it for one more."""
        group, elements, kernels = self.group, self.elements, self.group.backend.kernels
        weights, edge_values = self._leaves()  # W times its scores, and the edges' scores (Equation 2)
        key = kernels.fold(group.key, 2 + self.tracker.epoch)  # 0 and 1 are of the initial scores
        assert self.passes is not None
        passes = passes_of_step(self.passes, group.backbone, self.start, key)
        step = passes.step({**weights, **elements.buffers}, edge_values)
        judged, buffers = step.validate(), elements.buffers  # validation begins; `judged()` waits for it
        if buffers:  # the training pass changes them
            self._judge(judged())
        loss = training_loss(group.problem, group.soft, step, weights, key, kernels)  # [S]
        grads, edges = gradients(loss.sum(), weights, edge_values)
        if not buffers:  # validation may have run beside the training pass
            self._judge(judged())
        elements.update(grads, edges)  # ∂W = g · s, ∂s = g · W + λ · sign(s), a step of Adam; the dead stay 0
        self.tracker.trained(loss.detach())

    def _epoch_in_parts(self, in_parts: InParts) -> None:
        """The same with several steps of Adam, each on some parts of the graph."""
        self._judge(self._validate())
        key, losses = rng.fold(self.group.key, 2 + self.tracker.epoch), []
        for number, parts in enumerate(in_parts.steps(self.tracker.epoch)):
            of_step = rng.fold(key, number)
            loss, grads = in_parts.gradients(parts, *self._leaves(), self.elements.buffers, of_step)
            self.elements.update(*grads)
            losses.append(loss)
        self.tracker.trained(torch.stack(losses).sum(dim=0))

    def _leaves(self) -> tuple[dict[str, Tensor], Tensor]:
        """What gradients are taken of: weights as they act, other parameters, and edge values."""
        elements = self.elements
        weights = {**elements.effective(), **elements.others}
        edge_values = elements.edge_values.detach().requires_grad_(self.start.scoring is not None)
        return {name: part.detach().requires_grad_() for name, part in weights.items()}, edge_values

    def _validate(self) -> Tensor:
        """[S, N, C] what weights as they are give for validation."""
        elements = self.elements
        weights = {**elements.effective(), **elements.others, **elements.buffers}
        if self.in_parts is not None:
            return self.in_parts.validate(weights, elements.edge_values)
        assert self.passes is not None
        return self.passes.step(weights, elements.edge_values).validate()()

    def _judge(self, outputs: Tensor) -> None:
        """Keep what was better on validation than ever before."""
        with torch.no_grad():
            self.elements.remember(self.tracker.validated(self.group.problem.measure(outputs, "val")))

    def _result(self) -> Fit:
        elements, best, scoring = self.elements, (self.tracker.val, self.tracker.best), self.start.scoring
        if scoring is None:
            return Fit(*best, elements.best_params(), None)
        return Fit(*best, None, elements.best_scores() if scoring.epoch == "best" else elements.scores())
