"""The compiled halves of a GCN's pass are those of plain torch, gradients included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from samples import generator, tiny_data
from torch import Tensor

from aceglt.backbones.base import Dropout
from aceglt.backbones.gcn import GCN
from aceglt.backends.base import Scoring, Training
from aceglt.backends.cpu import calls as cpu
from aceglt.backends.cpu import gcn as cpu_gcn
from aceglt.numerics import features, rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem
from aceglt.training import fit as train
from aceglt.training.fit import fit

pytestmark = pytest.mark.usefixtures("double")
KEY = rng.keys((3,), "pass")
SCORING = Scoring(1e-3, 1e-3, decay=True, clamp=False, epoch="last")


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(cpu, "_LARGE", 0)


def problem(directed: bool = False, weighted: bool = False) -> Any:
    data = tiny_data()
    if weighted:
        source, target = data.edge_index
        data.edge_weight = 0.5 + ((source + target) % 5).double()
    return Problem.from_data(data, "tiny", directed=directed)


def passed(
    made: Any, steps: int | None, drop: bool, units: Tensor | None = None, gathered: bool = False
) -> list[Tensor]:
    """Outputs of one pass with some edges dead, and the gradients of weights and edges."""
    backbone = GCN(made.x.shape[1], made.out_features, 8).narrowed(units)
    alive = torch.rand(1, made.graph.num_edges, generator=generator(1)) < 0.8
    graph, x = made.graph.batch(alive, self_loops=True), made.features
    if steps is not None:
        focus = made.focus("val", steps)
        graph, x = graph.within(focus.field), focus.features
    if gathered:
        x = cpu_gcn.GatheredFeatures(x, graph.layer(0))
    weights = {name: part.clone() for name, part in backbone.prunable.split(backbone.init((3,)).prunable).items()}
    if units is not None:
        first, second = (weights[f"layer{i}.weight"] for i in range(2))
        weights = {"layer0.weight": first[:, :, units].contiguous(), "layer1.weight": second[:, units].contiguous()}
    edges = torch.rand(alive.shape, generator=generator(2)).add_(0.2).requires_grad_()
    for part in weights.values():
        part.requires_grad_()
    outputs = backbone.head(weights, graph, backbone.stem(weights, graph, edges, x), Dropout(KEY) if drop else None)
    loss = (outputs * torch.rand(outputs.shape, generator=generator(4))).sum()
    return [outputs.detach(), *torch.autograd.grad(loss, [*weights.values(), edges])]


@pytest.mark.parametrize("drop", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("steps", [None, 2], ids=["all nodes", "a field"])
@pytest.mark.parametrize("kind", [{}, {"directed": True}, {"weighted": True}], ids=["plain", "directed", "weighted"])
def test_outputs_and_gradients_are_those_of_plain_torch(
    kind: dict[str, bool], steps: int | None, drop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = passed(problem(**kind), steps, drop)
    monkeypatch.setattr(cpu_gcn, "serves", lambda graph, weight: False)
    for ours, plain in zip(compiled, passed(problem(**kind), steps, drop), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_SPARSE_FORWARD", 1.0)
    monkeypatch.setattr(features, "_SPARSE_BACKWARD", 1.0)


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize("drop", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("steps", [None, 2], ids=["all nodes", "a field"])
@pytest.mark.parametrize("kind", [{}, {"directed": True}, {"weighted": True}], ids=["plain", "directed", "weighted"])
def test_features_may_be_summed_before_they_are_multiplied(
    kind: dict[str, bool], steps: int | None, drop: bool
) -> None:
    first = passed(problem(**kind), steps, drop, gathered=True)
    for ours, plain in zip(first, passed(problem(**kind), steps, drop), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


def popular_problem() -> Any:
    """Six nodes with labels, each with two neighbours that have eight more, and few features."""
    nodes = torch.arange(6 + 12 + 96)
    data = tiny_data(nodes=len(nodes), features=6)
    middle, leaves = nodes[6:18], nodes[18:]
    edges = torch.stack([middle, middle % 6]), torch.stack([leaves, 6 + leaves % 12])
    data.edge_index, data.train_mask, data.val_mask = torch.cat(edges, dim=1), nodes < 3, (nodes >= 3) & (nodes < 6)
    return Problem.from_data(data, "popular")


def trained(made: Any, scoring: Scoring | None, masks: Masks | None = None) -> Any:
    backbone = GCN(made.x.shape[1], made.out_features, 8)
    full = Masks.full(1, Counts(backbone.prunable.size, made.graph.num_edges))
    start = backbone.init((3,))
    return fit(made, backbone, start, masks or full, 5, Training(0.05, 0.0), KEY, scoring=scoring)


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard masks", "scores"])
def test_training_is_the_same_with_sums_first(scoring: Scoring | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made, plain = [], cpu.Sums.of
    monkeypatch.setattr(cpu.Sums, "of", lambda *given: made.append(given) or plain(*given))
    summed = trained(popular_problem(), scoring)
    assert len(made) == (2 if scoring is None else 2 * 5)  # at both places: once, or every epoch
    monkeypatch.setattr(cpu_gcn, "_MOST", 0)
    apart = trained(popular_problem(), scoring)
    assert len(made) == (2 if scoring is None else 2 * 5)
    assert (summed.val.tolist(), summed.epoch.tolist()) == (apart.val.tolist(), apart.epoch.tolist())
    ours, theirs = (fit.params or fit.scores for fit in (summed, apart))
    for part in vars(ours):
        torch.testing.assert_close(getattr(ours, part), getattr(theirs, part), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("sparse")
def test_sums_come_first_where_they_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Problem.from_data(tiny_data(features=60), "wide")
    for made, pays in ((popular_problem(), True), (wide, False)):
        graph = made.graph.batch(torch.ones(1, made.graph.num_edges, dtype=torch.bool), self_loops=True)
        focus = made.focus("val", 2)
        x = cpu_gcn.gathered(focus.features, graph.within(focus.field), 8, trained=False)
        assert x.gathered is pays
        assert (x is focus.features) is not pays
    monkeypatch.setattr(cpu, "_LARGE", 1 << 40)
    assert cpu_gcn.gathered(focus.features, graph.within(focus.field), 8, trained=False) is focus.features


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard masks", "scores"])
def test_sums_without_features_that_nothing_reads_change_no_bit(
    scoring: Scoring | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = popular_problem()
    backbone = GCN(made.x.shape[1], made.out_features, 8)
    masks = Masks.full(1, Counts(backbone.prunable.size, made.graph.num_edges))
    masks.weights[:, : 2 * 8] = False  # all of the first two features
    left, columns = [], cpu_gcn.GatheredFeatures.columns
    monkeypatch.setattr(cpu_gcn.GatheredFeatures, "columns", lambda *given: left.append(given) or columns(*given))
    monkeypatch.setattr(train, "alive_rows", lambda mask: mask[0].any(dim=1))
    few = trained(made, scoring, masks)
    assert len(left) == 2
    monkeypatch.setattr(train, "alive_rows", lambda mask: None)
    all_of_them = trained(made, scoring, masks)
    ours, theirs = (fit.params or fit.scores for fit in (few, all_of_them))
    for part in vars(ours):
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard masks", "scores"])
def test_a_network_that_reads_no_feature_is_trained_all_the_same(scoring: Scoring | None) -> None:
    made = popular_problem()
    masks = Masks.full(1, Counts(made.x.shape[1] * 8 + 8 * made.out_features, made.graph.num_edges))
    masks.weights[:, : made.x.shape[1] * 8] = False
    found = trained(made, scoring, masks)
    ours = found.params.prunable if scoring is None else found.scores.weights
    assert torch.equal(ours != 0, masks.weights)


def test_units_that_are_left_out_draw_nothing_else_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    units = torch.tensor([True, False, True, True, False, True, False, False])
    compiled = passed(problem(), None, True, units)
    monkeypatch.setattr(cpu_gcn, "serves", lambda graph, weight: False)
    for ours, plain in zip(compiled, passed(problem(), None, True, units), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("scoring", "once"), [(None, True), (SCORING, False)], ids=["hard masks", "scores"])
def test_coefficients_are_made_once_where_edges_have_no_scores(
    scoring: Scoring | None, once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, plain = [], cpu.normalised
    monkeypatch.setattr(cpu, "normalised", lambda *given: made.append(given) or plain(*given))
    tiny = problem()
    backbone = GCN(tiny.x.shape[1], tiny.out_features, 8)
    masks = Masks(
        torch.ones(1, backbone.prunable.size, dtype=torch.bool), torch.ones(1, tiny.graph.num_edges, dtype=torch.bool)
    )
    fit(tiny, backbone, backbone.init((3,)), masks, 4, Training(0.05, 0.0), KEY, scoring=scoring)
    places = 2  # of training and of validation, at most
    assert (len(made) <= places) == once


def test_a_graph_with_other_values_does_not_see_what_was_kept() -> None:
    tiny = problem()
    alive = torch.ones(1, tiny.graph.num_edges, dtype=torch.bool)
    fixed = replace(tiny.graph.batch(alive, self_loops=True), fixed=True)
    weight = torch.rand(1, tiny.x.shape[1], 8, generator=generator(5))
    _, first = cpu_gcn.stem(weight, fixed, alive.double(), tiny.features)
    _, again = cpu_gcn.stem(weight, fixed, alive.double(), tiny.features)
    _, free = cpu_gcn.stem(weight, replace(fixed, fixed=False), 2.0 * alive, tiny.features)
    assert torch.equal(first, again)
    assert not torch.equal(first, free)
