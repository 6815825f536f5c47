"""DSpar and k neighbours: edges by degrees and by draws of nodes, known by hand on a star with a tail."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aceglt.config import resolve
from aceglt.methods import Dspar, Level, Method
from aceglt.methods.dspar import probabilities
from aceglt.methods.neighbours import needed_k
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.training.fit import Fit

STAR = Graph.from_edge_index(torch.tensor([[0, 0, 0, 3], [1, 2, 3, 4]]), 5)  # degrees 3, 1, 1, 2, 1


def edges_kept(method: Method, keep: int, seeds: Sequence[int], number: int = 1, masks: Masks | None = None) -> Tensor:
    """[S, E] of a level on the star that keeps its weight, so that nothing is trained."""

    def never(*_: object, **__: object) -> Fit:
        raise AssertionError("edges need no training")

    masks = masks or Masks.full(len(seeds), Counts(1, STAR.num_edges))
    level = Level(number, masks, Counts(1, keep), seeds, 200, never, never, graph=STAR)
    return method.select(level).masks.edges


def test_dspar_probabilities_are_those_of_the_degrees() -> None:
    weights = torch.tensor([1 / 3 + 1, 1 / 3 + 1, 1 / 3 + 1 / 2, 1 / 2 + 1], dtype=torch.float64)
    torch.testing.assert_close(probabilities(STAR), weights / 5)


def test_dspar_draws_the_first_edge_as_often_as_its_probability_says() -> None:
    seeds = range(2000)
    often = edges_kept(Dspar(), 1, seeds).double().mean(dim=0)
    torch.testing.assert_close(often, probabilities(STAR), atol=0.04, rtol=0)


def test_levels_of_dspar_end_where_a_cut_in_one_step_would() -> None:
    seeds = range(50)
    three = edges_kept(Dspar(), 3, seeds)
    two = edges_kept(Dspar(), 2, seeds, 2, Masks(torch.ones(50, 1, dtype=torch.bool), three))
    assert torch.equal(two, edges_kept(Dspar(), 2, seeds))


def test_with_k_of_one_every_node_keeps_an_edge() -> None:
    ring = torch.arange(6)
    chords = torch.tensor([[0, 0, 1], [2, 3, 4]])
    graph = Graph.from_edge_index(torch.cat([torch.stack([ring, (ring + 1) % 6]), chords], dim=1), 6)
    order = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0))
    kept = graph.edges[:, needed_k(graph, order) == 1]
    assert set(kept.flatten().tolist()) == set(range(6))


def test_an_edge_stays_while_one_of_its_ends_draws_it() -> None:
    """Node 0 draws edges 2, 0, 1 in this order, node 3 draws 3, 2; the leaves have no choice."""
    order = torch.tensor([0.5, 0.7, 0.2, 0.1])
    assert needed_k(STAR, order).tolist() == [1, 1, 1, 1]
    square = Graph.from_edge_index(torch.tensor([[0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]]), 4)  # complete
    order = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    # 0: 01, 02, 03; 1: 01, 12, 13; 2: 02, 12, 23; 3: 03, 13, 23
    assert needed_k(square, order).tolist() == [1, 1, 1, 2, 2, 3]


def test_nodes_of_a_directed_graph_draw_among_the_arcs_that_end_there() -> None:
    arcs = Graph.from_edge_index(torch.tensor([[0, 1, 0, 2], [2, 2, 1, 1]]), 3, directed=True)
    assert arcs.edges.t().tolist() == [[0, 1], [0, 2], [1, 2], [2, 1]]
    assert needed_k(arcs, torch.tensor([0.4, 0.3, 0.2, 0.1])).tolist() == [2, 2, 1, 1]


def test_labels_say_what_becomes_of_weights() -> None:
    assert resolve(method="dspar").label == "dspar (labels, weights by magnitude)"
    assert resolve(method="neighbours").label == "neighbours (labels, weights by magnitude)"
