"""What a dataset loader returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class GraphData:
    """A graph with features, labels and a split; the attribute names are those of PyG's `Data`.

    Loaders fill it with what the source says; `Problem.from_data` checks it.
    """

    name: str
    x: torch.Tensor  # [N, F] float32
    edge_index: torch.Tensor  # [2, A] int64, arcs; an undirected graph may list one or both directions
    y: torch.Tensor  # [N] int64 class of each node, or [N, T] of 0, 1 and NaN (unknown) for several labels
    train_mask: torch.Tensor  # [N] bool
    val_mask: torch.Tensor  # [N] bool
    test_mask: torch.Tensor  # [N] bool
    edge_weight: torch.Tensor | None = None  # [A]
    edge_attr: torch.Tensor | None = None  # [A, D] features of the arcs
