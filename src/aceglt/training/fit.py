"""`fit`: the only training loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Params, Weights
from aceglt.backends.cpu import calls as cpu
from aceglt.backends.cuda import available as gpu
from aceglt.backends.cuda.capture import Captured
from aceglt.backends.elements import (
    Acting,
    CompiledElements,
    Elements,
    FusedElements,
    Scoring,
    Training,
    alive_rows,
    read_units,
)
from aceglt.errors import TrainingError
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import GraphBatch
from aceglt.numerics.masks import Masks, Scores
from aceglt.problems.base import Focus, Problem, Shared, Soft
from aceglt.training import processes
from aceglt.training.partitions import WHOLE, Part, Parts, Places
from aceglt.training.threads import Observer, Spare, side_by_side

_LOSS = 1 << 20  # of a step's random draws, those of the loss; layers count from 0
_SMALL = 1 << 25  # elements of a layer and of the weights, up to which runs are trained side by side
_WORTH = 2.5  # of 3 passes over all nodes, how many are left where parts of the graph are worth their while
NOISE = 1e-5
"""Relative size of the noise that scores start with."""


Watch = Callable[[slice, int, Scores], bool]
"""(runs, epoch, scores): sees the scores of some runs after each of their epochs; True ends their training."""


@dataclass(frozen=True)
class Fit:
    """What a training left behind, for each of its runs."""

    val: Tensor  # [S] best validation metric
    epoch: Tensor  # [S] its epoch, from 1
    params: Params | None
    """Weights of the best-validation epoch (hard masks)."""
    scores: Scores | None
    """Scores of the chosen epoch (score training)."""


def initial_scores(key: Tensor, masks: Masks) -> Scores:
    """The scores that a training with this key starts from: 1 plus noise where alive, 0 where dead."""

    def side(alive: Tensor, salt: int) -> Tensor:
        noise = rng.uniform(rng.fold(key, salt), alive.shape[1]).mul_(2.0).sub_(1.0)
        return noise.mul_(NOISE).add_(1.0).to(torch.get_default_dtype()).mul_(alive)

    return Scores(side(masks.weights, 0), side(masks.edges, 1))


def fit(
    problem: Problem,
    backbone: Backbone,
    start: Params,
    masks: Masks,
    epochs: int,
    training: Training,
    key: Tensor,
    *,
    scoring: Scoring | None = None,
    soft: Soft | None = None,
    watch: Watch | None = None,
    observer: Observer | None = None,
    runs_at_once: int | None = None,
    parts: Parts = WHOLE,
) -> Fit:
    """Train a batch of runs from `start` with hard `masks`; with `scoring`, train scores of the alive elements too.

    With `watch` as well, training may end before `epochs`; runs that share kernels end when the last of them may.
    Selection is by validation alone. Runs do not influence each other. On a GPU, `runs_at_once` (default: all) share
    the kernels. On the CPU each is trained by itself, small ones side by side with a thread each; results are bitwise
    the same for any batch. With several `parts`, an epoch is a step for each of them (or for several together), and
    processes share the parts of a step.
    """
    total, on_cpu = masks.runs, problem.device.type == "cpu"
    if on_cpu:
        cpu.keep_memory()
    size = runs_at_once or (1 if on_cpu else total)
    groups = [slice(first, min(first + size, total)) for first in range(0, total, size)]
    kind = _Trainer if parts.count == 1 else partial(_PartsTrainer, parts)

    def train(g: slice, observer: Observer | None, spare: Spare | None = None) -> Fit:
        trainer = kind(problem, backbone, start[g], masks[g], training, key[g], scoring, soft[g] if soft else None)
        trainer.spare = spare
        return trainer.run(epochs, observer, partial(watch, g) if watch else None)

    workers = threads(problem, backbone, len(groups), parts)
    if not workers:
        return _cat([train(g, observer) for g in groups])
    _focuses(problem, backbone, soft is None)  # what the threads share is made before they begin
    with closing(Spare(torch.get_num_threads())) as spare:

        def train_one(g: slice, observer: Observer | None) -> Fit:
            with spare.training():
                return train(g, observer, spare)

        return _cat(side_by_side(train_one, groups, observer, workers))


def threads(problem: Problem, backbone: Backbone, groups: int, parts: Parts = WHOLE) -> int:
    """How many groups train side by side: cores do more so than with the small tensors of one group between them.

    0 where groups are trained one after the other, with all of torch's threads.
    """
    graph, width = problem.graph, max(backbone.aggregation_widths, default=0)
    size = graph.num_nodes * width + graph.num_edges * graph.arcs_per_edge + backbone.prunable.size
    if problem.device.type != "cpu" or backbone.draws or size > _SMALL or parts.count > 1:
        return 0
    return min(groups, torch.get_num_threads())


class _Trainer:
    """One group of runs in training."""

    def __init__(
        self,
        problem: Problem,
        backbone: Backbone,
        start: Params,
        masks: Masks,
        training: Training,
        key: Tensor,
        scoring: Scoring | None,
        soft: Soft | None,
    ) -> None:
        self.problem, self.backbone, self.soft, self.key = problem, backbone, soft, key
        self.contrast = problem.contrast
        self.acting: dict[str, Acting] = {}
        """Parts of matrices that act, where the rest is left out."""
        self.network = backbone
        """The backbone without hidden units that are left out."""
        self._settle(masks, scoring is None)
        extra = self.contrast.start(masks.runs, problem.device) if self.contrast is not None else {}
        scores = initial_scores(key, masks) if scoring is not None else None
        self.elements = _kind(start.prunable)(backbone, start, masks, training, scoring, scores, extra, self.acting)
        self.progress = _Progress(masks.runs, problem.device)
        self.spare: Spare | None = None
        """Where validation may run beside the training step."""
        self._begun = False

    def _settle(self, masks: Masks, fixed: bool) -> None:
        """Find the places of training and validation, for alive edges, whose values are fixed or not, and what alive
        weights read."""
        train, val = _places(self.problem, self.backbone, masks.edges, fixed, self.soft is None)
        rows = None
        if self.contrast is None:
            alive = self.backbone.prunable.split(masks.weights)
            units = self._leave_out_units(alive)
            if val is not train:
                train, val = train.prepared(self.network, True), val.prepared(self.network, False)
            rows = self._leave_out_features(alive, units, (train, val))
        self.train = train.reading(rows)
        self.val = self.train if val is train else val.reading(rows)
        alike = val is not train and not train.features.gathered and not val.features.gathered
        self.shared = _shared(self.problem, self.backbone) if masks.runs == 1 and alike else None
        if self.shared is not None and rows is not None:
            self.shared = self.shared.reading(rows)

    def _leave_out_units(self, alive: Weights) -> Tensor | None:
        """[H] the hidden units that alive weights read, where leaving out the others pays."""
        before, after = self.backbone.reads_features, self.backbone.reads_units
        units = read_units(alive[after]) if after is not None else None
        if units is not None:
            assert before is not None
            assert after is not None
            self.network = self.backbone.narrowed(units)
            self.acting = {before: Acting(columns=units), after: Acting(rows=units)}
        return units

    def _leave_out_features(self, alive: Weights, units: Tensor | None, places: tuple[_Place, ...]) -> Tensor | None:
        """[F] the features that alive weights read, where leaving out the others pays and changes nothing."""
        name = self.backbone.reads_features
        if name is None:
            return None
        rows, width = alive_rows(alive[name]), alive[name].shape[2] if units is None else int(units.sum())
        if rows is None or not all(place.features.exact(rows, width) for place in places):
            return None
        self.acting = {**self.acting, name: Acting(rows, units)}
        return rows

    def run(self, epochs: int, observer: Observer | None, watch: Callable[[int, Scores], bool] | None) -> Fit:
        elements, progress = self.elements, self.progress
        step = Captured(self._step) if self._capturable() else self._step
        for epoch in range(1, epochs + 1):
            step()
            if observer is not None:
                observer.on_epoch(epoch, epochs, elements.runs, progress.mean)
            if watch is not None:
                progress.check(elements.finite())
                if watch(epoch, elements.scores()):
                    break
        elements.remember(progress.validated(self._validate(self._weights())))
        progress.check(elements.finite())
        return self._result()

    def _weights(self) -> Weights:
        elements = self.elements
        return {**elements.effective(), **elements.others, **elements.buffers}

    def _capturable(self) -> bool:
        return isinstance(self.elements, FusedElements) and self.backbone.capturable and self.problem.capturable

    def _step(self) -> None:
        """Validate the weights that the last epoch left, then train them for one more."""
        elements, train = self.elements, self.train
        trained = _leaves({**elements.effective(), **elements.others})
        edge_values = elements.edge_values.detach().requires_grad_(elements.scored)
        weights = {**trained, **elements.buffers}
        train_features, val_features = self._features(weights)
        later = self._begin_to_judge(weights, val_features)
        state = self.network.stem(weights, train.graph, edge_values, train_features)
        if later is None:
            self._judge(weights, val_features, state)
        key = rng.fold(self.key, 2 + self.progress.epoch)
        loss = self._loss(self.problem, train, weights, edge_values, state, self.soft, key)
        wanted = [*trained.values(), *([edge_values] if elements.scored else [])]
        grads = torch.autograd.grad(loss.sum(), wanted, materialize_grads=True)
        if later is not None:
            elements.remember(self.progress.validated(cpu.wait(later)))
        elements.update(dict(zip(trained, grads, strict=False)), grads[-1] if elements.scored else None)
        self.progress.trained(loss.detach())

    def _features(self, weights: Weights) -> tuple[Features, Features]:
        """What training and validation read, with a product that both have a share in where that pays."""
        train, val, name = self.train.features, self.val.features, self.backbone.reads_features
        if self.shared is None or name is None or not self._begun:
            return train, val
        return self.shared.ready(weights[name].detach(), train, val)

    def _begin_to_judge(self, weights: Weights, features: Features) -> Future[Tensor] | None:
        """Validate what the last epoch left beside the training step, where a core is to spare for that."""
        if self.spare is None or not self._begun or self.val is self.train or self.backbone.buffers:
            return None
        return self.spare.submit(self._validate, weights, features)

    def _judge(self, weights: Weights, features: Features | None = None, state: Any = None) -> None:
        """Validate what the last epoch left. Before the first, only a recording needs that, to be like the others."""
        begun, self._begun = self._begun, True
        if begun or self._capturable():
            self.elements.remember(self.progress.validated(self._validate(weights, features, state)))

    def _loss(
        self,
        problem: Problem,
        place: _Place,
        weights: Weights,
        edge_values: Tensor,
        state: Any,
        soft: Soft | None,
        key: Tensor,
    ) -> Tensor:
        """[S] training loss at a place; `state` is the stem's."""
        if self.contrast is None:
            outputs = place.outputs(self.network.head(weights, place.graph, state, Dropout(key)))
            return problem.loss(outputs, soft, rng.fold(key, _LOSS))
        # Outputs against those on permuted features; corruption is noise enough, so nothing is dropped.
        features = problem.features.permuted(rng.permutation(rng.fold(key, _LOSS), problem.graph.num_nodes))
        outputs = self.backbone.head(weights, place.graph, state, None)
        corrupted = self.backbone.apply(weights, place.graph, edge_values, features)
        return self.contrast.loss(outputs, corrupted, weights)

    @torch.no_grad()
    def _validate(self, weights: Weights, features: Features | None = None, state: Any = None) -> Tensor:
        """[S] validation metric; `state` is the training's stem, which validation at the same place shares."""
        val = self.val
        if state is not None and val is self.train:
            outputs = self.network.head(weights, val.graph, state, None)
        else:
            outputs = self.network.apply(
                weights, val.graph, val.values(self.elements.edge_values), features or val.features
            )
        return self.problem.measure(val.outputs(outputs), "val")

    def _result(self) -> Fit:
        elements, val, epoch = self.elements, self.progress.val, self.progress.best
        if elements.scoring is None:
            return Fit(val, epoch, elements.best_params(), None)
        scores = elements.best_scores() if elements.scoring.epoch == "best" else elements.scores()
        return Fit(val, epoch, None, scores)


def _kind(weights: Tensor) -> type[Elements]:
    """How elements like these weights are best updated."""
    if gpu.serves(weights):
        return FusedElements
    return CompiledElements if cpu.Adam.serves(weights) else Elements


class _PartsTrainer(_Trainer):
    """One group of runs in training on a graph in parts: an epoch of several steps, each on some of the parts."""

    def __init__(self, parts: Parts, *arguments: Any) -> None:
        self.parts = parts
        super().__init__(*arguments)

    def _settle(self, masks: Masks, fixed: bool) -> None:
        alive = masks.edges
        self.alive, self.view = alive, self.problem.view("val")
        place, alive = (self.view, self.view.spread(alive)) if self.view else (self.problem, alive)
        self.places = Places(place.graph, place.features, alive, self.backbone.self_loops, self.parts)

    def _capturable(self) -> bool:
        return False  # every epoch has other parts

    def _step(self) -> None:
        progress = self.progress
        self._judge(self._weights())
        key, steps = rng.fold(self.key, 2 + progress.epoch), self.parts.steps(self.problem.graph, progress.epoch)
        losses = [self._step_on(parts, rng.fold(key, number)) for number, parts in enumerate(steps)]
        progress.trained(torch.stack(losses).sum(dim=0))

    def _step_on(self, parts: list[Part], key: Tensor) -> Tensor:
        """One step by the mean gradient over some parts, of which every process takes its share."""
        elements = self.elements
        trained = _leaves({**elements.effective(), **elements.others})
        sums = {name: torch.zeros_like(part) for name, part in trained.items()}
        edges = torch.zeros_like(elements.edge_values) if elements.scored else None
        total = elements.edge_values.new_zeros(elements.runs)
        for number, part in processes.mine(list(enumerate(parts))):
            edge_values = elements.edge_values[:, part.edges].requires_grad_(elements.scored)
            loss = self._part_loss(part, {**trained, **elements.buffers}, edge_values, rng.fold(key, number))
            wanted = [*trained.values(), *([edge_values] if elements.scored else [])]
            grads = torch.autograd.grad(loss.sum() / len(parts), wanted, materialize_grads=True)
            for summed, grad in zip(sums.values(), grads, strict=False):
                summed += grad
            if edges is not None:
                edges[:, part.edges] += grads[-1]
            total += loss.detach() / len(parts)
        processes.add_up([*sums.values(), total, *([edges] if edges is not None else [])])
        elements.update(sums, edges)
        return total

    def _part_loss(self, part: Part, weights: Weights, edge_values: Tensor, key: Tensor) -> Tensor:
        problem, soft = self.problem.part(part.nodes, part.edges), self.soft.at(part.nodes) if self.soft else None
        batch = problem.graph.batch(self.alive[:, part.edges], self.backbone.self_loops)
        place = _place(batch, problem.features, None)
        state = self.backbone.stem(weights, place.graph, edge_values, place.features)
        return self._loss(problem, place, weights, edge_values, state, soft, key)

    @torch.no_grad()
    def _validate(self, weights: Weights, features: Features | None = None, state: Any = None) -> Tensor:
        values = self.elements.edge_values
        outputs = self.places.outputs(self.backbone, weights, self.view.spread(values) if self.view else values)
        return self.problem.measure(outputs, "val")


@dataclass(frozen=True)
class _Place:
    """Where a pass runs."""

    graph: GraphBatch
    features: Features
    focus: Focus | None
    """What is computed, if not everything."""
    spread: Callable[[Tensor], Tensor] | None
    """Makes values of the place's edges from those of the training edges, if they are others."""

    def prepared(self, backbone: Backbone, trained: bool) -> _Place:
        """The same place with features as the backbone had best read them."""
        return replace(self, features=backbone.prepared(self.features, self.graph, trained))

    def reading(self, features: Tensor | None) -> _Place:
        """The same place with some of the features ([F] bool) alone; None is all."""
        return self if features is None else replace(self, features=self.features.columns(features))

    def values(self, edge_values: Tensor) -> Tensor:
        return edge_values if self.spread is None else self.spread(edge_values)

    def outputs(self, outputs: Tensor) -> Tensor:
        """[S, N, C] of all nodes; those that are not computed are 0."""
        return outputs if self.focus is None else self.focus.spread(outputs)


def _places(
    problem: Problem, backbone: Backbone, alive: Tensor, fixed: bool, labels_alone: bool
) -> tuple[_Place, _Place]:
    """Where training and validation run; the same place, to share the stem, where their own would not be cheaper."""
    view = problem.view("val")
    train, val = _focuses(problem, backbone, labels_alone)
    batch = replace(problem.graph.batch(alive, backbone.self_loops), fixed=fixed)
    if view is not None:
        there = replace(view.graph.batch(view.spread(alive), backbone.self_loops), fixed=fixed)
        return _place(batch, problem.features, train), _place(there, view.features, val, view.spread)
    if not _smaller(train, val):
        whole = _place(batch, problem.features, None)
        return whole, whole
    return _place(batch, problem.features, train), _place(batch, problem.features, val)


def _focuses(problem: Problem, backbone: Backbone, labels_alone: bool) -> tuple[Focus | None, Focus | None]:
    """What training and validation depend on; None for all nodes. The problem keeps them."""
    steps = backbone.reach
    if steps is None:
        return None, None
    return problem.focus("train", steps) if labels_alone else None, problem.focus("val", steps)


def _shared(problem: Problem, backbone: Backbone) -> Shared | None:
    """What training on labels alone and validation multiply by the same weights, on a CPU; the problem keeps it."""
    if backbone.reach is None or backbone.reads_features is None or problem.device.type != "cpu":
        return None
    return problem.shared(backbone.reach)


def _smaller(train: Focus | None, val: Focus | None) -> bool:
    """Whether two passes forward and one back over parts of the graph are less work than one each over the whole."""
    if train is None or val is None:
        return False
    return 2 * len(train.field.nodes) + len(val.field.nodes) <= _WORTH * train.num_nodes


def _place(
    graph: GraphBatch, features: Features, focus: Focus | None, spread: Callable[[Tensor], Tensor] | None = None
) -> _Place:
    if focus is None:
        return _Place(graph, features, None, spread)
    return _Place(graph.within(focus.field), focus.features, focus, spread)


class _Progress:
    """How far each run is and how it fares; on the device, in place and without synchronisation."""

    def __init__(self, runs: int, device: torch.device) -> None:
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        """Finished epochs."""
        self.val = torch.full((runs,), -1.0, dtype=torch.float64, device=device)
        """Best validation metric."""
        self.best = torch.zeros(runs, dtype=torch.int64, device=device)
        """The first epoch that had it."""
        self._diverged = torch.zeros(runs, dtype=torch.int64, device=device)

    def validated(self, val: Tensor) -> Tensor:
        """[S] for which runs the last epoch was better than all before."""
        better = (val > self.val) & (self.epoch > 0)
        self.val.copy_(torch.where(better, val, self.val))
        self.best.copy_(torch.where(better, self.epoch, self.best))
        return better

    def trained(self, loss: Tensor) -> None:
        """One more epoch is finished, with this loss [S]."""
        self.epoch.add_(1)
        self._note(torch.isfinite(loss))

    def check(self, finite: Tensor) -> None:
        """Raises TrainingError if a loss, or now the last update, which no loss has seen, was not finite."""
        self._note(finite)
        epochs = self._diverged[self._diverged > 0].tolist()
        if epochs:
            raise TrainingError(
                f"the loss became NaN or infinite at epoch {min(epochs)} in {len(epochs)} run(s); "
                "try a lower learning rate (--lr) or check the features"
            )

    def _note(self, finite: Tensor) -> None:
        self._diverged.copy_(torch.where((self._diverged == 0) & ~finite, self.epoch, self._diverged))

    def mean(self) -> float:
        """Of the runs' best validation metrics; NaN before the first."""
        return float(self.val.mean()) if bool(self.best.all()) else math.nan


def _leaves(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part.detach().requires_grad_() for name, part in parts.items()}


def _cat(fits: list[Fit]) -> Fit:
    params = [f.params for f in fits if f.params is not None]
    scores = [f.scores for f in fits if f.scores is not None]
    return Fit(
        torch.cat([f.val for f in fits]),
        torch.cat([f.epoch for f in fits]),
        Params(torch.cat([p.prunable for p in params]), torch.cat([p.other for p in params])) if params else None,
        Scores(torch.cat([s.weights for s in scores]), torch.cat([s.edges for s in scores])) if scores else None,
    )
