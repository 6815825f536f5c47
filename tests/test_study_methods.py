"""The study's own methods: several random draws, and one shot by the mean scores of several trainings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.config import AXES, Config
from aceglt.errors import ConfigError
from aceglt.methods import Level, Method, Random
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit
from study.methods import OneShot, RandomDraws


def test_scores_of_several_trainings_are_averaged() -> None:
    phases: list[str] = []

    def train_scores(masks: Masks, epochs: int, phase: str, **options: Any) -> Fit:
        phases.append(phase)
        scores = torch.tensor([[1.0, 2.0, 9.0]]) if phase == "score" else torch.tensor([[4.0, 2.0, 0.0]])
        return Fit(torch.zeros(1), torch.ones(1), None, Scores(scores, torch.ones(1, 2)))

    level = Level(1, Masks.full(1, Counts(3, 2)), Counts(2, 1), (0,), 200, train_scores, train_scores)
    selection = OneShot(trainings=2).select(level)
    assert phases == ["score", "score 1"]
    assert selection.masks.weights.tolist() == [[True, False, True]]  # by 2.5, 2 and 4.5
    assert selection.epochs == OneShot(trainings=2).cost(200) == 400
    with pytest.raises(ConfigError, match="one-shot: trainings must be 1 or more, found 0"):
        OneShot(trainings=0)


def test_of_several_random_draws_each_run_takes_its_best_on_validation() -> None:
    tried: list[Masks] = []

    def train(masks: Masks, epochs: int, phase: str) -> Fit:
        assert (epochs, phase) == (60, f"draw {len(tried)}")
        tried.append(masks)
        val = torch.tensor([[0.5, 0.6], [0.9, 0.6], [0.7, 0.8]])[len(tried) - 1]
        return Fit(val, torch.ones(2), None, None)

    level = Level(1, Masks.full(2, Counts(50, 50)), Counts(25, 40), (0, 1), 60, train, train)
    method = RandomDraws(draws=3)
    selection = method.select(level)
    assert torch.equal(selection.masks.weights, torch.stack([tried[1].weights[0], tried[2].weights[1]]))
    assert torch.equal(tried[0].edges, Random().select(level).masks.edges)
    assert len({tuple(masks.weights[0].tolist()) for masks in tried}) == 3
    assert selection.epochs == method.cost(60) == 180
    with pytest.raises(ConfigError, match="random-draws: draws must be 1 or more, found 0"):
        RandomDraws(draws=0)


def records(method: Method, axis: str) -> Any:
    problem = tiny_problem()
    config = Config(seeds=(0, 1), epochs=4, hidden=6, axis=axis, signal="labels")
    search = Search(problem, GCN(problem.x.shape[1], problem.num_classes, 6), method, config)
    state = search.train_dense(State())
    for _ in range(2):
        state, _ = search.retrain(search.select(state))
    return state.records


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("method", [OneShot(trainings=2), RandomDraws(draws=2)], ids=str)
def test_levels_that_are_tried_anew_have_the_same_sparsities(method: Method, axis: str) -> None:
    usual, anew = records(Random(), axis), records(method, axis)
    assert [record.alive for record in anew] == [record.alive for record in usual]
    assert [record.select_epochs for record in anew] == [8, 8]
