"""The graph, and the block-diagonal structure of a batch of runs, against dense adjacencies."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from samples import dense_adjacency, graphs, graphs_with_alive, random_graph
from torch import Tensor

from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.graph import Graph


def to_dense(batch: GraphBatch) -> Tensor:
    """[S·N, S·N] number of arcs from column to row."""
    size = batch.runs * batch.num_nodes
    matrix = torch.zeros(size, size)
    matrix.index_put_((batch.row, batch.col), torch.ones(batch.num_arcs), accumulate=True)
    return matrix


def test_duplicates_and_directions_of_an_undirected_edge_are_one_edge() -> None:
    edge_index = torch.tensor([[0, 1, 0, 3, 2], [1, 0, 1, 2, 3]])
    graph = Graph.from_edge_index(edge_index, 5)
    assert graph.edges.tolist() == [[0, 2], [1, 3]]
    assert (graph.num_nodes, graph.num_edges, graph.arcs_per_edge) == (5, 2, 2)


def test_a_directed_graph_keeps_both_directions_apart() -> None:
    edge_index = torch.tensor([[0, 1, 0, 3], [1, 0, 1, 2]])
    graph = Graph.from_edge_index(edge_index, 4, directed=True)
    assert graph.edges.tolist() == [[0, 1, 3], [1, 0, 2]]
    assert graph.arcs_per_edge == 1


def test_self_loops_are_dropped() -> None:
    edge_index = torch.tensor([[0, 1, 2], [0, 2, 2]])
    assert Graph.from_edge_index(edge_index, 3).edges.tolist() == [[1], [2]]


def test_a_graph_may_have_no_edge() -> None:
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 3)
    assert graph.num_edges == 0
    assert to_dense(graph.batch(torch.ones(2, 0, dtype=torch.bool), self_loops=True)).tolist() == torch.eye(6).tolist()
    assert graph.batch(torch.ones(2, 0, dtype=torch.bool), self_loops=False).num_arcs == 0


@settings(max_examples=60)
@given(graphs())
def test_edges_are_sorted_and_unique(graph: Graph) -> None:
    code = graph.edges[0] * graph.num_nodes + graph.edges[1]
    assert bool((code.diff() > 0).all())
    assert graph.directed or bool((graph.edges[0] < graph.edges[1]).all())


@settings(max_examples=100)
@given(graphs_with_alive())
def test_a_batch_is_the_block_diagonal_of_the_filtered_graphs(case: tuple[Graph, Tensor]) -> None:
    graph, alive = case
    blocks = [dense_adjacency(graph, mask.float()) for mask in alive]
    expected = torch.block_diag(*blocks)
    assert torch.equal(to_dense(graph.batch(alive, self_loops=False)), expected)
    assert torch.equal(to_dense(graph.batch(alive, self_loops=True)), expected + torch.eye(len(expected)))


@settings(max_examples=100)
@given(graphs_with_alive())
def test_rows_and_their_transpose_hold_the_same_arcs(case: tuple[Graph, Tensor]) -> None:
    graph, alive = case
    batch = graph.batch(alive, self_loops=True)
    counts = torch.bincount(batch.row, minlength=batch.runs * batch.num_nodes)
    assert torch.equal(batch.rowptr.diff(), counts.int())
    transposed_counts = torch.bincount(batch.col, minlength=batch.runs * batch.num_nodes)
    assert torch.equal(batch.transposed_rowptr.diff(), transposed_counts.int())
    assert torch.equal(batch.row[batch.transpose].int(), batch.transposed_col)
    assert bool((batch.col[batch.transpose].diff() >= 0).all())


@settings(max_examples=100)
@given(graphs_with_alive())
def test_slots_name_the_edge_and_run_of_each_arc(case: tuple[Graph, Tensor]) -> None:
    graph, alive = case
    batch = graph.batch(alive, self_loops=True)
    run, edge = batch.slot // (graph.num_edges + 1), batch.slot % (graph.num_edges + 1)
    assert torch.equal(run, batch.row // graph.num_nodes)
    loop = edge == graph.num_edges
    assert torch.equal(loop, batch.row == batch.col)
    ends = torch.stack([batch.col, batch.row]) % graph.num_nodes
    if not graph.directed:
        ends = ends.sort(dim=0).values
    assert torch.equal(ends[:, ~loop], graph.edges[:, edge[~loop]])


@settings(max_examples=60)
@given(graphs_with_alive())
def test_arcs_of_slot_finds_every_arc_of_an_alive_edge_and_none_of_a_dead_one(case: tuple[Graph, Tensor]) -> None:
    graph, alive = case
    batch = graph.batch(alive, self_loops=True)
    for slot, arcs in enumerate(batch.arcs_of_slot.tolist()):
        run, edge = divmod(slot, graph.num_edges + 1)
        expected = [] if edge == graph.num_edges else (batch.slot == slot).nonzero().squeeze(1).tolist()
        assert sorted(arc for arc in arcs if arc < batch.num_arcs) == expected
        assert len(expected) == (graph.arcs_per_edge if edge < graph.num_edges and alive[run, edge] else 0)


def test_equal_graphs_have_equal_fingerprints() -> None:
    graph = random_graph()
    shuffled = graph.edges[:, torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(1))].flip(0)
    assert Graph.from_edge_index(shuffled, graph.num_nodes).fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    "other",
    [
        Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 5),
        Graph.from_edge_index(torch.tensor([[0, 1], [1, 3]]), 4),
        Graph.from_edge_index(torch.tensor([[0], [1]]), 4),
        Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 4, directed=True),
    ],
    ids=["more nodes", "another edge", "fewer edges", "directed"],
)
def test_different_graphs_have_different_fingerprints(other: Graph) -> None:
    assert Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 4).fingerprint != other.fingerprint
