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
from aceglt.errors import ConfigError
from aceglt.methods import Level, Magnitude
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks, Quota
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit, fit


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


def rewound(epoch: int, seeds: tuple[int, ...] = (3, 8), **settings: object) -> Search:
    problem = tiny_problem()
    config = resolve(method="magnitude", seeds=seeds, epochs=4, hidden=6, axis="joint", rewind_epoch=epoch, **settings)
    return Search(problem, GCN(problem.x.shape[1], 3, 6), Magnitude(), config)


def test_late_rewinding_starts_levels_from_the_dense_weights_of_that_epoch() -> None:
    """Which are those that training them for so many epochs ends with, since the last epoch of one is its only one."""
    search, once = rewound(1), rewound(0)
    keys = rng.keys((3, 8), 0, "dense", 0)
    dense = fit(once.problem, once.backbone, once.start, once.full_masks(), 1, once.config.training, keys).params
    assert dense is not None
    torch.testing.assert_close(search.rewound.prunable, dense.prunable)
    assert torch.equal(once.rewound.prunable, once.start.prunable)
    state = search.train_dense(State())
    began = search.level(state).train(search.full_masks(), 1, "weights").params
    assert began is not None
    again = fit(
        search.problem, search.backbone, dense, search.full_masks(), 1, search.config.training,
        rng.keys((3, 8), 1, "weights", 0),
    ).params  # fmt: skip
    assert again is not None
    torch.testing.assert_close(began.prunable, again.prunable)


def test_a_run_is_rewound_alone_as_in_a_batch() -> None:
    assert torch.equal(rewound(2).rewound.prunable[1:], rewound(2, (8,)).rewound.prunable)


def test_rewinding_is_refused_where_it_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="rewind_epoch must be at most epochs, 4, found 5"):
        rewound(5)
    with pytest.raises(ConfigError, match="ugts leaves weights at their initial values; rewind_epoch must be 0"):
        resolve(method="ugts", rewind_epoch=1)
