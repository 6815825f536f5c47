"""The compiled halves of a GCN's pass are those of plain torch, gradients included."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from samples import generator, tiny_data
from torch import Tensor

from aceglt.backbones import GCN, Dropout
from aceglt.backbones.base import Backbone
from aceglt.backends import Cpu, Reference
from aceglt.backends.base import ScoreTraining, Start
from aceglt.backends.cpu.elements import Thresholds
from aceglt.backends.cpu.gcn import AggregatedFeatures, CompiledGCN, ReadyFeatures, aggregated
from aceglt.backends.cpu.kernels import CompiledKernels, Sums
from aceglt.backends.cpu.passes import Shared
from aceglt.backends.cpu.workers import Workers
from aceglt.backends.reference import PlainElements
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.kernels import PLAIN, Kernels
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem
from aceglt.training.fit import Fit, fit
from aceglt.training.partitions import Parts

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("double")
KEY = rng.keys((3,), "pass")
SCORING = ScoreTraining(1e-3, 1e-3, decay=True, clamp=False, epoch="last")
COMPILED = CompiledKernels(worth=0)
each_scoring = pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard masks", "scores"])
KINDS = pytest.mark.parametrize(
    "kind", [{}, {"directed": True}, {"weighted": True}], ids=["plain", "directed", "weighted"]
)


def problem(directed: bool = False, weighted: bool = False, sparse: bool = False) -> Problem:
    data = tiny_data(density=0.08 if sparse else 0.5)
    if weighted:
        source, target = data.edge_index
        data.edge_weight = 0.5 + ((source + target) % 5).double()
    return Problem.from_data(data, "tiny", directed=directed)


def passed(
    made: Problem,
    field: bool,
    drop: bool,
    kernels: Kernels = COMPILED,
    units: Tensor | None = None,
    summed: bool = False,
    hidden: int = 8,
) -> list[Tensor]:
    """Outputs of one pass with some edges dead, and the gradients of weights and edges."""
    plain = GCN(made.x.shape[1], made.out_features, hidden)
    backbone = CompiledGCN(plain, kernels) if isinstance(kernels, CompiledKernels) else plain
    alive = torch.rand(1, made.graph.num_edges, generator=generator(1)) < 0.8
    graph, x = made.graph.batch(alive, self_loops=True, kernels=kernels), made.features.using(kernels)
    if field:
        read = made.reads("val")
        assert read is not None
        graph = graph.within(made.graph.field(read, 2))
        x = x.rows(made.graph.field(read, 2).nodes)
    if summed:
        x = AggregatedFeatures(x, graph.layer(0), kernels)
    weights = {name: part.clone() for name, part in plain.prunable.split(plain.init((3,)).prunable).items()}
    if units is not None:
        first, second = (weights[f"layer{i}.weight"] for i in range(2))
        weights = {"layer0.weight": first[:, :, units].contiguous(), "layer1.weight": second[:, units].contiguous()}
    edges = torch.rand(alive.shape, generator=generator(2)).add_(0.2).requires_grad_()
    for part in weights.values():
        part.requires_grad_()
    dropout = Dropout(KEY, kernels, {} if units is None else {0: units}) if drop else None
    outputs = backbone.head(weights, graph, backbone.stem(weights, graph, edges, x), dropout)
    loss = (outputs * torch.rand(outputs.shape, generator=generator(4))).sum()
    return [outputs.detach(), *torch.autograd.grad(loss, [*weights.values(), edges])]


def same(ours: list[Tensor], plain: list[Tensor]) -> None:
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("drop", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("field", [False, True], ids=["all nodes", "a field"])
@KINDS
def test_outputs_and_gradients_are_those_of_plain_torch(kind: dict[str, bool], field: bool, drop: bool) -> None:
    for sparse in (False, True):
        made = problem(**kind, sparse=sparse)
        assert (made.features.csr is not None) is sparse
        plain = passed(made, field, drop, PLAIN)
        same(passed(made, field, drop), plain)
    same(passed(made, field, drop, summed=True), plain)


@pytest.mark.parametrize("summed", [False, True], ids=["products", "sums first"])
@pytest.mark.parametrize("hidden", [5, 16, 72, 100])  # a block, or several of which the last is not full
@pytest.mark.parametrize("field", [False, True], ids=["all nodes", "a field"])
def test_no_bit_depends_on_threads_or_caches(
    field: bool, hidden: int, summed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = problem(directed=True, sparse=True)
    same(passed(made, field, True, hidden=hidden), passed(made, field, True, PLAIN, hidden=hidden))
    alone = passed(made, field, True, hidden=hidden, summed=summed)
    for threads in (2, 3):
        workers = Workers(worth=0, together_from=0, most=threads)
        workers.lent = threads
        shared = passed(made, field, True, CompiledKernels(worth=0, workers=workers), hidden=hidden, summed=summed)
        for one, other in zip(shared, alone, strict=True):
            assert torch.equal(one, other)
        monkeypatch.setattr("aceglt.backends.cpu.kernels.core_cache", lambda: 4 << 10)  # features in several stretches


@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize("hidden", [12, 48, 100])
def test_a_product_that_is_ready_gives_what_the_features_do(hidden: int, blocked: bool) -> None:
    made = problem(sparse=True)
    gcn = GCN(made.x.shape[1], made.out_features, hidden)
    x, weight = made.features.using(COMPILED), gcn.weights(gcn.init((3,)))["layer0.weight"]
    nodes = torch.arange(made.graph.num_nodes).flip(0)[1:]
    of_all = CompiledGCN(gcn, COMPILED).product(x, weight) if blocked else x.product(weight)
    assert of_all is not None
    ready = ReadyFeatures(x.rows(nodes), of_all, nodes.int(), blocked)
    expected = x.rows(nodes).product(weight)
    torch.testing.assert_close(ready.product(weight), expected)
    order = torch.arange(len(nodes)).roll(3).unsqueeze(0)
    torch.testing.assert_close(ready.permuted(order).product(weight), expected[:, order[0]])


@each_scoring
@pytest.mark.parametrize("more", ["train", "val"])
@pytest.mark.parametrize("hidden", [12, 48, 100])
def test_one_of_training_and_validation_may_be_too_small_for_compiled_passes(
    scoring: ScoreTraining | None, more: str, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, nodes = tiny_data(nodes=400, features=60, density=0.05), torch.arange(400)
    data.edge_index = torch.randint(0, 400, (2, 500), generator=generator(1))
    few, many, rest = nodes < 15, (nodes >= 15) & (nodes < 75), nodes >= 75
    data.train_mask, data.val_mask, data.test_mask = (few, many, rest) if more == "val" else (many, few, rest)
    made = Problem.from_data(data, "few")
    read = {split: made.reads(split) for split in ("train", "val")}
    sizes = {split: made.graph.field(nodes, 2).sizes[1] for split, nodes in read.items() if nodes is not None}
    worth = hidden * max(sizes.values())
    assert min(sizes.values()) < sizes[more]
    shared: list[Any] = []
    ready = Shared.ready
    monkeypatch.setattr(Shared, "ready", lambda *given: shared.append(given) or ready(*given))
    found, plain = (
        trained(made, scoring, kernels=kernels, hidden=hidden, apart=1.0, sums=0.0)
        for kernels in (CompiledKernels(worth=worth), CompiledKernels(numba=False))
    )
    assert shared
    assert (found.val.tolist(), found.epoch.tolist()) == (plain.val.tolist(), plain.epoch.tolist())
    for name, part in tensors(found).items():
        torch.testing.assert_close(part, tensors(plain)[name], rtol=1e-8, atol=1e-10)


def test_a_weight_that_is_no_number_is_seen_in_the_outputs() -> None:
    made = problem(sparse=True)
    gcn = GCN(made.x.shape[1], made.out_features, 8)
    weights = {**gcn.weights(gcn.init((3,)))}
    weights["layer0.weight"] = torch.full_like(weights["layer0.weight"], torch.nan)
    graph = made.graph.batch(torch.ones(1, made.graph.num_edges, dtype=torch.bool), self_loops=True, kernels=COMPILED)
    x, ones = made.features.using(COMPILED), torch.ones(1, made.graph.num_edges)
    assert CompiledGCN(gcn, COMPILED).apply(weights, graph, ones, x).isnan().any()


def test_units_that_are_left_out_draw_nothing_else_for_the_others() -> None:
    units = torch.tensor([True, False, True, True, False, True, False, False])
    same(passed(problem(), False, True, units=units), passed(problem(), False, True, PLAIN, units=units))


def popular_problem() -> Problem:
    """Six nodes with labels, each with two neighbours that have eight more, and few features."""
    nodes = torch.arange(6 + 12 + 96)
    data = tiny_data(nodes=len(nodes), features=6, density=0.1)
    middle, leaves = nodes[6:18], nodes[18:]
    edges = torch.stack([middle, middle % 6]), torch.stack([leaves, 6 + leaves % 12])
    data.edge_index, data.train_mask, data.val_mask = torch.cat(edges, dim=1), nodes < 3, (nodes >= 3) & (nodes < 6)
    return Problem.from_data(data, "popular")


def trained(
    made: Problem,
    scoring: ScoreTraining | None,
    masks: Masks | None = None,
    kernels: CompiledKernels = COMPILED,
    hidden: int = 8,
    **thresholds: float,
) -> Fit:
    backbone = GCN(made.x.shape[1], made.out_features, hidden)
    full = Masks.full(1, Counts(backbone.prunable.size, made.graph.num_edges))
    start, backend = backbone.init((3,)), Cpu(kernels, Thresholds(**thresholds))
    return fit(
        made,
        backbone,
        start,
        masks or full,
        5,
        Training(lr=0.05, weight_decay=0.0),
        KEY,
        scoring=scoring,
        backend=backend,
    )


def tensors(found: Fit) -> dict[str, Tensor]:
    return vars(found.params or found.scores)


@each_scoring
def test_training_is_the_same_with_sums_first(scoring: ScoreTraining | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    of = Sums.of
    monkeypatch.setattr(Sums, "of", lambda *given: made.append(given) or of(*given))
    summed = trained(popular_problem(), scoring)
    count = len(made)
    assert count == (2 if scoring is None else 2 * 5 + 1)  # training and validation: once, or in every epoch
    apart = trained(popular_problem(), scoring, sums=0.0)
    assert len(made) == count
    assert (summed.val.tolist(), summed.epoch.tolist()) == (apart.val.tolist(), apart.epoch.tolist())
    for name, part in tensors(summed).items():
        torch.testing.assert_close(part, tensors(apart)[name], rtol=1e-9, atol=1e-12)


def within_field(made: Problem) -> tuple[Any, GraphBatch]:
    """Features and graph of the receptive field of validation."""
    graph = made.graph.batch(torch.ones(1, made.graph.num_edges, dtype=torch.bool), self_loops=True)
    read = made.reads("val")
    assert read is not None
    field = made.graph.field(read, 2)
    return made.features.rows(field.nodes), graph.within(field)


def test_sums_come_first_where_they_are_fewer() -> None:
    wide = Problem.from_data(tiny_data(features=60, density=0.1), "wide")
    for made, pays in ((popular_problem(), True), (wide, False)):
        x, graph = within_field(made)
        assert isinstance(aggregated(x, graph, 8, False, COMPILED), AggregatedFeatures) is pays
        assert aggregated(x, graph, 8, False, CompiledKernels(worth=1 << 40)) is x


@each_scoring
def test_sums_without_features_that_nothing_reads_change_no_bit(
    scoring: ScoreTraining | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = popular_problem()
    backbone = GCN(made.x.shape[1], made.out_features, 8)
    masks = Masks.full(1, Counts(backbone.prunable.size, made.graph.num_edges))
    masks.weights[:, : 2 * 8] = False  # all of the first two features
    left: list[Any] = []
    columns = AggregatedFeatures.columns
    monkeypatch.setattr(AggregatedFeatures, "columns", lambda *given: left.append(given) or columns(*given))
    few = trained(made, scoring, masks, compact=1.0, compact_weights=1.0)
    assert len(left) == 2
    all_of_them = trained(made, scoring, masks, compact=1.0, compact_weights=1.0, fewer=0.0)
    assert len(left) == 2
    for name, part in tensors(few).items():
        assert torch.equal(part, tensors(all_of_them)[name]), name


class Counting(CompiledKernels):
    """Counts how often coefficients of arcs are made."""

    def __init__(self) -> None:
        super().__init__(worth=0)
        self.made = 0

    def call(self, kernel: str, *arguments: Any, size: int) -> Callable[[], None]:
        run = super().call(kernel, *arguments, size=size)

        def counted() -> None:
            self.made += kernel == "coefficients"
            run()

        return counted


@pytest.mark.parametrize(("scoring", "once"), [(None, True), (SCORING, False)], ids=["hard masks", "scores"])
def test_coefficients_are_made_once_where_edges_have_no_scores(scoring: ScoreTraining | None, once: bool) -> None:
    kernels, sites = Counting(), 2  # of training and of validation, at most
    trained(problem(), scoring, kernels=kernels)
    assert (1 <= kernels.made <= sites) if once else kernels.made >= 5


def test_a_graph_with_other_values_does_not_see_what_was_kept() -> None:
    tiny = problem()
    alive = torch.ones(1, tiny.graph.num_edges, dtype=torch.bool)
    graph = tiny.graph.batch(alive, self_loops=True)
    gcn = GCN(tiny.x.shape[1], tiny.out_features, 8)
    weights = gcn.weights(gcn.init((5,)))
    fixed, free = CompiledGCN(gcn, COMPILED, fixed=True), CompiledGCN(gcn, COMPILED)
    first = fixed.stem(weights, graph, alive.double(), tiny.features)
    again = fixed.stem(weights, graph, alive.double(), tiny.features)
    doubled = free.stem(weights, graph, 2.0 * alive, tiny.features)
    assert torch.equal(first.picked, again.picked)
    assert not torch.equal(first.picked, doubled.picked)


@pytest.mark.parametrize("drop", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("field", [False, True], ids=["all nodes", "a field"])
@KINDS
def test_a_pass_in_the_room_of_the_last_is_that_of_plain_torch(kind: dict[str, bool], field: bool, drop: bool) -> None:
    """Weights and edges change in place, as in a training; what the first pass gave stays what it was."""
    for made in (problem(**kind, sparse=sparse) for sparse in (False, True)):
        plain = GCN(made.x.shape[1], made.out_features, 8)
        passing = CompiledGCN(plain, COMPILED, reuses=True)
        graph = made.graph.batch(torch.ones(1, made.graph.num_edges, dtype=torch.bool), True, COMPILED)
        x, read = made.features.using(COMPILED), made.reads("val")
        if field and read is not None:
            graph, x = graph.within(made.graph.field(read, 2)), x.rows(made.graph.field(read, 2).nodes)
        weights = {name: part.clone() for name, part in plain.prunable.split(plain.init((3,)).prunable).items()}
        edges = torch.rand(1, made.graph.num_edges, generator=generator(2)).add_(0.2)
        given: list[Tensor] = []
        for step in range(3):
            leaves = {name: part.detach().requires_grad_() for name, part in weights.items()}
            values = edges.detach().requires_grad_()
            both = []
            for network in (passing, plain):
                dropout = Dropout(rng.fold(KEY, step), COMPILED) if drop else None
                outputs = network.head(leaves, graph, network.stem(leaves, graph, values, x), dropout)
                loss = (outputs * torch.rand(outputs.shape, generator=generator(step))).sum()
                both.append([outputs, *torch.autograd.grad(loss, [*leaves.values(), values])])
            same([part.detach() for part in both[0]], [part.detach() for part in both[1]])
            given.append(both[0][0])
            for part in (*weights.values(), edges):
                part.mul_(0.9)
        assert not torch.equal(given[0], given[1])
        assert not torch.equal(given[1], given[2])


class Keeping(PlainElements):
    """Keeps the last gradients, as a method of one's own may, and says how far the next ones are from them."""

    def __init__(self, backbone: Backbone, start: Start, runs: slice, changes: list[float]) -> None:
        super().__init__(backbone, start)
        self._last: list[Tensor] = []
        self._changes = changes

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        assert edges is not None
        parts = [*grads.values(), edges]
        self._changes += [float((part - last).norm()) for part, last in zip(parts, self._last, strict=False)]
        self._last = parts
        super().update(grads, edges)


def test_elements_of_a_method_may_keep_gradients() -> None:
    made = problem(sparse=True)
    backbone, found = GCN(made.x.shape[1], made.out_features, 8), []
    masks = Masks.full(1, Counts(backbone.prunable.size, made.graph.num_edges))
    scoring = replace(SCORING, weights=False)
    for backend in (Reference(), Cpu(COMPILED)):
        changes: list[float] = []
        given = backbone.init((3,)), masks, 4, Training(lr=0.05, weight_decay=0.0), KEY
        elements = partial(Keeping, changes=changes)
        fit(made, backbone, *given, scoring=scoring, backend=backend, elements=elements)
        found.append(changes)
    assert min(found[0]) > 0
    assert found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.parametrize("partitions", [1, 3])
@each_scoring
def test_nothing_of_a_training_is_left_when_it_is_over(
    scoring: ScoreTraining | None, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks: list[weakref.ref[Backbone]] = []
    network = Cpu.network

    def seen(self: Cpu, *given: Any) -> Backbone:
        made = network(self, *given)
        networks.append(weakref.ref(made))
        return made

    monkeypatch.setattr(Cpu, "network", seen)
    made = problem(sparse=True)
    backbone = GCN(made.x.shape[1], made.out_features, 8)
    masks = Masks.full(1, Counts(backbone.prunable.size, made.graph.num_edges))
    given = backbone.init((3,)), masks, 3, Training(lr=0.05, weight_decay=0.0), KEY
    gc.disable()  # which would find cycles sooner or later
    try:
        fit(made, backbone, *given, scoring=scoring, backend=Cpu(COMPILED), parts=Parts(partitions))
        left = [each for each in networks if each() is not None]
    finally:
        gc.enable()
    assert networks
    assert left == []
