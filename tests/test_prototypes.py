"""What the study tried outside the library does what it says."""

from __future__ import annotations

import pytest
import torch
from samples import tiny_problem
from torch import Tensor
from torch.autograd.functional import jacobian

from aceglt.backbones import GCN
from aceglt.backends.base import Scoring
from aceglt.config import Config
from aceglt.methods import Random
from aceglt.numerics.masks import Scores
from aceglt.searches.levels import Search, State
from study import prototypes

SEEDS = (0, 1)


def _search(epochs: int) -> Search:
    problem = tiny_problem()
    config = Config(seeds=SEEDS, epochs=epochs, hidden=8, teacher_smoothing=0.0, teacher_temperature=1.0)
    return Search(problem, GCN(problem.x.shape[1], problem.num_classes, config.hidden), Random(), config)


def test_the_mean_of_one_epoch_is_that_epochs_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prototypes, "_WARM", 0)
    search = _search(1)
    plain = search.train_dense(State())
    with prototypes.averaged_teacher():
        averaged = search.train_dense(State())
    torch.testing.assert_close(averaged.soft, plain.soft)


def test_a_teacher_is_the_mean_of_its_later_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    def taught(epochs: int, warm: int) -> Tensor:
        monkeypatch.setattr(prototypes, "_WARM", warm)
        with prototypes.averaged_teacher():
            soft = _search(epochs).train_dense(State()).soft
        assert soft is not None
        return soft

    torch.testing.assert_close(3 * taught(epochs=3, warm=0) - 2 * taught(epochs=3, warm=1), taught(epochs=1, warm=0))


def test_the_effect_of_an_edge_is_the_size_of_its_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prototypes, "_PROBES", 3000)
    search = _search(5)
    problem, backbone, masks = search.problem, search.backbone, search.full_masks()
    with prototypes.edges_by_effect():
        _, params = search._train_in_isolation(0, masks)
        found = search._bonus(masks) / prototypes._LARGE
    for run in range(len(SEEDS)):
        batch = problem.graph.batch(masks.edges[run : run + 1], backbone.self_loops)
        weights = backbone.weights(params[run : run + 1])
        slopes = jacobian(
            lambda v, b=batch, w=weights: backbone.apply(w, b, v, problem.features).softmax(-1),
            torch.ones(1, problem.graph.num_edges),
        )
        expected = (slopes.flatten(0, 2).square().sum(dim=0) / 12).sqrt()  # the variance of a probe is 1/12
        torch.testing.assert_close(found[run], expected[0], rtol=0.1, atol=1e-6)


@pytest.mark.parametrize("weights", [False, True])
def test_scores_are_the_mean_of_their_epochs(weights: bool) -> None:
    search, epochs = _search(3), 3
    masks = search.full_masks()

    def scores(epochs: int) -> Scores:
        found = search._fit(1, "scores", masks, epochs, Scoring(0.0, 0.0, decay=False, clamp=False, epoch="last"))
        assert found.scores is not None
        return found.scores

    plain = [scores(epoch + 1) for epoch in range(epochs)]
    with prototypes.averaged_scores(weights):
        found = scores(epochs)
    torch.testing.assert_close(found.edges, Scores.mean(plain).edges)
    torch.testing.assert_close(found.weights, (Scores.mean(plain) if weights else plain[-1]).weights)
    assert not torch.equal(found.edges, plain[-1].edges)
