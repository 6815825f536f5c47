"""What a training changes: weights, scores and Adam's state, and how one step changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from aceglt import gpu
from aceglt.backbones.base import Backbone, Params
from aceglt.masks import Masks, Scores

_COMPACT = 0.7  # alive share of a matrix below which gathers and scatters cost less than the dead elements
_FEWER = 0.95  # share of alive rows up to which the others are left out of a product
_LANES = 16  # torch's Adam rounds otherwise in the tail of a vector that is no multiple of this


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


class _Whole:
    """Stores all elements of a matrix [S, *shape]; dead ones are 0 and have no gradient, so they stay 0."""

    def __init__(self, alive: Tensor, scored: bool) -> None:
        # Without scores, gradients of dead weights must be cleared; with them, the score, which is 0, does that.
        self.alive = None if scored or bool(alive.all()) else alive.to(torch.get_default_dtype())

    def store(self, matrix: Tensor) -> Tensor:
        return matrix.clone()

    def matrix(self, stored: Tensor) -> Tensor:
        return stored

    def grad(self, matrix: Tensor) -> Tensor:
        """What is stored of the matrix's gradient, which may be changed."""
        grad = matrix.contiguous()  # the fused update reads memory in order
        return grad if self.alive is None else grad.mul_(self.alive)

    def flat(self, stored: Tensor) -> Tensor:
        return stored.view(len(stored), -1)


class _Alive:
    """Stores the alive elements of one run's matrix alone, [1, n] and a few zeros; the fewer, the cheaper."""

    alive = None  # nothing dead is stored

    def __init__(self, alive: Tensor, rows: Tensor | None) -> None:
        """With `rows`, the matrix that acts has those alone; the others are dead."""
        self._size, self._shape = alive.numel(), alive.shape
        self._index = self._acting = alive.flatten().nonzero().squeeze(1)  # in the matrix, and in the one that acts
        if rows is not None:
            width, dead = alive.shape[2], (~rows).cumsum(0)  # rows that are missing up to each
            self._shape = torch.Size([1, int(rows.sum()), width])
            self._acting = self._index - width * dead.index_select(0, self._index // width)
        self._matrix: Tensor | None = None  # dead elements are 0, and stay so from one epoch to the next

    def store(self, matrix: Tensor) -> Tensor:
        return self._gather(matrix, self._index)

    def matrix(self, stored: Tensor) -> Tensor:
        """In a buffer that the next call overwrites."""
        if self._matrix is None:
            self._matrix = stored.new_zeros(self._shape)
        self._spread(stored, self._matrix.view(-1), self._acting)
        return self._matrix

    def grad(self, matrix: Tensor) -> Tensor:
        return self._gather(matrix, self._acting)

    def flat(self, stored: Tensor) -> Tensor:
        return self._spread(stored, stored.new_zeros(self._size), self._index).unsqueeze(0)

    def _gather(self, matrix: Tensor, index: Tensor) -> Tensor:
        count = len(index)
        stored = matrix.new_zeros(1, count + -count % _LANES)
        torch.index_select(matrix.reshape(-1), 0, index, out=stored[0, :count])
        return stored

    def _spread(self, stored: Tensor, into: Tensor, index: Tensor) -> Tensor:
        return into.scatter_(0, index, stored[0, : len(index)])


def _storage(alive: Tensor, scored: bool, rows: Tensor | None) -> _Whole | _Alive:
    """How the elements of a matrix, alive [S, *shape] bool, are stored; each way gives the same numbers, bit by bit."""
    compact = rows is not None or _compact(alive) or (_one_by_one(alive) and alive.numel() % _LANES)
    return _Alive(alive, rows) if compact else _Whole(alive, scored)


def _one_by_one(alive: Tensor) -> bool:
    """On a GPU runs share the kernels, and their alive elements are at other places."""
    return len(alive) == 1 and alive.device.type == "cpu"


def _compact(alive: Tensor) -> bool:
    return _one_by_one(alive) and int(alive.sum()) <= _COMPACT * alive.numel()


def alive_rows(alive: Tensor) -> Tensor | None:
    """[F] bool: which rows of a matrix, alive [S, F, H] bool, are not dead; None where that does not pay."""
    if not _compact(alive):
        return None
    rows = alive[0].view(torch.uint8).amax(dim=1).bool()  # `any` takes forty times as long
    return rows if int(rows.sum()) <= _FEWER * len(rows) else None


class Elements:
    """Weights and scores of a group of runs in training, matrix by matrix, so that gradients are used as they come."""

    def __init__(
        self,
        backbone: Backbone,
        start: Params,
        masks: Masks,
        training: Training,
        scoring: Scoring | None,
        scores: Scores | None,
        extra: Mapping[str, Tensor],
        rows: Tensor | None = None,
    ) -> None:
        """`scores` are the initial ones, if there is `scoring`; `extra` is trained too, but not kept. `rows` are those
        of `alive_rows`, if the matrix that reads the features is to act without the others."""
        self.backbone, self.runs, self.scoring = backbone, masks.runs, scoring
        alive, scored = backbone.prunable.split(masks.weights), bool(scoring and scoring.weights)
        acting = {backbone.reads_features: rows}
        self._storage = {name: _storage(part, scored, acting.get(name)) for name, part in alive.items()}
        self._weights = self._stored(start.prunable * masks.weights)
        others = {name: part.clone() for name, part in backbone.other.split(start.other).items()}
        self.others = {name: part for name, part in others.items() if name not in backbone.buffers} | dict(extra)
        self.buffers = {name: part for name, part in others.items() if name in backbone.buffers}
        self.edge_values = masks.edges.to(start.prunable.dtype)
        """[S, E] scores, or 1 where alive."""
        self._scores: dict[str, Tensor] = {}
        if scoring is not None:
            assert scores is not None
            self.edge_values = scores.edges
            if scoring.weights:
                self._scores = self._stored(scores.weights)
                self._products = {name: torch.empty_like(part) for name, part in self._weights.items()}
        self._best: list[Tensor] = []  # what `_current` listed at each run's best epoch
        self._start(training, training.weight_decay if scoring is not None and scoring.decay else 0.0)

    def _start(self, training: Training, score_decay: float) -> None:
        groups = [{"params": [*self._weights.values(), *self.others.values()], "weight_decay": training.weight_decay}]
        if self.scoring is not None:
            groups.append({"params": [*self._scores.values(), self.edge_values], "weight_decay": score_decay})
        self._optimiser = torch.optim.Adam(groups, lr=training.lr, fused=True)

    @property
    def scored(self) -> bool:
        return self.scoring is not None

    def _stored(self, flat: Tensor) -> dict[str, Tensor]:
        """What is stored of the prunable weights' parts of a flat tensor, as copies."""
        return {name: self._storage[name].store(part) for name, part in self.backbone.prunable.split(flat).items()}

    def effective(self) -> dict[str, Tensor]:
        """The prunable weights that act, [S, *shape] by name: with scores, their product. The next call reuses them."""
        stored = self._weights
        if self._scores:
            stored = {name: torch.mul(w, self._scores[name], out=self._products[name]) for name, w in stored.items()}
        return {name: self._storage[name].matrix(part) for name, part in stored.items()}

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        """Gradients of weights and scores from those of the effective weights and of edges, then one step of Adam."""
        for name, part in self.others.items():
            part.grad = grads[name].contiguous()  # the fused update reads memory in order
        for name, weight in self._weights.items():
            grad = self._storage[name].grad(grads[name])
            if self.scoring is None or not self._scores:
                weight.grad = grad
            else:
                score, l1 = self._scores[name], self._products[name]  # the buffer is free until the next forward
                torch.sign(score, out=l1).mul_(self.scoring.lambda_weights)
                score.grad = l1.addcmul_(grad, weight)
                weight.grad = grad.mul_(score)
        if self.scoring is not None:
            assert edges is not None
            self.edge_values.grad = edges + self.scoring.lambda_edges * self.edge_values.sign()
        self._optimiser.step()
        if self.scoring is not None and self.scoring.clamp:
            for score in (*self._scores.values(), self.edge_values):
                score.clamp_(0.0, 1.0)

    def remember(self, better: Tensor) -> None:
        """Keep what runs have now whose last epoch was better than all before, better [S] bool: scores, or weights."""
        current = self._current()
        if not self._best:
            self._best = [part.clone() for part in current]
        elif bool(better.any()):
            for best, part in zip(self._best, current, strict=True):
                _replace(best, part, better)

    def finite(self) -> Tensor:
        """[S] whether nothing has diverged."""
        parts = [*self._all_weights(), *self._current()]
        return torch.stack([part.view(self.runs, -1).isfinite().all(dim=1) for part in parts]).all(dim=0)

    def best_params(self) -> Params:
        """The weights of each run's best epoch, without scoring."""
        matrices, others = self._best[: len(self._weights)], self._best[len(self._weights) :]
        return Params(self._flat(matrices), _cat([part.view(self.runs, -1) for part in others], self.edge_values))

    def best_scores(self) -> Scores:
        """The scores of each run's best epoch, with scoring."""
        return Scores(self._flat(self._best[:-1]), self._best[-1])

    def scores(self) -> Scores:
        """The scores as they are now, with scoring."""
        *matrices, edges = self._current()
        return Scores(self._flat(matrices), edges.clone())

    def _current(self) -> list[Tensor]:
        if self.scoring is None:
            return self._all_weights()
        return [*(self._scores or self._weights).values(), self.edge_values]

    def _flat(self, stored: Sequence[Tensor]) -> Tensor:
        """[S, P] of all matrices, from what is stored of each."""
        pairs = zip(self._storage.values(), stored, strict=True)
        return _cat([storage.flat(part) for storage, part in pairs], self.edge_values)

    def _all_weights(self) -> list[Tensor]:
        """The backbone's, in the order of the layouts; what an objective owns is not kept."""
        others = {**self.others, **self.buffers}
        return [*self._weights.values(), *(others[name] for name, _ in self.backbone.other.shapes)]


class FusedElements(Elements):
    """On a GPU: a single pass over each matrix makes gradients, updates weights, scores and moments, multiplies weights
    and scores for the next forward pass, and keeps the old values of runs that were better than ever before."""

    def _start(self, training: Training, score_decay: float) -> None:
        self._adam = gpu.kernels.Adam(training.lr, self.edge_values.device)
        self._decay, self._score_decay = training.weight_decay, score_decay
        for name, score in self._scores.items():
            torch.mul(self._weights[name], score, out=self._products[name])
        both = dict.fromkeys(self._weights, 4 if self._scores else 2) | dict.fromkeys(self.others, 2)
        parts = {**self._weights, **self.others}
        self._moments = {name: parts[name].new_zeros(count, *parts[name].shape) for name, count in both.items()}
        self._edge_moments = self.edge_values.new_zeros(2, *self.edge_values.shape)
        self._best = [part.clone() for part in self._current()]
        self._better = torch.zeros(self.runs, dtype=torch.bool, device=self.edge_values.device)
        self._never = torch.zeros_like(self._better)

    def effective(self) -> dict[str, Tensor]:
        return self._products if self._scores else self._weights

    def remember(self, better: Tensor) -> None:
        """Noted for the next update, which reads everything anyway; buffers change before it, in the forward pass."""
        self._better.copy_(better)
        best = self._best_of()
        for part in self.buffers.values():
            if id(part) in best:
                _replace(best[id(part)], part, better)

    def _best_of(self) -> dict[int, Tensor]:
        """Where the best of each tensor is kept, by its id."""
        return dict(zip(map(id, self._current()), self._best, strict=True))

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        self._adam.advance(self.edge_values.dtype)
        best = self._best_of()
        for name, weight in self._weights.items():
            grad = grads[name].contiguous()
            if self._scores:
                self._update_product(name, grad, best)
            else:
                self._update(weight, self._moments[name], grad, best, self._decay, alive=self._storage[name].alive)
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
        self._adam.update(value, moments, grad, target, better, decay, **options)

    def _update_product(self, name: str, grad: Tensor, best: Mapping[int, Tensor]) -> None:
        assert self.scoring is not None
        weight, score = self._weights[name], self._scores[name]
        self._adam.update_product(
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
            _replace(best, part, self._better)


def _replace(best: Tensor, part: Tensor, better: Tensor) -> None:
    """Runs' parts where they are better, in place."""
    torch.where(better.view(-1, *[1] * (part.dim() - 1)), part, best, out=best)


def _cat(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """[S, n] of parts side by side; of none, an empty [S, 0] tensor like the other."""
    return torch.cat(list(parts), dim=1) if parts else like.new_zeros(len(like), 0)
