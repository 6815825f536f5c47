"""DropEdge (Rong et al., 2020): every step trains without a random share of the alive edges."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.fields import Passes
from aceglt.numerics import rng

_DRAWS = (1 << 20) + 1  # of a step's random draws, those of DropEdge; layers count from 0, the loss has 1 << 20


def thinned(alive: Tensor, key: Tensor, drop: float) -> Tensor:
    """[S, E] alive edges without a share that each run draws."""
    return alive & rng.keep_mask(key, alive.shape[1], drop)


def edges_of_step(start: Start, key: Tensor) -> Tensor:
    """[S, E] the alive edges that a step trains with."""
    alive, drop = start.masks.edges, start.training.drop_edge
    return thinned(alive, rng.fold(key, _DRAWS), drop) if drop else alive


def passes_of_step(passes: Passes, backbone: Backbone, start: Start, key: Tensor) -> Passes:
    """The passes of a step, whose training pass is without the edges that are left out."""
    if not start.training.drop_edge:
        return passes
    site = passes.train_site
    graph = site.place.graph.batch(edges_of_step(start, key), backbone.self_loops, passes.kernels)
    return replace(passes, train_site=replace(site, graph=graph))
