"""Weights and features of edges, directed graphs, and what is not one graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples import generator, random_graph, tiny_data
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.nn import GCNConv

import aceglt
from aceglt.backbones import GAT, GCN, GIN, Backbone
from aceglt.datasets import GraphData, load_npz, save_npz
from aceglt.errors import DataError, TicketError
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.problems.base import Problem

SETTINGS: dict[str, Any] = {"method": "ugs", "levels": 1, "seeds": 1, "epochs": 3, "hidden": 6, "device": "cpu"}


def weighted(seed: int = 0, both: bool = True) -> Any:
    """Tiny data whose edges have weights and two features each."""
    data = tiny_data(seed)
    count = data.edge_index.shape[1]
    data.edge_weight = torch.rand(count, generator=generator(seed)) + 0.5
    data.edge_attr = torch.randn(count, 2, generator=generator(seed + 1))
    if both:
        data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
        data.edge_weight, data.edge_attr = data.edge_weight.repeat(2), data.edge_attr.repeat(2, 1)
    return data


def graph_of(arcs: list[tuple[int, int]], weight: list[float], directed: bool = False) -> Graph:
    values = torch.tensor(weight)
    return Graph.from_edge_index(torch.tensor(arcs).t(), 4, directed, values, torch.stack([values, -values], dim=1))


def test_weights_of_duplicates_are_added_and_features_averaged() -> None:
    graph = graph_of([(0, 1), (2, 3), (0, 1), (3, 3)], [1.0, 5.0, 2.0, 9.0])
    assert graph.edges.t().tolist() == [[0, 1], [2, 3]]
    assert graph.edge_weight is not None
    assert graph.edge_attr is not None
    assert graph.edge_weight.tolist() == [3.0, 5.0]
    assert graph.edge_attr.tolist() == [[1.5, -1.5], [5.0, -5.0]]


def test_both_directions_say_the_same_or_one_of_them_is_missing() -> None:
    graph = graph_of([(0, 1), (1, 0), (3, 2)], [1.5, 1.5, 4.0])
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1.5, 4.0]


@pytest.mark.parametrize("part", ["edge_weight", "edge_attr"])
def test_directions_that_disagree_are_refused_unless_directed(part: str) -> None:
    data = weighted()
    getattr(data, part)[0] += 1.0
    u, v = data.edge_index[:, 0].tolist()
    with pytest.raises(DataError, match=rf"mine: {part} of the edge between nodes {u} and {v} differs .*--directed"):
        Problem.from_data(data, "mine")
    graph = Problem.from_data(data, "mine", directed=True).graph
    assert graph.num_edges == data.edge_index.shape[1]


def test_a_directed_graph_keeps_a_weight_per_arc() -> None:
    graph = graph_of([(1, 0), (0, 1)], [1.0, 2.0], directed=True)
    assert graph.edges.t().tolist() == [[0, 1], [1, 0]]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.0, 1.0]


def test_a_subgraph_keeps_what_belongs_to_its_edges() -> None:
    graph = graph_of([(0, 1), (1, 3), (2, 3)], [1.0, 2.0, 3.0])
    part = graph.part(torch.tensor([1, 2, 3]), torch.tensor([1, 2]))
    assert (part.num_nodes, part.edges.t().tolist()) == (3, [[0, 2], [1, 2]])
    assert part.edge_weight is not None
    assert part.edge_weight.tolist() == [2.0, 3.0]
    assert part.edge_attr is not None
    assert part.edge_attr[:, 0].tolist() == [2.0, 3.0]


def test_the_fingerprint_covers_weights_and_features_the_structure_does_not() -> None:
    plain = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 4)
    graphs = [plain, *(graph_of([(0, 1), (1, 2)], [1.0, w]) for w in (1.0, 2.0))]
    assert len({graph.fingerprint for graph in graphs}) == 3
    assert {graph.structure for graph in graphs} == {plain.fingerprint}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", [GCN, GIN, GAT])
def test_a_weight_multiplies_the_score(kind: Any, directed: bool) -> None:
    """Scores s on edges of weight w are scores s·w on edges without a weight, in outputs and, times w, gradients."""
    plain = random_graph(directed=directed)
    weight = torch.rand(plain.num_edges, generator=generator(1)) + 0.5
    heavy = Graph(plain.num_nodes, plain.edges, directed, weight)
    x = Features(torch.randn(plain.num_nodes, 7, generator=generator(2)))
    backbone: Backbone = kind(7, 3, 4)
    weights = backbone.weights(backbone.init([0, 1]))
    scores = (torch.rand(2, plain.num_edges, generator=generator(3)) + 0.5).requires_grad_()
    alive = torch.ones(2, plain.num_edges, dtype=torch.bool)

    def run(graph: Graph, values: Tensor) -> tuple[Tensor, Tensor]:
        out = backbone.apply(weights, graph.batch(alive, backbone.self_loops), values, x)
        return out, torch.autograd.grad(out.square().sum(), scores)[0]

    for one, two in zip(run(heavy, scores), run(plain, scores * weight), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("directed", [False, True])
def test_a_weighted_gcn_layer_is_pygs(directed: bool) -> None:
    data = weighted(both=not directed)
    problem = Problem.from_data(data, "mine", directed=directed)
    convolutions = [GCNConv(12, 5, bias=False), GCNConv(5, 3, bias=False)]
    backbone = GCN(12, 3, 5)
    weights = {f"layer{i}.weight": c.lin.weight.detach().t().unsqueeze(0) for i, c in enumerate(convolutions)}
    ones = torch.ones(1, problem.graph.num_edges)
    ours = backbone.apply(weights, problem.graph.batch(ones.bool(), True), ones, problem.features)
    hidden = convolutions[0](data.x, data.edge_index, data.edge_weight).relu()
    theirs = convolutions[1](hidden, data.edge_index, data.edge_weight)
    torch.testing.assert_close(ours[0], theirs.detach())


@pytest.mark.parametrize("task", ["node", "inductive"])
def test_a_ticket_knows_the_weights_it_was_found_with(task: str) -> None:
    data = Data(**vars(weighted()))
    data.test_mask = data.test_mask & (torch.arange(30) < 22)
    data.val_mask = data.val_mask & (torch.arange(30) < 12)
    ticket = aceglt.search(data, task=task, tickets="all", **SETTINGS).tickets[0]
    assert len(aceglt.evaluate(ticket, data, seeds=1, device="cpu").ticket.val) == 1
    pruned = ticket.apply(data)
    assert pruned.edge_weight.shape[0] == pruned.edge_index.shape[1] < data.edge_index.shape[1]
    other = data.clone()
    other.edge_weight = data.edge_weight * 2
    with pytest.raises(TicketError, match="same edges but other edge_weight or edge_attr"):
        aceglt.evaluate(ticket, other, seeds=1, device="cpu")


def test_a_directed_search_prunes_arcs() -> None:
    data = Data(**vars(tiny_data()))
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    result = aceglt.search(data, directed=True, fixed_graph=0.5, tickets="all", **SETTINGS)
    ticket = result.tickets[0]
    assert ticket.config.directed
    assert ticket.masks.total.edges == data.edge_index.shape[1]
    assert ticket.apply(data).edge_index.shape[1] == ticket.masks.alive.edges
    assert not ticket.apply(data).is_undirected()
    assert len(aceglt.evaluate(ticket, data, seeds=1, device="cpu").ticket.val) == 1


def test_isolated_nodes_self_loops_and_duplicates_do_not_hinder_a_search() -> None:
    data = tiny_data()
    kept = (data.edge_index != 4).all(dim=0)
    loops = torch.tensor([[4, 7], [4, 7]])
    data.edge_index = torch.cat([data.edge_index[:, kept], loops, data.edge_index[:, kept][:, :3]], dim=1)
    result = aceglt.search(data, **SETTINGS)
    assert result.results["levels"][0]["graph_sparsity"] == pytest.approx(0.05, abs=0.02)


WRONG = {
    "weights of other arcs": (
        {"edge_weight": torch.ones(3)},
        r"edge_weight must hold numbers for each of the \d+ arcs",
    ),
    "several weights": ({"edge_weight": "wide"}, r"edge_weight must hold one number for each arc"),
    "infinite weights": ({"edge_weight": "inf"}, r"edge_weight has NaN, infinite or huge values"),
    "cubes": ({"edge_attr": "cube"}, r"edge_attr must hold numbers for each of the \d+ arcs"),
    "a list": ({"edge_attr": [1.0]}, r"needs a tensor `edge_attr`, found list"),
}


@pytest.mark.parametrize("what", WRONG)
def test_unusable_weights_and_features_are_refused(what: str) -> None:
    data = tiny_data()
    count = data.edge_index.shape[1]
    made = {"wide": torch.ones(count, 2), "inf": torch.full((count,), torch.inf), "cube": torch.ones(count, 2, 2)}
    parts, message = WRONG[what]
    for name, value in parts.items():  # type: ignore[attr-defined]
        setattr(data, name, made.get(value, value) if isinstance(value, str) else value)
    with pytest.raises(DataError, match=f"mine: {message}"):
        Problem.from_data(data, "mine")


class Collection(InMemoryDataset):
    def __init__(self, graphs: list[Data]) -> None:
        super().__init__()
        self.data, self.slices = self.collate(graphs)


def one() -> Data:
    return Data(**vars(tiny_data()))


REFUSED = {
    "HeteroData": (HeteroData, r"heterogeneous graphs \(HeteroData\) are not supported"),
    "a list of graphs": (lambda: [one(), one()], r"collection of 2 graphs; .*Graph-level tasks are not supported"),
    "a dataset": (lambda: Collection([one()] * 3), r"collection of 3 graphs; pass one graph, such as dataset\[0\]"),
    "a batch": (lambda: Batch.from_data_list([one(), one()]), r"`batch` vector, .*graph-level tasks are not supported"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_one_graph_is_refused_by_name(what: str) -> None:
    make, message = REFUSED[what]
    with pytest.raises(DataError, match=message):
        aceglt.search(make(), **SETTINGS)  # type: ignore[operator]


def saved(folder: Path, data: Any) -> Path:
    names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "edge_weight", "edge_attr")
    path = folder / "mine.npz"
    save_npz(path, GraphData("mine", *(getattr(data, name) for name in names)))
    return path


def test_a_file_keeps_weights_features_and_several_labels(tmp_path: Path) -> None:
    data = weighted()
    data.y = torch.stack([data.y == 0, data.y == 1], dim=1).float()
    data.y[3, 1] = torch.nan
    loaded = load_npz(saved(tmp_path, data))
    assert Problem.from_data(loaded, "mine").fingerprint == Problem.from_data(data, "mine").fingerprint
    assert torch.equal(loaded.y.isnan(), data.y.isnan())


def test_a_file_without_masks_is_split_at_random(tmp_path: Path) -> None:
    data = tiny_data()
    np.savez(tmp_path / "mine.npz", x=data.x, edge_index=data.edge_index, y=data.y)
    loaded = load_npz(tmp_path / "mine.npz")
    assert Problem.from_data(loaded).reads("train").shape == (18,)  # type: ignore[union-attr]
    with pytest.raises(DataError, match="20 nodes of each class, class 0 has 10"):
        Problem.from_data(loaded, split="random:0")


def test_a_file_with_a_batch_of_graphs_is_refused(tmp_path: Path) -> None:
    data = tiny_data()
    np.savez(tmp_path / "mine.npz", x=data.x, edge_index=data.edge_index, y=data.y, batch=data.y)
    with pytest.raises(DataError, match="graph-level tasks are not supported"):
        load_npz(tmp_path / "mine.npz")


def test_link_prediction_keeps_weights_and_features_with_the_training_edges() -> None:
    whole, problem = Problem.from_data(weighted()).graph, Problem.from_data(weighted(), task="link")
    plain = Problem.from_data(tiny_data(), task="link")
    assert torch.equal(problem.graph.edges, plain.graph.edges)
    kept = (whole.edges[:, :, None] == problem.graph.edges[:, None]).all(dim=0).any(dim=1)
    for part in ("edge_weight", "edge_attr"):
        assert torch.equal(getattr(problem.graph, part), getattr(whole, part)[kept])
