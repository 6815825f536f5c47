"""Ways of scoring that were tried on the folds and not taken: `python -m study tune … --set prototype=NAME`.

They change how a search works from outside, so that the library has no options that nobody should use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from aceglt.backbones.base import Params
from aceglt.numerics import rng
from aceglt.numerics.masks import Masks, Scores
from aceglt.searches import levels
from aceglt.searches.levels import Search, State
from aceglt.training import fit as train

_WARM = 50  # epochs of the dense training before its outputs are averaged
_PROBES = 64  # random directions that the effect of an edge is measured along
_LARGE = 1e6  # beside which scores do not count


@contextmanager
def averaged_teacher() -> Iterator[None]:
    """The teacher's probabilities are the mean of the dense training's later epochs, not of its best one."""
    teachers: dict[int, Tensor] = {}  # by the keys of runs

    class Trainer(train._Trainer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.total: Tensor | None = None

        def _capturable(self) -> bool:
            return False

        @torch.no_grad()
        def _validate(self, weights: Any, features: Any = None, state: Any = None) -> Tensor:
            if self.elements.scoring is None and int(self.progress.epoch) > _WARM:
                problem, ones = self.problem, torch.ones_like(self.elements.edge_values)
                batch = problem.graph.batch(ones.bool(), self.backbone.self_loops)
                made = self.backbone.apply(weights, batch, ones, problem.features).softmax(dim=-1)
                self.total = made if self.total is None else self.total + made
            return super()._validate(weights, features, state)

        def _result(self) -> Any:
            if self.total is not None:
                mean = self.total / self.total.sum(dim=-1, keepdim=True)
                teachers.update(zip(self.key.tolist(), mean, strict=True))
            return super()._result()

    dense = Search.train_dense

    def train_dense(self: Search, state: State) -> State:
        keys = rng.keys(self.config.seeds, 0, "dense", 0, device=self.problem.device).tolist()

        def outputs(*arguments: Any, **options: Any) -> Tensor:
            return torch.stack([teachers[key] for key in keys]).log()

        with patch.object(train, "_Trainer", Trainer), patch.object(levels, "outputs", outputs):
            return dense(self, state)

    with patch.object(Search, "train_dense", train_dense):
        yield


@contextmanager
def edges_by_effect() -> Iterator[None]:
    """Edges are ranked by how much the dense model's predictions change with them: the root mean square, over random
    directions, of the derivative of all nodes' probabilities, on the edges that are alive."""
    known: dict[int, Params] = {}
    isolated = Search._train_in_isolation

    def remember(self: Search, level: int, masks: Masks) -> tuple[Any, Params]:
        outcome, params = isolated(self, level, masks)
        if level == 0:
            known[id(self)] = params
        return outcome, params

    def effect(self: Search, masks: Masks) -> Tensor:
        params, problem, backbone = known[id(self)], self.problem, self.backbone
        keys, found = rng.keys(self.config.seeds, 0, "effect", 0, device=problem.device), []
        for run in range(masks.runs):
            alive, weights = masks.edges[run : run + 1], backbone.weights(params[run : run + 1])
            values = alive.to(params.prunable.dtype).requires_grad_()
            batch = problem.graph.batch(alive, backbone.self_loops)
            made = backbone.apply(weights, batch, values, problem.features).softmax(dim=-1)
            total = torch.zeros_like(values, requires_grad=False)
            for probe in range(_PROBES):
                along = rng.uniform(rng.fold(keys[run : run + 1], probe), made.numel()).view_as(made).to(made) - 0.5
                total += torch.autograd.grad((made * along).sum(), values, retain_graph=True)[0] ** 2
            found.append(_LARGE * (total / _PROBES).sqrt())
        return torch.cat(found)

    with patch.object(Search, "_train_in_isolation", remember), patch.object(Search, "_bonus", effect):
        yield


@contextmanager
def averaged_scores(weights: bool) -> Iterator[None]:
    """Scores of edges, with `weights` those of weights too, are the mean over the epochs of their training."""
    plain: Any = train.fit

    def fit(problem: Any, backbone: Any, start: Any, masks: Any, epochs: int, *others: Any, **options: Any) -> Any:
        arguments = problem, backbone, start, masks, epochs, *others
        if options["scoring"] is None:
            return plain(*arguments, **options)
        sums: dict[int, tuple[Tensor, Tensor]] = {}  # of weights and of edges, by the first of the runs

        def add(runs: slice, epoch: int, scores: Scores) -> bool:
            of_weights, of_edges = sums.get(runs.start, (0.0, 0.0))
            sums[runs.start] = of_weights + scores.weights, of_edges + scores.edges
            return False

        found = plain(*arguments, **{**options, "watch": add})
        of_weights, of_edges = (torch.cat(side) / epochs for side in zip(*(sums[r] for r in sorted(sums)), strict=True))
        return replace(found, scores=Scores(of_weights if weights else found.scores.weights, of_edges))

    with patch.object(levels, "fit", fit):
        yield


PROTOTYPES: dict[str, Callable[[], Any]] = {
    "none": nullcontext, "averaged-teacher": averaged_teacher, "edges-by-effect": edges_by_effect,
    "averaged-edge-scores": partial(averaged_scores, weights=False),
    "averaged-scores": partial(averaged_scores, weights=True),
}  # fmt: skip
