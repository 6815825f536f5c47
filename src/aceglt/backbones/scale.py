"""Aids for graphs that are large for the machine, as backbones around another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Params, Weights
from aceglt.numerics.features import Features
from aceglt.numerics.graph import GraphBatch


class Around(Backbone):
    """A backbone that behaves like another one."""

    def __init__(self, inner: Backbone) -> None:
        self.inner = inner
        for attribute in Backbone.__annotations__:
            if hasattr(inner, attribute):  # backbones without a compact form have no coefficients
                setattr(self, attribute, getattr(inner, attribute))

    def init(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> Params:
        return self.inner.init(seeds, device)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        return self.inner.stem(weights, graph, edge_values, x)

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        return self.inner.head(weights, graph, state, dropout)


class InPrecision(Around):
    """Computes in another type of number; weights, their gradients and the outputs keep theirs."""

    def __init__(self, inner: Backbone, dtype: torch.dtype) -> None:
        super().__init__(inner)
        self.dtype = dtype

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        return self.inner.stem(self._cast(weights), graph, edge_values, x)

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        outputs = self.inner.head(self._cast(weights), graph, state, dropout)
        return outputs.to(next(iter(weights.values())).dtype)

    def _cast(self, weights: Weights) -> Weights:
        """All but the buffers, which are updated in place."""
        return {name: w if name in self.buffers else w.to(self.dtype) for name, w in weights.items()}
