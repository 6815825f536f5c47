"""Runs that share kernels, as on a GPU, agree with runs that are trained one by one."""

from __future__ import annotations

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import BACKBONES, build
from aceglt.backends.base import ScoreTraining
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.training.fit import fit

TRAINING = Training(lr=0.01, weight_decay=5e-4)
SCORING = ScoreTraining(1e-4, 1e-4, decay=True, clamp=False, epoch="last")


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
def test_runs_that_share_kernels_agree_with_runs_one_by_one(name: str, scoring: ScoreTraining | None) -> None:
    problem = tiny_problem()
    seeds = (0, 1, 2)
    layers = {"layers": 3} if name == "resgcn" else {}
    backbone = build(name, problem.x.shape[1], problem.out_features, 8, **layers)
    start, key = backbone.init(seeds), rng.keys(seeds, "train")
    masks = Masks.full(3, Counts(backbone.prunable.size, problem.graph.num_edges))
    one_by_one, together = (
        fit(problem, backbone, start, masks, 5, TRAINING, key, scoring=scoring, runs_at_once=size) for size in (1, 3)
    )
    pairs = [(one_by_one.val, together.val)]
    if scoring is None:
        assert one_by_one.params is not None
        assert together.params is not None
        pairs += [
            (one_by_one.params.prunable, together.params.prunable),
            (one_by_one.params.other, together.params.other),
        ]
    else:
        assert one_by_one.scores is not None
        assert together.scores is not None
        pairs += [
            (one_by_one.scores.weights, together.scores.weights),
            (one_by_one.scores.edges, together.scores.edges),
        ]
    for expected, found in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
