"""Weights and scores in training: storing the alive ones alone changes nothing but the cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from samples import random_masks, tiny_data, tiny_problem
from search_samples import outcome, search

from aceglt.backbones import build
from aceglt.backends import elements as update
from aceglt.backends.base import CompiledElements, Elements, Scoring, Training
from aceglt.backends.cpu import calls as cpu
from aceglt.numerics import features, rng
from aceglt.numerics.masks import Counts
from aceglt.problems.base import Problem
from aceglt.training import fit as train
from aceglt.training.fit import Fit, fit, initial_scores

SCORING = Scoring(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="best")
SCORINGS = {
    "weights": None,
    "scores": SCORING,
    "clamped": replace(SCORING, clamp=True, epoch="last"),
    "edges": replace(SCORING, weights=False),
}
STILL = replace(SCORING, lambda_weights=0.0, decay=False)


def trained(backbone_name: str, scoring: Scoring | None, alive: float = 0.3) -> Fit:
    problem = tiny_problem()
    backbone = build(backbone_name, problem.x.shape[1], problem.out_features, 8)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(int(alive * total.weights), int(0.8 * total.edges)), (0, 1))
    start, key = backbone.init((0, 1)), rng.keys((0, 1), "update")
    return fit(problem, backbone, start, masks, 5, Training(0.05, 0.01), key, scoring=scoring)


def tensors(result: Fit) -> dict[str, torch.Tensor]:
    parts = {name: getattr(result, name) for name in ("params", "scores") if getattr(result, name) is not None}
    return {f"{name}.{field}": value for name, part in parts.items() for field, value in vars(part).items()}


@pytest.fixture(params=["plain", "compiled"])
def elements(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Elements]:
    """Both ways of updating on a CPU, by turns; what trainings have in the meantime."""
    if request.param == "plain":
        return Elements
    pytest.importorskip("numba")
    monkeypatch.setattr(cpu, "_LARGE", 0)
    return CompiledElements


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
@pytest.mark.parametrize("backbone", ["gcn", "gin", "gat", "resgcn"])
@pytest.mark.usefixtures("elements")
def test_alive_elements_alone_train_bitwise_as_among_the_dead(
    backbone: str, scoring: Scoring | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "_COMPACT", 1.0)
    compact = trained(backbone, scoring)
    monkeypatch.setattr(update, "_COMPACT", -1.0)
    masked = trained(backbone, scoring)
    assert compact.val.tolist() == masked.val.tolist()
    assert compact.epoch.tolist() == masked.epoch.tolist()
    assert tensors(compact).keys() == tensors(masked).keys()
    for name, value in tensors(compact).items():
        assert torch.equal(value, tensors(masked)[name]), name


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
@pytest.mark.parametrize("backbone_name", ["gcn", "gin"])
@pytest.mark.parametrize("task", ["node", "inductive"])
def test_leaving_out_features_whose_weights_are_dead_changes_no_bit(
    task: str, backbone_name: str, scoring: Scoring | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(cpu, "_LARGE", 0)
    monkeypatch.setattr(features, "_SPARSE_FORWARD", 1.0)  # the features are sparse
    monkeypatch.setattr(features, "_SPARSE_BACKWARD", 1.0)
    problem = Problem.from_data(tiny_data(), "tiny", task)
    backbone = build(backbone_name, problem.x.shape[1], problem.out_features, 8)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(int(0.6 * total.weights), int(0.8 * total.edges)))
    masks.weights[:, : 5 * 8] = False  # the rows of five features
    start, key = backbone.init((0,)), rng.keys((0,), "update")

    def result() -> tuple[Fit, bool]:
        trainer = train._Trainer(problem, backbone, start, masks, Training(0.05, 0.01), key, scoring, None)
        return trainer.run(5, None, None), bool(trainer.acting)

    fewer, left_out = result()
    monkeypatch.setattr(update, "_COMPACT", -1.0)
    masked, never = result()
    assert left_out
    assert not never
    assert fewer.val.tolist() == masked.val.tolist()
    for name, value in tensors(fewer).items():
        assert torch.equal(value, tensors(masked)[name]), name


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
@pytest.mark.parametrize("backbone", ["gcn", "gin", "gat", "resgcn"])
def test_compiled_updates_are_those_of_torch(
    backbone: str, scoring: Scoring | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    plain = trained(backbone, scoring)
    monkeypatch.setattr(cpu.Adam, "serves", lambda values: True)
    compiled = trained(backbone, scoring)
    for name, value in tensors(compiled).items():
        torch.testing.assert_close(value, tensors(plain)[name], rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scoring", [*SCORINGS.values(), STILL], ids=[*SCORINGS, "still"])
@pytest.mark.parametrize("backbone_name", ["gcn", "gin"])
@pytest.mark.parametrize("task", ["node", "inductive"])
def test_leaving_out_hidden_units_that_nothing_reads_changes_nothing_but_rounding(
    task: str, backbone_name: str, scoring: Scoring | None, elements: type[Elements], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem.from_data(tiny_data(), "tiny", task)
    backbone = build(backbone_name, problem.x.shape[1], problem.out_features, 40)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(int(0.9 * total.weights), int(0.8 * total.edges)))
    backbone.prunable.split(masks.weights)["layer1.weight"][:, 4:33] = False  # 11 units are read at most
    start, key = backbone.init((0,)), rng.keys((0,), "update")
    start.other.copy_(torch.rand(start.other.shape))  # biases of units that are left out too

    def result() -> tuple[Fit, train._Trainer]:
        trainer = train._Trainer(problem, backbone, start, masks, Training(0.05, 0.01), key, scoring, None)
        return trainer.run(5, None, None), trainer

    fewer, trainer = result()
    monkeypatch.setattr(train, "read_units", lambda alive: None)
    masked, never = result()
    assert trainer.network.units is not None
    assert int(trainer.network.units.sum()) == 16
    assert trainer.elements.effective()["layer0.weight"].shape[2] == 16
    assert type(trainer.elements) is elements
    assert not never.acting
    assert fewer.val.tolist() == masked.val.tolist()
    assert fewer.epoch.tolist() == masked.epoch.tolist()
    for name, value in tensors(fewer).items():
        torch.testing.assert_close(value, tensors(masked)[name], rtol=1e-9, atol=1e-11)
        assert torch.equal(value != 0, tensors(masked)[name] != 0), name


@pytest.mark.usefixtures("elements")
def test_elements_that_nothing_reads_keep_the_scores_they_have_in_the_masked_form() -> None:
    """They are ranked with the others, so decay and L1 must move them as they do there."""
    problem = tiny_problem()
    backbone = build("gcn", problem.x.shape[1], problem.out_features, 40)
    masks = random_masks(*[Counts(backbone.prunable.size, problem.graph.num_edges)] * 2)
    backbone.prunable.split(masks.weights)["layer1.weight"][:] = False
    start, key = backbone.init((0,)), rng.keys((0,), "update")
    result = fit(problem, backbone, start, masks, 3, Training(0.05, 0.01), key, scoring=replace(SCORING, epoch="last"))
    assert result.scores is not None
    score = initial_scores(key, masks).weights[masks.weights].requires_grad_()
    plain = torch.optim.Adam([score], lr=0.05, weight_decay=0.01)
    for _ in range(3):
        plain.zero_grad()
        (SCORING.lambda_weights * score.abs().sum()).backward()
        plain.step()
    torch.testing.assert_close(result.scores.weights[masks.weights], score.detach())


@pytest.mark.parametrize("method", ["random", "ugs", "gebt", "ace"])
def test_a_search_is_bitwise_the_same_either_way(method: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"method": method, "axis": "model", "prune_model": 0.6}
    for name, share in (("compact", 1.0), ("masked", -1.0)):
        monkeypatch.setattr(update, "_COMPACT", share)
        search(**settings, out=tmp_path / name)
    assert outcome(tmp_path / "compact") == outcome(tmp_path / "masked")


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
def test_what_is_stored_falls_with_what_is_alive(scoring: Scoring | None) -> None:
    problem = tiny_problem()
    backbone = build("gcn", problem.x.shape[1], problem.out_features, 8)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    stored = []
    for alive in (1.0, 0.1):
        masks = random_masks(total, Counts(int(alive * total.weights), total.edges))
        scores = None if scoring is None else initial_scores(rng.keys((0,), "scores"), masks)
        elements = update.Elements(backbone, backbone.init((0,)), masks, Training(0.1, 0.0), scoring, scores, {})
        stored.append(sum(part.numel() for part in elements._current()) - (total.edges if scoring else 0))
    assert stored[0] >= total.weights > 0.3 * total.weights > stored[1]
