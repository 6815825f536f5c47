"""What backends are given and what they tell: plain values, the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from aceglt.backbones.base import Params
from aceglt.config import Training
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks, Scores

Result = TypeVar("Result")


@dataclass(frozen=True)
class ScoreTraining:
    """How scores are trained beside the weights (Equation 2)."""

    lambda_edges: float
    lambda_weights: float
    decay: bool
    """Whether weight decay touches the scores."""
    clamp: bool
    """Whether scores are kept in [0, 1], as the paper's text says; everything important then ties at 1."""
    epoch: str
    """Whose scores are used: those of the `best` epoch on validation or of the `last`."""
    weights: bool = True
    """Whether weights have scores; without, a weight's score is the weight itself."""


@dataclass(frozen=True)
class Place:
    """Where a pass runs: a graph, its features, and the nodes whose outputs are read."""

    graph: Graph
    features: Features
    nodes: Tensor | None = None
    """[n] whose outputs are read; None where it may be all."""
    scatter: Callable[..., Tensor] | None = None
    """Makes values [S, E] of the graph's edges from those of the training edges; None where these are the same."""

    def with_unseen(self, alive: Tensor | None) -> Place:
        """The same place, where of the edges that training does not see these are alive (None: all)."""
        if alive is None or self.scatter is None:
            return self
        return replace(self, scatter=partial(self.scatter, unseen=alive))

    def values(self, edge_values: Tensor) -> Tensor:
        """[S, E] of this graph's edges, from those of the training edges."""
        return edge_values if self.scatter is None else self.scatter(edge_values)


@dataclass(frozen=True)
class Start:
    """Where a group of S runs starts."""

    params: Params
    masks: Masks
    training: Training
    scoring: ScoreTraining | None
    scores: Scores | None
    """The initial scores, with scoring."""
    extra: Mapping[str, Tensor]
    """Parameters of the objective, trained beside the weights and then dropped."""


class Observer(Protocol):
    """Told about the progress of a training."""

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        """`runs` runs have finished an epoch; `best()` reads the best validation metric so far (and may cost time)."""


Train = Callable[[slice, "Observer | None"], Result]
"""Trains a group of runs."""


def keep_best(best: Tensor, part: Tensor, better: Tensor) -> None:
    """Runs' parts where they are better, in place."""
    torch.where(better.view(-1, *[1] * (part.dim() - 1)), part, best, out=best)
