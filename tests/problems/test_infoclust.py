"""Graph InfoClust: its loss against the definition, its parameters in training, the corrupted pass."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from samples import generator, random_masks, tiny_data

from aceglt.backbones import BACKBONES, GCN, build
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems import LinkProblem
from aceglt.problems.infoclust import InfoClust
from aceglt.training.fit import Fit, ScoreTraining, fit

SCORING = ScoreTraining(1e-4, 1e-4, decay=False, clamp=False, epoch="last")


def contrast_problem() -> LinkProblem:
    return LinkProblem.build(tiny_data(), "tiny", False, objective="infoclust", embedding=4)


def train(seeds: list[int], scoring: ScoreTraining | None = None, epochs: int = 5) -> Fit:
    problem = contrast_problem()
    backbone = GCN(problem.x.shape[1], problem.out_features, 8)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(total.weights // 2, total.edges // 2), seeds)
    keys = rng.keys(seeds, "fit")
    return fit(
        problem,
        backbone,
        backbone.init(seeds),
        masks,
        epochs,
        Training(lr=0.01, weight_decay=0.0),
        keys,
        scoring=scoring,
    )


@pytest.mark.usefixtures("double")
def test_the_loss_tells_real_from_corrupted_by_both_summaries() -> None:
    """Node by node, as the paper has it, with the clusters as they were found."""
    objective = InfoClust(width=3, clusters=4, alpha=0.3)
    real, fake = torch.randn(2, 1, 5, 3, generator=generator(0)).unbind(0)
    parameters = objective.start(1, torch.device("cpu"))
    parameters["infoclust.bias"] += 0.7
    outputs = real, fake
    real, fake = (torch.where(z > 0, z, 0.25 * z) for z in outputs)
    form, clusters = parameters["infoclust.discriminator"][0], objective.cluster_summaries(real)[0].sigmoid()
    summary = real[0].mean(dim=0).sigmoid()
    of_graph = of_clusters = 0.0
    for node in range(5):
        for h, sign in ((real[0, node], 1.0), (fake[0, node], -1.0)):
            of_graph -= math.log(torch.sigmoid(sign * (h @ form @ summary + 0.7))) / 10
            of_clusters -= math.log(torch.sigmoid(sign * (h @ clusters[node]))) / 10
    expected = 0.3 * of_graph + 0.7 * of_clusters
    assert float(objective.loss(*outputs, parameters)) == pytest.approx(expected)


def test_summaries_of_clear_clusters_are_their_directions() -> None:
    directions = F.normalize(torch.tensor([[1.0, 0.2], [-0.3, 1.0], [-1.0, -1.0]]), dim=1)
    member = torch.arange(12) % 3
    lengths = torch.linspace(0.5, 2.0, 12).unsqueeze(1)
    summaries = InfoClust(width=2).cluster_summaries((lengths * directions[member]).unsqueeze(0))[0]
    assert torch.allclose(summaries, directions[member], atol=1e-2)


def test_the_loss_of_each_run_is_its_own() -> None:
    objective = InfoClust(width=3, clusters=4)
    real, fake = torch.randn(2, 2, 6, 3, generator=generator(1)).unbind(0)
    cpu = torch.device("cpu")
    both = objective.loss(real, fake, objective.start(2, cpu))
    alone = [objective.loss(real[i : i + 1], fake[i : i + 1], objective.start(1, cpu))[0] for i in range(2)]
    assert torch.allclose(both, torch.stack(alone))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("density", [0.03, 0.5])
def test_permuted_features_act_as_a_permuted_copy_of_x(density: float) -> None:
    g = generator(0)
    x = torch.rand(9, 7, generator=g) * (torch.rand(9, 7, generator=g) < density)
    x[0, 0] = 1.0
    order = rng.permutation(rng.keys([0, 1], "order"), 9)
    weight = torch.randn(2, 7, 3, generator=g, requires_grad=True)
    upstream = torch.randn(2, 9, 3, generator=g)
    found, expected = Features(x).permuted(order).matmul(weight), x[order] @ weight
    assert torch.allclose(found, expected)
    (grad,) = torch.autograd.grad(found, weight, upstream)
    assert torch.allclose(grad, torch.autograd.grad(expected, weight, upstream)[0])


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_takes_permuted_features(name: str) -> None:
    problem = contrast_problem()
    backbone = build(name, problem.x.shape[1], 4, 8)
    weights = backbone.weights(backbone.init([0]))
    alive = torch.ones(1, problem.graph.num_edges, dtype=torch.bool)
    graph, values = problem.graph.batch(alive, backbone.self_loops), alive.to(problem.x.dtype)
    order = rng.permutation(rng.keys([0], "order"), problem.graph.num_nodes)
    found = backbone.apply(weights, graph, values, problem.features.permuted(order))
    assert torch.allclose(found, backbone.apply(weights, graph, values, Features(problem.x[order[0]])))


def test_training_moves_the_discriminator_and_keeps_the_backbone_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    real = InfoClust.loss

    def spy(self: InfoClust, outputs: torch.Tensor, corrupted: torch.Tensor, parameters: dict) -> torch.Tensor:
        assert not outputs.equal(corrupted)
        seen.append(parameters["infoclust.discriminator"].detach().clone())
        return real(self, outputs, corrupted, parameters)

    monkeypatch.setattr(InfoClust, "loss", spy)
    result = train([0])
    assert not seen[0].equal(seen[-1])
    assert seen[0].equal(InfoClust(4).start(1, torch.device("cpu"))["infoclust.discriminator"])
    assert result.params is not None
    assert result.params.other.shape == (1, 0)


@pytest.mark.parametrize("scoring", [None, SCORING])
def test_runs_together_end_as_alone(scoring: ScoreTraining | None) -> None:
    both, alone = train([0, 1], scoring), train([1], scoring)
    assert both.val[1:].equal(alone.val)
    if scoring is None:
        assert both.params is not None
        assert alone.params is not None
        assert both.params.prunable[1:].equal(alone.params.prunable)
    else:
        assert both.scores is not None
        assert alone.scores is not None
        assert both.scores.edges[1:].equal(alone.scores.edges)


def test_training_lowers_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[float] = []
    real = InfoClust.loss
    monkeypatch.setattr(InfoClust, "loss", lambda *a: losses.append(float(real(*a).detach())) or real(*a))
    problem = contrast_problem()
    backbone = GCN(problem.x.shape[1], 4, 8)
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    fit(problem, backbone, backbone.init([0]), masks, 60, Training(lr=0.05, weight_decay=0.0), rng.keys([0]))
    assert sum(losses[-10:]) < 0.95 * sum(losses[:10])
