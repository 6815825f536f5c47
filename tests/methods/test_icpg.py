"""ICPG: masks of edges by the features around their ends, and edges that training never saw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contract import equal
from samples import sparse_split_data, tiny_problem
from torch_geometric.data import Data

import aceglt
from aceglt.backbones import GCN
from aceglt.config import resolve
from aceglt.methods import Icpg
from aceglt.methods.icpg import masked
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import share
from aceglt.runs import checkpoint
from aceglt.runs.directory import RunDir
from aceglt.searches.levels import Search
from aceglt.searches.state import State

SETTINGS = {
    "method": "icpg",
    "epochs": 4,
    "hidden": 6,
    "axis": "joint",
    "prune_graph": 0.3,
    "levels": 2,
    "task": "inductive",
}


@pytest.fixture(scope="module")
def data() -> Data:
    return Data(**vars(sparse_split_data()))


@pytest.fixture(scope="module")
def found(data: Data) -> aceglt.SearchResult:
    return aceglt.search(data, seeds=(3, 8), tickets="all", device="cpu", progress=False, **SETTINGS)


@pytest.mark.parametrize("directed", [False, True])
def test_an_edge_is_masked_by_a_linear_map_of_both_ends_side_by_side(directed: bool) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]), 3, directed)
    embedded, out = torch.randn(1, 3, 4), torch.randn(1, 3, 4)
    linear = torch.cat([out[0, 0], out[0, 1]])
    for edge, (u, v) in enumerate(graph.edges.t().tolist()):
        orders = [torch.cat([embedded[0, a], embedded[0, b]]) @ linear for a, b in ((u, v), (v, u))]
        expected = torch.sigmoid(out[0, 2, 0] + (orders[0] if directed else (orders[0] + orders[1]) / 2))
        torch.testing.assert_close(masked(embedded, graph, out)[0, edge], expected)


def test_the_same_share_of_unseen_edges_goes_and_is_counted(found: aceglt.SearchResult) -> None:
    search = found.tickets[0]
    for level, ticket in zip(found.results["levels"], found.tickets[::2], strict=True):
        problem = aceglt.Problem.from_data(Data(**vars(sparse_split_data())), "data", "inductive")
        gone, dead = 1 - ticket.masks.alive.edges / ticket.masks.total.edges, 0
        assert ticket.masks.unseen is not None
        for split in ("val", "test"):
            view = problem.view(split)
            assert view is not None
            unseen = ticket.masks.unseen[0, view.first : view.first + len(view.unseen)]
            dead = share(gone, len(unseen))
            assert int((~unseen).sum()) == dead
        assert view is not None
        total = view.graph.num_edges
        expected = (search.masks.total.edges - ticket.masks.alive.edges + dead) / total
        assert level["graph_sparsity_full"] == pytest.approx(expected)


def test_a_ticket_is_read_as_it_was_written_and_prunes_unseen_edges(
    found: aceglt.SearchResult, data: Data, tmp_path: Path
) -> None:
    for parts in ("all", "inference"):
        found.tickets[-1].save(tmp_path / "ticket", parts=parts)
        ticket = aceglt.Ticket.load(tmp_path / "ticket")
        left = Graph.from_edge_index(ticket.apply(data).edge_index, data.num_nodes).num_edges
        sparsity = found.results["levels"][-1]["graph_sparsity_full"]
        whole = Graph.from_edge_index(data.edge_index, data.num_nodes).num_edges
        assert left == round((1 - sparsity) * whole)
    assert found.results["levels"][-1]["test"] is not None


def test_predictions_are_those_that_the_search_tested(found: aceglt.SearchResult, data: Data) -> None:
    ticket = found.tickets[-1]
    right = ticket.predict(data).argmax(dim=1)[data.test_mask] == data.y[data.test_mask]
    assert ticket.metrics["test"] == pytest.approx(float(right.float().mean()))


def test_a_ticket_is_evaluated_without_the_unseen_edges_it_prunes(found: aceglt.SearchResult, data: Data) -> None:
    ticket = found.tickets[-1]
    with_all = replace(ticket, masks=replace(ticket.masks, unseen=None))
    pruned, whole = (aceglt.evaluate(t, data, seeds=2, device="cpu", progress=False).ticket for t in (ticket, with_all))
    assert pruned != whole


def test_seeds_that_are_added_keep_the_unseen_edges_of_all(
    found: aceglt.SearchResult, data: Data, tmp_path: Path
) -> None:
    for seeds in ((3,), (3, 8)):
        aceglt.search(data, seeds=seeds, out=tmp_path, device="cpu", progress=False, **SETTINGS)
    runs = [ticket for ticket in found.tickets if ticket.level == 2]
    masks = checkpoint.load(RunDir(tmp_path).final, runs[0].total, len(runs)).masks
    assert masks is not None
    assert all(equal(masks[run : run + 1], ticket.masks) for run, ticket in enumerate(runs))


def test_where_training_sees_all_edges_none_is_unseen() -> None:
    problem = tiny_problem()
    config = resolve(method="icpg", seeds=(3,), epochs=2, hidden=6, axis="joint")
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Icpg(), config)
    assert Icpg().select(search.level(search.train_dense(State()))).masks.unseen is None
