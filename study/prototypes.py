"""Ways of scoring that were tried on the folds and not taken: `python -m study tune … --set prototype=NAME`.

Each makes another search of a search, with a signal, a ranking or a method in the place of the library's, so that the
library has no options that nobody should use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Params
from aceglt.errors import ConfigError
from aceglt.methods import Level, Method, Selection
from aceglt.methods.base import TrainScores
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks, Scores
from aceglt.problems.base import Problem, Softened
from aceglt.problems.signals import Teacher
from aceglt.pruning.ranking import Ranking
from aceglt.searches.levels import Search, outputs
from aceglt.training.fit import Fit, Watch

WARM = 50
"""Epochs of the dense training before its outputs are averaged."""
PROBES = 64
"""Random directions that the effect of an edge is measured along."""
LARGE = 1e6
"""What effects are multiplied by, so that scores do not count beside them."""


def unchanged(search: Search) -> Search:
    return search


@dataclass(frozen=True)
class KnownTeacher(Teacher):
    """A teacher whose outputs are known before the dense model is trained."""

    outputs: Tensor | None = None  # [S, N, C]

    def targets(self, problem: Problem, outputs: Callable[[], Tensor]) -> Softened | None:
        known = self.outputs
        assert known is not None
        return super().targets(problem, lambda: known)


def averaged_teacher(search: Search, warm: int = WARM) -> Search:
    """The teacher's probabilities are the mean of the dense training's later epochs, not of its best one."""
    if search.backbone.other.size:
        raise ConfigError(
            f"the averaged teacher needs a backbone of weight matrices alone; {search.backbone.name} is none"
        )
    totals: dict[int, Tensor] = {}  # by the first of the runs that train together

    def add(runs: slice, epoch: int, scores: Scores) -> bool:
        if epoch > warm:
            params = Params(scores.weights, search.start.other[runs])
            made = outputs(search.problem, search.backbone, params, search.full_masks()[runs], backend=search.backend)
            totals[runs.start] = totals.get(runs.start, 0.0) + made.softmax(dim=-1)
        return False

    search.train(0, search.full_masks(), watch=add)
    total = torch.cat([totals[first] for first in sorted(totals)])
    made = (total / total.sum(dim=-1, keepdim=True)).log()
    c = search.config
    return replace(
        search, signal=KnownTeacher(c.scoring.beta, c.scoring.teacher_temperature, c.scoring.teacher_smoothing, made)
    )


@dataclass(frozen=True)
class ByEffect(Ranking):
    """Edges are ranked by how much the dense model's predictions change with them: the root mean square, over random
    directions, of the derivative of all nodes' probabilities, on the edges that are alive."""

    search: Search | None = None
    params: Params | None = None
    """Of the dense models."""
    probes: int = PROBES

    def importance(self, graph: Graph, scores: Scores, masks: Masks) -> Scores:
        return Scores(scores.weights.abs(), scores.edges.abs() + LARGE * self.effects(masks))

    def effects(self, masks: Masks) -> Tensor:
        """[S, E]"""
        search, params = self.search, self.params
        assert search is not None
        assert params is not None
        keys, found = rng.keys(search.config.seeds, 0, "effect", 0, device=search.problem.device), []
        for run in range(masks.runs):
            alive = masks.edges[run : run + 1]
            values = alive.to(params.prunable.dtype).requires_grad_()
            made = predict(search.problem, search.backbone, params[run : run + 1], alive, values)
            total = torch.zeros_like(values, requires_grad=False)
            for probe in range(self.probes):
                along = rng.uniform(rng.fold(keys[run : run + 1], probe), made.numel()).view_as(made).to(made) - 0.5
                total += torch.autograd.grad((made * along).sum(), values, retain_graph=True)[0] ** 2
            found.append((total / self.probes).sqrt())
        return torch.cat(found)


def edges_by_effect(search: Search, probes: int = PROBES) -> Search:
    _, params = search.train(0, search.full_masks())
    return replace(search, ranking=ByEffect(search.config.pruning.balance, 0.0, search, params, probes))


@dataclass(frozen=True)
class AveragedScores:
    """A method whose scores of edges, with `weights` those of weights too, are the mean over the epochs of their
    training."""

    name: ClassVar[str] = "averaged-scores"

    method: Method
    weights: bool

    def select(self, level: Level) -> Selection:
        return self.method.select(replace(level, train_scores=averaging(level.train_scores, self.weights)))

    def cost(self, epochs: int) -> int:
        return self.method.cost(epochs)


def averaging(train_scores: TrainScores, of_weights: bool) -> TrainScores:
    def train(masks: Masks, epochs: int, phase: str, *, weights: bool = True, watch: Watch | None = None) -> Fit:
        sums: dict[int, tuple[Tensor, Tensor]] = {}  # of weights and of edges, by the first of the runs

        def add(runs: slice, epoch: int, scores: Scores) -> bool:
            before = sums.get(runs.start, (0.0, 0.0))
            sums[runs.start] = before[0] + scores.weights, before[1] + scores.edges
            return watch is not None and watch(runs, epoch, scores)

        found = train_scores(masks, epochs, phase, weights=weights, watch=add)
        assert found.scores is not None
        means = [torch.cat(side) / epochs for side in zip(*(sums[run] for run in sorted(sums)), strict=True)]
        return replace(found, scores=Scores(means[0] if of_weights else found.scores.weights, means[1]))

    return train


def averaged_scores(search: Search, weights: bool) -> Search:
    return replace(search, method=AveragedScores(search.method, weights))


def predict(problem: Problem, backbone: Backbone, params: Params, alive: Tensor, values: Tensor) -> Tensor:
    """[S, N, C] probabilities with these edge values."""
    batch = problem.graph.batch(alive, backbone.self_loops)
    return backbone.apply(backbone.weights(params), batch, values, problem.features).softmax(dim=-1)


PROTOTYPES: dict[str, Callable[[Search], Search]] = {
    "none": unchanged, "averaged-teacher": averaged_teacher, "edges-by-effect": edges_by_effect,
    "averaged-edge-scores": partial(averaged_scores, weights=False),
    "averaged-scores": partial(averaged_scores, weights=True),
}  # fmt: skip
