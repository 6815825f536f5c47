"""The deep residual network of DeeperGCN (Li et al., 2020), which UGS and the paper call ResGCN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aceglt.backbones.base import FEATURES, Axis, Backbone, Dropout, Footprint, Layout, Weights
from aceglt.backbones.portable import BlockSpec
from aceglt.numerics import ops
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features

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
    _present: Tensor | None
    _drawn: int | None

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
        self._out_features, self._present, self._drawn = out_features, None, None
        self._lay_out({FEATURES: in_features, "encoder": hidden, "layers": hidden})

    def _lay_out(self, widths: Mapping[str, int]) -> None:
        """Units that layers add to each other are those of one layer, `layers`; the encoder's are its own."""
        encoder, hidden, axis = widths["encoder"], widths["layers"], ("layers",)
        matrices = [("encoder.weight", (widths[FEATURES], encoder))]
        others: list[tuple[str, tuple[int, ...]]] = [("encoder.bias", (1, encoder))]
        sides: dict[str, tuple[Axis, Axis]] = {"encoder.weight": ((FEATURES,), ("encoder",))}
        sides |= {"encoder.bias": ((), ("encoder",)), "decoder.weight": (axis, ())}
        for layer in range(self.depth):
            name, inputs, read = f"layer{layer}", hidden if layer else encoder, axis if layer else ("encoder",)
            if self.edge_features:
                matrices.append((f"{name}.edge.weight", (self.edge_features, inputs)))
                others.append((f"{name}.edge.bias", (inputs,)))
                sides |= {f"{name}.edge.{part}": ((), read) for part in ("weight", "bias")}
            matrices.append((f"{name}.weight", (inputs, hidden)))
            others += [(f"{name}.bias", (1, hidden)), (f"{name}.temperature", (1,))]
            others += [(f"norm{layer}.scale", (1, hidden)), (f"norm{layer}.shift", (1, hidden))]
            sides[f"{name}.weight"] = (read, axis)
            sides |= dict.fromkeys((f"{name}.bias", f"norm{layer}.scale", f"norm{layer}.shift"), ((), axis))
        self.prunable = Layout((*matrices, ("decoder.weight", (hidden, self._out_features))))
        self.other = Layout((*others, ("decoder.bias", (1, self._out_features))))
        self.aggregation_widths = (encoder, *[hidden] * (self.depth - 1))
        self.widths, self.sides = dict(widths), sides

    def narrowed(self, widths: Mapping[str, int], present: Mapping[str, Tensor]) -> ResGCN:
        made = copy(self)
        made._present, made._drawn = present.get("layers"), self.widths["layers"]
        made._lay_out(widths)
        return made

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
        parts = weights[f"norm{norm}.scale"], weights[f"norm{norm}.shift"]
        normed = ops.layer_norm(h, *parts) if self._present is None else ops.layer_norm_of(self._present, h, *parts)
        return normed.relu() if dropout is None else dropout(normed.relu(), None, norm, self.dropout, self._drawn)

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
