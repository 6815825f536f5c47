"""How important elements are by the scores of a level, and how that changes from level to level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import SIDES, Masks, Scores

_SAMPLE = 100_000


def importance(scores: Scores, alive: Masks) -> Scores:
    """The scores' magnitudes; NaN where an element is dead and so has none."""
    return Scores(*(scores.of(side).abs().masked_fill(~alive.of(side), torch.nan) for side in SIDES))


def ranks(values: Tensor) -> Tensor:
    """[n] each value's place among all as a share of n: 1 for the greatest; equal values share their mean place."""
    if values.device.type == "cpu":  # numpy takes two thirds of torch's time
        _, group, size = map(torch.from_numpy, np.unique(values.numpy(), return_inverse=True, return_counts=True))
    else:
        _, group, size = torch.unique(values, return_inverse=True, return_counts=True)
    place: Tensor = (size.cumsum(0) - (size - 1).double() / 2) / len(values)
    return place[group]


def sample_indices(n: int, device: torch.device) -> Tensor:
    """Numbers of 100,000 of n elements, evenly spread; of all where there are no more."""
    return torch.arange(min(n, _SAMPLE), device=device) * n // min(n, _SAMPLE) if n else torch.arange(0, device=device)


def sample(values: Scores) -> Scores:
    """Those of the `sample_indices` of each side, which are followed from level to level."""
    return Scores(*(v[:, sample_indices(v.shape[1], v.device)] for v in (values.weights, values.edges)))


def fluctuation(before: Scores, now: Scores) -> dict[str, list[float | None]]:
    """Per side and run, the mean absolute change of ranks from one level's importance to the next's.

    Over the elements that have an importance at both, ranked among themselves: 0 if their order is the same, about 1/3
    if it has nothing to do with the one before. None where a run has none.
    """
    return {
        side: [_change(*pair) for pair in zip(getattr(before, side), getattr(now, side), strict=True)] for side in SIDES
    }


def _change(before: Tensor, now: Tensor) -> float | None:
    both = (~(before.isnan() | now.isnan())).nonzero().squeeze(1)
    if len(both) == 0:
        return None
    return float((ranks(now[both]) - ranks(before[both])).abs().mean())


@dataclass(frozen=True)
class Excerpt:
    """A small connected part of a graph, whose edges are followed through the levels."""

    edges: Tensor  # [n] numbers of its edges

    @classmethod
    def of(cls, graph: Graph, degree: int = 8, nodes: int = 24) -> Excerpt:
        """The surroundings of the first of the nodes whose degree is nearest to `degree`: up to so many nodes, the
        nearest first, and all edges between them."""
        degrees = torch.bincount(graph.edges.flatten(), minlength=graph.num_nodes)
        inside = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.edges.device)
        inside[(degrees - degree).abs().argmin()] = True
        size = 0
        while size < int(inside.sum()) < nodes:
            size = int(inside.sum())
            touched = graph.edges[:, inside[graph.edges].any(dim=0)].unique()
            inside[touched[~inside[touched]][: nodes - size]] = True
        return cls(inside[graph.edges].all(dim=0).nonzero().squeeze(1))

    def ends(self, graph: Graph) -> list[list[int]]:
        """The two nodes of each of its edges."""
        return graph.edges[:, self.edges].t().tolist()

    def look(self, alive: Tensor, importance: Tensor | None) -> dict[str, Any]:
        """Which of its edges are alive, of a run's [E], and their importance and its rank among all edges; None where
        the level's scores have none for it."""
        view: dict[str, Any] = {"alive": alive[self.edges].tolist(), "importance": None, "rank": None}
        if importance is None:
            return view
        rank = torch.full_like(importance, torch.nan, dtype=torch.float64)
        known = ~importance.isnan()
        rank[known] = ranks(importance[known])
        return {**view, "importance": _plain(importance[self.edges]), "rank": _plain(rank[self.edges])}


def _plain(values: Tensor) -> list[float | None]:
    return [None if value != value else round(value, 6) for value in values.tolist()]
