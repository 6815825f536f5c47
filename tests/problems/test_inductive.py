"""The inductive task: validation and test nodes do not exist in training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from samples import sparse_split_data
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import aceglt
from aceglt.backbones import GCN
from aceglt.config import Config, Training
from aceglt.errors import DataError
from aceglt.methods import Ugs
from aceglt.numerics import rng
from aceglt.numerics.masks import Masks
from aceglt.problems import InductiveProblem
from aceglt.problems.base import Problem, Soft
from aceglt.searches.levels import Search, outputs
from aceglt.searches.state import State
from aceglt.training.fit import Fit, ScoreTraining, fit

SETTINGS: dict[str, Any] = {"task": "inductive", "seeds": 1, "epochs": 4, "hidden": 6, "device": "cpu"}


def problem_of(data: Any) -> InductiveProblem:
    problem = Problem.from_data(data, "tiny", "inductive")
    assert isinstance(problem, InductiveProblem)
    return problem


def train(problem: InductiveProblem) -> Fit:
    """Scores of the last epoch, with a teacher: what validation does not choose."""
    backbone = GCN(problem.x.shape[1], problem.out_features, 6)
    search = Search(problem, backbone, Ugs(), Config(seeds=(2,), hidden=6, epochs=3))
    masks = search.full_masks()
    soft = Soft(problem.soften(outputs(problem, backbone, search.start, masks)).targets, 1.0)
    scoring = ScoreTraining(1e-4, 1e-4, True, False, "last")
    return fit(
        problem,
        backbone,
        search.start,
        masks,
        3,
        Training(lr=0.01, weight_decay=5e-4),
        rng.keys([2], "x"),
        scoring=scoring,
        soft=soft,
    )


def unseen(data: Any) -> Tensor:
    return data.val_mask | data.test_mask


def with_other_features(data: Any) -> None:
    data.x = torch.where(unseen(data)[:, None], torch.full_like(data.x, 9.0), data.x)


def with_other_classes(data: Any) -> None:
    data.y = torch.where(unseen(data), (data.y + 1) % 3, data.y)


def with_other_edges(data: Any) -> None:
    nodes = unseen(data).nonzero().squeeze(1)
    kept = ~unseen(data)[data.edge_index].any(dim=0)
    added = torch.stack([nodes, nodes.roll(1)])
    data.edge_index = torch.cat([data.edge_index[:, kept], added], dim=1)


@pytest.mark.parametrize("change", [with_other_features, with_other_classes, with_other_edges])
def test_nothing_of_validation_and_test_nodes_reaches_training(change: Any) -> None:
    data = sparse_split_data()
    before = train(problem_of(data))
    changed = sparse_split_data()
    change(changed)
    assert problem_of(changed).fingerprint != problem_of(data).fingerprint
    after = train(problem_of(changed))
    assert before.scores is not None
    assert after.scores is not None
    assert torch.equal(before.scores.weights, after.scores.weights)
    assert torch.equal(before.scores.edges, after.scores.edges)


def test_test_nodes_do_not_reach_validation_either() -> None:
    data, changed = sparse_split_data(), sparse_split_data()
    changed.x = torch.where(changed.test_mask[:, None], torch.full_like(changed.x, 9.0), changed.x)
    kept = ~changed.test_mask[changed.edge_index].any(dim=0)
    changed.edge_index = changed.edge_index[:, kept]
    assert torch.equal(train(problem_of(data)).val, train(problem_of(changed)).val)


def test_the_training_graph_is_the_induced_one() -> None:
    data = sparse_split_data()
    problem = problem_of(data)
    for part, nodes in (("train", ~unseen(data)), ("val", ~data.test_mask)):
        expected, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=36)
        view = problem.view(part)  # type: ignore[arg-type]
        graph = view.graph if view else problem.graph
        assert graph.num_nodes == int(nodes.sum())
        assert {tuple(sorted(e)) for e in expected.t().tolist()} == {tuple(e) for e in graph.edges.t().tolist()}
    assert torch.equal(problem.y[problem.train], data.y[data.train_mask])
    assert problem.x.shape[0] == 36 - 12


@pytest.mark.parametrize("split", ["val", "test"])
def test_masks_apply_to_the_edges_seen_in_training_and_the_others_live(split: Any) -> None:
    data = sparse_split_data()
    problem = problem_of(data)
    view = problem.view(split)
    assert view is not None
    dead = torch.ones(1, problem.graph.num_edges, dtype=torch.bool)
    dead[0, 3] = False
    spread = view.scatter(dead)
    assert int((~spread).sum()) == 1
    old = (~unseen(data)).nonzero().squeeze(1)[problem.graph.edges[:, 3]]
    nodes = (~data.test_mask).nonzero().squeeze(1) if split == "val" else torch.arange(36)
    assert nodes[view.graph.edges[:, ~spread[0]]].squeeze(1).tolist() == old.tolist()


def test_measure_reads_the_nodes_of_the_split() -> None:
    data = sparse_split_data()
    problem = problem_of(data)
    answers = torch.nn.functional.one_hot(data.y, 3).double().unsqueeze(0)
    assert problem.measure(answers, "test").tolist() == [1.0]
    assert problem.measure(answers[:, ~data.test_mask], "val").tolist() == [1.0]
    assert problem.measure(answers[:, ~unseen(data)], "train").tolist() == [1.0]
    answers[0, data.test_mask] = answers[0, data.test_mask].roll(1, dims=-1)
    assert problem.measure(answers, "test").tolist() == [0.0]


def test_results_tell_both_sparsities_and_count_the_full_graph() -> None:
    data = sparse_split_data()
    problem = problem_of(data)
    result = aceglt.search(data, method="random", axis="graph", levels=2, prune_graph=0.2, **SETTINGS)
    total, full = problem.graph.num_edges, problem.whole.graph.num_edges
    assert full > total
    hidden, features = 6, data.x.shape[1]
    for level in result.results["levels"]:
        dead = round(level["graph_sparsity"] * total)
        assert level["graph_sparsity_full"] == pytest.approx(dead / full)
        arcs = 2 * (full - dead) + 36
        weights = round((1 - level["model_sparsity"]) * hidden * (features + 3))
        assert level["macs"] == 36 * weights + arcs * (hidden + 3)
    assert result.results["dense"]["macs"] == 36 * hidden * (features + 3) + (2 * full + 36) * (hidden + 3)


def test_a_ticket_applies_to_the_whole_graph_and_evaluates_as_it_was_found() -> None:
    data = Data(**vars(sparse_split_data()))
    result = aceglt.search(data, method="random", levels=1, fixed_graph=0.3, tickets="all", **SETTINGS)
    ticket = result.tickets[0]
    problem = problem_of(data)
    dead = problem.graph.num_edges - ticket.masks.alive.edges
    pruned = ticket.apply(data)
    assert pruned.edge_index.shape[1] == 2 * (data.edge_index.shape[1] - dead)  # in both directions
    assert pruned.num_nodes == 36
    before, after = (unseen(data)[index].any(dim=0).sum() for index in (data.edge_index, pruned.edge_index))
    assert int(after) == 2 * int(before)
    evaluation = aceglt.evaluate(ticket, data, seeds=2, device="cpu")
    assert len(evaluation.ticket.val) == 2


def test_the_teacher_speaks_of_training_nodes_alone() -> None:
    problem = problem_of(sparse_split_data())
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Ugs(), Config(seeds=(1,), epochs=2, hidden=6))
    state = search.train_dense(State())
    assert state.soft is not None
    assert state.soft.shape == (1, 24, 3)


def test_a_training_graph_without_an_edge_is_refused() -> None:
    data = sparse_split_data()
    data.edge_index = torch.tensor([[0, 1], [8, 15]])
    with pytest.raises(DataError, match="tiny: no edge lies between two nodes that are neither validation nor test"):
        problem_of(data)


def test_moving_moves_all_parts() -> None:
    problem = problem_of(sparse_split_data())
    assert problem.to("cpu").fingerprint == problem.fingerprint
    moved = problem.to("meta")
    assert moved.whole.x.device.type == moved.validation.graph.edges.device.type == "meta"


def test_full_masks_mean_the_whole_graph() -> None:
    problem = problem_of(sparse_split_data())
    backbone = GCN(problem.x.shape[1], 3, 6)
    params = backbone.init([0])
    masks = Masks.full(1, Search(problem, backbone, Ugs(), Config(seeds=(0,), hidden=6)).total)
    whole = Masks.full(1, Search(problem.whole, backbone, Ugs(), Config(seeds=(0,), hidden=6)).total)
    given = outputs(problem, backbone, params, masks, "test")
    assert torch.equal(given, outputs(problem.whole, backbone, params, whole, "test"))
