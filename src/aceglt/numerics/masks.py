"""Masks and scores of a batch of runs: immutable values, and how many elements they are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

SIDES = ("weights", "edges")
"""What masks and scores are about."""


@dataclass(frozen=True)
class Counts:
    """How many weights and edges."""

    weights: int
    edges: int


@dataclass(frozen=True)
class Quota:
    """The fewest of some neighbouring weights that stay alive, chosen among themselves."""

    part: slice
    keep: int


Self = TypeVar("Self", bound="_Both")


@dataclass(frozen=True)
class _Both:
    """A value for each weight and each edge of a batch of runs."""

    weights: Tensor  # [S, P]
    edges: Tensor  # [S, E]

    @property
    def total(self) -> Counts:
        return Counts(self.weights.shape[1], self.edges.shape[1])

    def of(self, side: str) -> Tensor:
        """Those of one of the `SIDES`."""
        part: Tensor = getattr(self, side)
        return part

    @classmethod
    def cat(cls: type[Self], parts: Sequence[Self]) -> Self:
        """One batch of the runs of several."""
        return cls(torch.cat([p.weights for p in parts]), torch.cat([p.edges for p in parts]))

    def to(self: Self, device: torch.device | str) -> Self:
        return type(self)(self.weights.to(device), self.edges.to(device))

    def __getitem__(self: Self, runs: slice) -> Self:
        return type(self)(self.weights[runs], self.edges[runs])


@dataclass(frozen=True)
class Masks(_Both):
    """Which weights (all prunable ones of the backbone) and edges of each run are alive, as bool. All runs of a batch
    have the same counts, but for weights that go by units."""

    unseen: Tensor | None = None  # [S, U]
    """Which of the edges that training does not see are alive: those of the graph that is validated on, then those of
    the graph that is tested on (see `View`). None is all."""

    def to(self, device: torch.device | str) -> Masks:
        unseen = None if self.unseen is None else self.unseen.to(device)
        return Masks(self.weights.to(device), self.edges.to(device), unseen)

    def __getitem__(self, runs: slice) -> Masks:
        unseen = None if self.unseen is None else self.unseen[runs]
        return Masks(self.weights[runs], self.edges[runs], unseen)

    @classmethod
    def cat(cls, parts: Sequence[Masks]) -> Masks:
        unseen = [part.unseen for part in parts if part.unseen is not None]
        both = super().cat(parts)
        return replace(both, unseen=torch.cat(unseen)) if unseen else both

    @classmethod
    def full(cls, runs: int, total: Counts, device: torch.device | str = "cpu") -> Masks:
        """All alive."""
        ones = {"dtype": torch.bool, "device": device}
        return cls(torch.ones(runs, total.weights, **ones), torch.ones(runs, total.edges, **ones))  # type: ignore[call-overload]

    @property
    def runs(self) -> int:
        return self.weights.shape[0]

    @property
    def alive(self) -> Counts:
        """Alive elements of a run, on average, rounded."""
        return Counts(*(share(1 / self.runs, count(self.of(side))) for side in SIDES))

    @property
    def sparsity(self) -> tuple[float, float]:
        """Share of dead weights and of dead edges (0 where there are none at all)."""
        alive, total = self.alive, self.total
        counts = (alive.weights, total.weights), (alive.edges, total.edges)
        weights, edges = (1 - part / whole if whole else 0.0 for part, whole in counts)
        return weights, edges

    def complement(self) -> Masks:
        """The pruned part: what is dead here, alive there, in the full graph and model."""
        return Masks(~self.weights, ~self.edges)


class Scores(_Both):
    """Soft masks after training; the magnitude is the importance, dead elements have 0."""


def count(mask: Tensor) -> int:
    """How many elements of a bool tensor are True; on a CPU by numpy, whose count takes a tenth of torch's time."""
    return int(np.count_nonzero(mask.numpy())) if mask.device.type == "cpu" else int(mask.sum())


def places(mask: Tensor) -> Tensor:
    """[n] int64: where a bool tensor [N] is True; on a CPU by numpy as well."""
    return torch.from_numpy(np.flatnonzero(mask.numpy())) if mask.device.type == "cpu" else mask.nonzero().squeeze(1)


def share(fraction: float, count: int) -> int:
    """round(fraction · count), halves up: how many elements "20 %" are."""
    return int(fraction * count + 0.5)
