"""Gumbel-max sampling of the elements to exchange (Equations 4 to 7)."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt import rng
from aceglt.masks import lowest

_TINY = 1e-30  # the logarithm of a score that reached 0


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
    """[n] bool: the distinct elements among k draws with replacement, probability ∝ exp(logit / temperature).

    That is k Gumbel-max draws; here by inversion of the cumulative distribution, which draws from the same distribution
    at a cost of n + k log n instead of n · k.
    """
    index = candidates.nonzero().squeeze(1)
    chosen = torch.zeros_like(candidates)
    if k == 0 or not len(index):
        return chosen
    scaled = logits[index] / temperature
    weights = (scaled - scaled.max()).exp()
    cumulative = weights.cpu().cumsum(0).to(weights.device)  # a GPU adds up in an order that changes
    draws = rng.uniform(key, k)[0] * cumulative[-1]
    chosen[index[torch.searchsorted(cumulative, draws).clamp_max(len(index) - 1)]] = True
    return chosen


def trim(sample: Tensor, count: int, size: int, key: Tensor) -> Tensor:
    """A random `size` of the `count` sampled elements."""
    if size == count:
        return sample
    return lowest(torch.zeros(1, len(sample), device=sample.device), sample[None], size, key)[0]


def cosine(a: Tensor, b: Tensor) -> float:
    """Cosine similarity of two samples as 0/1 vectors (Equation 7); 0 if one is empty."""
    sizes = float(a.sum()) * float(b.sum())
    return float((a & b).sum()) / sizes**0.5 if sizes else 0.0
