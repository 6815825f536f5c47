"""Loaded graphs as PyG's `Data`; apart, since PyG takes seconds to import and a search does without it."""

from __future__ import annotations

import copy
from dataclasses import fields

import torch
from torch_geometric.data import Data

from aceglt.datasets.base import GraphData, LinkData


class LoadedData(Data):  # type: ignore[misc]
    """A PyG `Data` whose features may be sparse because its file has them so."""

    def dense(self) -> LoadedData:
        """The same with dense features."""
        if self.x.layout == torch.strided:
            return self
        data = copy.copy(self)
        data.x = self.x.to_dense()
        return data


def as_data(graph: GraphData | LinkData) -> LoadedData:
    """A `Data` with what the graph has."""
    parts = {field.name: getattr(graph, field.name) for field in fields(graph)}
    return LoadedData(**{name: value for name, value in parts.items() if value is not None})
