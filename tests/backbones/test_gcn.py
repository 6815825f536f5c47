"""The GCN against an independent dense implementation and against PyG's own layers, in float64."""

from __future__ import annotations

import pytest
import torch
from samples import dense_normalised, generator, random_graph, random_masks
from torch import Tensor
from torch_geometric.nn import GCNConv

from aceglt.backbones import GCN, Dropout
from aceglt.backbones.base import Layout, Params
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts

FEATURES, HIDDEN, CLASSES = 9, 6, 4


@pytest.fixture(autouse=True)
def _double(double: None) -> None:
    """All of this file is float64."""


def gcn(dropout: float = 0.5) -> GCN:
    return GCN(FEATURES, CLASSES, HIDDEN, dropout=dropout)


def features(graph: Graph, seed: int = 0) -> Tensor:
    return torch.rand(graph.num_nodes, FEATURES, generator=generator(seed)) - 0.3


def scores(graph: Graph, runs: int, seed: int = 0, signed: bool = True) -> Tensor:
    magnitude = torch.rand(runs, graph.num_edges, generator=generator(seed)) + 0.2
    sign = torch.rand(runs, graph.num_edges, generator=generator(seed + 1)) < 0.5
    return torch.where(sign & torch.tensor(signed), -magnitude, magnitude)


def dense_gcn(graph: Graph, x: Tensor, values: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Equation 1 of the paper for one run, with N×N matrices."""
    adjacency = dense_normalised(graph, values)
    return adjacency @ torch.relu(adjacency @ x @ first) @ second


def pyg_gcn(graph: Graph, x: Tensor, edge_weight: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Two of PyG's layers over both directions of the given edges."""
    edge_index = graph.edges
    if not graph.directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        edge_weight = torch.cat([edge_weight, edge_weight])
    layers = [GCNConv(w.shape[0], w.shape[1], bias=False) for w in (first, second)]

    def layer(which: int, weight: Tensor, h: Tensor) -> Tensor:
        named = {"lin.weight": weight.t()}
        return torch.func.functional_call(layers[which], named, (h, edge_index, edge_weight))

    return layer(1, second, torch.relu(layer(0, first, x)))


def forward(backbone: GCN, params: Params, graph: Graph, alive: Tensor, values: Tensor, x: Tensor) -> Tensor:
    return backbone.apply(backbone.weights(params), graph.batch(alive, True), values, Features(x))


def assert_gradients_agree(mine: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)
    direction = torch.randn(expected.shape, generator=generator(42))
    for a, b in zip(
        torch.autograd.grad(mine, inputs, direction), torch.autograd.grad(expected, inputs, direction), strict=True
    ):
        assert int(b.count_nonzero()) > 0
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_forward_and_gradients_agree_with_a_dense_implementation(seed: int, directed: bool) -> None:
    graph, backbone = random_graph(seed, nodes=14, edges=30, directed=directed), gcn()
    x = features(graph, seed)
    alive = torch.rand(3, graph.num_edges, generator=generator(seed)) < 0.7
    prunable = backbone.init([0, 1, 2]).prunable.requires_grad_()
    values = scores(graph, 3, seed).requires_grad_()
    mine = forward(backbone, Params(prunable, prunable.new_zeros(3, 0)), graph, alive, values, x)
    named = backbone.prunable.split(prunable)
    runs = zip(values * alive, named["layer0.weight"], named["layer1.weight"], strict=True)
    expected = torch.stack([dense_gcn(graph, x, v, first, second) for v, first, second in runs])
    assert_gradients_agree(mine, expected, [prunable, values])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_forward_and_gradients_agree_with_pyg(seed: int, directed: bool) -> None:
    graph, backbone = random_graph(seed, nodes=14, edges=30, directed=directed), gcn()
    x = features(graph, seed)
    prunable = backbone.init([0, 1]).prunable.requires_grad_()
    values = scores(graph, 2, seed, signed=False).requires_grad_()
    alive = torch.ones(2, graph.num_edges, dtype=torch.bool)
    mine = forward(backbone, Params(prunable, prunable.new_zeros(2, 0)), graph, alive, values, x)
    named = backbone.prunable.split(prunable)
    runs = zip(values, named["layer0.weight"], named["layer1.weight"], strict=True)
    expected = torch.stack([pyg_gcn(graph, x, v, first, second) for v, first, second in runs])
    assert_gradients_agree(mine, expected, [prunable, values])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("keep", [0, 5, 12])
def test_a_dead_edge_is_a_deleted_edge(keep: int, directed: bool) -> None:
    graph, backbone = random_graph(5, nodes=14, edges=30, directed=directed), gcn()
    x, params = features(graph), backbone.init([0, 1, 2])
    masks = random_masks(Counts(backbone.prunable.size, graph.num_edges), Counts(40, keep), (0, 1, 2))
    pruned = Params(params.prunable * masks.weights, params.other)
    mine = forward(backbone, pruned, graph, masks.edges, masks.edges.double(), x)
    named = backbone.weights(pruned)
    for run in range(3):
        left = Graph(graph.num_nodes, graph.edges[:, masks.edges[run]], directed)
        ones = torch.ones(left.num_edges)
        expected = pyg_gcn(left, x, ones, named["layer0.weight"][run], named["layer1.weight"][run])
        torch.testing.assert_close(mine[run], expected, rtol=1e-9, atol=1e-11)


def test_values_of_dead_edges_are_never_read() -> None:
    graph, backbone = random_graph(), gcn()
    x, params = features(graph), backbone.init([0])
    alive = torch.rand(1, graph.num_edges, generator=generator(3)) < 0.5
    values = scores(graph, 1)
    poisoned = torch.where(alive, values, torch.nan)
    assert torch.equal(
        forward(backbone, params, graph, alive, poisoned, x), forward(backbone, params, graph, alive, values, x)
    )


def test_a_negative_score_counts_by_magnitude_in_the_degree_and_by_sign_in_the_message() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 2)
    backbone = GCN(1, 1, 1)
    one = Params(torch.ones(1, 2), torch.zeros(1, 0))
    x = torch.tensor([[4.0], [1.0]])
    out = forward(backbone, one, graph, torch.tensor([[True]]), torch.tensor([[-0.5]]), x)
    # Degrees are 1.5: hidden (4 − 0.5)/1.5 and (1 − 2)/1.5 < 0, which ReLU takes away.
    hidden = torch.tensor([3.5 / 1.5, 0.0])
    torch.testing.assert_close(out[0, :, 0], torch.stack([hidden[0], -0.5 * hidden[0]]) / 1.5)


@pytest.mark.parametrize("p", [0.5, 0.2])
def test_head_of_stem_is_apply_and_dropout_acts_on_the_hidden_layer(p: float) -> None:
    graph, backbone = random_graph(), gcn(p)
    x, params, key = features(graph), backbone.init([0, 1]), rng.keys([0, 1], "dropout")
    alive = torch.ones(2, graph.num_edges, dtype=torch.bool)
    batch, values, weights = graph.batch(alive, True), scores(graph, 2), backbone.weights(params)
    state = backbone.stem(weights, batch, values, Features(x))
    assert torch.equal(backbone.head(weights, batch, state, None), backbone.apply(weights, batch, values, Features(x)))
    dropped = backbone.head(weights, batch, state, Dropout(key))
    for run in range(2):
        keep = rng.keep_mask(rng.fold(key, 0), graph.num_nodes * HIDDEN, p)[run].view(graph.num_nodes, HIDDEN)
        adjacency = dense_normalised(graph, values[run])
        hidden = torch.relu(adjacency @ x @ weights["layer0.weight"][run]) * keep / (1 - p)
        torch.testing.assert_close(dropped[run], adjacency @ hidden @ weights["layer1.weight"][run])


def test_dropout_of_a_run_is_the_same_in_any_batch() -> None:
    key, h = rng.keys([4, 7], "dropout"), torch.rand(2, 13, 5, generator=generator(1))
    together = Dropout(key)(h, None, 1, 0.5)
    for run in range(2):
        assert torch.equal(Dropout(key[run : run + 1])(h[run : run + 1], None, 1, 0.5)[0], together[run])
    assert not torch.equal(Dropout(key)(h, None, 2, 0.5), together)


def test_dropout_passes_gradcheck() -> None:
    h = torch.rand(2, 4, 3, generator=generator(2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: Dropout(rng.keys([0, 1], "check"))(v, None, 0, 0.5), (h,))


def test_initial_weights_depend_on_the_seed_alone_and_are_glorot() -> None:
    backbone = GCN(200, 50, 100)
    together, alone = backbone.init([3, 8]), backbone.init([8])
    assert torch.equal(together.prunable[1:], alone.prunable)
    assert not torch.equal(together.prunable[0], together.prunable[1])
    named = backbone.weights(alone)
    for name, shape in (("layer0.weight", (200, 100)), ("layer1.weight", (100, 50))):
        bound = (6 / sum(shape)) ** 0.5
        assert named[name].shape == (1, *shape)
        assert 0.98 * bound < float(named[name].abs().max()) <= bound
        assert abs(float(named[name].mean())) < 0.05 * bound


def test_the_two_layers_have_different_initial_weights() -> None:
    named = GCN(5, 5, 5).weights(GCN(5, 5, 5).init([0]))
    assert not torch.equal(named["layer0.weight"], named["layer1.weight"])


def test_layout_splits_into_views_and_joins_back() -> None:
    layout = Layout((("a", (2, 3)), ("b", (4,)), ("c", ())))
    flat = torch.arange(22.0).view(2, 11)
    parts = layout.split(flat)
    assert layout.size == 11
    assert {name: tuple(part.shape) for name, part in parts.items()} == {"a": (2, 2, 3), "b": (2, 4), "c": (2,)}
    assert torch.equal(layout.join(parts), flat)
    parts["b"].zero_()
    assert flat[:, 6:10].count_nonzero() == 0
