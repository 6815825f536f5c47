"""The split of a graph's edges, and pairs that are no edges."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import graphs, random_graph
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import share
from aceglt.problems.pairs import EdgeSplit, NonEdges, fixed_negatives, split_edges


def pairs(edges: Tensor) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in edges.t()}


def components(graph: Graph) -> int:
    ones = torch.ones(graph.num_edges).numpy()
    matrix = coo_matrix((ones, tuple(graph.edges.numpy())), shape=(graph.num_nodes, graph.num_nodes))
    return int(connected_components(matrix, directed=False)[0])


def one_by_one(graph: Graph, count: int) -> set[tuple[int, int]]:
    """The edges held out by going over them in the split's order and passing over those that hold a part together."""
    order = rng.permutation(rng.keys([0], "link split", graph.fingerprint), graph.num_edges)[0].tolist()
    alive = torch.ones(graph.num_edges, dtype=torch.bool)
    for edge in order:
        alive[edge] = False
        if components(Graph(graph.num_nodes, graph.edges[:, alive], graph.directed)) > components(graph):
            alive[edge] = True
        if int((~alive).sum()) == count:
            break
    return pairs(graph.edges[:, ~alive])


def held_out(split: EdgeSplit) -> set[tuple[int, int]]:
    return pairs(split.val) | pairs(split.test)


@settings(max_examples=30)
@given(graphs(), st.booleans())
def test_a_split_parts_the_edges(graph: Graph, connected: bool) -> None:
    split = split_edges(graph, connected)
    parts = [pairs(split.train.edges), pairs(split.val), pairs(split.test)]
    assert set.union(*parts) == pairs(graph.edges)
    assert sum(map(len, parts)) == graph.num_edges


def test_a_split_has_exact_shares_and_depends_on_the_graph_alone() -> None:
    graph = random_graph(nodes=40, edges=300)
    split, again = split_edges(graph), split_edges(random_graph(nodes=40, edges=300))
    assert split.test.shape[1] == share(0.10, graph.num_edges)
    assert split.val.shape[1] == share(0.05, graph.num_edges)
    assert split.test.equal(again.test)
    assert split.val.equal(again.val)
    assert not split.test.equal(split_edges(random_graph(1, nodes=40, edges=300)).test)


@pytest.mark.parametrize("directed", [False, True])
def test_a_connected_split_holds_out_what_removal_one_by_one_does(directed: bool) -> None:
    graph = random_graph(nodes=30, edges=60, directed=directed)
    split = split_edges(graph, connected=True)
    assert len(held_out(split)) == share(0.10, graph.num_edges) + share(0.05, graph.num_edges)
    assert components(split.train) == components(graph)
    if not directed:
        assert held_out(split) == one_by_one(graph, len(held_out(split)))


def test_nothing_can_be_held_out_of_a_tree_that_stays_connected() -> None:
    nodes = torch.arange(40)
    tree = Graph.from_edge_index(torch.stack([nodes[1:], nodes[:-1]]), 40)
    assert not held_out(split_edges(tree, connected=True))


@settings(max_examples=60)
@given(graphs())
def test_the_numbers_of_non_edges_name_each_pair_that_is_no_edge_once(graph: Graph) -> None:
    every = (permutations if graph.directed else combinations)(range(graph.num_nodes), 2)
    found = NonEdges(graph)
    listed = found.pairs(torch.arange(found.count))
    assert pairs(listed) == set(every) - pairs(graph.edges)
    assert listed.shape[1] == len(pairs(listed))


def test_pairs_of_a_huge_graph_are_decoded_exactly() -> None:
    nodes = 20_000_000
    graph = Graph(nodes, torch.empty(2, 0, dtype=torch.int64))
    last = NonEdges(graph).count - 1
    targets = torch.tensor([3, 1_000_000, 12_345_678, nodes - 1])
    first_of_row = targets * (targets - 1) // 2
    assert NonEdges(graph).pairs(first_of_row).tolist() == [[0] * 4, targets.tolist()]
    assert NonEdges(graph).pairs(first_of_row - 1).tolist() == [(targets - 2).tolist(), (targets - 1).tolist()]
    assert NonEdges(graph).pairs(torch.tensor([last])).tolist() == [[nodes - 2], [nodes - 1]]


def test_drawn_pairs_are_no_edges_reach_all_others_and_depend_on_the_key() -> None:
    graph = random_graph()
    found = NonEdges(graph)
    draws = found.draw(rng.keys([0, 1], "draw"), 2000)
    assert draws.shape == (2, 2, 2000)
    for run in range(2):
        assert pairs(draws[:, run]) == pairs(found.pairs(torch.arange(found.count)))
    assert not draws[:, 0].equal(draws[:, 1])
    assert draws[:, 1:].equal(found.draw(rng.keys([1], "draw"), 2000))


def test_fixed_negatives_are_different_non_edges_even_if_they_are_all_there_are() -> None:
    graph = random_graph()
    count = NonEdges(graph).count
    negatives = fixed_negatives(graph, count)
    assert negatives.shape == (2, count)
    assert len(pairs(negatives)) == count
    assert not pairs(negatives) & pairs(graph.edges)
    assert negatives.equal(fixed_negatives(random_graph(), count))
