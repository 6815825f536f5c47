"""`fit`: the only training loop (lines 2 to 4 of Algorithm 1, and the retraining of a ticket).

A run has weights W and a hard mask; with scoring, also a score for every alive weight and edge. What acts is W times
its score, and edge values that multiply the messages (Equation 2). An epoch is a forward pass, the gradient of the
loss, λ · sign(score) added to the scores' gradients, and a step of Adam. Selection is by validation alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Params, Weights
from aceglt.backbones.narrow import Narrow, narrowed
from aceglt.backends import Backend, choose
from aceglt.backends.base import Observer, Place, ScoreTraining, Start
from aceglt.backends.fields import Passes, Site, Step
from aceglt.backends.reference import PlainElements, Reference
from aceglt.config import Training
from aceglt.errors import TrainingError
from aceglt.numerics import rng
from aceglt.numerics.masks import SIDES, Masks, Scores
from aceglt.problems.base import Problem, Soft
from aceglt.training import processes
from aceglt.training.partitions import WHOLE, Outputs, Part, Parts
from aceglt.training.sampling import Sampler

_LOSS = 1 << 20  # of a step's random draws, those of the loss; layers count from 0
_EDGES = _LOSS + 1  # … and those of DropEdge
_LOOK = 16  # epochs after which a GPU is waited for, to see whether a training is over
NOISE = 1e-5  # relative size of the noise that scores start with

Steps = Callable[[Tensor], Iterable[Sequence[Part | None]]]
"""(finished epochs): the parts of each step of the next epoch; None where another process makes one."""
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


def initial_scores(key: Tensor, masks: Masks, uniform: Callable[[Tensor, int], Tensor] = rng.uniform) -> Scores:
    """The scores that a training with this key starts from: 1 plus noise where alive, 0 where dead."""

    def side(name: str, alive: Tensor) -> Tensor:
        if 2 * int(alive.sum()) > alive.numel():
            return _around_one(uniform(rng.fold(key, SIDES.index(name)), alive.shape[1])).mul_(alive)
        made = torch.zeros_like(alive, dtype=torch.get_default_dtype())
        for run, places in enumerate(part.nonzero().squeeze(1) for part in alive):
            made[run, places] = initial_scores_at(key[run : run + 1], name, places)
        return made

    return Scores(side("weights", masks.weights), side("edges", masks.edges))


def initial_scores_at(key: Tensor, side: str, places: Tensor) -> Tensor:
    """[k] those of one run's alive elements at `places` [k], without the others; key [1]."""
    return _around_one(rng.uniform_at(rng.fold(key, SIDES.index(side)), places)[0])


def _around_one(noise: Tensor) -> Tensor:
    return noise.mul_(2.0).sub_(1.0).mul_(NOISE).add_(1.0).to(torch.get_default_dtype())


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
    if training.drop_edge:
        backend = Reference()  # others prepare the arcs of a training once
    groups = [slice(first, min(first + size, total)) for first in range(0, total, size)]
    there, val = _places(problem, labels_alone=soft is None)

    def train(g: slice, observer: Observer | None) -> Fit:
        scores = initial_scores(key[g], masks[g], backend.kernels.uniform) if scoring is not None else None
        extra = problem.contrast.start(masks[g].runs, problem.device) if problem.contrast is not None else {}
        begun, taught = Start(start[g], masks[g], training, scoring, scores, extra), soft[g] if soft else None
        seen = partial(watch, g) if watch else None
        small = narrowed(backbone, masks[g].weights) if elements is None else None
        if small is not None:
            return _train_narrow(small, problem, begun, key[g], taught, backend, parts, epochs, observer, seen)
        made = partial(elements, backbone, begun, g) if elements is not None else None
        places = there, val.with_unseen(masks[g].unseen)
        trainer = _Trainer(problem, backbone, begun, key[g], taught, places, backend, parts, made)
        return trainer.run(epochs, observer, seen)

    workers = backend.side_by_side(backbone, problem.graph, len(groups)) if parts.count == 1 else 0
    return Fit.cat(backend.train(groups, train, observer, workers))


def _train_narrow(
    small: Narrow, problem: Problem, start: Start, key: Tensor, soft: Soft | None, backend: Backend, parts: Parts,
    epochs: int, observer: Observer | None, watch: Callable[[int, Scores], bool] | None,
) -> Fit:  # fmt: skip
    """Train a network without its dead units; what is left behind is of all units."""
    scores = None if start.scores is None else small.scores(start.scores)
    begun = replace(start, params=small.params(start.params), masks=small.masks(start.masks), scores=scores)
    if small.features is not None:
        problem, backend = problem.columns(small.features), backend.afresh()
    train, val = _places(problem, labels_alone=soft is None)
    places = train, val.with_unseen(start.masks.unseen)
    trainer = _Trainer(problem, small.backbone, begun, key, soft, places, backend, parts, None)
    seen = (lambda epoch, scores: watch(epoch, small.all_scores(scores))) if watch is not None else None
    made = trainer.run(epochs, observer, seen)
    return replace(
        made,
        params=None if made.params is None else small.all_params(made.params),
        scores=None if made.scores is None else small.all_scores(made.scores),
    )


class _Trainer:
    """One group of runs in training."""

    def __init__(
        self,
        problem: Problem,
        backbone: Backbone,
        start: Start,
        key: Tensor,
        soft: Soft | None,
        places: tuple[Place, Place],
        backend: Backend,
        parts: Parts,
        elements: Callable[[], PlainElements] | None,
    ) -> None:
        self.problem, self.backbone, self.start = problem, backbone, start
        self.key, self.soft, self.backend, self.parts = key, soft, backend, parts
        patience = start.training.early_stopping if start.scoring is None else None
        self.progress = _Progress(start.masks.runs, problem.device, patience)
        train, val = places
        if parts.count == 1:
            self.passes = backend.passes(backbone, train, val, start)
        passes = self.passes if parts.count == 1 else None
        self.elements = elements() if elements else backend.elements(backbone, start, passes)
        if parts.count > 1:
            self.val = val
            self.steps: Steps = partial(parts.steps, problem.graph)
            if parts.sampled:
                layers = len(backbone.aggregation_widths)
                self.steps = Sampler(parts, problem.graph, start.masks.edges[0], train.nodes, layers).steps
            self.evaluated = Outputs(backend, backbone, val.graph, val.features, val.values(start.masks.edges), parts)

    def run(self, epochs: int, observer: Observer | None, watch: Callable[[int, Scores], bool] | None) -> Fit:
        elements, progress = self.elements, self.progress
        train_one = self._recorded()  # not kept by self: it would outlive the training until garbage is collected
        for epoch in range(1, epochs + 1):
            train_one()
            if observer is not None:
                observer.on_epoch(epoch, epochs, self.start.masks.runs, progress.mean)
            if watch is not None:
                progress.check(elements.finite())
                if watch(epoch, elements.scores()):
                    break
            if progress.over(epoch):
                for left in range(epoch + 1, epochs + 1):  # counts as done
                    if observer is not None:
                        observer.on_epoch(left, epochs, self.start.masks.runs, progress.mean)
                break
        self._judge(self._validate())
        progress.check(elements.finite())
        return self._result()

    def _recorded(self) -> Callable[[], None]:
        """One epoch; a GPU records it as a CUDA graph where loss and metric read fixed nodes."""
        if self.parts.count > 1:
            return self._epoch_in_parts
        fixed = self.problem.reads("train") is not None and self.problem.reads("val") is not None
        return self.backend.record(self._epoch, self.backbone, fixed)

    def _epoch(self) -> None:
        """Validate what the last epoch left, and train it for one more."""
        weights, edge_values = self._leaves()  # W times its scores, and the edges' scores (Equation 2)
        key = self.backend.kernels.fold(self.key, 2 + self.progress.epoch)  # 0 and 1 are of the initial scores
        step = self._passes(key).step({**weights, **self.elements.buffers}, edge_values)
        judged, buffers = step.validate(), self.elements.buffers  # validation begins; `judged()` waits for it
        if buffers:  # the training pass changes them
            self._judge(judged())
        loss = self._loss(self.problem, self.soft, step, weights, key)
        grads, edges = _gradients(loss.sum(), weights, edge_values)
        if not buffers:  # validation may have run beside the training pass
            self._judge(judged())
        self.elements.update(grads, edges)  # ∂W = g · s, ∂s = g · W + λ · sign(s), a step of Adam; the dead stay 0
        self.progress.trained(loss.detach())

    def _passes(self, key: Tensor) -> Passes:
        """The passes of a step: training is without the edges that DropEdge leaves out."""
        if not self.start.training.drop_edge:
            return self.passes
        site, kernels = self.passes.train_site, self.backend.kernels
        graph = site.place.graph.batch(self._alive(key), self.backbone.self_loops, kernels)
        return replace(self.passes, train_site=replace(site, graph=graph))

    def _alive(self, key: Tensor) -> Tensor:
        """[S, E] the alive edges that a step trains with."""
        alive, drop = self.start.masks.edges, self.start.training.drop_edge
        return thinned(alive, rng.fold(key, _EDGES), drop) if drop else alive

    def _loss(
        self, problem: Problem, soft: Soft | None, step: Step, weights: Weights, key: Tensor, at: Tensor | None = None
    ) -> Tensor:
        """[S] of the training pass: the problem's, plus the teacher's signal; or a contrastive one (Graph InfoClust),
        which tells outputs from those on permuted features, noise enough, so that nothing is dropped. `at` [n] are the
        nodes of the pass that the problem is about; None is all."""
        if problem.contrast is None:
            outputs = step.outputs(Dropout(key))
            return problem.loss(outputs if at is None else outputs[:, at], soft, self.backend.kernels.fold(key, _LOSS))
        order = rng.permutation(rng.fold(key, _LOSS), problem.graph.num_nodes)
        return problem.contrast.loss(step.outputs(None), step.outputs(None, order), weights)

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
        if self.parts.count == 1:
            return self.passes.step(weights, elements.edge_values).validate()()
        return self.evaluated(weights, self.val.values(elements.edge_values))

    def _judge(self, outputs: Tensor) -> None:
        """Keep what was better on validation than ever before."""
        with torch.no_grad():
            self.elements.remember(self.progress.validated(self.problem.measure(outputs, "val")))

    def _epoch_in_parts(self) -> None:
        """The same with several steps of Adam, each on some parts of the graph."""
        progress = self.progress
        self._judge(self._validate())
        key, steps = rng.fold(self.key, 2 + progress.epoch), self.steps(progress.epoch)
        losses = [self._step_on(parts, rng.fold(key, number)) for number, parts in enumerate(steps)]
        progress.trained(torch.stack(losses).sum(dim=0))

    def _step_on(self, parts: Sequence[Part | None], key: Tensor) -> Tensor:
        """One step by the mean gradient over some parts, of which every process takes its share."""
        elements = self.elements
        weights, all_values = self._leaves()
        sums = {name: torch.zeros_like(part) for name, part in weights.items()}
        edges = torch.zeros_like(all_values) if all_values.requires_grad else None
        total = all_values.new_zeros(len(all_values))
        for number, part in processes.mine(list(enumerate(parts))):
            assert part is not None
            values = all_values.detach()[:, part.edges].requires_grad_(edges is not None)
            loss = self._part_loss(part, {**weights, **elements.buffers}, values, rng.fold(key, number))
            grads, of_edges = _gradients(loss.sum() / len(parts), weights, values)
            for name, summed in sums.items():
                summed += grads[name]
            if edges is not None and of_edges is not None:
                edges[:, part.edges] += of_edges
            total += loss.detach() / len(parts)
        processes.add_up([*sums.values(), total, *([edges] if edges is not None else [])])
        elements.update(sums, edges)
        return total

    def _part_loss(self, part: Part, weights: Weights, edge_values: Tensor, key: Tensor) -> Tensor:
        kernels, network = self.backend.kernels, self.backend.network(self.backbone)
        problem, aim, at = self.problem.part(part.nodes, part.edges), part.nodes, None
        graph = problem.graph.batch(self._alive(key)[:, part.edges], self.backbone.self_loops, kernels)
        site = Site(graph, problem.features.using(kernels), Place(problem.graph, problem.features))
        if part.seeds is not None:  # the loss is theirs alone, and layers are computed where they depend on them
            aim, at = part.seeds, torch.searchsorted(part.nodes, part.seeds)
            if steps := self.backbone.steps:
                field = problem.graph.field(at, steps)
                site = Site(graph.within(field), site.features.rows(field.nodes), site.place, field)
            problem = self.problem.part(aim, part.edges[:0])
        step = Passes(network, site, site, kernels).step(weights, edge_values)
        return self._loss(problem, self.soft.at(aim) if self.soft else None, step, weights, key, at)

    def _result(self) -> Fit:
        elements, best, scoring = self.elements, (self.progress.val, self.progress.best), self.start.scoring
        if scoring is None:
            return Fit(*best, elements.best_params(), None)
        return Fit(*best, None, elements.best_scores() if scoring.epoch == "best" else elements.scores())


def thinned(alive: Tensor, key: Tensor, drop: float) -> Tensor:
    """[S, E] alive edges without a share that each run draws (DropEdge, Rong et al., 2020)."""
    return alive & rng.keep_mask(key, alive.shape[1], drop)


def _places(problem: Problem, labels_alone: bool) -> tuple[Place, Place]:
    """Where training and validation run. The teacher's signal reads all nodes, the loss on labels those it names."""
    train = Place(problem.graph, problem.features, problem.reads("train") if labels_alone else None)
    view, nodes = problem.view("val"), problem.reads("val")
    if view is None:
        return train, Place(problem.graph, problem.features, nodes)
    return train, Place(view.graph, view.features, nodes, view.scatter)


def _gradients(
    loss: Tensor, weights: dict[str, Tensor], edge_values: Tensor
) -> tuple[dict[str, Tensor], Tensor | None]:
    wanted = [*weights.values(), *([edge_values] if edge_values.requires_grad else [])]
    grads = torch.autograd.grad(loss, wanted, materialize_grads=True)
    return dict(zip(weights, grads, strict=False)), grads[-1] if edge_values.requires_grad else None


class _Progress:
    """How far each run is and how it fares; on the device, in place and without synchronisation."""

    def __init__(self, runs: int, device: torch.device, patience: int | None) -> None:
        self._patience, self._every = patience, _LOOK if device.type == "cuda" else 1
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)  # finished epochs
        self.val = torch.full((runs,), -1.0, dtype=torch.float64, device=device)  # best validation metric
        self.best = torch.zeros(runs, dtype=torch.int64, device=device)  # the first epoch that had it
        self._diverged = torch.zeros(runs, dtype=torch.int64, device=device)

    def validated(self, val: Tensor) -> Tensor:
        """[S] for which runs the last epoch was better than all before; before the first epoch, for none."""
        better = (val > self.val) & (self.epoch > 0)
        if self._patience is not None:  # a run that has waited so long is over for good, whatever others go on for
            better &= self.epoch - self.best <= self._patience
        self.val.copy_(torch.where(better, val, self.val))
        self.best.copy_(torch.where(better, self.epoch, self.best))
        return better

    def over(self, epoch: int) -> bool:
        """Whether no run may get better any more."""
        if self._patience is None or epoch % self._every:
            return False
        return bool((self.epoch - self.best > self._patience).all())

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
