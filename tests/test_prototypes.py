"""What the study tried outside the library does what it says."""

from __future__ import annotations

import pytest
import torch
from samples import tiny_problem
from torch import Tensor
from torch.autograd.functional import jacobian

from aceglt.backbones import GCN, GIN
from aceglt.config import Config
from aceglt.errors import ConfigError
from aceglt.methods import Random, Ugs
from aceglt.numerics.masks import Scores
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from study import prototypes
from study.methods import mean
from study.prototypes import PROTOTYPES, ByEffect

SEEDS = (0, 1)


def make_search(epochs: int, **settings: float) -> Search:
    problem = tiny_problem()
    plain = {"teacher_smoothing": 0.0, "teacher_temperature": 1.0}
    config = Config(seeds=SEEDS, epochs=epochs, hidden=8, **{**plain, **settings})
    return Search(problem, GCN(problem.x.shape[1], problem.num_classes, config.backbone_options.hidden), Ugs(), config)


def taught(epochs: int, warm: int) -> Tensor:
    soft = prototypes.averaged_teacher(make_search(epochs), warm).train_dense(State()).soft
    assert soft is not None
    return soft


def test_the_mean_of_one_epoch_is_that_epochs_teacher() -> None:
    torch.testing.assert_close(taught(epochs=1, warm=0), make_search(1).train_dense(State()).soft)


def test_a_teacher_is_the_mean_of_its_later_epochs() -> None:
    torch.testing.assert_close(3 * taught(epochs=3, warm=0) - 2 * taught(epochs=3, warm=1), taught(epochs=1, warm=0))


def test_an_averaged_teacher_needs_a_backbone_of_matrices_alone() -> None:
    problem = tiny_problem()
    search = Search(problem, GIN(problem.x.shape[1], problem.num_classes, 8), Random(), Config(seeds=(0,), epochs=2))
    with pytest.raises(ConfigError, match="needs a backbone of weight matrices alone; gin is none"):
        prototypes.averaged_teacher(search, warm=0)


def test_the_effect_of_an_edge_is_the_size_of_its_derivative() -> None:
    search = make_search(5)
    problem, backbone, masks = search.problem, search.backbone, search.full_masks()
    ranking = prototypes.edges_by_effect(search, probes=1000).ranking
    assert isinstance(ranking, ByEffect)
    found = ranking.effects(masks)
    _, params = search.train(0, masks)
    for run in range(len(SEEDS)):
        batch = problem.graph.batch(masks.edges[run : run + 1], backbone.self_loops)
        weights = backbone.weights(params[run : run + 1])
        slopes = jacobian(
            lambda v, b=batch, w=weights: backbone.apply(w, b, v, problem.features).softmax(-1),
            torch.ones(1, problem.graph.num_edges),
        )
        expected = (slopes.flatten(0, 2).square().sum(dim=0) / 12).sqrt()  # the variance of a probe is 1/12
        torch.testing.assert_close(found[run], expected[0], rtol=0.1, atol=1e-6)


def test_edges_are_ranked_by_their_effect_whatever_their_scores() -> None:
    search = prototypes.edges_by_effect(make_search(5))
    assert isinstance(search.ranking, ByEffect)
    scores = Scores(torch.ones(2, search.total.weights), torch.rand(2, search.total.edges))
    ranked = search.level(State()).importance(scores).edges
    effects = search.ranking.effects(search.full_masks())
    largest = effects.argmax(dim=1)
    assert torch.equal(ranked.argmax(dim=1), largest)
    assert search.level(State()).quotas == make_search(5).level(State()).quotas


@pytest.mark.parametrize("weights", [False, True])
def test_scores_are_the_mean_of_their_epochs(weights: bool) -> None:
    epochs = 3
    level = make_search(epochs).level(State())

    def last_scores(epochs: int) -> Scores:
        """Those that a training leaves if all of its epochs count, not the best one's."""
        seen: list[Scores] = []

        def watch(runs: slice, epoch: int, scores: Scores) -> bool:
            if epoch == epochs:
                seen.append(scores)
            return False

        level.train_scores(level.masks, epochs, "score", watch=watch)
        return Scores(*(torch.cat([each.of(side) for each in seen]) for side in ("weights", "edges")))

    each = [last_scores(epoch + 1) for epoch in range(epochs)]
    plain = level.train_scores(level.masks, epochs, "score").scores
    found = prototypes.averaging(level.train_scores, weights)(level.masks, epochs, "score").scores
    assert found is not None
    assert plain is not None
    torch.testing.assert_close(found.edges, mean(each).edges)
    torch.testing.assert_close(found.weights, (mean(each) if weights else plain).weights)
    assert not torch.equal(found.edges, plain.edges)


@pytest.mark.parametrize("name", [name for name in PROTOTYPES if name != "none"])
def test_every_prototype_chooses_other_masks_than_the_library(name: str) -> None:
    def chosen(search: Search) -> Tensor:
        selected = search.select(search.train_dense(State())).selected
        assert selected is not None
        return torch.cat([selected.masks.weights, selected.masks.edges], dim=1)

    half = {"fixed_graph": 0.5, "degree_bonus": 0.0}
    epochs = prototypes.WARM + 3 if name == "averaged-teacher" else 20
    changed, usual = chosen(PROTOTYPES[name](make_search(epochs, **half))), chosen(make_search(epochs, **half))
    assert torch.equal(changed.sum(dim=1), usual.sum(dim=1))
    assert not torch.equal(changed, usual)
