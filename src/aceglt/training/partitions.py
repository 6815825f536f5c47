"""A graph too large for one pass, cut into parts of its nodes that are trained on and evaluated one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Weights
from aceglt.backends import Backend
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.training import processes

_CLUSTERS_PER_PART = 16  # drawn together anew at every epoch, so that no two of them are kept apart for good


@dataclass(frozen=True)
class Part:
    """Some nodes of a graph and edges among them, both in ascending order."""

    nodes: Tensor  # [n]
    edges: Tensor  # [e]
    seeds: Tensor | None = None
    """[s] the nodes whose outputs the loss reads, in ascending order; None is all."""


@dataclass(frozen=True)
class Parts:
    """How the nodes of a graph are cut. One part is the whole graph.

    Training cuts anew at every epoch, in the same way for all runs. Of `random` and `clusters`, edges between two parts
    do not count, and a training is validated by parts too, always the same, as in DeeperGCN. With `neighbours`, a part
    is some nodes and what is drawn of their neighbourhood, and validation is exact (see `aceglt.training.sampling`).
    Metrics that are recorded are exact with all.
    """

    count: int = 1
    per_step: int = 1
    """How many parts make one step of the optimiser, whose gradient is the mean over them."""
    by: str = "random"
    """`random` nodes; `clusters`: METIS clusters, several of them at random in each part; or `neighbours`."""
    neighbours: int = 10
    """How many are drawn for a node and layer, where parts are made of `neighbours`."""
    _clusters: dict[int, tuple[Graph, Tensor]] = field(default_factory=dict, compare=False, repr=False)  # by graph

    @property
    def sampled(self) -> bool:
        """Whether parts are nodes with neighbours that are drawn, for each run among its alive edges."""
        return self.count > 1 and self.by == "neighbours"

    @property
    def exact(self) -> bool:
        """Whether a training is validated on the whole graph."""
        return self.count == 1 or self.sampled

    def steps(self, graph: Graph, epoch: int | Tensor) -> list[list[Part]]:
        """The parts of each step of an epoch."""
        parts = self._cut(graph, rng.fold(self.key(graph), 1 + epoch))
        return [parts[first : first + self.per_step] for first in range(0, len(parts), self.per_step)]

    def evaluated(self, graph: Graph) -> list[Part]:
        """The parts that outputs are made on."""
        return self._cut(graph, self.key(graph))

    def key(self, graph: Graph) -> Tensor:
        """What cuts are drawn with."""
        return rng.keys([0], "partition", self.count, device=graph.edges.device)

    def _cut(self, graph: Graph, key: Tensor) -> list[Part]:
        cluster = self._clusters_of(graph) if self.by == "clusters" else None
        units = graph.num_nodes if cluster is None else int(cluster.max()) + 1
        count = min(self.count, units)  # more would be empty
        part = rng.uniform(key, units)[0].argsort().argsort() * count // units  # of each unit
        part = part if cluster is None else part[cluster]  # [N]
        source, target = part[graph.edges]
        inside = (source == target).nonzero().squeeze(1)
        nodes = _grouped(torch.arange(len(part), device=part.device), part, count)
        edges = _grouped(inside, source[inside], count)
        return [Part(n, e) for n, e in zip(nodes, edges, strict=True) if len(n)]

    def _clusters_of(self, graph: Graph) -> Tensor:
        if id(graph) not in self._clusters:
            clusters = metis(graph, min(self.count * _CLUSTERS_PER_PART, graph.num_nodes))
            self._clusters[id(graph)] = graph, clusters  # with the graph, so that its id stays its own
        return self._clusters[id(graph)][1]


WHOLE = Parts()
"""Nothing is cut."""


def _grouped(items: Tensor, group: Tensor, groups: int) -> Sequence[Tensor]:
    """Items [n] by their group [n], in their order."""
    sizes: list[int] = group.bincount(minlength=groups).tolist()
    parts: Sequence[Tensor] = items[group.argsort(stable=True)].split(sizes)
    return parts


def metis(graph: Graph, clusters: int) -> Tensor:
    """[N] cluster of each node by METIS, as PyG has it. Raises ConfigError where what it needs is not installed."""
    from torch_geometric.data import Data
    from torch_geometric.loader import ClusterData

    edges = graph.edges.cpu()
    data = Data(edge_index=torch.cat([edges, edges.flip(0)], dim=1), num_nodes=graph.num_nodes)
    try:
        partition = ClusterData(data, clusters, log=False).partition
    except ImportError:
        raise ConfigError(
            "partition_by 'clusters' is METIS of PyG, which needs pyg-lib or torch-sparse; install one of them, or use "
            "'random'"
        ) from None
    cluster = torch.empty(graph.num_nodes, dtype=torch.int64)
    cluster[partition.node_perm] = torch.repeat_interleave(partition.partptr.diff())
    numbers: Tensor = torch.unique(cluster, return_inverse=True)[1]  # METIS may leave some empty
    return numbers.to(graph.edges.device)


class Outputs:
    """A graph with the alive edges of some runs, ready for outputs without gradients: whole, or in parts."""

    def __init__(
        self, backend: Backend, backbone: Backbone, graph: Graph, features: Features, alive: Tensor, parts: Parts
    ) -> None:
        self._network, self._nodes, loops = backend.network(backbone), graph.num_nodes, backbone.self_loops
        self._whole: tuple[GraphBatch, Features] | None = None
        if parts.exact:
            self._whole = graph.batch(alive, loops, backend.kernels), backend.features(features)
            return
        self._parts = [
            (
                part,
                graph.part(part.nodes, part.edges).batch(alive[:, part.edges], loops, backend.kernels),
                backend.features(features).part(part.nodes),
            )
            for part in processes.mine(parts.evaluated(graph))
        ]

    @torch.no_grad()
    def __call__(self, weights: Weights, edge_values: Tensor) -> Tensor:
        """[S, N, C]; each process makes those of its parts."""
        if self._whole is not None:
            graph, features = self._whole
            return self._network.apply(weights, graph, edge_values, features)
        made = [
            (part.nodes, self._network.apply(weights, graph, edge_values[:, part.edges], features))
            for part, graph, features in self._parts
        ]
        first = made[0][1]
        outputs = first.new_zeros(first.shape[0], self._nodes, first.shape[2])
        for nodes, values in made:
            outputs[:, nodes] = values
        processes.add_up([outputs])
        return outputs
