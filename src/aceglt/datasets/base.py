"""What a dataset loader returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class GraphData:
    """A graph with features, labels and a split; the attribute names are those of PyG's `Data`.

    Loaders fill it with what the source says; `Problem.from_data` checks it.
    """

    name: str
    x: torch.Tensor  # [N, F] float32
    edge_index: torch.Tensor  # [2, A] int64, arcs; an undirected graph may list one or both directions
    y: torch.Tensor  # [N] int64 class of each node
    train_mask: torch.Tensor  # [N] bool
    val_mask: torch.Tensor  # [N] bool
    test_mask: torch.Tensor  # [N] bool

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    def edge_subgraph(self, subset: torch.Tensor) -> GraphData:
        """The same nodes with a subset [A] bool of the arcs."""
        return replace(self, edge_index=self.edge_index[:, subset])
