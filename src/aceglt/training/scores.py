"""The scores that a training starts from: 1 plus a little noise where an element is alive."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from aceglt.numerics import rng
from aceglt.numerics.masks import SIDES, Masks, Scores, count, places

NOISE = 1e-5  # relative size of the noise
_FEW = 8  # where one in so many is alive, draws for those alone take less time than for all in order


def initial_scores(key: Tensor, masks: Masks, uniform: Callable[[Tensor, int], Tensor] = rng.uniform) -> Scores:
    """The scores that a training with this key starts from: 1 plus noise where alive, 0 where dead."""

    def side(name: str, alive: Tensor) -> Tensor:
        if _FEW * count(alive) > alive.numel():
            return _around_one(uniform(rng.fold(key, SIDES.index(name)), alive.shape[1])).mul_(alive)
        made = torch.zeros_like(alive, dtype=torch.get_default_dtype())
        for run, there in enumerate(map(places, alive)):
            made[run, there] = initial_scores_at(key[run : run + 1], name, there)
        return made

    return Scores(side("weights", masks.weights), side("edges", masks.edges))


def initial_scores_at(key: Tensor, side: str, places: Tensor) -> Tensor:
    """[k] those of one run's alive elements at `places` [k], without the others; key [1]."""
    return _around_one(rng.uniform_at(rng.fold(key, SIDES.index(side)), places)[0])


def _around_one(noise: Tensor) -> Tensor:
    return noise.mul_(2.0).sub_(1.0).mul_(NOISE).add_(1.0).to(torch.get_default_dtype())
