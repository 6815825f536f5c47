from __future__ import annotations

import pytest
import torch
from backbone_samples import (
    CLASSES,
    FEATURES,
    NODES,
    all_alive,
    arcs,
    check_dead_edges_are_deleted,
    check_runs_do_not_influence_each_other,
    features,
    random_graph,
    weights,
)
from torch import Tensor
from torch_geometric.nn import GINConv

from aceglt.backbones import GIN, build
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph

HIDDEN = 6

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture
def gin() -> GIN:
    return GIN(FEATURES, CLASSES, HIDDEN)


def pyg_layers(named: dict[str, Tensor]) -> tuple[GINConv, GINConv]:
    layers = []
    for layer in (0, 1):
        weight = named[f"layer{layer}.weight"][0]
        conv = GINConv(torch.nn.Linear(*weight.shape), train_eps=True, aggr="mean")
        with torch.no_grad():
            conv.nn.weight.copy_(weight.t())
            conv.nn.bias.copy_(named[f"layer{layer}.bias"][0, 0])
            conv.eps.copy_(named[f"layer{layer}.epsilon"][0, 0])
        layers.append(conv)
    return layers[0], layers[1]


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_pyg(gin: GIN, seed: int, density: float) -> None:
    graph, x, named = random_graph(seed), features(density), weights(gin)
    first, second = pyg_layers(named)
    expected = second(torch.relu(first(x, arcs(graph))), arcs(graph))
    out = gin.apply(named, all_alive(gin, graph), torch.ones(1, graph.num_edges), Features(x))
    torch.testing.assert_close(out[0], expected)

    expected.square().sum().backward()
    out.square().sum().backward()
    for layer, conv in enumerate((first, second)):
        torch.testing.assert_close(named[f"layer{layer}.weight"].grad[0], conv.nn.weight.grad.t())
        torch.testing.assert_close(named[f"layer{layer}.bias"].grad[0, 0], conv.nn.bias.grad)
        torch.testing.assert_close(named[f"layer{layer}.epsilon"].grad.view(1), conv.eps.grad.view(1))


def test_dead_edges_are_deleted(gin: GIN) -> None:
    check_dead_edges_are_deleted(gin)


def test_runs_do_not_influence_each_other(gin: GIN) -> None:
    check_runs_do_not_influence_each_other(gin)


def test_the_mean_divides_by_the_number_of_neighbours_not_by_their_scores() -> None:
    gin, graph = GIN(1, 1, 1), Graph.from_edge_index(torch.tensor([[0, 0], [1, 2]]), 3)
    named = {name: torch.zeros(1, *shape) for name, shape in (*gin.prunable.shapes, *gin.other.shapes)}
    named["layer0.weight"] += 1.0
    hidden, _ = gin.stem(
        named, all_alive(gin, graph), torch.tensor([[0.5, 2.0]]), Features(torch.tensor([[1.0], [10.0], [100.0]]))
    )
    # Node 0: 1 + (0.5 · 10 + 2 · 100) / 2; nodes 1 and 2 have one neighbour each.
    torch.testing.assert_close(hidden[0, :, 0], torch.tensor([103.5, 10.5, 102.0]))


def test_an_isolated_node_keeps_its_own_features_alone(gin: GIN) -> None:
    graph, x, named = random_graph(), features(1.0), weights(gin)
    values = torch.ones(1, graph.num_edges)
    whole = gin.apply(named, all_alive(gin, graph), values, Features(x))[0, NODES - 1]
    hidden = torch.relu(_own(named, 0, x[NODES - 1]))
    torch.testing.assert_close(whole, _own(named, 1, hidden))


def _own(named: dict[str, Tensor], layer: int, x: Tensor) -> Tensor:
    scale = 1 + named[f"layer{layer}.epsilon"][0, 0]
    return scale * x @ named[f"layer{layer}.weight"][0] + named[f"layer{layer}.bias"][0, 0]


def test_epsilon_and_biases_start_at_zero_and_are_not_prunable() -> None:
    gin = build("gin", 1433, 7)
    assert gin.prunable.size == 1433 * 512 + 512 * 7
    assert gin.other.size == 2 + 512 + 7
    assert not gin.init([0]).other.any()
