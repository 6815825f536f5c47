"""The deep residual network of DeeperGCN (Li et al., 2020), which UGS and the paper call ResGCN."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aceglt.backbones.base import Backbone, Dropout, Footprint, Layout, Weights
from aceglt.backbones.portable import BlockSpec
from aceglt.numerics import ops
from aceglt.numerics.features import Features
from aceglt.numerics.graph import GraphBatch

_Stem = tuple[Tensor, Tensor]
_CHECKPOINTED = Footprint(1.0, 40.0, 20.0)


class ResGCN(Backbone):
    """A linear encoder, `layers` GENConv layers, a norm, ReLU and a linear map to the outputs.

    All layers but the first are residual and pre-activated: h + conv(dropout(ReLU(norm(h)))). A layer is DeeperGCN's
    with one linear map: W·(x + Σ s·softmax(t·m)·m) + b over the alive neighbours, m = ReLU(x_j + e_ij) + 1e-7, the
    softmax channel by channel with a learned temperature t, and an edge's score s after it. Edge features, where the
    graph has them, get a linear map e of their own in every layer.

    DeeperGCN normalises by batch on ogbn-arxiv and ogbl-collab and by layer on ogbn-proteins; here it is always by
    layer, so that no statistics have to be kept and a node's output depends on its neighbourhood alone. Weight
    matrices are pruned; norms, biases and temperatures are not.
    """

    name = "resgcn"
    self_loops = False
    coefficients = "softmax"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden: int = 128,
        layers: int = 28,
        dropout: float = 0.5,
        edge_features: int = 0,
        checkpoint_blocks: bool = False,
    ) -> None:
        self.depth, self.dropout, self.edge_features = layers, dropout, edge_features
        self.checkpoint_blocks = checkpoint_blocks
        self.footprint = _CHECKPOINTED if checkpoint_blocks else Footprint(11.5, 40.0)
        matrices = [("encoder.weight", (in_features, hidden))]
        others: list[tuple[str, tuple[int, ...]]] = [("encoder.bias", (1, hidden))]
        for layer in range(layers):
            if edge_features:
                matrices.append((f"layer{layer}.edge.weight", (edge_features, hidden)))
                others.append((f"layer{layer}.edge.bias", (hidden,)))
            matrices.append((f"layer{layer}.weight", (hidden, hidden)))
            others += [(f"layer{layer}.bias", (1, hidden)), (f"layer{layer}.temperature", (1,))]
            others += [(f"norm{layer}.scale", (1, hidden)), (f"norm{layer}.shift", (1, hidden))]
        self.prunable = Layout((*matrices, ("decoder.weight", (hidden, out_features))))
        self.other = Layout((*others, ("decoder.bias", (1, out_features))))
        self.aggregation_widths = (hidden,) * layers

    def lighter(self) -> ResGCN | None:
        if self.checkpoint_blocks:
            return None
        light = copy(self)
        light.checkpoint_blocks, light.footprint = True, _CHECKPOINTED
        return light

    def initial(self, seeds: Sequence[int], name: str, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
        """Temperatures and the norms' scales are 1."""
        values = super().initial(seeds, name, shape, device)
        return torch.ones_like(values) if name.endswith(("temperature", "scale")) else values

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> _Stem:
        scores = ops.arc_values(graph, edge_values)
        encoded = x.matmul(weights["encoder.weight"]) + weights["encoder.bias"]
        return self._conv(weights, graph, scores, 0, encoded), scores

    def head(self, weights: Weights, graph: GraphBatch, state: _Stem, dropout: Dropout | None) -> Tensor:
        h, scores = state
        for layer in range(1, self.depth):
            block = partial(self._block, weights, graph, scores, layer)
            if self.checkpoint_blocks and torch.is_grad_enabled():
                # Nothing is drawn from torch's generators: dropout has its own keys.
                h = checkpoint(block, h, dropout, use_reentrant=False, preserve_rng_state=False)
            else:
                h = block(h, dropout)
        return _linear(graph, weights, "decoder", self._activated(weights, self.depth - 1, h, dropout))

    def _block(
        self, weights: Weights, graph: GraphBatch, scores: Tensor, layer: int, h: Tensor, dropout: Dropout | None
    ) -> Tensor:
        return h + self._conv(weights, graph, scores, layer, self._activated(weights, layer - 1, h, dropout))

    def _activated(self, weights: Weights, norm: int, h: Tensor, dropout: Dropout | None) -> Tensor:
        activated = ops.layer_norm(h, weights[f"norm{norm}.scale"], weights[f"norm{norm}.shift"]).relu()
        return activated if dropout is None else dropout(activated, None, norm, self.dropout)

    def _conv(self, weights: Weights, graph: GraphBatch, scores: Tensor, layer: int, x: Tensor) -> Tensor:
        terms = None
        if self.edge_features:
            terms = weights[f"layer{layer}.edge.weight"], weights[f"layer{layer}.edge.bias"]
        temperature = weights[f"layer{layer}.temperature"].squeeze(1)
        messages = ops.softmax_messages(graph, x, scores, temperature, terms)
        return _linear(graph, weights, f"layer{layer}", x + messages)

    def layers(self, weights: Weights) -> list[BlockSpec]:
        names = ["encoder", *(f"layer{layer}" for layer in range(self.depth)), "decoder"]
        return [_spec(weights, name, norm=None if step < 2 else step - 2) for step, name in enumerate(names)]


def _spec(weights: Weights, name: str, norm: int | None) -> BlockSpec:
    """A linear map or layer, after a norm or none; layers after a norm are residual."""
    return BlockSpec(
        weights[f"{name}.weight"],
        weights[f"{name}.bias"][0],
        scale=None if norm is None else weights[f"norm{norm}.scale"][0],
        shift=None if norm is None else weights[f"norm{norm}.shift"][0],
        temperature=weights.get(f"{name}.temperature"),
        edge_weight=weights.get(f"{name}.edge.weight"),
        edge_bias=weights.get(f"{name}.edge.bias"),
        residual=norm is not None and name != "decoder",
    )


def _linear(graph: GraphBatch, weights: Weights, name: str, h: Tensor) -> Tensor:
    return graph.kernels.linear(h, weights[f"{name}.weight"]) + weights[f"{name}.bias"]
