"""Weights, scores and Adam's moments of one run on the CPU: dead elements are not stored, and what nothing reads is
left out of products. Every way of storing gives the same numbers, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.cpu.kernels import Adam, CompiledKernels
from aceglt.backends.reference import PlainElements
from aceglt.config import Training
from aceglt.numerics.adam import TorchAdam
from aceglt.numerics.masks import count, places

_UNITS = 16  # hidden units are left out in such numbers that what is left fills vectors
_INT32 = 2**31 - 1
_LANES = 16  # torch's Adam rounds otherwise in the tail of a vector that is no multiple of this


@dataclass(frozen=True)
class Thresholds:
    """From where on leaving something out is worth it. No result depends on them, but for rounding."""

    compact: float = 0.7
    """Alive share of a matrix up to which its alive elements alone are stored: gathers and scatters then cost less than
    the dead elements."""
    compact_weights: float = 0.35
    """The same where weights have no scores and a compiled kernel updates them, which takes a third of the time."""
    fewer: float = 0.95
    """Share of the rows or hidden units that something reads, up to which the others are left out of products."""
    sums: float = 3.0
    """Entries of A·X for each row that is read otherwise, up to which they are counted to see if A·X should come first
    in (A·X)·W."""
    apart: float = 0.5
    """Share of the nodes in the receptive field of training that are not in that of validation, up to which both share
    the product with the features."""
    small: int = 1 << 24
    """Elements of a layer, arcs and weights up to which runs are trained side by side."""


@dataclass(frozen=True)
class Active:
    """The part of a matrix [F, H] that takes part in products, where that is not all of it."""

    rows: Tensor | None = None  # [F] bool; the others are dead
    columns: Tensor | None = None  # [H] bool; what the others add to is not read, so their elements have no gradient


class _Storage:
    """How the elements of a matrix, alive [S, *shape] bool, are stored; each way gives the same numbers, bit by bit.

    Either all are, with dead ones that are 0 and have no gradient, so that they stay 0. Or, for one run, the alive ones
    alone, [1, n] with a few zeros: those that are `active` come first, the others ("idle") after them.
    """

    def __init__(self, alive: Tensor, scored: bool, active: Active | None, most: float, whole: bool = False) -> None:
        """Alive ones alone where they are so few, at `most`, or some are idle; all of them if `whole`."""
        self._shape, self._size = alive.shape, alive.numel()
        self._matrix: Tensor | None = None
        self._few = not scored and _few_alive(alive, Thresholds.compact)
        self.alive: Tensor | None = None  # uint8; without scores, of a matrix that is stored with its dead elements
        self.places: Tensor | None = None  # of what is stored in the matrix that acts, if not all of it in order
        even = len(alive) > 1 or alive.numel() % _LANES == 0
        if whole or (active is None and not _few_alive(alive, most) and even):
            # Without scores, gradients of dead weights must be cleared; with them, the score, which is 0, does that.
            self.alive = None if scored or count(alive) == self._size else alive.contiguous().view(torch.uint8)
            return
        self._index = self.places = places(alive.flatten())  # in the matrix, and in the one that acts
        self._idle = self._index[:0]
        if active is not None:
            self._narrow(active, alive[0])

    def _narrow(self, active: Active, alive: Tensor) -> None:
        height, width = alive.shape
        row = torch.arange(height).repeat_interleave(alive.sum(dim=1))  # a division takes ten times as long
        column = self._index - width * row
        if active.columns is not None:
            acts = active.columns.index_select(0, column)
            self._idle, kept = self._index.index_select(0, places(~acts)), places(acts)
            self._index, row, column = (of.index_select(0, kept) for of in (self._index, row, column))
        (height, rows), (width, columns) = _numbered(active.rows, height), _numbered(active.columns, width)
        self._shape = torch.Size([1, height, width])
        row = row if rows is None else rows.index_select(0, row)
        column = column if columns is None else columns.index_select(0, column)
        self.places = width * row + column

    @cached_property
    def places32(self) -> Tensor | None:
        """As the update reads them: half the bytes, where the matrix is small enough."""
        return self.places if self.places is None or self._size > _INT32 else self.places.int()

    def store(self, matrix: Tensor) -> Tensor:
        """A copy of the elements of a matrix that are stored."""
        if self.places is None:
            return matrix.clone()
        return torch.cat([_gather(matrix, self._index), _gather(matrix, self._idle)], dim=1)

    def active(self, stored: Tensor) -> Tensor:
        """What is stored of the elements that something reads."""
        return stored if self.places is None else stored[:, : _room(self._index)]

    def idle(self, stored: Tensor) -> Tensor:
        """And of the others."""
        return stored.flatten(1)[:, stored[0].numel() if self.places is None else _room(self._index) :]

    def matrix(self, active: Tensor) -> Tensor:
        """The matrix that acts; it may be a buffer that the next call overwrites."""
        if self.places is None:
            return active
        if self._matrix is None:
            self._matrix = active.new_zeros(self._shape)  # dead elements stay 0 from one epoch to the next
        _scatter(active, self._matrix.view(-1), self.places)
        return self._matrix

    def cleared(self, grad: Tensor) -> Tensor:
        """The matrix's gradient, which may be changed, without that of dead elements that are stored."""
        grad = grad.contiguous()  # the fused update reads memory in order
        return grad if self.alive is None else grad.mul_(self.alive)

    def grad(self, matrix: Tensor) -> Tensor:
        """What is stored of the matrix's gradient, which may be changed."""
        return self.cleared(matrix) if self.places is None else _gather(matrix, self.places)

    def flat(self, stored: Tensor) -> Tensor:
        """[S, all elements] of what is stored."""
        if self.places is None:
            flat = stored.view(len(stored), -1)
            return flat + 0.0 if self._few else flat  # where weights below 0 died, -0 becomes 0, as in the other form
        flat = _scatter(self.active(stored), stored.new_zeros(self._size), self._index)
        return _scatter(self.idle(stored), flat, self._idle).unsqueeze(0)


def _numbered(kept: Tensor | None, count: int) -> tuple[int, Tensor | None]:
    """How many of `count` lines are kept, and the new numbers of all."""
    return (count, None) if kept is None else (int(kept.sum()), kept.cumsum(0) - 1)


def _room(index: Tensor) -> int:
    """How much is stored of so many elements."""
    return len(index) + -len(index) % _LANES


def _gather(matrix: Tensor, index: Tensor) -> Tensor:
    stored = matrix.new_zeros(1, _room(index))
    torch.index_select(matrix.reshape(-1), 0, index, out=stored[0, : len(index)])
    return stored


def _scatter(stored: Tensor, into: Tensor, index: Tensor) -> Tensor:
    return into.scatter_(0, index, stored[0, : len(index)])


def _few_alive(alive: Tensor, most: float) -> bool:
    """For one run: others have their alive elements at other places."""
    return len(alive) == 1 and count(alive) <= most * alive.numel()


def alive_rows(alive: Tensor, thresholds: Thresholds) -> Tensor | None:
    """[F] bool: which rows of a matrix, alive [S, F, H] bool, are not dead; None where that does not pay."""
    if not _few_alive(alive, thresholds.compact):
        return None
    rows = alive[0].view(torch.uint8).amax(dim=1).bool()  # `any` takes forty times as long
    return rows if int(rows.sum()) <= thresholds.fewer * len(rows) else None


def read_units(alive: Tensor, thresholds: Thresholds) -> Tensor | None:
    """[H] bool: the hidden units that alive weights of a matrix, alive [S, H, C] bool, read, and some to make up the
    number; None where leaving out the others does not pay."""
    if len(alive) > 1:
        return None
    read = alive[0].any(dim=1)
    count = max(_UNITS, -(-int(read.sum()) // _UNITS) * _UNITS)
    if count > thresholds.fewer * len(read):
        return None
    first = read.int().argsort(descending=True, stable=True)[:count]
    return torch.zeros_like(read).index_fill_(0, first, True)


class AliveElements(PlainElements):
    """Weights and scores of a run in training, matrix by matrix, so that gradients are used as they come."""

    def __init__(
        self, backbone: Backbone, start: Start, active: Mapping[str, Active], compact: float, kernels: CompiledKernels
    ) -> None:
        """`active` are the parts of matrices, by name, that take part in products without the rest of them; `compact`
        see `Thresholds`."""
        self._kernels = kernels
        alive, scored = backbone.prunable.split(start.masks.weights), bool(start.scoring and start.scoring.weights)
        self._storage = {
            name: _Storage(part, scored, active.get(name), compact, backbone.whole_units and bool(part.all()))
            for name, part in alive.items()
        }
        super().__init__(backbone, start)

    def _stored(self, flat: Tensor) -> dict[str, Tensor]:
        return {name: self._storage[name].store(part) for name, part in self.backbone.prunable.split(flat).items()}

    def _flat(self, parts: Sequence[Tensor]) -> Tensor:
        return super()._flat([storage.flat(part) for storage, part in zip(self._storage.values(), parts, strict=True)])

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        self._weights, self._scores = self._active(self.weights), self._active(self.weight_scores)
        kept, self._idle_rule = self.weights, (decay, 0.0)
        if self.scoring is not None and self._scores:
            kept, self._idle_rule = self.weight_scores, (score_decay, self.scoring.lambda_weights)
        self._idle = [part for name, both in kept.items() if (part := self._storage[name].idle(both)).numel()]
        self._start(start.training, score_decay)

    def _start(self, training: Training, score_decay: float) -> None:
        self._products = {name: torch.empty_like(self._weights[name]) for name in self._scores}
        weights, scores = [*self._weights.values(), *self.others.values()], [*self._scores.values(), self.edge_values]
        (scores if self._scores else weights).extend(self._idle)
        groups = [{"params": weights, "weight_decay": training.weight_decay}]
        if self.scoring is not None:
            groups.append({"params": scores, "weight_decay": score_decay})
        self.optimiser = TorchAdam(groups, lr=training.lr, fused=True)

    def _active(self, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._storage[name].active(part) for name, part in stored.items()}

    def effective(self) -> dict[str, Tensor]:
        """The next call reuses them."""
        for name, score in self._scores.items():
            torch.mul(self._weights[name], score, out=self._products[name])
        return self._as_matrices(self._products)

    def _as_matrices(self, products: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Products of weights and scores, or weights without scores, as the matrices that act."""
        stored = products if self._scores else self._weights
        return {name: self._storage[name].matrix(part) for name, part in stored.items()}

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
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
        for part in self._idle:
            part.grad = torch.sign(part).mul_(self._idle_rule[1]) if any(self._idle_rule) else None
        if self.scoring is not None:
            assert edges is not None
            self.edge_values.grad = edges + self.scoring.lambda_edges * self.edge_values.sign()
        self.optimiser.step()
        self._clamp()


class CompiledElements(AliveElements):
    """Compiled kernels update everything, in one pass over each matrix where plain torch has several."""

    def _start(self, training: Training, score_decay: float) -> None:
        self._adam = Adam(self._kernels, training.lr, self.edge_values)
        scoring, rules, decay = self.scoring, self._adam.rules, (training.weight_decay, 0.0)
        self._decay, self._idle_rules = rules(decay), rules(self._idle_rule)
        self._rules = rules(decay, self._idle_rule) if self._scores else self._decay  # of weights and of their scores
        self._edge_rules = rules((score_decay, 0.0 if scoring is None else scoring.lambda_edges))
        self._moments = {name: _moments(part, 4 if self._scores else 2) for name, part in self._weights.items()}
        step, moved = self._adam.stepping, self._idle if any(self._idle_rule) else []
        self._steps = {name: step(part, _moments(part), self._decay) for name, part in self.others.items()}
        self._edge_step = step(self.edge_values, _moments(self.edge_values), self._edge_rules)
        self._moved = [  # nothing reads them, so the rule is all that moves them
            (step(part, _moments(part), self._idle_rules), torch.zeros_like(part)) for part in moved
        ]
        self._act()

    def _act(self) -> None:
        """Make the matrices that act of what weights and scores are now, and what updates them."""
        self._matrices = self._as_matrices({name: self._weights[name] * score for name, score in self._scores.items()})
        for name, weight in self._weights.items():
            storage, matrix, scores = self._storage[name], self._matrices[name], self._scores.get(name)
            given = matrix, storage.places32, scores, storage.alive
            self._steps[name] = self._adam.stepping(weight, self._moments[name], self._rules, *given)

    def effective(self) -> dict[str, Tensor]:
        return self._matrices  # which the update keeps as weights and scores say

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        self._adam.advance()
        for name, step in self._steps.items():
            step(grads[name].contiguous())
        for step, none in self._moved:
            step(none)
        if self.scoring is not None:
            assert edges is not None
            self._edge_step(edges.contiguous())
        if self.scoring is not None and self.scoring.clamp:
            self._clamp()
            self._act()


def _moments(part: Tensor, count: int = 2) -> Tensor:
    return part.new_zeros(count, part.numel())
