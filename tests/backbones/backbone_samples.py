"""Small graphs and the checks that GIN and GAT share."""

from __future__ import annotations

import torch
from torch import Tensor

from aceglt.backbones import Backbone, Dropout
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph

NODES, FEATURES, CLASSES = 14, 30, 3


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random_graph(seed: int = 0) -> Graph:
    """Nodes 0 to 12 with some edges; node 13 is isolated."""
    pairs = torch.randint(0, NODES - 1, (2, 30), generator=torch.Generator().manual_seed(seed))
    return Graph.from_edge_index(pairs, NODES)


def arcs(graph: Graph, alive: Tensor | None = None) -> Tensor:
    """PyG's edge_index of the alive edges, both directions."""
    edges = graph.edges if alive is None else graph.edges[:, alive]
    return torch.cat([edges, edges.flip(0)], dim=1)


def features(density: float, seed: int = 1) -> Tensor:
    kept = torch.rand(NODES, FEATURES, generator=torch.Generator().manual_seed(seed)) < density
    return draw(NODES, FEATURES, seed=seed) * kept


def weights(backbone: Backbone, runs: int = 1) -> dict[str, Tensor]:
    """Initial weights as leaves, but for buffers; what starts at 0 is drawn too, so that it matters."""
    params = backbone.init(range(runs))
    other = 0.3 * draw(*params.other.shape, seed=2)
    named = {**backbone.prunable.split(params.prunable), **backbone.other.split(other)}
    named = {name: part.abs() + 0.1 if name.endswith("variance") else part.clone() for name, part in named.items()}
    return {name: part.requires_grad_(name not in backbone.buffers) for name, part in named.items()}


def all_alive(backbone: Backbone, graph: Graph, runs: int = 1) -> GraphBatch:
    return graph.batch(torch.ones(runs, graph.num_edges, dtype=torch.bool), backbone.self_loops)


def check_dead_edges_are_deleted(backbone: Backbone) -> None:
    graph, x = random_graph(), Features(features(0.1))
    alive = draw(graph.num_edges, seed=3) > 0
    filtered = Graph.from_edge_index(graph.edges[:, alive], NODES)
    values = draw(1, graph.num_edges, seed=4)
    named = weights(backbone)
    masked = backbone.apply(named, graph.batch(alive.unsqueeze(0), backbone.self_loops), values, x)
    deleted = backbone.apply(named, all_alive(backbone, filtered), values[:, alive], x)
    torch.testing.assert_close(masked, deleted)


def check_runs_do_not_influence_each_other(backbone: Backbone) -> None:
    """Outputs and gradients of three runs, with dropout and unequal masks, are those of each run alone."""
    graph, x, runs = random_graph(), Features(features(0.1)), 3
    alive = draw(runs, graph.num_edges, seed=3) > torch.tensor([[-9.0], [0.0], [0.5]])
    values, key = draw(runs, graph.num_edges, seed=4), torch.tensor([7, 8, 9])
    named = weights(backbone, runs)

    def train(chosen: slice) -> tuple[Tensor, list[Tensor]]:
        part = {name: value.detach()[chosen].clone() for name, value in named.items()}
        leaves = [value.requires_grad_() for name, value in part.items() if name not in backbone.buffers]
        scores = values[chosen].clone().requires_grad_()
        batch = graph.batch(alive[chosen], backbone.self_loops)
        out = backbone.head(part, batch, backbone.stem(part, batch, scores, x), Dropout(key[chosen]))
        return out, list(torch.autograd.grad(out.square().sum(), [*leaves, scores]))

    together, gradients = train(slice(0, runs))
    for run in range(runs):
        alone, own = train(slice(run, run + 1))
        torch.testing.assert_close(together[run : run + 1], alone)
        for batched, single in zip(gradients, own, strict=True):
            torch.testing.assert_close(batched[run : run + 1], single)
