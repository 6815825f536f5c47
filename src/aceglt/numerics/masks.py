"""Masks and scores of a batch of runs, and the choices made on them: exact, with ties broken at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from aceglt.numerics import rng


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

    @staticmethod
    def mean(scores: Sequence[Scores]) -> Scores:
        return Scores(*(torch.stack([getattr(s, side) for s in scores]).mean(dim=0) for side in ("weights", "edges")))

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
    if values.is_cuda and len(values) > 1:
        return _lowest_together(values, candidates, k, key)
    return torch.stack(
        [_lowest(v, c, k, key[i : i + 1]) for i, (v, c) in enumerate(zip(values, candidates, strict=True))]
    )


def _lowest_together(values: Tensor, candidates: Tensor, k: int, key: Tensor) -> Tensor:
    """The same for all runs at once, without a sort and almost without waiting for a GPU."""
    fewest = int(candidates.sum(dim=1).min())
    if k > fewest:
        raise ValueError(f"asked for {k} of {fewest} candidates")
    if k == 0:
        return torch.zeros_like(candidates)
    order = _places(values, candidates)
    threshold = _kth(order, torch.full_like(order[:, 0], k))
    below, tied = order < threshold, order == threshold
    wanted = k - below.sum(dim=1)
    if bool((tied.sum(dim=1) > wanted).any()):
        noise = _places(rng.uniform(key, values.shape[1]), tied)
        tied &= noise <= _kth(noise, wanted)
    return below | tied


def _places(values: Tensor, candidates: Tensor) -> Tensor:
    """Whole numbers in the order of floating-point values; the highest for what is no candidate."""
    whole = torch.int64 if values.dtype == torch.float64 else torch.int32
    bits = (values + 0.0).view(whole)  # -0 becomes 0
    last = torch.iinfo(whole).max
    return torch.where(bits < 0, bits ^ last, bits).masked_fill_(~candidates, last)


def _kth(numbers: Tensor, k: Tensor) -> Tensor:
    """[S, 1] the k-th lowest of whole numbers [S, n], k [S], by bisection."""
    low, high = numbers.amin(dim=1), numbers.amax(dim=1)
    for _ in range(torch.iinfo(numbers.dtype).bits):
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, rounded down, without an overflow
        enough = (numbers <= middle.unsqueeze(1)).sum(dim=1) >= k
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
    return high.unsqueeze(1)


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


def prune(masks: Masks, scores: Scores, keep: Counts, key: Tensor, quotas: Sequence[Quota] = ()) -> Masks:
    """Kill the lowest-magnitude alive elements until exactly `keep` are left (Algorithm 1, lines 5 and 6).

    The most important weights of each of the `quotas` stay; what these leave of `keep` goes to the most important of
    all others.
    """
    weights = torch.zeros_like(masks.weights)
    for number, quota in enumerate(quotas):
        scored, alive = scores.weights[:, quota.part], masks.weights[:, quota.part]
        draw = rng.fold(rng.fold(key, 2), number)  # its own, or ties would be broken alike in all matrices
        weights[:, quota.part] = lowest(-scored.abs(), alive, quota.keep, draw)
    rest = keep.weights - sum(quota.keep for quota in quotas)
    weights |= _cut(scores.weights, masks.weights & ~weights, rest, rng.fold(key, 0))
    return Masks(weights, _cut(scores.edges, masks.edges, keep.edges, rng.fold(key, 1)))


def _cut(scores: Tensor, alive: Tensor, keep: int, key: Tensor) -> Tensor:
    counts = set(alive.sum(dim=1).tolist())
    if len(counts) > 1 or min(counts) < keep:
        raise ValueError(f"asked to keep {keep} of {sorted(counts)} alive elements")
    return alive & ~lowest(scores.abs(), alive, counts.pop() - keep, key)
