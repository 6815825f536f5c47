"""What UGS and random pruning choose and how decided that was: known by hand, from trainings that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import Tensor

from aceglt.methods import Level, Random, Ugs
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks, Quota, Scores
from aceglt.training.fit import Fit
from aceglt.training.scores import initial_scores


def level_with(weights: Tensor, edges: Tensor, keep: Counts) -> Level:
    """A level whose training returns these scores, for one run."""

    def train_scores(masks: Masks, epochs: int, phase: str) -> Fit:
        assert (phase, epochs) == ("score", 200)
        return Fit(torch.zeros(1), torch.ones(1), None, Scores(weights[None], edges[None]))

    return Level(1, Masks.full(1, Counts(len(weights), len(edges))), keep, (0,), 200, train_scores, train_scores)


def test_the_lowest_magnitudes_go() -> None:
    level = level_with(torch.tensor([0.5, -0.1, -2.0, 0.3]), torch.tensor([-0.1, 0.2, 0.3]), Counts(2, 2))
    selection = Ugs().select(level)
    assert selection.masks.weights.tolist() == [[True, False, True, False]]
    assert selection.masks.edges.tolist() == [[False, True, True]]
    assert selection.scores is not None


def test_elements_go_by_the_importance_that_the_ranking_gives_their_scores() -> None:
    level = level_with(torch.ones(1), torch.tensor([-0.1, 0.2, 0.3]), Counts(1, 1))

    def rank(scores: Scores, masks: Masks) -> Scores:
        return Scores(scores.weights, scores.edges.abs() + torch.tensor([[0.5, 0.1, 0.2]]))

    selection = Ugs().select(replace(level, rank=rank))
    assert selection.masks.edges.tolist() == [[True, False, False]]
    assert selection.diagnostics["edges"]["ties_at_threshold"] == [pytest.approx(1 / 3)]


def test_ties_and_distinct_scores_are_counted_by_magnitude() -> None:
    level = level_with(torch.tensor([1.0, -1.0, 1.0, 3.0, 0.5]), torch.ones(4), Counts(3, 3))
    found = Ugs().select(level).diagnostics
    assert found["weights"]["distinct"] == [3]
    assert found["weights"]["ties_at_threshold"] == [pytest.approx(3 / 5)]
    assert found["edges"]["distinct"] == [1]
    assert found["edges"]["ties_at_threshold"] == [1.0]
    assert found["edges"]["noise_correlation"] == [0.0]


def test_scores_that_still_follow_their_noise_are_found_out() -> None:
    first = initial_scores(rng.keys((0,), 1, "score", 0), Masks.full(1, Counts(50, 50)))
    level = level_with(3 * first.weights[0], -1 / first.edges[0], Counts(40, 45))
    found = Ugs().select(level).diagnostics
    assert found["weights"]["noise_correlation"] == [pytest.approx(1.0, abs=1e-3)]
    assert found["edges"]["noise_correlation"] == [pytest.approx(-1.0, abs=1e-3)]


def test_ties_are_at_the_threshold_of_each_matrix() -> None:
    level = level_with(torch.tensor([1.0, 1.0, 3.0, 2.0, 2.0, 5.0]), torch.ones(4), Counts(4, 3))
    quotas = (Quota(slice(0, 3), 2), Quota(slice(3, 6), 2))
    found = Ugs().select(replace(level, quotas=quotas)).diagnostics
    assert found["weights"]["ties_at_threshold"] == [pytest.approx(4 / 6)]  # two at 1, two at 2


def test_a_level_that_drops_nothing_on_a_side_has_no_ties() -> None:
    found = Ugs().select(level_with(torch.rand(5), torch.ones(4), Counts(4, 4))).diagnostics
    assert found["edges"]["ties_at_threshold"] == [0.0]


def test_random_drops_every_element_equally_often() -> None:
    def never(masks: Masks, epochs: int, phase: str) -> Fit:
        raise AssertionError("random pruning trains nothing")

    seeds = range(3000)
    level = Level(1, Masks.full(3000, Counts(10, 10)), Counts(9, 9), seeds, 200, never, never)
    masks = Random().select(level).masks
    for dropped in (~masks.weights, ~masks.edges):
        assert stats.chisquare(dropped.sum(dim=0).numpy()).pvalue > 0.01
    assert not torch.equal(masks.weights, masks.edges)


def test_one_shot_cuts_from_the_dense_pair() -> None:
    """An element that is dead may come back, and elements are ranked as if all were alive."""
    level = level_with(torch.tensor([0.5, 0.1, 2.0, 0.3]), torch.tensor([0.1, 0.2, 0.3]), Counts(2, 2))
    dead = Masks(torch.tensor([[True, True, False, True]]), torch.tensor([[True, True, False]]))
    started = replace(level, masks=dead, rank=lambda scores, masks: Scores(scores.weights, scores.edges + masks.edges))
    selection = Ugs(one_shot=True).select(started)
    assert selection.masks.weights.tolist() == [[True, False, True, False]]
    assert selection.masks.edges.tolist() == [[False, True, True]]
