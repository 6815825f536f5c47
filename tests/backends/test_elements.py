"""Weights and scores in training: storing the alive ones alone changes nothing but the cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from samples import random_masks, tiny_data, tiny_problem

from aceglt.backbones import Backbone, build
from aceglt.backends import Backend, Cpu, Reference
from aceglt.backends.base import Place, ScoreTraining, Start
from aceglt.backends.cpu.elements import AliveElements, CompiledElements, Thresholds
from aceglt.backends.cpu.kernels import CompiledKernels
from aceglt.backends.cpu.passes import CpuPasses
from aceglt.backends.fields import Passes
from aceglt.backends.reference import PlainElements
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem
from aceglt.training.fit import Fit, fit
from aceglt.training.scores import initial_scores

SCORING = ScoreTraining(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="best")
SCORINGS = {
    "weights": None,
    "scores": SCORING,
    "clamped": replace(SCORING, clamp=True, epoch="last"),
    "edges": replace(SCORING, weights=False),
}
STILL = replace(SCORING, lambda_weights=0.0, decay=False)
KERNELS = {"plain": CompiledKernels(numba=False), "compiled": CompiledKernels(worth=0)}
COMPACT, MASKED = Thresholds(compact=1.0, compact_weights=1.0), Thresholds(compact=-1.0, compact_weights=-1.0)


class Noting(Cpu):
    """Keeps the passes and elements of its last training."""

    made_passes: CpuPasses
    made_elements: PlainElements

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> CpuPasses:
        self.made_passes = super().passes(backbone, train, val, start)
        return self.made_passes

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> PlainElements:
        self.made_elements = super().elements(backbone, start, passes)
        return self.made_elements


@pytest.fixture(params=KERNELS)
def kernels(request: pytest.FixtureRequest) -> CompiledKernels:
    """Both ways of updating on a CPU, by turns."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    return KERNELS[request.param]


def trained(
    backend: Backend,
    scoring: ScoreTraining | None,
    problem: Problem,
    backbone: Backbone,
    masks: Masks,
    other: torch.Tensor | None = None,
) -> Fit:
    seeds = range(masks.runs)
    start, key = backbone.init(seeds), rng.keys(seeds, "update")
    if other is not None:
        start.other.copy_(other)
    return fit(
        problem, backbone, start, masks, 5, Training(lr=0.05, weight_decay=0.01), key, scoring=scoring, backend=backend
    )


def tensors(result: Fit) -> dict[str, torch.Tensor]:
    parts = {name: getattr(result, name) for name in ("params", "scores") if getattr(result, name) is not None}
    return {f"{name}.{field}": value for name, part in parts.items() for field, value in vars(part).items()}


def same_bits(one: Fit, other: Fit) -> None:
    assert (one.val.tolist(), one.epoch.tolist()) == (other.val.tolist(), other.epoch.tolist())
    assert tensors(one).keys() == tensors(other).keys()
    for name, value in tensors(one).items():
        assert torch.equal(value, tensors(other)[name]), name


def some(problem: Problem, backbone_name: str, hidden: int = 8, share: float = 0.3) -> tuple[Backbone, Counts, Masks]:
    """A backbone and masks of two runs with this share of the weights alive."""
    layers = {"layers": 3} if backbone_name == "resgcn" else {}
    backbone = build(backbone_name, problem.x.shape[1], problem.out_features, hidden, **layers)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(int(share * total.weights), int(0.8 * total.edges)), (0, 1))
    return backbone, total, masks


each_scoring = pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)


@each_scoring
@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "resgcn"])
def test_alive_elements_alone_train_bitwise_as_among_the_dead(
    name: str, scoring: ScoreTraining | None, kernels: CompiledKernels
) -> None:
    problem = tiny_problem()
    backbone, _, masks = some(problem, name)
    compact, masked = (trained(Cpu(kernels, how), scoring, problem, backbone, masks) for how in (COMPACT, MASKED))
    same_bits(compact, masked)


@each_scoring
@pytest.mark.parametrize("name", ["gcn", "gin"])
@pytest.mark.parametrize("task", ["node", "inductive"])
def test_leaving_out_features_whose_weights_are_dead_changes_no_bit(
    task: str, name: str, scoring: ScoreTraining | None
) -> None:
    pytest.importorskip("numba")
    problem = Problem.from_data(tiny_data(density=0.08), "tiny", task)
    assert problem.features.csr is not None
    backbone, _, masks = some(problem, name, share=0.6)
    masks = masks[:1]
    masks.weights[:, : 5 * 8] = False  # the rows of five features
    found = []
    for how, left_out in ((Thresholds(), True), (MASKED, False)):
        backend = Noting(KERNELS["compiled"], how)
        found.append(trained(backend, scoring, problem, backbone, masks))
        assert bool(backend.made_passes.active) is left_out
    same_bits(*found)


@pytest.mark.usefixtures("double")
@each_scoring
def test_updates_are_those_of_torch(scoring: ScoreTraining | None, kernels: CompiledKernels) -> None:
    problem = tiny_problem()
    backbone, _, masks = some(problem, "gin")
    plain = trained(Reference(), scoring, problem, backbone, masks)
    for name, value in tensors(trained(Cpu(kernels), scoring, problem, backbone, masks)).items():
        torch.testing.assert_close(value, tensors(plain)[name], rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scoring", [*SCORINGS.values(), STILL], ids=[*SCORINGS, "still"])
@pytest.mark.parametrize("name", ["gcn", "gin"])
@pytest.mark.parametrize("task", ["node", "inductive"])
def test_leaving_out_hidden_units_that_nothing_reads_changes_nothing_but_rounding(
    task: str, name: str, scoring: ScoreTraining | None, kernels: CompiledKernels
) -> None:
    problem = Problem.from_data(tiny_data(), "tiny", task)
    backbone, _, masks = some(problem, name, hidden=40, share=0.9)
    masks = masks[:1]
    backbone.prunable.split(masks.weights)["layer1.weight"][:, 4:33] = False  # 11 units are read at most
    other = torch.rand(1, backbone.other.size)  # biases of units that are left out too
    backend, never = Noting(kernels), Noting(kernels, Thresholds(fewer=0.0))
    fewer, masked = (trained(b, scoring, problem, backbone, masks, other) for b in (backend, never))
    assert backend.made_passes.units is not None
    assert int(backend.made_passes.units.sum()) == 16
    assert backend.made_elements.effective()["layer0.weight"].shape[2] == 16
    assert type(backend.made_elements) is (CompiledElements if kernels is KERNELS["compiled"] else AliveElements)
    assert not never.made_passes.active
    assert fewer.val.tolist() == masked.val.tolist()
    assert fewer.epoch.tolist() == masked.epoch.tolist()
    for part, value in tensors(fewer).items():
        torch.testing.assert_close(value, tensors(masked)[part], rtol=1e-9, atol=1e-11)
        assert torch.equal(value != 0, tensors(masked)[part] != 0), part


def test_elements_that_nothing_reads_keep_the_scores_they_have_in_the_masked_form(kernels: CompiledKernels) -> None:
    """They are ranked with the others, so decay and L1 must move them as they do there."""
    problem = tiny_problem()
    backbone, total, _ = some(problem, "gcn", hidden=40)
    masks = Masks.full(1, total)
    backbone.prunable.split(masks.weights)["layer1.weight"][:] = False
    result = trained(Cpu(kernels), replace(SCORING, epoch="last"), problem, backbone, masks)
    assert result.scores is not None
    score = initial_scores(rng.keys((0,), "update"), masks).weights[masks.weights].requires_grad_()
    plain = torch.optim.Adam([score], lr=0.05, weight_decay=0.01)
    for _ in range(5):
        plain.zero_grad()
        (SCORING.lambda_weights * score.abs().sum()).backward()
        plain.step()
    torch.testing.assert_close(result.scores.weights[masks.weights], score.detach())


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
def test_what_is_stored_falls_with_what_is_alive(scoring: ScoreTraining | None) -> None:
    problem = tiny_problem()
    backbone, total, _ = some(problem, "gcn")
    stored = []
    for share in (1.0, 0.1):
        masks = random_masks(total, Counts(int(share * total.weights), total.edges))
        scores = None if scoring is None else initial_scores(rng.keys((0,), "scores"), masks)
        start = Start(backbone.init((0,)), masks, Training(lr=0.1, weight_decay=0.0), scoring, scores, {})
        elements = AliveElements(backbone, start, {}, 0.7, KERNELS["plain"])
        stored.append(sum(part.numel() for part in elements.weights.values()))
    assert stored[0] >= total.weights > 0.3 * total.weights > stored[1]
