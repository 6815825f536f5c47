"""A group of runs that are trained together: what they share, where they start, and how they are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backbones.narrow import Narrow
from aceglt.backends import Backend
from aceglt.backends.base import Place, Start
from aceglt.backends.reference import PlainElements
from aceglt.problems.base import Problem, Soft
from aceglt.training.partitions import Parts


@dataclass(frozen=True)
class RunGroup:
    """S runs of one training."""

    problem: Problem
    backbone: Backbone
    start: Start
    key: Tensor  # [S] what they draw with
    soft: Soft | None
    """The teacher's predictions, where they train the scores."""
    places: tuple[Place, Place]
    """Where training and validation run."""
    backend: Backend
    parts: Parts
    elements: Callable[[], PlainElements] | None
    """Makes what is trained, where a method has a rule of its own."""

    @property
    def runs(self) -> int:
        return self.start.masks.runs

    def narrow(self, small: Narrow) -> RunGroup:
        """The same runs without their dead units, and without the features that none of them reads."""
        start, scores = self.start, self.start.scores
        begun = replace(
            start,
            params=small.params(start.params),
            masks=small.masks(start.masks),
            scores=None if scores is None else small.scores(scores),
        )
        made = replace(self, backbone=small.backbone, start=begun)
        if small.features is None:
            return made
        problem = self.problem.columns(small.features)
        train, val = places(problem, labels_alone=self.soft is None)
        there = train, val.with_unseen(start.masks.unseen)
        return replace(made, problem=problem, places=there, backend=self.backend.afresh())


def places(problem: Problem, labels_alone: bool) -> tuple[Place, Place]:
    """Where training and validation run. The teacher's signal reads all nodes, the loss on labels those it names."""
    train = Place(problem.graph, problem.features, problem.reads("train") if labels_alone else None)
    view, nodes = problem.view("val"), problem.reads("val")
    if view is None:
        return train, Place(problem.graph, problem.features, nodes)
    return train, Place(view.graph, view.features, nodes, view.scatter)
