"""Training where the labels are: the same as training on the whole graph, for less work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from samples import generator, random_graph, random_masks, tiny_data
from torch import Tensor

from aceglt.backbones import GCN, Backbone, build
from aceglt.backends import Backend, Cpu, Reference
from aceglt.backends.base import Place, ScoreTraining
from aceglt.backends.cpu.elements import Thresholds
from aceglt.backends.cpu.kernels import CompiledKernels
from aceglt.backends.cpu.passes import Shared, shared
from aceglt.backends.cpu.workers import Spare
from aceglt.backends.fields import Fields, Site
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.kernels import PLAIN
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem
from aceglt.problems.own import customise
from aceglt.training.fit import Fit, fit

SCORING = ScoreTraining(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="last")


def sparse_problem(task: str = "node", directed: bool = False) -> Problem:
    """A long ring with a few chords, most of it out of reach of the labels."""
    data, g = tiny_data(nodes=60), generator(3)
    ring = torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60])
    data.edge_index = torch.cat([ring, torch.randint(60, (2, 12), generator=g)], dim=1)
    data.train_mask = torch.arange(60) < 6
    data.val_mask = (torch.arange(60) >= 20) & (torch.arange(60) < 28)
    data.test_mask = torch.arange(60) >= 50
    return Problem.from_data(data, "ring", task, directed)


def trained(
    problem: Problem, backbone: Backbone, scoring: ScoreTraining | None, runs: int = 2, backend: Backend | None = None
) -> Fit:
    seeds, total = range(runs), Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(int(0.7 * total.weights), int(0.8 * total.edges)), seeds)
    start, key = backbone.init(seeds), rng.keys(seeds, "focus")
    return fit(
        problem, backbone, start, masks, 5, Training(lr=0.05, weight_decay=0.01), key, scoring=scoring, backend=backend
    )


def places(problem: Problem) -> tuple[Place, Place]:
    """Of training on labels alone and of validation."""
    view = problem.view("val")
    train = Place(problem.graph, problem.features, problem.reads("train"))
    if view is None:
        return train, Place(problem.graph, problem.features, problem.reads("val"))
    return train, Place(view.graph, view.features, problem.reads("val"), view.scatter)


def sites(problem: Problem, alive: Tensor | None = None, fields: Fields | None = None) -> tuple[Site, Site]:
    """Where training and validation of a GCN run."""
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 8)
    alive = torch.ones(1, problem.graph.num_edges, dtype=torch.bool) if alive is None else alive
    return (fields or Fields(PLAIN)).sites(gcn, *places(problem), alive)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
@pytest.mark.parametrize("task", ["node", "inductive"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
@pytest.mark.parametrize("hidden", [8, 6])
def test_trains_as_on_the_whole_graph(name: str, task: str, scoring: ScoreTraining | None, hidden: int) -> None:
    problem = sparse_problem(task)
    backbone = build(name, problem.x.shape[1], problem.out_features, hidden)
    assert all(site.field is not None for site in sites(problem))
    within, whole = (trained(problem, backbone, scoring, backend=backend) for backend in (Cpu(), Reference()))
    assert within.val.tolist() == whole.val.tolist()
    assert within.epoch.tolist() == whole.epoch.tolist()
    for ours, theirs in ((within.params, whole.params), (within.scores, whole.scores)):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            for part in vars(ours):
                torch.testing.assert_close(getattr(ours, part), getattr(theirs, part), rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat"])
def test_an_output_that_reads_all_layers_reads_each_at_the_nodes_that_it_needs(name: str) -> None:
    problem = sparse_problem()
    backbone = build(name, problem.x.shape[1], problem.out_features, 8, layers=3, jumping="cat")
    assert Fields(PLAIN).sites(backbone, *places(problem), torch.ones(1, problem.graph.num_edges).bool())[0].field
    within, whole = (trained(problem, backbone, None, backend=backend) for backend in (Cpu(), Reference()))
    assert within.params is not None
    assert whole.params is not None
    torch.testing.assert_close(within.params.prunable, whole.params.prunable, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
def test_validation_beside_the_training_step_changes_no_bit(
    scoring: ScoreTraining | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = sparse_problem()
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 8)
    before, fits, begun = torch.get_num_threads(), [], []
    submit = Spare.submit

    def noted(spare: Spare, validate: Callable[[], Tensor]) -> Callable[[], Tensor] | None:
        later = submit(spare, validate)
        begun.append(later is not None)
        return later

    monkeypatch.setattr(Spare, "submit", noted)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        fits.append(trained(problem, gcn, scoring, runs=1))
    torch.set_num_threads(before)
    assert begun == [False] * 6 + [True] * 6  # at the beginning and after every epoch
    one, other = fits
    assert (one.val.tolist(), one.epoch.tolist()) == (other.val.tolist(), other.epoch.tolist())
    for part in ("params", "scores"):
        ours, theirs = getattr(one, part), getattr(other, part)
        assert ours is None or all(torch.equal(value, getattr(theirs, name)) for name, value in vars(ours).items())


@pytest.mark.parametrize("directed", [False, True])
def test_a_field_holds_what_outputs_depend_on_and_nothing_else(directed: bool) -> None:
    graph = random_graph(5, nodes=40, edges=30, directed=directed)
    nodes = torch.tensor([7, 3])
    field = graph.field(nodes, 2)
    arcs = torch.eye(40) + _adjacency(graph)
    for steps, size in enumerate(field.sizes):
        needed = torch.linalg.matrix_power(arcs, steps)[nodes].sum(dim=0).nonzero().squeeze(1)
        assert field.nodes[:size].sort().values.tolist() == needed.tolist()
    assert field.nodes[:2].tolist() == [7, 3]


def _adjacency(graph: Graph) -> Tensor:
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes)
    source, target = graph.edges
    matrix[target, source] = 1
    return matrix if graph.directed else matrix + matrix.t()


def test_the_whole_graph_is_taken_where_all_outputs_are_read() -> None:
    problem, fields = sparse_problem(), Fields(PLAIN)
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 8)
    alive = torch.ones(1, problem.graph.num_edges, dtype=torch.bool)
    train, val = places(problem)
    whole = fields.sites(gcn, Place(train.graph, train.features), val, alive)
    assert whole[0] is whole[1]
    assert whole[0].field is None
    own = customise(problem, loss=lambda outputs, _: outputs.square().mean(dim=(1, 2)))
    assert own.reads("train") is None
    assert own.reads("val") is not None


@pytest.mark.parametrize(("steps", "worth"), [(4, True), (20, False)])
def test_a_field_that_is_nearly_the_whole_graph_is_not_worth_it(steps: int, worth: bool) -> None:
    problem: Any = sparse_problem()
    deep = GCN(problem.x.shape[1], problem.out_features, 4, layers=steps)
    train, val = Fields(PLAIN).sites(deep, *places(problem), torch.ones(1, problem.graph.num_edges).bool())
    assert (train.field is not None) is worth
    assert (train is val) is not worth


@pytest.mark.parametrize("density", [0.02, 0.5])
def test_features_of_some_nodes_drop_what_they_drop_among_all(density: float) -> None:
    x = torch.rand(30, 12, generator=generator(0)) * (torch.rand(30, 12, generator=generator(1)) < density)
    nodes, features = torch.tensor([4, 20, 11]), Features(x)
    weight = torch.rand(2, 12, 5, generator=generator(2))
    keep = torch.rand(2, features.entries, generator=generator(3)) < 0.5
    some = features.rows(nodes)
    torch.testing.assert_close(some.matmul(weight), features.matmul(weight)[:, nodes])
    assert some.entries == features.entries
    torch.testing.assert_close(
        some.dropped(keep, 2.0).matmul(weight), features.dropped(keep, 2.0).matmul(weight)[:, nodes]
    )


@pytest.mark.parametrize("width", [8, 6])
def test_rows_draw_what_they_draw_in_the_whole_matrix(width: int) -> None:
    key, rows = rng.keys((0, 1), "rows"), torch.tensor([5, 0, 9])
    whole = rng.keep_mask(key, 10 * width, 0.4, torch.float32).view(2, 10, width)
    assert torch.equal(rng.keep_mask(key, width, 0.4, torch.float32, rows), whole[:, rows])


def test_masks_of_another_batch_do_not_change_the_field() -> None:
    problem, fields = sparse_problem(), Fields(PLAIN)
    total = Counts(1, problem.graph.num_edges)
    few = random_masks(total, Counts(1, total.edges // 3), (0,))
    one, other = (sites(problem, m.edges, fields)[0] for m in (few, Masks.full(1, total)))
    assert one.field is not None
    assert one.field is other.field
    assert one.graph.num_arcs < other.graph.num_arcs


def neighbours_problem(task: str = "node") -> Problem:
    """Training and validation nodes next to each other, far from most of a ring."""
    data, nodes = tiny_data(nodes=60, density=0.08), torch.arange(60)
    data.edge_index = torch.stack([nodes, (nodes + 1) % 60])
    data.train_mask, data.val_mask = (nodes < 12) & (nodes % 2 == 0), (nodes < 12) & (nodes % 2 == 1)
    data.test_mask = nodes >= 50
    return Problem.from_data(data, "neighbours", task)


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_a_product_that_validation_shares_changes_no_bit(
    name: str, scoring: ScoreTraining | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    made = neighbours_problem()
    assert made.features.csr is not None  # whose sums do not depend on how many rows there are
    backbone = build(name, made.x.shape[1], made.out_features, 8)
    products: list[Any] = []
    ready = Shared.ready
    monkeypatch.setattr(Shared, "ready", lambda *given: products.append(given) or ready(*given))
    one, other = (
        trained(made, backbone, scoring, backend=Cpu(CompiledKernels(worth=0), Thresholds(apart=apart, sums=0.0)))
        for apart in (0.5, -1.0)
    )
    assert len(products) == 2 * 6  # runs, and steps: every epoch, and the validation of the last
    assert (one.val.tolist(), one.epoch.tolist()) == (other.val.tolist(), other.epoch.tolist())
    for ours, theirs in zip((one.params, one.scores), (other.params, other.scores), strict=True):
        for part in vars(ours) if ours is not None else ():
            assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


def test_what_is_shared_is_every_node_once() -> None:
    made, fields = neighbours_problem(), Fields(PLAIN)
    train, val = sites(made, fields=fields)
    both = shared(fields, train, val, apart=0.5)
    assert both is not None
    assert shared(fields, train, val, apart=0.5) is both
    assert train.field is not None
    assert val.field is not None
    nodes = set(train.field.nodes.tolist()) | set(val.field.nodes.tolist())
    assert both.features.shape[0] == len(nodes)
    weight = torch.rand(1, made.x.shape[1], 3, generator=generator(7))
    of_train, of_val = both.ready(weight, train.features, val.features)
    torch.testing.assert_close(of_train.matmul(weight), train.features.matmul(weight))
    torch.testing.assert_close(of_val.matmul(weight), val.features.matmul(weight))


def test_nothing_is_shared_with_another_graph_or_far_away() -> None:
    for problem in (neighbours_problem("inductive"), sparse_problem()):
        fields = Fields(PLAIN)
        assert shared(fields, *sites(problem, fields=fields), apart=0.5) is None
