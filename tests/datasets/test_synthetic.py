from __future__ import annotations

from typing import Any

import pytest
import torch

from aceglt.backbones import build
from aceglt.config import Training
from aceglt.datasets import GraphData, LinkData, read
from aceglt.datasets.synthetic import SHAPES
from aceglt.errors import DataError
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem
from aceglt.training.fit import fit

SMALL = {"synthetic-arxiv": 0.01, "synthetic-proteins": 0.004, "synthetic-collab": 0.01}


def small(kind: str, seed: int = 0) -> Any:
    return read(f"{kind}:{SMALL[kind]}:{seed}")


@pytest.mark.parametrize("kind", SMALL)
def test_sizes_are_those_of_the_namesake_times_the_scale(kind: str) -> None:
    data, shape = small(kind), SHAPES[kind]
    nodes = round(shape.nodes * SMALL[kind])
    assert data.x.shape == (nodes, shape.features)
    held_out = 0 if isinstance(data, GraphData) else data.val_edges.shape[1] + data.test_edges.shape[1]
    most = nodes * (nodes - 1) // 20
    assert data.edge_index.shape[1] + held_out == min(round(shape.edges * SMALL[kind]), most)


@pytest.mark.parametrize("kind", SMALL)
def test_edges_are_listed_as_a_graph_keeps_them(kind: str) -> None:
    data = small(kind)
    graph = Graph.from_edge_index(data.edge_index.flip(1), data.num_nodes)  # the long way
    assert graph.edges.equal(data.edge_index)
    assert Graph.from_edge_index(data.edge_index, data.num_nodes).edges.equal(data.edge_index)


@pytest.mark.parametrize("kind", SMALL)
def test_a_seed_gives_one_graph_and_another_seed_another(kind: str) -> None:
    first, again, other = small(kind), small(kind), small(kind, seed=1)
    assert first.x.equal(again.x)
    assert first.edge_index.equal(again.edge_index)
    assert not first.edge_index.equal(other.edge_index)


@pytest.mark.parametrize("kind", SMALL)
def test_degrees_are_skewed(kind: str) -> None:
    data = small(kind)
    degrees = torch.bincount(data.edge_index.flatten(), minlength=data.num_nodes).double()
    assert float(degrees.max()) > 1.9 * float(degrees.mean())


def test_held_out_pairs_are_neither_training_edges_nor_each_other() -> None:
    data = small("synthetic-collab")
    assert isinstance(data, LinkData)
    pairs = torch.cat(
        [data.edge_index, data.val_edges, data.test_edges, data.val_negatives, data.test_negatives], dim=1
    )
    assert len(torch.unique(pairs, dim=1)[0]) == pairs.shape[1]


def best(data: Any, backbone: str, alive: float, epochs: int, task: str = "node", **options: Any) -> float:
    """Validation of a dense model that sees a share of the edges."""
    problem = Problem.from_data(data, task=task)
    model = build(backbone, problem.x.shape[1], problem.out_features, 32, **options)
    weights = Masks.full(1, Counts(model.prunable.size, 1)).weights
    edges = rng.uniform(rng.keys([0], "alive"), problem.graph.num_edges) < alive
    training = Training(lr=0.01, weight_decay=0.0)
    return float(fit(problem, model, model.init([0]), Masks(weights, edges), epochs, training, rng.keys([0], "t")).val)


def test_neighbours_tell_more_of_a_class_than_features() -> None:
    data = small("synthetic-arxiv")
    assert best(data, "gcn", 1.0, 40) > best(data, "gcn", 0.0, 40) + 0.3


def test_neighbours_tell_more_of_a_link_than_features() -> None:
    data = small("synthetic-collab")
    assert best(data, "gcn", 1.0, 30, task="link") > best(data, "gcn", 0.0, 30, task="link") + 0.2


def test_features_of_edges_answer_the_questions_and_species_do_not() -> None:
    data = small("synthetic-proteins")
    assert best(data, "gcn", 1.0, 20) < 0.55
    assert best(data, "resgcn", 1.0, 40, layers=2, edge_features=8) > 0.6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("synthetic-cora", "unknown synthetic dataset 'synthetic-cora': known are synthetic-arxiv"),
        ("synthetic-arxiv:big", "expected synthetic-arxiv:SCALE"),
        ("synthetic-arxiv:0.01:x", "expected synthetic-arxiv:SCALE"),
        ("synthetic-arxiv:0.0001", "leave 300 nodes, that is 0.0018 or more; found 0.0001"),
        ("synthetic-arxiv:nan", "at most 10"),
        ("synthetic-arxiv:11", "at most 10"),
    ],
)
def test_what_a_name_may_not_say(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(name)


def test_features_are_finite_where_a_draw_rounds_to_one() -> None:
    data = read("synthetic-arxiv:0.125")  # it has such a draw
    assert bool(data.x.isfinite().all())
    assert float(data.x.abs().max()) < 8


@pytest.mark.parametrize("kind", SMALL)
def test_the_smallest_scale_makes_a_problem(kind: str) -> None:
    data = read(f"{kind}:{300 / SHAPES[kind].nodes:.6f}")
    task = "link" if isinstance(data, LinkData) else "node"
    assert Problem.from_data(data, task=task).graph.num_nodes == 300
