"""What a backend is: the parts of a training that can be computed in more ways than one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Params, Weights
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.kernels import Kernels
from aceglt.numerics.masks import Masks, Scores

Result = TypeVar("Result")


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


@dataclass(frozen=True)
class Place:
    """Where a pass runs: a graph, its features, and the nodes whose outputs are read."""

    graph: Graph
    features: Features
    nodes: Tensor | None = None
    """[n] whose outputs are read; None where it may be all."""
    scatter: Callable[[Tensor], Tensor] | None = None
    """Makes values [S, E] of the graph's edges from those of the training edges; None where these are the same."""

    def values(self, edge_values: Tensor) -> Tensor:
        """[S, E] of this graph's edges, from those of the training edges."""
        return edge_values if self.scatter is None else self.scatter(edge_values)


@dataclass(frozen=True)
class Start:
    """Where a group of S runs starts."""

    params: Params
    masks: Masks
    training: Training
    scoring: Scoring | None
    scores: Scores | None
    """The initial scores, with scoring."""
    extra: Mapping[str, Tensor]
    """Parameters of the objective, trained beside the weights and then dropped."""


class Step(Protocol):
    """The passes that are made with the same weights and edge values: one of validation, one of training."""

    def validate(self) -> Callable[[], Tensor]:
        """Begin the validation pass, which may run beside the training pass; the function waits for its outputs,
        [S, N, C], 0 at nodes that are not read."""

    def outputs(self, dropout: Dropout | None) -> Tensor:
        """Outputs [S, N, C] of the training pass, 0 at nodes that are not read."""

    def outputs_on(self, features: Features) -> Tensor:
        """The same on other features, without dropout."""


class Passes(Protocol):
    """The forward passes of one training."""

    def step(self, weights: Weights, edge_values: Tensor) -> Step:
        """With these weights (prunable, others and buffers) and values [S, E] of the edges."""


class Elements(Protocol):
    """Weights, scores and Adam's moments of the runs of one training."""

    edge_values: Tensor
    """[S, E] scores of the edges, or 1 where alive."""
    others: dict[str, Tensor]
    """What is trained and not pruned."""
    buffers: dict[str, Tensor]

    def effective(self) -> dict[str, Tensor]:
        """The prunable weights as they act, [S, *shape] by name: W, or W times its score; 0 where dead."""

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        """One step of Adam, from the gradients of the effective weights, of the others and of the edge values."""

    def remember(self, better: Tensor) -> None:
        """Keep what the runs have now whose last epoch was better than all before, better [S] bool."""

    def finite(self) -> Tensor:
        """[S] whether nothing has diverged."""

    def best_params(self) -> Params:
        """Weights of each run's best epoch, without scoring."""

    def best_scores(self) -> Scores:
        """Scores of each run's best epoch, with scoring."""

    def scores(self) -> Scores:
        """The scores as they are now; what has none is its own."""


class Observer(Protocol):
    """Told about the progress of a training."""

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        """`runs` runs have finished an epoch; `best()` reads the best validation metric so far (and may cost time)."""


Train = Callable[[slice, "Observer | None"], Result]
"""Trains a group of runs."""


class Backend(Protocol):
    """One way to compute trainings. It keeps what several trainings of a search have in common."""

    name: str

    @property
    def kernels(self) -> Kernels:
        """What computes its products and draws."""

    def network(self, backbone: Backbone) -> Backbone:
        """The backbone with forward passes of this backend."""

    def features(self, features: Features) -> Features:
        """The features with products of this backend."""

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> Passes:
        """The forward passes of one training of a group of runs."""

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> Elements:
        """What that training changes; `passes` are its own, or None where others than the backend's are made."""

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        """The function of one epoch, which may be recorded; `fixed` says that it does the same work every time."""

    def group_size(self, runs: int, at_once: int | None) -> int:
        """How many of the runs share their tensors, if `at_once` (None: any number) are asked for."""

    def side_by_side(self, backbone: Backbone, graph: Graph, groups: int) -> int:
        """How many groups are trained at the same time; 0 where one follows the other."""

    def train(
        self, groups: Sequence[slice], train: Train[Result], observer: Observer | None, workers: int
    ) -> list[Result]:
        """Train all groups, `workers` of them at the same time (0: one after the other)."""


def scatter_nodes(outputs: Tensor, nodes: Tensor, total: int) -> Tensor:
    """[S, N, C] with outputs [S, n, C] of some nodes scattered among zeros."""
    zeros = outputs.new_zeros(outputs.shape[0], total, outputs.shape[2])
    return zeros.index_copy(1, nodes, outputs)


def keep_best(best: Tensor, part: Tensor, better: Tensor) -> None:
    """Runs' parts where they are better, in place."""
    torch.where(better.view(-1, *[1] * (part.dim() - 1)), part, best, out=best)


def concatenated(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """[S, n] of parts side by side; of none, an empty [S, 0] tensor like the other."""
    return torch.cat(list(parts), dim=1) if parts else like.new_zeros(len(like), 0)
