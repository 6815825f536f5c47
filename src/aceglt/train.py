"""`fit`: the only training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from aceglt import rng
from aceglt.backbones.base import Backbone, Dropout, Params, Weights
from aceglt.errors import TrainingError
from aceglt.graph import Graph, GraphBatch
from aceglt.masks import Masks, Scores
from aceglt.ops import Features
from aceglt.problem import Contrast, Focus, Problem, Soft

_LOSS = 1 << 20  # of a step's random draws, those of the loss; layers count from 0
_WORTH = 2.5  # of 3 passes over all nodes, how many are left where parts of the graph are worth their while
NOISE = 1e-5
"""Relative size of the noise that scores start with."""


@dataclass(frozen=True)
class Training:
    """How weights are trained."""

    lr: float
    weight_decay: float


@dataclass(frozen=True)
class Scoring:
    """How scores are trained beside the weights (Equation 2)."""

    lambda_edges: float
    lambda_weights: float
    decay: bool
    """Whether weight decay touches the scores."""
    clamp: bool
    """Whether scores are kept in [0, 1], as the paper's text says; everything important then ties at 1."""
    epoch: Literal["best", "last"]
    """Whose scores are used: the best-validation epoch's or the last one's."""
    weights: bool = True
    """Whether weights have scores; without, a weight's score is the weight itself."""


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


class Observer(Protocol):
    """Told about the progress of a training."""

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        """`runs` runs have finished an epoch; `best()` reads the best validation metric so far (and may cost time)."""


def initial_scores(key: Tensor, masks: Masks) -> Scores:
    """The scores that a training with this key starts from: 1 plus noise where alive, 0 where dead."""

    def side(alive: Tensor, salt: int) -> Tensor:
        noise = 2.0 * rng.uniform(rng.fold(key, salt), alive.shape[1]) - 1.0
        return (alive * (1.0 + NOISE * noise)).to(torch.get_default_dtype())

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
) -> Fit:
    """Train a batch of runs from `start` with hard `masks`; with `scoring`, train scores of the alive elements too.

    With `watch` as well, training may end before `epochs`; runs that share kernels end when the last of them may.
    Selection is by validation alone. Runs do not influence each other. On the CPU each is trained by itself, so that
    results are bitwise the same for any batch; on a GPU, `runs_at_once` (default: all) share the kernels.
    """
    total = masks.runs
    size = runs_at_once or (1 if problem.device.type == "cpu" else total)
    groups = [slice(first, min(first + size, total)) for first in range(0, total, size)]
    fits = []
    for g in groups:
        trainer = _Trainer(problem, backbone, start[g], masks[g], training, key[g], scoring, soft[g] if soft else None)
        fits.append(trainer.run(epochs, observer, partial(watch, g) if watch else None))
    return _cat(fits)


class _Trainer:
    """One group of runs in training. Dead elements are 0 and have no gradient, so they stay 0.

    Weights and scores are kept matrix by matrix, so that gradients are used where they are made.
    """

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
        self.problem, self.backbone, self.runs = problem, backbone, masks.runs
        self.scoring, self.soft, self.key = scoring, soft, key
        self.contrast = problem.contrast
        self.train, self.val = _places(problem, backbone, masks.edges, soft is None)
        self.alive = self._matrices(masks.weights.to(start.prunable.dtype))
        self.weights = self._matrices(start.prunable * masks.weights)
        others = {name: part.clone() for name, part in backbone.other.split(start.other).items()}
        self.others = {name: part for name, part in others.items() if name not in backbone.buffers}
        self.buffers = {name: part for name, part in others.items() if name in backbone.buffers}
        if self.contrast is not None:
            self.others |= self.contrast.start(self.runs, problem.device)
        self.edge_values = masks.edges.to(start.prunable.dtype)  # [S, E]: scores, or 1 where alive
        self.weight_scores: dict[str, Tensor] = {}
        groups = [{"params": [*self.weights.values(), *self.others.values()], "weight_decay": training.weight_decay}]
        if scoring is not None:
            first = initial_scores(key, masks)
            self.edge_values = first.edges
            if scoring.weights:
                self.weight_scores = self._matrices(first.weights)
                self.effective = {name: torch.empty_like(part) for name, part in self.weights.items()}
            decay = training.weight_decay if scoring.decay else 0.0
            groups.append({"params": [*self.weight_scores.values(), self.edge_values], "weight_decay": decay})
        self.optimiser = torch.optim.Adam(groups, lr=training.lr, fused=True)

    def _matrices(self, flat: Tensor) -> dict[str, Tensor]:
        """Contiguous copies [S, *shape] of the prunable weights' parts of a flat tensor."""
        return {name: part.clone() for name, part in self.backbone.prunable.split(flat).items()}

    def run(self, epochs: int, observer: Observer | None, watch: Callable[[int, Scores], bool] | None) -> Fit:
        best = _Best(self.runs, self.edge_values.device)
        diverged = torch.zeros(self.runs, dtype=torch.int64, device=self.edge_values.device)
        for epoch in range(1, epochs + 1):
            loss = self._step(epoch - 1, best)
            diverged = torch.where((diverged == 0) & ~torch.isfinite(loss), epoch, diverged)
            if observer is not None:
                observer.on_epoch(epoch, epochs, self.runs, best.mean)
            if watch is not None:
                self._check_finite(diverged, epoch)
                if watch(epoch, self._scores(self._kept())):
                    break
        best.update(epoch, self._validate(), self._kept())
        self._check_finite(diverged, epoch)
        return self._result(best)

    def _check_finite(self, diverged: Tensor, epoch: int) -> None:
        """`diverged` [S] says at which epoch the loss did; the last update has no loss after it."""
        for part in (*self._all_weights(), *self._kept()):
            finite = part.view(self.runs, -1).isfinite().all(dim=1)
            diverged = torch.where((diverged == 0) & ~finite, epoch, diverged)
        _check_finite(diverged)

    def _step(self, epoch: int, best: _Best) -> Tensor:
        """Validate the weights that the last epoch left, then train them for one more."""
        prunable, others = _leaves(self._effective()), _leaves(self.others)
        edge_values = self.edge_values.detach().requires_grad_(self.scoring is not None)
        trained = {**prunable, **others}
        weights = {**trained, **self.buffers}
        train = self.train
        state = self.backbone.stem(weights, train.graph, edge_values, train.features)
        if epoch > 0:
            best.update(epoch, self._validate(weights, state), self._kept())
        key = rng.fold(self.key, 2 + epoch)
        if self.contrast is None:
            outputs = train.outputs(self.backbone.head(weights, train.graph, state, Dropout(key)))
            loss = self.problem.loss(outputs, self.soft, rng.fold(key, _LOSS))
        else:
            loss = self._contrast(self.contrast, weights, edge_values, state, rng.fold(key, _LOSS))
        wanted = [*trained.values(), *([edge_values] if self.scoring else [])]
        grads = torch.autograd.grad(loss.sum(), wanted, materialize_grads=True)
        self._update(dict(zip(trained, grads, strict=False)), grads[-1])
        return loss.detach()

    def _contrast(self, contrast: Contrast, weights: Weights, edge_values: Tensor, state: Any, key: Tensor) -> Tensor:
        """Loss of the outputs against those on permuted features; corruption is noise enough, so nothing is dropped."""
        features = self.problem.features.permuted(rng.permutation(key, self.problem.graph.num_nodes))
        outputs = self.backbone.head(weights, self.train.graph, state, None)
        corrupted = self.backbone.apply(weights, self.train.graph, edge_values, features)
        return contrast.loss(outputs, corrupted, weights)

    def _effective(self) -> dict[str, Tensor]:
        """The weights that act: with scores, their product."""
        if not self.weight_scores:
            return self.weights
        for name, part in self.weights.items():
            torch.mul(part, self.weight_scores[name], out=self.effective[name])
        return self.effective

    def _update(self, grads: dict[str, Tensor], edges: Tensor) -> None:
        """Gradients of weights and scores from those of the effective weights, then one step of Adam."""
        for name, part in self.others.items():
            part.grad = grads[name].contiguous()  # the fused update reads memory in order
        for name, weight in self.weights.items():
            grad = grads[name].contiguous()
            if self.scoring is None or not self.weight_scores:
                weight.grad = grad.mul_(self.alive[name])
            else:
                score, l1 = self.weight_scores[name], self.effective[name]  # the buffer is free until the next forward
                torch.sign(score, out=l1).mul_(self.scoring.lambda_weights)
                score.grad = l1.addcmul_(grad, weight)
                weight.grad = grad.mul_(score)
        if self.scoring is not None:
            self.edge_values.grad = edges + self.scoring.lambda_edges * self.edge_values.sign()
        self.optimiser.step()
        if self.scoring is not None and self.scoring.clamp:
            for score in (*self.weight_scores.values(), self.edge_values):
                score.clamp_(0.0, 1.0)

    def _kept(self) -> list[Tensor]:
        """What of the best epoch is kept: scores, or weights."""
        if self.scoring is None:
            return self._all_weights()
        return [*(self.weight_scores or self.weights).values(), self.edge_values]

    def _all_weights(self) -> list[Tensor]:
        """The backbone's, in the order of the layouts; what an objective owns is not kept."""
        others = {**self.others, **self.buffers}
        return [*self.weights.values(), *(others[name] for name, _ in self.backbone.other.shapes)]

    @torch.no_grad()
    def _validate(self, weights: Weights | None = None, state: Any = None) -> Tensor:
        """[S] validation metric; `state` is the training's stem, which validation at the same place shares."""
        weights = weights or {**self._effective(), **self.others, **self.buffers}
        val = self.val
        if state is not None and val is self.train:
            outputs = self.backbone.head(weights, val.graph, state, None)
        else:
            outputs = self.backbone.apply(weights, val.graph, val.values(self.edge_values), val.features)
        return self.problem.measure(val.outputs(outputs), "val")

    def _result(self, best: _Best) -> Fit:
        matrices, like = len(self.weights), self.edge_values
        if self.scoring is None:
            params = Params(_flat(best.kept[:matrices], like), _flat(best.kept[matrices:], like))
            return Fit(best.val, best.epoch, params, None)
        kept = best.kept if self.scoring.epoch == "best" else self._kept()
        return Fit(best.val, best.epoch, None, self._scores(kept))

    @staticmethod
    def _scores(kept: list[Tensor]) -> Scores:
        """Scores as `_kept` lists them: matrix by matrix, then the edges'."""
        return Scores(_flat(kept[:-1], kept[-1]), kept[-1])


@dataclass(frozen=True)
class _Place:
    """Where a pass runs."""

    graph: GraphBatch
    features: Features
    focus: Focus | None
    """What is computed, if not everything."""
    spread: Callable[[Tensor], Tensor] | None
    """Makes values of the place's edges from those of the training edges, if they are others."""

    def values(self, edge_values: Tensor) -> Tensor:
        return edge_values if self.spread is None else self.spread(edge_values)

    def outputs(self, outputs: Tensor) -> Tensor:
        """[S, N, C] of all nodes; those that are not computed are 0."""
        return outputs if self.focus is None else self.focus.spread(outputs)


def _places(problem: Problem, backbone: Backbone, alive: Tensor, labels_alone: bool) -> tuple[_Place, _Place]:
    """Where training and validation run; the same place, to share the stem, where their own would not be cheaper."""
    view, steps = problem.view("val"), backbone.reach
    train = problem.focus("train", steps) if steps is not None and labels_alone else None
    val = problem.focus("val", steps) if steps is not None else None
    if view is None and not _smaller(train, val):
        whole = _place(problem.graph, problem.features, backbone, alive, None)
        return whole, whole
    return (
        _place(problem.graph, problem.features, backbone, alive, train),
        _place(view.graph, view.features, backbone, view.spread(alive), val, view.spread)
        if view is not None
        else _place(problem.graph, problem.features, backbone, alive, val),
    )


def _smaller(train: Focus | None, val: Focus | None) -> bool:
    """Whether two passes forward and one back over parts of the graph are less work than one each over the whole."""
    if train is None or val is None:
        return False
    return 2 * len(train.field.nodes) + len(val.field.nodes) <= _WORTH * train.num_nodes


def _place(
    graph: Graph,
    features: Features,
    backbone: Backbone,
    alive: Tensor,
    focus: Focus | None,
    spread: Callable[[Tensor], Tensor] | None = None,
) -> _Place:
    batch = graph.batch(alive, backbone.self_loops)
    if focus is not None:
        batch, features = batch.within(focus.field), focus.features
    return _Place(batch, features, focus, spread)


class _Best:
    """The first epoch with the highest validation metric, for each run; on the device, without synchronisation."""

    def __init__(self, runs: int, device: torch.device) -> None:
        self.val = torch.full((runs,), -1.0, dtype=torch.float64, device=device)
        self.epoch = torch.zeros(runs, dtype=torch.int64, device=device)
        self.kept: list[Tensor] = []

    def update(self, epoch: int, val: Tensor, tensors: list[Tensor]) -> None:
        better = val > self.val
        if not self.kept:
            self.kept = [t.clone() for t in tensors]
        elif val.device.type != "cpu" or bool(better.any()):
            for kept, new in zip(self.kept, tensors, strict=True):
                torch.where(better.view(-1, *[1] * (new.dim() - 1)), new, kept, out=kept)
        self.val = torch.where(better, val, self.val)
        self.epoch = torch.where(better, epoch, self.epoch)

    def mean(self) -> float:
        return float(self.val.mean())


def _leaves(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part.detach().requires_grad_() for name, part in parts.items()}


def _flat(parts: list[Tensor], like: Tensor) -> Tensor:
    """[S, n] of matrices [S, *shape]; of none, an empty [S, 0] tensor like the other."""
    return torch.cat([part.view(len(part), -1) for part in parts], dim=1) if parts else like.new_zeros(len(like), 0)


def _check_finite(diverged: Tensor) -> None:
    epochs = diverged[diverged > 0].tolist()
    if epochs:
        raise TrainingError(
            f"the loss became NaN or infinite at epoch {min(epochs)} in {len(epochs)} run(s); "
            "try a lower learning rate (--lr) or check the features"
        )


def _cat(fits: list[Fit]) -> Fit:
    params = [f.params for f in fits if f.params is not None]
    scores = [f.scores for f in fits if f.scores is not None]
    return Fit(
        torch.cat([f.val for f in fits]),
        torch.cat([f.epoch for f in fits]),
        Params(torch.cat([p.prunable for p in params]), torch.cat([p.other for p in params])) if params else None,
        Scores(torch.cat([s.weights for s in scores]), torch.cat([s.edges for s in scores])) if scores else None,
    )
