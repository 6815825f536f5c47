"""Gumbel-max sampling of the elements to exchange (Equations 4 to 7)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from aceglt.numerics import rng
from aceglt.pruning.ranking import lowest

_TINY = 1e-30  # the logarithm of a score that reached 0


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
    noisy = logits + temperature * rng.gumbel(key, logits.shape[0])[0] if temperature else logits
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
    draws = rng.uniform(key, k)[0] * cumulative[-1]
    chosen[torch.searchsorted(cumulative, draws)] = True
    return chosen & candidates  # a parallel sum may round a step up where nothing was added


def trim(sample: Tensor, count: int, size: int, key: Tensor) -> Tensor:
    """A random `size` of the `count` sampled elements."""
    if size == count:
        return sample
    index = sample.nonzero().squeeze(1)
    drawn = rng.uniform_at(key, index)[0].topk(size, largest=False).indices
    return torch.zeros_like(sample).index_fill_(0, index[drawn], True)
