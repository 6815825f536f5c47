"""The ops of GIN and GAT against dense references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aceglt.backbones import Dropout
from aceglt.numerics import ops
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph

RUNS, NODES, HEADS = 2, 6, 3


def doubles(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradcheck(function: Callable[..., Any], *inputs: Tensor) -> bool:
    return torch.autograd.gradcheck(function, [value.requires_grad_() for value in inputs])


@pytest.fixture
def batch() -> GraphBatch:
    """Two runs with different alive edges; node 5 has none, and there are no self-loops."""
    graph = Graph.from_edge_index(torch.tensor([[0, 0, 0, 1, 3], [1, 2, 3, 2, 4]]), NODES)
    alive = torch.tensor([[True, True, True, True, True], [True, False, True, False, True]])
    return graph.batch(alive, self_loops=False)


def test_arc_sum_adds_the_source_and_the_target(batch: GraphBatch) -> None:
    source, target = doubles(RUNS * NODES, HEADS), doubles(RUNS * NODES, HEADS, seed=1)
    expected = torch.stack([source[j] + target[i] for i, j in zip(batch.row, batch.col, strict=True)])
    torch.testing.assert_close(ops.arc_sum(batch, source, target), expected)
    assert gradcheck(lambda s, t: ops.arc_sum(batch, s, t), source, target)


def test_row_softmax_is_the_softmax_over_each_target(batch: GraphBatch) -> None:
    logits = doubles(batch.num_arcs, HEADS)
    dense = logits.new_full((RUNS * NODES, RUNS * NODES, HEADS), -torch.inf)
    dense[batch.row, batch.col] = logits
    expected = dense.softmax(dim=1)[batch.row, batch.col]
    torch.testing.assert_close(ops.row_softmax(batch, logits), expected)
    assert gradcheck(lambda a: ops.row_softmax(batch, a), logits)


def test_row_softmax_survives_large_logits(batch: GraphBatch) -> None:
    logits = 1e4 * doubles(batch.num_arcs, HEADS)
    assert torch.isfinite(ops.row_softmax(batch, logits)).all()


@pytest.mark.parametrize("dropped", [False, True])
def test_elu_dropout_is_bias_elu_and_dropout(dropped: bool) -> None:
    h, bias = doubles(RUNS, NODES, 5), doubles(RUNS, 5, seed=1)
    keep = doubles(RUNS, NODES, 5, seed=2) > 0 if dropped else None
    scale = 2.5 if dropped else 1.0
    expected = torch.nn.functional.elu(h + bias.unsqueeze(1)) * scale * (1 if keep is None else keep)
    torch.testing.assert_close(ops.elu_dropout(h, bias, keep, scale), expected)
    assert gradcheck(lambda a, b: ops.elu_dropout(a, b, keep, scale), h, bias)


@pytest.mark.parametrize("density", [0.0, 0.05, 1.0])
def test_dropped_features_multiply_like_a_dense_matrix_with_zeros(density: float) -> None:
    x = doubles(NODES, 10) * (torch.rand(NODES, 10, generator=torch.Generator().manual_seed(3)) < density)
    features = Features(x)
    keep = torch.rand(RUNS, features.entries, generator=torch.Generator().manual_seed(4)) < 0.5
    drawn_for = x if density < 0.5 else torch.ones_like(x)  # a sparse X leaves its zeros out
    places = drawn_for.nonzero(as_tuple=True)
    dense = torch.zeros(RUNS, NODES, 10, dtype=x.dtype)
    for run in range(RUNS):
        dense[run][places] = x[places] * keep[run] * 2.0
    weight = doubles(RUNS, 10, 4, seed=5)
    dropped = features.dropped(keep, 2.0)
    torch.testing.assert_close(dropped.matmul(weight), dense @ weight)
    assert gradcheck(dropped.matmul, weight)


def test_features_can_be_dropped_for_different_numbers_of_runs() -> None:
    features = Features(torch.eye(20))
    weight = torch.ones(3, 20, 1)
    for runs in (1, 3, 2):
        out = features.dropped(torch.ones(runs, 20, dtype=torch.bool), 2.0).matmul(weight[:runs])
        torch.testing.assert_close(out, torch.full((runs, 20, 1), 2.0))


def test_what_an_arc_draws_does_not_depend_on_the_other_edges() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 0, 1, 2, 3], [1, 2, 3, 4, 5]]), NODES)
    alive = torch.tensor([[True] * 5, [True, False, True, False, True]])
    both, alone = graph.batch(alive, True), graph.batch(alive[1:], True)
    key = torch.tensor([11, 12])
    drawn = Dropout(key).arcs(torch.ones(both.num_arcs, HEADS), both, both, 0, 0.5)[-alone.num_arcs :]
    assert torch.equal(drawn, Dropout(key[1:]).arcs(torch.ones(alone.num_arcs, HEADS), alone, alone, 0, 0.5))
    whole = graph.batch(alive[:1], True)
    full = Dropout(key[1:]).arcs(torch.ones(5 * 2 + NODES, HEADS), whole, whole, 0, 0.5)
    shared = torch.isin(whole.draw_slot, alone.draw_slot)
    assert torch.equal(drawn, full[shared])


def test_dropped_arcs_have_the_stated_share_and_scale() -> None:
    nodes = 3000
    graph = Graph.from_edge_index(torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]), nodes)
    batch = graph.batch(torch.ones(1, nodes - 1, dtype=torch.bool), True)
    values = Dropout(torch.tensor([5])).arcs(torch.ones(batch.num_arcs, 4), batch, batch, 0, 0.6)
    torch.testing.assert_close(values.unique(), torch.tensor([0.0, 2.5]))
    assert abs(float((values == 0).double().mean()) - 0.6) < 0.02
