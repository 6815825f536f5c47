"""What magnitude pruning chooses, from trainings that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from samples import tiny_problem
from torch import Tensor

from aceglt.backbones import GCN
from aceglt.backbones.base import Params
from aceglt.config import resolve
from aceglt.methods import Level, Magnitude
from aceglt.numerics.masks import Counts, Masks, Quota
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit


def level_with(weights: Tensor, edges: int, keep: Counts) -> Level:
    """A level of one run whose training ends with these weights."""

    def train(masks: Masks, epochs: int, phase: str, *, by_signal: bool = False) -> Fit:
        assert (epochs, phase, by_signal) == (200, "weights", True)
        return Fit(torch.zeros(1), torch.ones(1), Params(weights[None], torch.zeros(1, 0)), None)

    def never(*_: object, **__: object) -> Fit:
        raise AssertionError("magnitude pruning has no scores")

    return Level(1, Masks.full(1, Counts(len(weights), edges)), keep, (0,), 200, never, train)


def test_the_weights_of_lowest_magnitude_go() -> None:
    selection = Magnitude().select(level_with(torch.tensor([0.5, -0.1, -2.0, 0.3]), 3, Counts(2, 2)))
    assert selection.masks.weights.tolist() == [[True, False, True, False]]
    assert int(selection.masks.edges.sum()) == 2
    assert selection.epochs == 200


def test_each_matrix_keeps_its_quota() -> None:
    level = level_with(torch.tensor([0.5, 0.4, 0.1, 0.2]), 3, Counts(2, 3))
    level = replace(level, quotas=(Quota(slice(0, 2), 1), Quota(slice(2, 4), 1)))
    assert Magnitude().select(level).masks.weights.tolist() == [[True, False, False, True]]


def test_nothing_is_trained_where_all_weights_stay() -> None:
    selection = Magnitude().select(level_with(torch.ones(4), 3, Counts(4, 2)))
    assert selection.epochs == 0
    assert bool(selection.masks.weights.all())


@pytest.mark.parametrize("signal", ["labels", "teacher"])
def test_weights_are_trained_by_the_signal(signal: str) -> None:
    """With labels, as the ticket of the same masks is; the teacher's weights are others."""
    problem = tiny_problem()
    config = resolve(method="magnitude", signal=signal, seeds=(3,), epochs=4, hidden=6, axis="joint")
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Magnitude(), config)
    level = search.level(search.train_dense(State()))
    by_signal, plain = (level.train(level.masks, 4, "weights", by_signal=asked).params for asked in (True, False))
    assert by_signal is not None
    assert plain is not None
    assert torch.equal(by_signal.prunable, plain.prunable) is (signal == "labels")


def test_the_published_signal_is_usual_and_the_label_says_what_becomes_of_edges() -> None:
    config = resolve(method="magnitude")
    assert (config.scoring.signal, config.pruning.balance) == ("labels", 0.0)
    assert config.scoring_epochs == config.training.epochs
    assert resolve(method="magnitude").label == "magnitude (labels, edges at random)"
