"""Small graphs, problems and dense references that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems import NodeProblem


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_graph(seed: int = 0, nodes: int = 12, edges: int = 30, directed: bool = False) -> Graph:
    edge_index = torch.randint(nodes, (2, edges), generator=generator(seed))
    return Graph.from_edge_index(edge_index, nodes, directed)


def random_masks(total: Counts, keep: Counts, seeds: Sequence[int] = (0,)) -> Masks:
    """Masks with exactly `keep` alive elements, other ones for each seed."""

    def side(n: int, k: int, name: str) -> Tensor:
        ranks = rng.uniform(rng.keys(seeds, name), n).argsort(dim=1).argsort(dim=1)
        return ranks < k

    return Masks(side(total.weights, keep.weights, "weights"), side(total.edges, keep.edges, "edges"))


def tiny_data(seed: int = 0, nodes: int = 30, classes: int = 3, features: int = 12, density: float = 0.5) -> Any:
    """What a PyG `Data` holds: classes in turn, mostly edges within a class, features that hint at the class."""
    g = generator(seed)
    y = torch.arange(nodes) % classes
    likely = torch.where(y[:, None] == y[None, :], 0.3, 0.05)
    edge_index = (torch.rand(nodes, nodes, generator=g) < likely).triu(1).nonzero().t().contiguous()
    x = torch.rand(nodes, features, generator=g) + 0.3 * torch.nn.functional.one_hot(y % features, features)
    x = x * (torch.rand(nodes, features, generator=g) < density)
    part = torch.arange(nodes) // (2 * classes)
    return SimpleNamespace(
        x=x.to(torch.get_default_dtype()),
        edge_index=edge_index,
        y=y,
        train_mask=part == 0,
        val_mask=(part == 1) | (part == 2),
        test_mask=part > 2,
    )


def tiny_problem(seed: int = 0, directed: bool = False, **sizes: int) -> NodeProblem:
    return NodeProblem.build(tiny_data(seed, **sizes), "tiny", directed)


def dense_adjacency(graph: Graph, values: Tensor) -> Tensor:
    """[N, N] with the values [E] of one run's edges at [target, source], and mirrored unless directed."""
    matrix = values.new_zeros(graph.num_nodes, graph.num_nodes)
    source, target = graph.edges
    matrix = matrix.index_put((target, source), values)
    return matrix if graph.directed else matrix.index_put((source, target), values)


def dense_normalised(graph: Graph, values: Tensor) -> Tensor:
    """The GCN's normalised adjacency, from its definition: signed messages, degrees by magnitude, self-loops of 1."""
    adjacency = dense_adjacency(graph, values) + torch.eye(graph.num_nodes, dtype=values.dtype)
    root = adjacency.abs().sum(dim=1) ** -0.5
    return root[:, None] * adjacency * root[None, :]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any small graph: directed or not, with isolated nodes, perhaps without an edge."""
    nodes = draw(st.integers(1, 8))
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    edges = draw(st.lists(pairs, max_size=20))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    return Graph.from_edge_index(edge_index, nodes, draw(st.booleans()))


@st.composite
def graphs_with_alive(draw: st.DrawFn) -> tuple[Graph, Tensor]:
    """A graph and the alive edges [S, E] of one to three runs."""
    graph = draw(graphs())
    runs = draw(st.integers(1, 3))
    bits = draw(st.lists(st.booleans(), min_size=runs * graph.num_edges, max_size=runs * graph.num_edges))
    return graph, torch.tensor(bits, dtype=torch.bool).reshape(runs, graph.num_edges)


def sparse_split_data(seed: int = 0) -> Any:
    """The same with nodes outside the split, so that the inductive task has a training graph."""
    data = tiny_data(seed, nodes=36)
    part = torch.arange(36) // 6
    data.train_mask, data.val_mask, data.test_mask = part == 0, part == 1, part == 2
    return data


def labels_data(seed: int = 0) -> Any:
    """The same with several labels per node, some of them unknown."""
    data = tiny_data(seed)
    labels = torch.stack([data.y == 0, data.y != 1], dim=1).to(data.x.dtype)
    labels[torch.rand(labels.shape, generator=generator(seed + 1)) < 0.2] = torch.nan
    data.y = labels
    return data


def step_by_hand(
    adam: torch.optim.Optimizer, losses: list[Tensor], leaves: Sequence[Tensor], on_weights: float, on_edges: float
) -> None:
    """A step on the mean of losses; `leaves` are weights, their scores and those of edges, both with an L1 term."""
    grads = torch.autograd.grad(torch.stack(losses).mean(), leaves)
    penalties = (0.0, on_weights, on_edges)
    for leaf, grad, penalty in zip(leaves, grads, penalties, strict=True):
        leaf.grad = grad + penalty * leaf.sign()
    adam.step()
