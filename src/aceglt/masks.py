"""Masks and scores of a batch of runs, and the choices made on them: exact, with ties broken at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from aceglt import rng


@dataclass(frozen=True)
class Counts:
    """How many weights and edges."""

    weights: int
    edges: int


@dataclass(frozen=True)
class Masks:
    """Which weights and edges of each run are alive. All runs of a batch have the same counts."""

    weights: Tensor  # [S, P] bool, over all prunable weights of the backbone
    edges: Tensor  # [S, E] bool

    @classmethod
    def full(cls, runs: int, total: Counts, device: torch.device | str = "cpu") -> Masks:
        """All alive."""
        ones = {"dtype": torch.bool, "device": device}
        return cls(torch.ones(runs, total.weights, **ones), torch.ones(runs, total.edges, **ones))  # type: ignore[call-overload]

    @classmethod
    def cat(cls, parts: Sequence[Masks]) -> Masks:
        """One batch of the runs of several."""
        return cls(torch.cat([p.weights for p in parts]), torch.cat([p.edges for p in parts]))

    @property
    def runs(self) -> int:
        return self.weights.shape[0]

    @property
    def total(self) -> Counts:
        return Counts(self.weights.shape[1], self.edges.shape[1])

    @property
    def alive(self) -> Counts:
        """Alive elements of the first run, which are those of every run."""
        return Counts(int(self.weights[0].sum()), int(self.edges[0].sum()))

    @property
    def sparsity(self) -> tuple[float, float]:
        """Share of dead weights and of dead edges (0 where there are none at all)."""
        alive, total = self.alive, self.total
        return _dead_share(alive.weights, total.weights), _dead_share(alive.edges, total.edges)

    def complement(self) -> Masks:
        """The pruned part: what is dead here, alive there, in the full graph and model."""
        return Masks(~self.weights, ~self.edges)

    def to(self, device: torch.device | str) -> Masks:
        return Masks(self.weights.to(device), self.edges.to(device))

    def __getitem__(self, runs: slice) -> Masks:
        return Masks(self.weights[runs], self.edges[runs])


@dataclass(frozen=True)
class Scores:
    """Soft masks after training; the magnitude is the importance, dead elements have 0."""

    weights: Tensor  # [S, P]
    edges: Tensor  # [S, E]

    @property
    def total(self) -> Counts:
        return Counts(self.weights.shape[1], self.edges.shape[1])

    def to(self, device: torch.device | str) -> Scores:
        return Scores(self.weights.to(device), self.edges.to(device))

    def __getitem__(self, runs: slice) -> Scores:
        return Scores(self.weights[runs], self.edges[runs])


def _dead_share(alive: int, total: int) -> float:
    return 1 - alive / total if total else 0.0


def share(fraction: float, count: int) -> int:
    """round(fraction · count), halves up: how many elements "20 %" are."""
    return int(fraction * count + 0.5)


def lowest(values: Tensor, candidates: Tensor, k: int, key: Tensor) -> Tensor:
    """Bool mask of exactly k of the candidates with the lowest values, for each run; equal values are drawn at random.

    Each element has a fixed place in that draw, so the same key breaks the ties of other values in the same order.
    values [S, n], candidates [S, n] bool, key [S]. Raises ValueError where a run has fewer than k candidates.
    """
    return torch.stack(
        [_lowest(v, c, k, key[i : i + 1]) for i, (v, c) in enumerate(zip(values, candidates, strict=True))]
    )


def _lowest(values: Tensor, candidates: Tensor, k: int, key: Tensor) -> Tensor:
    index = candidates.nonzero().squeeze(1)
    if k > index.shape[0]:
        raise ValueError(f"asked for {k} of {index.shape[0]} candidates")
    chosen = torch.zeros_like(candidates)
    if k == 0:
        return chosen
    value = values[index]
    # On a GPU kthvalue has no deterministic algorithm; a sort has.
    threshold = value.sort().values[k - 1] if value.is_cuda else value.kthvalue(k).values
    below, tied = value < threshold, (value == threshold).nonzero().squeeze(1)
    chosen[index[below]] = True
    noise = rng.uniform_at(key, index[tied])[0]
    drawn = noise.topk(k - int(below.sum()), largest=False).indices
    chosen[index[tied[drawn]]] = True
    return chosen


def prune(masks: Masks, scores: Scores, keep: Counts, key: Tensor) -> Masks:
    """Kill the lowest-magnitude alive elements until exactly `keep` are left (Algorithm 1, lines 5 and 6)."""
    alive = masks.alive
    weights = lowest(scores.weights.abs(), masks.weights, alive.weights - keep.weights, rng.fold(key, 0))
    edges = lowest(scores.edges.abs(), masks.edges, alive.edges - keep.edges, rng.fold(key, 1))
    return Masks(masks.weights & ~weights, masks.edges & ~edges)
