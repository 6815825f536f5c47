"""Graphs in parts: what a part is, outputs made part by part, and training by steps over parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import graphs, labels_data, sparse_split_data, step_by_hand, tiny_data, tiny_problem
from search_samples import graph as search_graph
from search_samples import search
from torch import Tensor
from torch_geometric.loader import ClusterData

import aceglt
from aceglt.backbones import GCN, Backbone, build
from aceglt.backends import Cpu
from aceglt.config import Training
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem, Soft
from aceglt.problems.link import LinkProblem
from aceglt.problems.own import customise
from aceglt.training import partitions as module
from aceglt.training.fit import Fit, ScoreTraining, fit
from aceglt.training.partitions import WHOLE, Outputs, Parts
from aceglt.training.scores import initial_scores

BACKBONES = ("gcn", "gin", "gat", "resgcn")
TRAINING = Training(lr=0.05, weight_decay=0.03)
SCORING = ScoreTraining(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="last")


def small(name: str, problem: Problem) -> Backbone:
    options = {"layers": 2} if name == "resgcn" else {}
    return build(name, problem.x.shape[1], problem.out_features, 4, **options)


def train(problem: Problem, backbone: Backbone, parts: Parts, epochs: int = 3, runs: int = 1, **options: Any) -> Fit:
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    start, keys = backbone.init(range(runs)), rng.keys(range(runs), "test")
    return fit(problem, backbone, start, Masks.full(runs, total), epochs, TRAINING, keys, parts=parts, **options)


@given(graphs(), st.integers(1, 5), st.integers(0, 3))
def test_parts_hold_every_node_once_and_every_edge_that_is_within_one(graph: Graph, count: int, epoch: int) -> None:
    parts = [part for step in Parts(count).steps(graph, epoch) for part in step]
    nodes = torch.cat([part.nodes for part in parts])
    assert nodes.sort().values.tolist() == list(range(graph.num_nodes))
    sizes = [len(part.nodes) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    of_node = torch.empty(graph.num_nodes, dtype=torch.int64)
    for number, part in enumerate(parts):
        of_node[part.nodes] = number
        assert part.nodes.tolist() == sorted(part.nodes.tolist())
    within = (of_node[graph.edges[0]] == of_node[graph.edges[1]]).nonzero().squeeze(1)
    assert torch.cat([part.edges for part in parts]).sort().values.equal(within)
    for part in parts:
        cut = graph.part(part.nodes, part.edges)
        assert part.nodes[cut.edges].equal(graph.edges[:, part.edges])


def test_more_parts_than_nodes_are_a_part_for_each_node_and_take_no_more_memory() -> None:
    graph = tiny_problem().graph
    assert [len(part.nodes) for part in Parts(2**40).evaluated(graph)] == [1] * graph.num_nodes


def test_training_cuts_anew_at_every_epoch_and_evaluation_does_not() -> None:
    graph, parts = tiny_problem().graph, Parts(3)
    first, again, next_epoch = (parts.steps(graph, epoch)[0][0].nodes for epoch in (0, 0, 1))
    assert first.equal(again)
    assert not first.equal(next_epoch)
    assert [p.nodes.tolist() for p in parts.evaluated(graph)] == [p.nodes.tolist() for p in parts.evaluated(graph)]


def test_a_step_has_as_many_parts_as_asked_for_and_the_last_one_the_rest() -> None:
    steps = Parts(5, per_step=2).steps(tiny_problem().graph, 0)
    assert [len(step) for step in steps] == [2, 2, 1]


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 3, 60])  # 60: every node alone
@pytest.mark.parametrize("name", BACKBONES)
def test_outputs_by_parts_are_those_without_the_edges_between_parts(name: str, count: int) -> None:
    problem = tiny_problem()
    graph, backbone, parts = problem.graph, small(name, problem), Parts(count)
    weights = backbone.weights(backbone.init([0, 1]))
    values = 1 + 0.1 * torch.randn(2, graph.num_edges, generator=torch.Generator().manual_seed(0))
    alive = values > 0.95
    inside = torch.zeros(graph.num_edges, dtype=torch.bool)
    for part in parts.evaluated(graph):
        inside[part.edges] = True
    expected = backbone.apply(weights, graph.batch(alive & inside, backbone.self_loops), values, Features(problem.x))
    outputs = Outputs(Cpu(), backbone, graph, problem.features, alive, parts)
    torch.testing.assert_close(outputs(weights, values), expected)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("per_step", [1, 2, 3])
def test_a_step_is_adam_on_the_mean_gradient_of_its_parts(per_step: int) -> None:
    problem, epochs, parts = tiny_problem(), 4, Parts(3, per_step)
    backbone = GCN(problem.x.shape[1], problem.out_features, 4, dropout=0.0)
    start = backbone.init([0])
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    soft = Soft(torch.full((1, 30, 3), 1 / 3), 0.5)
    found = train(problem, backbone, parts, epochs, scoring=SCORING, soft=soft).scores
    scores = initial_scores(rng.keys([0], "test"), masks)
    weights, on_weights, on_edges = (t.clone().requires_grad_() for t in (start.prunable, scores.weights, scores.edges))
    leaves = [weights, on_weights, on_edges]
    adam = torch.optim.Adam(leaves, lr=TRAINING.lr, weight_decay=TRAINING.weight_decay)
    for epoch in range(epochs):
        for step in parts.steps(problem.graph, epoch):
            losses = []
            for part in step:
                cut = problem.part(part.nodes, part.edges)
                batch = cut.graph.batch(masks.edges[:, part.edges], True)
                effective = backbone.prunable.split(weights * on_weights)
                outputs = backbone.apply(effective, batch, on_edges[:, part.edges], cut.features)
                losses.append(cut.loss(outputs, soft.at(part.nodes), rng.keys([0])).sum())
            step_by_hand(adam, losses, leaves, SCORING.lambda_weights, SCORING.lambda_edges)
    assert found is not None
    torch.testing.assert_close(found.weights, on_weights.detach())
    torch.testing.assert_close(found.edges, on_edges.detach())


TASKS: dict[str, Callable[[], Problem]] = {
    "node": tiny_problem,
    "labels": lambda: Problem.from_data(labels_data()),
    "inductive": lambda: Problem.from_data(sparse_split_data(), task="inductive"),
    "link": lambda: Problem.from_data(tiny_data(), task="link"),
    "infoclust": lambda: Problem.from_data(tiny_data(), task="link", objective="infoclust", embedding=4),
    "own loss": lambda: customise(tiny_problem(), loss=own_loss),
}


def own_loss(outputs: Tensor, problem: Any) -> Tensor:
    """Of all nodes, whatever the split: the part's targets must go with the part's outputs."""
    return torch.nn.functional.cross_entropy(
        outputs.transpose(1, 2), problem.y.expand(len(outputs), -1), reduction="none"
    ).mean(dim=1)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_trains_by_parts_on_every_task_whatever_the_batch_of_runs(name: str, task: str) -> None:
    problem = TASKS[task]()
    backbone = small(name, problem)
    both = train(problem, backbone, Parts(4, 2), 2, runs=2, scoring=SCORING).scores
    alone = train(problem, backbone, Parts(4, 2), 2, runs=1, scoring=SCORING).scores
    assert both is not None
    assert alone is not None
    assert both.edges[:1].equal(alone.edges)
    assert both.weights[:1].equal(alone.weights)
    whole = train(problem, backbone, WHOLE, 2, scoring=SCORING).scores
    assert whole is not None
    assert not whole.edges.allclose(alone.edges)


def test_parts_without_training_nodes_or_edges_teach_nothing() -> None:
    for task in ("node", "labels", "link"):
        problem = TASKS[task]()
        result = train(problem, small("gcn", problem), Parts(25))
        assert result.params is not None
        assert bool(result.params.prunable.isfinite().all())


def test_clusters_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, calls = tiny_problem(), []

    def metis(graph: Graph, clusters: int) -> Tensor:
        calls.append(clusters)
        return torch.arange(graph.num_nodes) // 5

    monkeypatch.setattr(module, "metis", metis)
    parts = Parts(2, by="clusters")
    cut = [part.nodes.tolist() for step in parts.steps(problem.graph, 0) for part in step]
    assert all(5 * (n // 5) + i in nodes for nodes in cut for n in nodes for i in range(5))
    assert [len(nodes) for nodes in cut] == [15, 15]
    assert parts.steps(problem.graph, 1)[0][0].nodes.tolist() != cut[0]
    assert calls == [30]  # once for a graph, and no more clusters than nodes


def test_clusters_are_pygs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterData, "_metis", lambda self, edge_index, num_nodes: torch.arange(num_nodes) % 4 // 2 * 3)
    assert module.metis(tiny_problem().graph, 4).tolist()[:6] == [0, 0, 1, 1, 0, 0]


def test_without_metis_clusters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*given: Any, **options: Any) -> ClusterData:
        raise ImportError("pyg-lib")

    monkeypatch.setattr("torch_geometric.loader.ClusterData", missing)
    with pytest.raises(ConfigError, match="needs pyg-lib or torch-sparse; install one of them, or use 'random'"):
        search(partitions=2, partition_by="clusters")


def test_a_search_by_parts_finds_a_ticket_that_evaluates() -> None:
    result, again, whole = search(partitions=2), search(partitions=2), search()
    first, second, other = (r.tickets[0] for r in (result, again, whole))
    assert first.masks.weights.equal(second.masks.weights)
    assert first.masks.edges.equal(second.masks.edges)
    assert not first.trained.prunable.equal(other.trained.prunable)
    assert len(aceglt.evaluate(first, search_graph(), seeds=2, device="cpu").ticket.val) == 2


@pytest.mark.parametrize("task", ["node", "inductive"])
@pytest.mark.parametrize("by", ["random", "neighbours"])
def test_what_is_recorded_is_what_the_ticket_predicts_on_the_whole_graph(by: str, task: str) -> None:
    data, settings = search_graph(nodes=120), {"partitions": 8, "partition_by": by, "neighbours": 2, "task": task}
    result = search(data, levels=1, epochs=8, hidden=4, tickets="all", **settings)
    for run, ticket in enumerate(result.tickets):
        right = ticket.predict(data).argmax(dim=-1) == data.y
        recorded = result.results["levels"][0]
        assert recorded["test"][run] == pytest.approx(float(right[data.test_mask].double().mean()))
        if task == "node":
            assert recorded["val"][run] == pytest.approx(float(right[data.val_mask].double().mean()))


def test_an_evaluation_records_what_the_search_did() -> None:
    """Without dropout, it repeats the ticket's training."""
    data = search_graph(nodes=120)
    result = search(data, levels=1, epochs=8, hidden=4, dropout=0.0, partitions=8, seeds=1)
    ticket, recorded = result.tickets[0], result.results["levels"][0]
    again = aceglt.evaluate(ticket, data, seeds=1, device="cpu").ticket
    assert (again.val, again.test) == (recorded["val"], recorded["test"])


def test_a_contrastive_objective_is_trained_in_parts_too() -> None:
    """Not the cross-entropy of link prediction, which the same problem has as its loss."""

    class Contrastive(LinkProblem):
        def loss(self, *arguments: Any, **options: Any) -> Tensor:
            raise AssertionError("the loss of another objective")

    made = LinkProblem.build(tiny_data(), "tiny", False, objective="infoclust", embedding=4)
    problem = Contrastive(**{field.name: getattr(made, field.name) for field in fields(made)})
    backbone = GCN(problem.x.shape[1], 4, 8)
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    start, key = backbone.init((0,)), rng.keys((0,), "contrast")
    found = fit(problem, backbone, start, masks, 3, Training(lr=0.01), key, parts=Parts(3))
    assert found.params is not None
    assert not torch.equal(found.params.prunable, start.prunable)
