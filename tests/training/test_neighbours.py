"""Neighbour sampling: what is drawn, that training is on seeds alone, and that evaluation is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import graphs, labels_data, sparse_split_data, step_by_hand, tiny_data, tiny_problem
from search_samples import graph as search_graph
from search_samples import search
from torch import Tensor

import aceglt
from aceglt.backbones import GCN, Backbone, build
from aceglt.config import Config, Training
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem, Soft
from aceglt.searches.levels import outputs
from aceglt.training.fit import Fit, ScoreTraining, fit
from aceglt.training.partitions import WHOLE, Part, Parts
from aceglt.training.sampling import Sampler
from aceglt.training.scores import initial_scores

TRAINING = Training(lr=0.05, weight_decay=0.03)
SCORING = ScoreTraining(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="last")
BACKBONES: dict[str, dict[str, Any]] = {
    "gcn": {}, "sage": {"layers": 3, "norm": "layer", "skip": "identity", "output": "linear"}, "gin": {"norm": "batch"},
    "gat": {}, "resgcn": {"layers": 2},
}  # fmt: skip


def cut(count: int, neighbours: int = 10, per_step: int = 1) -> Parts:
    return Parts(count, per_step, "neighbours", neighbours)


def drawn(parts: Parts, graph: Graph, seeds: Tensor | None = None, epoch: int = 0, layers: int = 2) -> list[Part]:
    alive = torch.ones(graph.num_edges, dtype=torch.bool)
    sampler = Sampler(parts, graph, alive, seeds, layers)
    return [part for step in sampler.steps(epoch) for part in step if part is not None]


def small(name: str, problem: Problem) -> Backbone:
    return build(name, problem.x.shape[1], problem.out_features, 4, **BACKBONES[name])


def train(problem: Problem, backbone: Backbone, parts: Parts, epochs: int = 3, runs: int = 1, **options: Any) -> Fit:
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = options.pop("masks", None) or Masks.full(runs, total)
    start, keys = backbone.init(range(runs)), rng.keys(range(runs), "test")
    return fit(problem, backbone, start, masks, epochs, TRAINING, keys, parts=parts, **options)


def neighbours_of(graph: Graph, nodes: set[int]) -> set[int]:
    source, target = graph.edges.tolist()
    ahead = {u for u, v in zip(source, target, strict=True) if v in nodes}
    return ahead if graph.directed else ahead | {v for u, v in zip(source, target, strict=True) if u in nodes}


@given(graphs(), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_every_seed_is_in_one_part_with_what_is_drawn_around_it(
    graph: Graph, count: int, most: int, layers: int
) -> None:
    parts = drawn(cut(count, most), graph, layers=layers)
    seeds = torch.cat([part.seeds for part in parts if part.seeds is not None])
    assert seeds.sort().values.tolist() == list(range(graph.num_nodes))
    for part in parts:
        assert part.seeds is not None
        nodes, ends = set(part.nodes.tolist()), graph.edges[:, part.edges]
        assert part.nodes.tolist() == sorted(nodes)
        assert part.edges.tolist() == sorted(set(part.edges.tolist()))
        assert set(part.seeds.tolist()) | set(ends.flatten().tolist()) == nodes
        reach = set(part.seeds.tolist())
        for _ in range(layers):
            reach |= neighbours_of(graph, reach)
        assert nodes <= reach
        assert len(part.edges) <= most * len(part.nodes)


@given(graphs(), st.integers(1, 5))
def test_with_enough_neighbours_nothing_of_the_receptive_field_is_left_out(graph: Graph, count: int) -> None:
    for part in drawn(cut(count, neighbours=50), graph):
        assert part.seeds is not None
        field = graph.field(part.seeds, 2)
        assert part.nodes.tolist() == field.nodes.sort().values.tolist()
        inner = {*field.nodes[: field.sizes[1]].tolist()}
        source, target = graph.edges.tolist()
        read = [
            e
            for e, (u, v) in enumerate(zip(source, target, strict=True))
            if v in inner or (u in inner and not graph.directed)
        ]
        assert part.edges.tolist() == read


def test_each_of_a_nodes_edges_has_the_same_chance() -> None:
    """A star with 7 leaves, of which 3 are drawn."""
    graph, epochs = Graph(8, torch.stack([torch.zeros(7, dtype=torch.int64), torch.arange(1, 8)])), 700
    times = torch.zeros(7)
    for epoch in range(epochs):
        (part,) = drawn(cut(1, neighbours=3), graph, torch.tensor([0]), epoch, layers=1)
        assert len(part.edges) == 3
        times[part.edges] += 1
    torch.testing.assert_close(times / epochs, torch.full((7,), 3 / 7), atol=0.06, rtol=0)


def test_draws_are_new_in_every_epoch_and_the_same_again() -> None:
    graph = tiny_problem().graph
    first, again, later = ([p.edges.tolist() for p in drawn(cut(3, 2), graph, epoch=epoch)] for epoch in (0, 0, 1))
    assert first == again != later


def test_only_alive_edges_are_drawn() -> None:
    graph = tiny_problem().graph
    alive = torch.arange(graph.num_edges) % 3 != 0
    parts = [part for step in Sampler(cut(3, 50), graph, alive, None, 2).steps(0) for part in step]
    found = torch.cat([part.edges for part in parts if part is not None]).unique()
    assert found.equal(alive.nonzero().squeeze(1))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("taught", [False, True])
def test_a_step_is_adam_on_the_loss_of_its_seeds(taught: bool) -> None:
    problem, epochs, parts = tiny_problem(), 3, cut(3, 2, per_step=2)
    backbone = GCN(problem.x.shape[1], problem.out_features, 4, dropout=0.0)
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    soft = Soft(torch.full((1, 30, 3), 1 / 3), 0.5) if taught else None
    found = train(problem, backbone, parts, epochs, scoring=SCORING, soft=soft).scores
    scores = initial_scores(rng.keys([0], "test"), masks)
    leaves = [t.clone().requires_grad_() for t in (backbone.init([0]).prunable, scores.weights, scores.edges)]
    weights, on_weights, on_edges = leaves
    adam = torch.optim.Adam(leaves, lr=TRAINING.lr, weight_decay=TRAINING.weight_decay)
    sampler = Sampler(parts, problem.graph, masks.edges[0], None if taught else problem.train, 2)
    for epoch in range(epochs):
        for step in sampler.steps(epoch):
            losses = []
            for part in step:
                assert part is not None
                assert part.seeds is not None
                batch = problem.graph.part(part.nodes, part.edges).batch(masks.edges[:, part.edges], True)
                effective = backbone.prunable.split(weights * on_weights)
                features = problem.features.part(part.nodes)
                made = backbone.apply(effective, batch, on_edges[:, part.edges], features)
                everywhere = made.new_zeros(1, 30, 3).index_copy(1, part.nodes, made)
                labelled = replace(problem, train=part.seeds[torch.isin(part.seeds, problem.train)])
                loss = labelled.loss(everywhere, None, rng.keys([0])).sum()
                if soft is not None:
                    targets = soft.targets[:, part.seeds]
                    loss = loss + 0.5 * problem.objective.distil(everywhere[:, part.seeds], targets).sum()
                losses.append(loss)
            step_by_hand(adam, losses, leaves, SCORING.lambda_weights, SCORING.lambda_edges)
    assert found is not None
    torch.testing.assert_close(found.weights, on_weights.detach())
    torch.testing.assert_close(found.edges, on_edges.detach())


@pytest.mark.parametrize("task", ["node", "labels", "inductive"])
@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_trains_so_on_every_task_of_nodes_whatever_the_batch_of_runs(name: str, task: str) -> None:
    made = {"node": tiny_data, "labels": labels_data, "inductive": sparse_split_data}[task]()
    problem = Problem.from_data(made, task="inductive" if task == "inductive" else "node")
    backbone = small(name, problem)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    edges = torch.stack([torch.arange(total.edges) % 4 != run for run in range(2)])
    masks = Masks(Masks.full(2, total).weights, edges)
    parts, more = cut(4, 2, per_step=2), {"scoring": SCORING}
    both = train(problem, backbone, parts, 2, runs=2, masks=masks, runs_at_once=2, **more).scores
    alone = train(problem, backbone, parts, 2, runs=1, masks=masks[:1], **more).scores
    assert both is not None
    assert alone is not None
    assert both.edges[:1].equal(alone.edges)
    assert both.weights[:1].equal(alone.weights)


@pytest.mark.parametrize("name", BACKBONES)
def test_evaluation_is_that_of_the_whole_graph(name: str) -> None:
    problem = tiny_problem()
    backbone = small(name, problem)
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    masks = Masks(masks.weights, masks.edges & (torch.arange(problem.graph.num_edges) % 4 > 0))
    params = backbone.init([0])
    sampled, whole = (outputs(problem, backbone, params, masks, "test", parts) for parts in (cut(4, 1), WHOLE))
    assert sampled.equal(whole)


def test_a_search_finds_a_ticket_that_evaluates() -> None:
    settings = {"partitions": 3, "partition_by": "neighbours", "neighbours": 2}
    result, again = search(**settings), search(**settings)
    first, second = (r.tickets[0] for r in (result, again))
    assert first.masks.edges.equal(second.masks.edges)
    assert first.trained.prunable.equal(second.trained.prunable)
    assert first.config.training.neighbours == 2
    assert len(aceglt.evaluate(first, search_graph(), seeds=2, device="cpu").ticket.val) == 2


def test_it_is_refused_for_links() -> None:
    with pytest.raises(ConfigError, match="partition_by 'neighbours' is for tasks on nodes"):
        Config(task="link", partition_by="neighbours")
