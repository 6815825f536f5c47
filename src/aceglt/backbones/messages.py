"""Scores of arcs in the layers of somebody else's model, through PyG's hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing


class Arcs(NamedTuple):
    """One run's arcs, and what their messages are multiplied by; None where that is 1 for all."""

    edge_index: Tensor  # [2, A], sorted by target, then source
    scores: Tensor | None  # [A]
    num_nodes: int

    @property
    def weight(self) -> Tensor:
        """[A] the scores' magnitudes, what `edge_weight` is. The gradient at 0 is that of a positive score."""
        return self.edge_index.new_ones(self.edge_index.shape[1]) if self.scores is None else self.scores * self.sign

    @property
    def sign(self) -> Tensor:
        assert self.scores is not None
        return torch.where(self.scores < 0, -1.0, 1.0).to(self.scores.dtype)


class Messages:
    """Multiplies the messages of a model's layers by the scores of the arcs that they go along.

    `weighted` names the layers that use `edge_weight`, where the scores' magnitudes are: their messages get the sign.
    """

    def __init__(self, module: Module, weighted: frozenset[str]) -> None:
        self._arcs: Arcs | None = None
        self._factors: dict[Any, Tensor] = {}  # of the messages in a layer's current propagation
        layers = message_layers(module)
        self._weighted = {layers[name] for name in weighted}
        for layer in layers.values():
            layer.register_propagate_forward_pre_hook(self._before)
            layer.register_message_forward_hook(self._after)

    @contextmanager
    def along(self, arcs: Arcs) -> Iterator[None]:
        """These arcs' scores act inside."""
        self._arcs = arcs
        try:
            yield
        finally:
            self._arcs = None
            self._factors.clear()

    def _before(self, layer: Any, inputs: tuple[Any, ...]) -> None:
        if self._arcs is None or self._arcs.scores is None:
            return
        values = self._arcs.sign if layer in self._weighted else self._arcs.scores
        self._factors[layer] = _along(values, self._arcs, inputs[0])

    def _after(self, layer: Any, inputs: tuple[Any, ...], message: Tensor) -> Tensor:
        if layer not in self._factors:
            return message
        shape = [1] * message.dim()
        shape[layer.node_dim] = -1
        return message * self._factors[layer].view(shape)


def _along(values: Tensor, arcs: Arcs, edge_index: Tensor) -> Tensor:
    """Arc values for the edges that a layer propagates along, which may be more (self-loops) or in another order;
    1 for edges that are not the graph's."""
    if edge_index is arcs.edge_index:
        return values
    # One number for each arc between the graph's nodes, ascending in the order of arcs.
    code, wanted = (index[1] * arcs.num_nodes + index[0] for index in (arcs.edge_index, edge_index))
    known = torch.cat([code, code.new_full((1,), arcs.num_nodes**2)])
    position = torch.searchsorted(known, wanted)
    position = torch.where(known[position] == wanted, position, len(values))
    return torch.cat([values, values.new_ones(1)])[position]


def message_layers(module: Module) -> dict[str, Any]:
    """PyG's message-passing layers by name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, MessagePassing)}
