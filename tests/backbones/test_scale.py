from __future__ import annotations

import pytest
import torch
from backbone_samples import CLASSES, FEATURES, NODES, all_alive, draw, features, random_graph, weights
from torch import Tensor

from aceglt.backbones import Backbone, Dropout, InPartitions, InPrecision, build
from aceglt.graph import Graph
from aceglt.ops import Features

BACKBONES = ("gcn", "gin", "gat", "resgcn")


def small(name: str) -> Backbone:
    return build(name, FEATURES, CLASSES, 8, **({"layers": 3} if name == "resgcn" else {}))


def train(backbone: Backbone, named: dict[str, Tensor]) -> list[Tensor]:
    """Outputs, and the gradients of weights and scores, with dropout."""
    graph, x = random_graph(), Features(features(0.5))
    batch, scores = all_alive(backbone, graph), (1 + 0.1 * draw(1, graph.num_edges)).requires_grad_()
    out = backbone.head(named, batch, backbone.stem(named, batch, scores, x), Dropout(torch.tensor([3])))
    return [out, *torch.autograd.grad(out.square().mean(), [*named.values(), scores])]


@pytest.mark.parametrize("name", BACKBONES)
def test_bfloat16_is_close_and_leaves_weights_and_outputs_in_float32(name: str) -> None:
    backbone = small(name)
    named = weights(backbone)
    exact, rounded = train(backbone, named), train(InPrecision(backbone, torch.bfloat16), named)
    assert {t.dtype for t in rounded} == {torch.float32}
    assert not torch.equal(exact[0], rounded[0])
    for full, low in zip(exact, rounded, strict=True):
        torch.testing.assert_close(low, full, rtol=0.1, atol=0.05 * float(full.detach().abs().max()) + 1e-6)


@torch.no_grad()
@pytest.mark.parametrize("name", BACKBONES)
def test_one_partition_is_the_full_batch(name: str) -> None:
    backbone, graph, x = small(name), random_graph(), Features(features(0.1))
    named, values = weights(backbone, 2), draw(2, graph.num_edges)
    batch = all_alive(backbone, graph, runs=2)
    assert torch.equal(
        InPartitions(backbone, 1).apply(named, batch, values, x), backbone.apply(named, batch, values, x)
    )


@torch.no_grad()
@pytest.mark.parametrize("name", BACKBONES)
def test_partitions_are_the_graph_without_the_edges_between_them(name: str) -> None:
    backbone, graph, x = small(name), random_graph(), Features(features(0.1))
    named, values = weights(backbone, 2), draw(2, graph.num_edges)
    alive = draw(2, graph.num_edges, seed=5) > -1
    partitioned = InPartitions(backbone, 3)
    batch = graph.batch(alive, backbone.self_loops)
    part_of = torch.zeros(NODES, dtype=torch.int64)
    for number, part in enumerate(partitioned._parts(batch, x)):
        part_of[part.nodes] = number
    within = part_of[graph.edges[0]] == part_of[graph.edges[1]]
    assert sorted(part_of.bincount().tolist()) == [4, 5, 5]
    assert 0 < int(within.sum()) < graph.num_edges
    cut = backbone.apply(named, graph.batch(alive & within, backbone.self_loops), values, x)
    torch.testing.assert_close(partitioned.apply(named, batch, values, x), cut)
    state = partitioned.stem(named, batch, values, x)
    torch.testing.assert_close(partitioned.head(named, batch, state, None), cut)


def test_training_is_on_the_whole_graph() -> None:
    backbone = small("resgcn")
    named = weights(backbone)
    whole, partitioned = train(backbone, named), train(InPartitions(backbone, 3), named)
    assert all(torch.equal(a, b) for a, b in zip(whole, partitioned, strict=True))


@torch.no_grad()
def test_more_partitions_than_nodes_leave_every_node_alone() -> None:
    backbone, x = small("gcn"), Features(features(0.1))
    named, graph = weights(backbone), random_graph()
    lonely = Graph(NODES, graph.edges[:, :0])
    out = InPartitions(backbone, 2 * NODES).apply(named, all_alive(backbone, graph), torch.ones(1, graph.num_edges), x)
    alone = backbone.apply(named, all_alive(backbone, lonely), torch.ones(1, 0), x)
    torch.testing.assert_close(out, alone)
