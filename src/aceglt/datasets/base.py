"""What a dataset loader returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

Data = TypeVar("Data", bound="_Arcs")


@dataclass(frozen=True)
class _Arcs:
    name: str
    x: torch.Tensor  # [N, F] float32, dense or sparse
    edge_index: torch.Tensor  # [2, A] int64, arcs; an undirected graph may list one or both directions

    @property
    def num_nodes(self) -> int:
        return self.x.shape[0]

    def edge_subgraph(self: Data, subset: torch.Tensor) -> Data:
        """The same nodes with a subset [A] bool of the arcs."""
        values = {name: getattr(self, name, None) for name in ("edge_weight", "edge_attr")}
        kept: dict[str, Any] = {name: value[subset] for name, value in values.items() if value is not None}
        return replace(self, edge_index=self.edge_index[:, subset], **kept)


@dataclass(frozen=True)
class GraphData(_Arcs):
    """A graph with features, labels and a split; the attribute names are those of PyG's `Data`.

    Loaders fill it with what the source says; `Problem.from_data` checks it.
    """

    y: torch.Tensor  # [N] int64 class of each node, or [N, T] of 0, 1 and NaN (unknown) for several labels
    train_mask: torch.Tensor | None = None  # [N] bool, or [N, K] of K splits
    val_mask: torch.Tensor | None = None  # likewise
    test_mask: torch.Tensor | None = None
    edge_weight: torch.Tensor | None = None  # [A]
    edge_attr: torch.Tensor | None = None  # [A, D] float32 features of the arcs
    metric: str | None = None
    """What it is usually measured by; None: as its classes or labels say."""

    def dense(self) -> GraphData:
        """The same with dense features."""
        return self if self.x.layout == torch.strided else replace(self, x=self.x.to_dense())


@dataclass(frozen=True)
class LinkData(_Arcs):
    """A graph with features, and edges that are held out from it; the arcs of the graph are the training edges."""

    val_edges: torch.Tensor  # [2, V] int64
    val_negatives: torch.Tensor  # [2, …] int64, pairs that are no edges
    test_edges: torch.Tensor
    test_negatives: torch.Tensor
    metric: str  # hits@K
