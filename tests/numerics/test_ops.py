"""The sparse kernels, forward and backward, against dense linear algebra in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from samples import dense_adjacency, generator, graphs_with_alive, random_graph
from torch import Tensor

from aceglt.numerics import ops
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph

F64 = torch.float64


def alive_edges(graph: Graph, runs: int, share: float, seed: int = 0) -> Tensor:
    return torch.rand(runs, graph.num_edges, generator=generator(seed)) < share


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=generator(seed)).requires_grad_()


def dense_product(graph: Graph, alive: Tensor, values: Tensor, dense: Tensor, self_loops: bool) -> Tensor:
    loops = torch.eye(graph.num_nodes, dtype=F64) * self_loops
    return torch.stack(
        [(dense_adjacency(graph, v * a) + loops) @ d for v, a, d in zip(values, alive, dense, strict=True)]
    )


def assert_same_with_gradients(mine: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-12)
    direction = torch.randn(expected.shape, dtype=F64, generator=generator(99))
    for a, b in zip(
        torch.autograd.grad(mine, inputs, direction, retain_graph=True, allow_unused=True),
        torch.autograd.grad(expected, inputs, direction, allow_unused=True),
        strict=True,
    ):
        assert a is not None
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@settings(max_examples=60)
@given(graphs_with_alive())
def test_spmm_of_edge_values_agrees_with_dense_products(case: tuple[Graph, Tensor]) -> None:
    graph, alive = case
    values = normal(*alive.shape, seed=1)
    dense = normal(alive.shape[0], graph.num_nodes, 3, seed=2)
    for self_loops in (True, False):
        batch = graph.batch(alive, self_loops)
        mine = ops.spmm(batch, ops.arc_values(batch, values), dense)
        assert_same_with_gradients(mine, dense_product(graph, alive, values, dense, self_loops), [values, dense])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_spmm_passes_gradcheck(directed: bool, share: float) -> None:
    graph = random_graph(nodes=6, edges=12, directed=directed)
    alive = alive_edges(graph, 2, share)
    batch = graph.batch(alive, self_loops=True)
    values, dense = normal(*alive.shape, seed=3), normal(2, 6, 2, seed=4)
    assert torch.autograd.gradcheck(lambda v, d: ops.spmm(batch, ops.arc_values(batch, v), d), (values, dense))


def test_spmm_without_a_single_arc_is_zero_with_zero_gradients() -> None:
    graph = random_graph()
    batch = graph.batch(torch.zeros(2, graph.num_edges, dtype=torch.bool), self_loops=False)
    values, dense = normal(2, graph.num_edges, seed=5), normal(2, graph.num_nodes, 4, seed=6)
    out = ops.spmm(batch, ops.arc_values(batch, values), dense)
    assert out.tolist() == torch.zeros(2, graph.num_nodes, 4).tolist()
    for grad in torch.autograd.grad(out.sum(), [values, dense]):
        assert int(grad.count_nonzero()) == 0


def test_gradients_of_dead_edges_are_exactly_zero() -> None:
    graph = random_graph()
    alive = alive_edges(graph, 3, 0.5)
    batch = graph.batch(alive, self_loops=True)
    values = normal(*alive.shape, seed=7)
    out = ops.spmm(batch, ops.arc_values(batch, values), normal(3, graph.num_nodes, 4, seed=8).detach())
    (grad,) = torch.autograd.grad(out.square().sum(), values)
    assert torch.equal(grad != 0, alive)


@pytest.mark.parametrize("directed", [False, True])
def test_arc_values_gives_both_directions_the_edge_value_and_loops_one(directed: bool) -> None:
    graph = random_graph(directed=directed)
    alive = alive_edges(graph, 2, 0.7)
    batch = graph.batch(alive, self_loops=True)
    values = normal(*alive.shape, seed=9)
    arcs = ops.arc_values(batch, values)
    size = batch.runs * batch.num_nodes
    mine = torch.zeros(size, size, dtype=F64).index_put((batch.row, batch.col), arcs)
    blocks = [
        dense_adjacency(graph, v * a) + torch.eye(graph.num_nodes, dtype=F64)
        for v, a in zip(values, alive, strict=True)
    ]
    assert_same_with_gradients(mine, torch.block_diag(*blocks), [values])


@settings(max_examples=40)
@given(graphs_with_alive())
def test_row_sum_is_the_sum_at_each_target(case: tuple[Graph, Tensor]) -> None:
    graph, alive = case
    batch = graph.batch(alive, self_loops=True)
    values = normal(batch.num_arcs, seed=10)
    expected = torch.zeros(batch.runs * batch.num_nodes, dtype=F64).index_add(0, batch.row, values)
    assert_same_with_gradients(ops.row_sum(batch, values), expected, [values])


def features_of_density(density: float, nodes: int = 40, width: int = 25) -> Tensor:
    x = torch.zeros(nodes * width, dtype=F64)
    nonzero = round(density * len(x))
    x[torch.randperm(len(x), generator=generator(11))[:nonzero]] = (
        torch.rand(nonzero, dtype=F64, generator=generator(12)) + 0.1
    )
    return x.view(nodes, width)


@pytest.mark.parametrize("density", [0.0, 0.01, 0.039, 0.04, 0.08, 0.129, 0.13, 0.5, 1.0])
def test_feature_products_agree_with_dense_ones_at_every_density(density: float) -> None:
    x = features_of_density(density)
    features = Features(x)
    assert features.nnz == round(density * x.numel())
    assert features.shape == tuple(x.shape)
    weight = normal(3, x.shape[1], 5, seed=13)
    assert_same_with_gradients(features.matmul(weight), x @ weight, [weight])


@pytest.mark.parametrize("density", [0.02, 0.08, 0.5])
def test_feature_products_pass_gradcheck(density: float) -> None:
    features = Features(features_of_density(density, 10, 20))
    assert torch.autograd.gradcheck(features.matmul, (normal(2, 20, 2, seed=14),))


def test_feature_products_accept_a_gradient_that_is_not_contiguous() -> None:
    x = features_of_density(0.02)
    weight = normal(2, x.shape[1], 5, seed=15)
    direction = torch.randn(2, 5, x.shape[0], dtype=F64, generator=generator(16)).transpose(1, 2)
    (mine,) = torch.autograd.grad(Features(x).matmul(weight), weight, direction)
    torch.testing.assert_close(mine, x.t() @ direction, rtol=1e-10, atol=1e-12)


def test_a_run_has_bitwise_the_same_product_alone_as_in_a_batch() -> None:
    x = features_of_density(0.02).float()
    weight = torch.randn(3, x.shape[1], 5, generator=generator(17))
    together = Features(x).matmul(weight)
    for run in range(3):
        assert torch.equal(Features(x).matmul(weight[run : run + 1])[0], together[run])
