from __future__ import annotations

import math

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
from torch_geometric.nn import GATConv

from aceglt.backbones import GAT, Dropout, build
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts
from aceglt.searches.levels import inference_macs

HIDDEN, HEADS = 4, 3

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture
def gat() -> GAT:
    return GAT(FEATURES, CLASSES, HIDDEN, heads=HEADS)


def joined(named: dict[str, Tensor]) -> Tensor:
    """[F, heads · hidden]: the first layer's weights as PyG has them (transposed)."""
    return torch.cat([named[f"layer0.head{head}.weight"][0] for head in range(HEADS)], dim=1)


def pyg_layers(named: dict[str, Tensor]) -> tuple[GATConv, GATConv]:
    layers = GATConv(FEATURES, HIDDEN, HEADS), GATConv(HEADS * HIDDEN, CLASSES)
    matrices = joined(named), named["layer1.weight"][0]
    with torch.no_grad():
        for layer, (conv, matrix) in enumerate(zip(layers, matrices, strict=True)):
            conv.lin.weight.copy_(matrix.t())
            conv.att_src.copy_(named[f"layer{layer}.source"])
            conv.att_dst.copy_(named[f"layer{layer}.target"])
            conv.bias.copy_(named[f"layer{layer}.bias"].flatten())
    return layers


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_pyg(gat: GAT, seed: int, density: float) -> None:
    graph, x, named = random_graph(seed), features(density), weights(gat)
    first, second = pyg_layers(named)
    expected = second(torch.nn.functional.elu(first(x, arcs(graph))), arcs(graph))
    out = gat.apply(named, all_alive(gat, graph), torch.ones(1, graph.num_edges), Features(x))
    torch.testing.assert_close(out[0], expected)

    expected.square().sum().backward()
    out.square().sum().backward()
    gradients = {name: value.grad for name, value in named.items()}
    torch.testing.assert_close(joined(gradients), first.lin.weight.grad.t())
    torch.testing.assert_close(gradients["layer1.weight"][0], second.lin.weight.grad.t())
    for layer, conv in enumerate((first, second)):
        torch.testing.assert_close(gradients[f"layer{layer}.source"], conv.att_src.grad)
        torch.testing.assert_close(gradients[f"layer{layer}.target"], conv.att_dst.grad)
        torch.testing.assert_close(gradients[f"layer{layer}.bias"].flatten(), conv.bias.grad)


def test_dead_edges_are_deleted(gat: GAT) -> None:
    check_dead_edges_are_deleted(gat)


def test_runs_do_not_influence_each_other(gat: GAT) -> None:
    check_runs_do_not_influence_each_other(gat)


def test_a_score_multiplies_the_coefficient_after_the_softmax() -> None:
    """Nodes 1 and 2 send to 0; logits are the source's feature, so that the coefficients can be written down."""
    gat, graph = GAT(1, 1, hidden=1, heads=1), Graph.from_edge_index(torch.tensor([[0, 0], [1, 2]]), 3)
    named = {name: torch.zeros(1, *shape) for name, shape in (*gat.prunable.shapes, *gat.other.shapes)}
    for name in ("layer0.head0.weight", "layer0.source", "layer1.weight"):
        named[name] += 1.0
    out = gat.apply(
        named, all_alive(gat, graph), torch.tensor([[0.5, -2.0]]), Features(torch.tensor([[0.0], [1.0], [2.0]]))
    )
    e1, e2 = math.e, math.e**2
    h0 = (0.5 * 1 * e1 - 2 * 2 * e2) / (1 + e1 + e2)
    h1 = (1 * e1) / (e1 + 1)
    h2 = (2 * e2) / (e2 + 1)
    z = torch.nn.functional.elu(torch.tensor([h0, h1, h2]))
    # The second layer's attention vectors are 0: equal coefficients.
    expected = torch.stack([(z[0] + 0.5 * z[1] - 2 * z[2]) / 3, (z[1] + 0.5 * z[0]) / 2, (z[2] - 2 * z[0]) / 2])
    torch.testing.assert_close(out[0, :, 0], expected)


def test_an_isolated_node_attends_to_itself_alone(gat: GAT) -> None:
    graph, x, named = random_graph(), features(1.0), weights(gat)
    out = gat.apply(named, all_alive(gat, graph), torch.ones(1, graph.num_edges), Features(x))[0, NODES - 1]
    hidden = torch.nn.functional.elu(x[NODES - 1] @ joined(named) + named["layer0.bias"][0].flatten())
    torch.testing.assert_close(out, hidden @ named["layer1.weight"][0] + named["layer1.bias"][0, 0])


def test_dropout_changes_training_alone_and_is_drawn_from_the_key(gat: GAT) -> None:
    graph, x, named = random_graph(), Features(features(0.1)), weights(gat)
    batch = all_alive(gat, graph)
    state = gat.stem(named, batch, torch.ones(1, graph.num_edges), x)
    first, again, other = (gat.head(named, batch, state, Dropout(torch.tensor([key]))) for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert torch.equal(gat.head(named, batch, state, None), gat.head(named, batch, state, None))


def test_dropout_is_distributed_as_in_pyg(gat: GAT) -> None:
    """Many draws of one training forward pass: means and deviations of every output are those of PyG's layers."""
    draws, graph, x = 500, random_graph(), features(0.1)
    named = {name: value.detach() for name, value in weights(gat).items()}
    repeated = {name: value.expand(draws, *value.shape[1:]) for name, value in named.items()}
    batch = all_alive(gat, graph, draws)
    state = gat.stem(repeated, batch, torch.ones(draws, graph.num_edges), Features(x))
    ours = gat.head(repeated, batch, state, Dropout(torch.arange(draws)))

    torch.manual_seed(0)
    first, second = pyg_layers(named)
    first.dropout = second.dropout = 0.6
    drop, elu, index = torch.nn.functional.dropout, torch.nn.functional.elu, arcs(graph)
    with torch.no_grad():
        theirs = torch.stack([second(drop(elu(first(drop(x, 0.6), index)), 0.6), index) for _ in range(draws)])
    error = ((ours.var(dim=0) + theirs.var(dim=0)) / draws).sqrt()
    assert ((ours.mean(dim=0) - theirs.mean(dim=0)) / error).abs().max() < 4.5
    torch.testing.assert_close(ours.std(dim=0), theirs.std(dim=0), rtol=0.3, atol=0.0)


def test_attention_vectors_and_biases_are_not_prunable() -> None:
    gat = build("gat", 1433, 7)
    assert gat.prunable.size == 1433 * 8 * 512 + 8 * 512 * 7
    assert gat.other.size == 3 * 8 * 512 + 3 * 7


def test_dense_macs_on_cora_are_those_of_the_paper() -> None:
    gat = build("gat", 1433, 7)
    cora = Graph(2708, torch.empty(2, 5278, dtype=torch.int64))
    assert inference_macs(gat, cora, Counts(gat.prunable.size, cora.num_edges)) == pytest.approx(16.0e9, rel=0.01)
