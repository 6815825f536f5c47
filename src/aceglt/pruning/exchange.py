"""The exchange of adversarial complementary erasing (Equations 4 to 7): elements of the retained and the pruned part,
drawn by Gumbel-max sampling, change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from aceglt.numerics import rng
from aceglt.numerics.masks import count, places, share
from aceglt.pruning.ranking import lowest

_TINY = 1e-30  # the logarithm of a score that reached 0
DRAWS = 4
"""Keys that an exchange takes: for both samples, and for making them equal in size."""
Limits = Sequence[tuple[slice, int]]
"""K: elements that are exchanged among themselves, and how many of them at most."""


@dataclass(frozen=True)
class Sampling:
    """How elements are drawn by their importance."""

    temperature: float = 0.0
    """Scale of the Gumbel noise on log importance; 0 is plain top-K."""
    replacement: bool = False
    """Whether an element can be drawn again, which counts once."""

    def __call__(self, importance: Tensor, candidates: Tensor, k: int, key: Tensor, *, least: bool = False) -> Tensor:
        """[n] bool: k candidates that matter most (Equation 4) or least (Equation 5); fewer where some are drawn
        again."""
        logits = log_importance(importance) if self.temperature else importance.abs()  # without noise both rank alike
        sample = categorical if self.replacement else top_k
        return sample(-logits if least else logits, candidates, k, self.temperature, key)


def log_importance(scores: Tensor) -> Tensor:
    """log |score|, float64."""
    return scores.double().abs().clamp_min(_TINY).log()


def top_k(logits: Tensor, candidates: Tensor, k: int, temperature: float, key: Tensor) -> Tensor:
    """[n] bool: the k candidates with the highest logit + temperature · Gumbel noise, without replacement.

    Temperature 0 is plain top-K with ties drawn at random.
    """
    noisy = logits + temperature * rng.gumbel(key.to(logits.device), logits.shape[0])[0] if temperature else logits
    return lowest(-noisy[None], candidates[None], k, rng.fold(key, 0))[0]


def categorical(logits: Tensor, candidates: Tensor, k: int, temperature: float, key: Tensor) -> Tensor:
    """[n] bool: the distinct elements among k draws with replacement, probability ∝ exp(logit / temperature), of the
    candidates, of which there must be one.

    That is k Gumbel-max draws; here by inversion of the cumulative distribution, which draws from the same distribution
    at a cost of n + k log n instead of n · k.
    """
    chosen = torch.zeros_like(candidates)
    if k == 0:
        return chosen
    scaled = (logits / temperature).masked_fill(~candidates, -torch.inf)
    chances = (scaled - scaled.max()).exp()  # others than candidates add nothing, so none is ever found
    if torch.are_deterministic_algorithms_enabled():  # a GPU adds up in an order that changes
        cumulative = chances.cpu().cumsum(0).to(chances.device)
    else:
        cumulative = chances.cumsum(0)
    draws = rng.uniform(key.to(cumulative.device), k)[0] * cumulative[-1]
    chosen[torch.searchsorted(cumulative, draws)] = True
    return chosen & candidates  # a parallel sum may round a step up where nothing was added


def trim(sample: Tensor, count: int, size: int, key: Tensor) -> Tensor:
    """A random `size` of the `count` sampled elements."""
    if size == count:
        return sample
    index = places(sample)
    drawn = rng.uniform_at(key, index)[0].topk(size, largest=False).indices
    return torch.zeros_like(sample).index_fill_(0, index[drawn], True)


@dataclass(frozen=True)
class Scored:
    """The mask of one run's weights or edges, and the importance of its two parts."""

    mask: Tensor  # [n] bool
    retained: Tensor  # [n] importance where alive
    pruned: Tensor  # [n] importance where dead


@dataclass(frozen=True)
class Exchange:
    """What changes places, and what that was drawn from."""

    scored: Scored
    dropped: Tensor  # [n] bool: ω_retained
    added: Tensor  # [n] bool: ω_pruned
    size: int
    """Of either."""

    @property
    def mask(self) -> Tensor:
        """[n] the refined mask, M ⊕ ω_retained ⊕ ω_pruned (Equation 6)."""
        return self.scored.mask ^ self.dropped ^ self.added

    def similarity(self, last: Exchange) -> float:
        """How much of what the last exchange added this one drops: the cosine of both as 0/1 vectors (Equation 7), 0 if
        one is empty."""
        common, lengths = count(self.dropped & last.added), self.size * last.size
        return common / lengths**0.5 if lengths else 0.0


def limits(mask: Tensor, parts: Sequence[slice], share_of_smaller: float) -> Limits:
    """K before the first round: a share of the smaller of the two parts, and one where that is less."""
    alive = [(part, count(mask[part]), len(mask[part])) for part in parts or [slice(None)]]
    smaller = [(part, min(count, size - count)) for part, count, size in alive]
    return [(part, min(size, max(1, share(share_of_smaller, size)))) for part, size in smaller]


def exchange(scored: Scored, k: Limits, keys: Sequence[Tensor], sampling: Sampling) -> Exchange:
    """Draw the least important of the retained part and the most important of the pruned part (lines 7 to 11 of
    Algorithm 2), by DRAWS keys [1]; made equal in size, so that the sparsity stays exact."""
    dropped, added, total = torch.zeros_like(scored.mask), torch.zeros_like(scored.mask), 0
    for part, limit in k:
        mask = scored.mask[part]
        least = sampling(scored.retained[part], mask, limit, keys[0], least=True)
        most = sampling(scored.pruned[part], ~mask, limit, keys[1])
        counts = count(least), count(most)
        size = min(counts)
        dropped[part], added[part] = trim(least, counts[0], size, keys[2]), trim(most, counts[1], size, keys[3])
        total += size
    return Exchange(scored, dropped, added, total)
