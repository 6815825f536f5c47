"""Loaded graphs as PyG's `Data`; apart, since PyG takes seconds to import and a search does without it."""

from __future__ import annotations

import copy
import math
from dataclasses import fields
from typing import Any

import torch
from torch_geometric.data import Data

from aceglt.datasets.base import GraphData, LinkData


class LoadedData(Data):  # type: ignore[misc]
    """A PyG `Data` whose features may be sparse because its file has them so."""

    @property
    def source(self) -> str | None:
        """The name or path that it was loaded by; None once any of its tensors is another or has been written to."""
        loaded: tuple[str | None, dict[str, Any]] = getattr(self._store, "_loaded", (None, {}))
        (name, parts), now = loaded, self._parts()
        same = now.keys() == parts.keys() and all(v is parts[k][0] and n == parts[k][1] for k, (v, n) in now.items())
        return name if same else None

    def _parts(self) -> dict[str, tuple[Any, float]]:
        """What it has, and how often each tensor was written to."""
        return {part: (value, _writes(value)) for part, value in self}

    def _note(self, name: str | None) -> LoadedData:
        """What it is now is what has this name."""
        self._store._loaded = name, self._parts()
        return self

    def dense(self) -> LoadedData:
        """The same with dense features."""
        if self.x.layout == torch.strided:
            return self
        data, name = copy.copy(self), self.source
        data.x = self.x.to_dense()
        return data._note(name)


def _writes(value: Any) -> float:
    """How often a value was written to; NaN, which nothing equals, for a tensor that does not count that."""
    if not isinstance(value, torch.Tensor):
        return 0
    return math.nan if value.is_inference() else value._version


def as_data(graph: GraphData | LinkData, name: str) -> LoadedData:
    """A `Data` with what the graph has, which is known by this name or path."""
    parts = {field.name: getattr(graph, field.name) for field in fields(graph)}
    return LoadedData(**{part: value for part, value in parts.items() if value is not None})._note(name)
