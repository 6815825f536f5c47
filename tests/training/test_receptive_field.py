"""Training where the labels are: the same as training on the whole graph, for less work."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from samples import generator, random_graph, random_masks, tiny_data
from torch import Tensor

from aceglt.backbones import build
from aceglt.backbones.base import Backbone
from aceglt.backends.cpu import calls as cpu
from aceglt.numerics import features, rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Field, Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems import base as problem
from aceglt.problems.base import Problem, Shared
from aceglt.problems.own import customise
from aceglt.training import fit as train
from aceglt.training.fit import Fit, Scoring, Training, fit

SCORING = Scoring(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="last")


def sparse_problem(task: str = "node", directed: bool = False) -> Problem:
    """A long ring with a few chords, most of it out of reach of the labels."""
    data, g = tiny_data(nodes=60), generator(3)
    ring = torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60])
    data.edge_index = torch.cat([ring, torch.randint(60, (2, 12), generator=g)], dim=1)
    data.train_mask = torch.arange(60) < 6
    data.val_mask = (torch.arange(60) >= 20) & (torch.arange(60) < 28)
    data.test_mask = torch.arange(60) >= 50
    return Problem.from_data(data, "ring", task, directed)


def trained(problem: Problem, backbone: Backbone, scoring: Scoring | None, runs: int = 2) -> Fit:
    seeds, total = range(runs), Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(int(0.7 * total.weights), int(0.8 * total.edges)), seeds)
    start, key = backbone.init(seeds), rng.keys(seeds, "focus")
    return fit(problem, backbone, start, masks, 5, Training(0.05, 0.01), key, scoring=scoring)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
@pytest.mark.parametrize("task", ["node", "inductive"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
@pytest.mark.parametrize("hidden", [8, 6])
def test_trains_as_on_the_whole_graph(
    name: str, task: str, scoring: Scoring | None, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = sparse_problem(task)
    backbone = build(name, problem.x.shape[1], problem.out_features, hidden)
    focused = trained(problem, backbone, scoring)
    assert problem.focus("train", 2) is not None
    monkeypatch.setattr(backbone, "reach", None)
    whole = trained(problem, backbone, scoring)
    assert focused.val.tolist() == whole.val.tolist()
    assert focused.epoch.tolist() == whole.epoch.tolist()
    for ours, theirs in ((focused.params, whole.params), (focused.scores, whole.scores)):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            for part in vars(ours):
                torch.testing.assert_close(getattr(ours, part), getattr(theirs, part), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
def test_validation_beside_the_training_step_changes_no_bit(scoring: Scoring | None) -> None:
    problem = sparse_problem()
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 8)
    before, fits, beside = torch.get_num_threads(), [], []
    judge = train._Trainer._begin_to_judge
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train._Trainer, "_begin_to_judge", lambda t, *a: beside.append(judge(t, *a)) or beside[-1])
        for threads in (1, 2):
            torch.set_num_threads(threads)
            fits.append(trained(problem, gcn, scoring, runs=1))
    torch.set_num_threads(before)
    assert [later is not None for later in beside] == [False] * 5 + [False] + [True] * 4
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
    problem = sparse_problem()
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 8)
    alive = torch.ones(1, problem.graph.num_edges, dtype=torch.bool)
    parts, whole = (train._places(problem, gcn, alive, True, alone) for alone in (True, False))
    assert parts[0].focus is not None
    assert parts[1].focus is not None
    assert whole[0] is whole[1]
    assert whole[0].focus is None
    own = customise(problem, loss=lambda outputs, _: outputs.square().mean(dim=(1, 2)))
    assert own.focus("train", 2) is None
    assert own.focus("val", 2) is not None


def test_a_part_of_the_graph_that_is_nearly_all_of_it_is_not_worth_it() -> None:
    field = Field(torch.arange(10), (4, 8, 10))
    problem = sparse_problem()
    focus = problem.focus("train", 2)
    assert focus is not None
    large = replace(focus, field=field, num_nodes=10)
    assert not train._smaller(large, large)
    assert train._smaller(replace(large, num_nodes=20), large)


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
    assert torch.equal(rng.keep_rows(key, rows, width, 0.4, torch.float32), whole[:, rows])


def test_masks_of_another_batch_do_not_change_the_field() -> None:
    problem = sparse_problem()
    total = Counts(1, problem.graph.num_edges)
    few = random_masks(total, Counts(1, total.edges // 3), (0,))
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 8)
    one, other = (train._places(problem, gcn, m.edges, True, True)[0] for m in (few, Masks.full(1, total)))
    assert one.focus is other.focus


def neighbours_problem(task: str = "node") -> Problem:
    """Training and validation nodes next to each other, far from most of a ring."""
    data, nodes = tiny_data(nodes=60), torch.arange(60)
    data.edge_index = torch.stack([nodes, (nodes + 1) % 60])
    data.train_mask, data.val_mask = (nodes < 12) & (nodes % 2 == 0), (nodes < 12) & (nodes % 2 == 1)
    data.test_mask = nodes >= 50
    return Problem.from_data(data, "neighbours", task)


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_a_product_that_validation_shares_changes_no_bit(
    name: str, scoring: Scoring | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(cpu, "_LARGE", 0)
    monkeypatch.setattr(features, "_SPARSE_FORWARD", 1.0)  # whose sums do not depend on how many rows there are
    monkeypatch.setattr(features, "_SPARSE_BACKWARD", 1.0)
    shared, ready = [], Shared.ready
    monkeypatch.setattr(Shared, "ready", lambda *given: shared.append(given) or ready(*given))
    fits = []
    for apart in (0.5, -1.0):
        monkeypatch.setattr(problem, "_APART", apart)
        made = neighbours_problem()
        fits.append(trained(made, build(name, made.x.shape[1], made.out_features, 8), scoring))
    assert len(shared) == 2 * 4  # runs, epochs but the first, which has nothing to validate
    one, other = fits
    assert (one.val.tolist(), one.epoch.tolist()) == (other.val.tolist(), other.epoch.tolist())
    for ours, theirs in zip((one.params, one.scores), (other.params, other.scores), strict=True):
        for part in vars(ours) if ours is not None else ():
            assert torch.equal(getattr(ours, part), getattr(theirs, part)), part


def test_what_is_shared_is_every_node_once() -> None:
    made = neighbours_problem()
    shared, train_focus, val_focus = made.shared(2), made.focus("train", 2), made.focus("val", 2)
    assert shared is not None
    assert train_focus is not None
    assert val_focus is not None
    assert made.shared(2) is shared
    nodes = set(train_focus.field.nodes.tolist()) | set(val_focus.field.nodes.tolist())
    assert shared.features.shape[0] == len(nodes)
    weight = torch.rand(1, made.x.shape[1], 3, generator=generator(7))
    of_train, of_val = shared.ready(weight, train_focus.features, val_focus.features)
    torch.testing.assert_close(of_train.matmul(weight), train_focus.features.matmul(weight))
    torch.testing.assert_close(of_val.matmul(weight), val_focus.features.matmul(weight))


def test_nothing_is_shared_with_another_graph_or_far_away() -> None:
    assert neighbours_problem("inductive").shared(2) is None
    assert sparse_problem().shared(2) is None
