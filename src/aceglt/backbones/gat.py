"""The graph attention network of Veličković et al."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.backbones.base import Backbone, Convolution, Dropout, Footprint, Layout, Weights, glorot
from aceglt.backbones.portable import SLOPE, LayerSpec
from aceglt.numerics import ops
from aceglt.numerics.features import DroppedFeatures, Features
from aceglt.numerics.graph import Block, GraphBatch

_Stem = tuple[Features, Tensor, Tensor]

# Dropout draws by place: features, coefficients of both layers, then the hidden layer head by head.
_INPUT, _ATTENTION, _HIDDEN = 0, (1, 2), 3


class GAT(Backbone):
    """Two layers: `heads` heads of `hidden` each, concatenated, ELU; then one head.

    As in the authors' code, dropout is on the input of each layer and on the attention coefficients. An edge's score
    multiplies its coefficient after the softmax. Attention vectors and biases are not pruned.

    A head is worked off before the next begins: its [N, hidden] tensors stay in the cache, and nothing is ever
    arcs × hidden. Each has a weight matrix of its own, so that their gradients need not be put together.
    """

    name = "gat"
    self_loops = True
    footprint = Footprint(6.0, 115.0)
    coefficients = "attention"

    def __init__(
        self, in_features: int, out_features: int, hidden: int = 512, heads: int = 8, dropout: float = 0.6
    ) -> None:
        self.in_features, self.out_features, self.hidden, self.heads = in_features, out_features, hidden, heads
        self.dropout = dropout
        first = [(f"layer0.head{head}.weight", (in_features, hidden)) for head in range(heads)]
        self.prunable = Layout((*first, ("layer1.weight", (heads * hidden, out_features))))
        parts = ("source", "target", "bias")
        hidden_vectors = [(f"layer0.{part}", (heads, hidden)) for part in parts]
        self.other = Layout((*hidden_vectors, *((f"layer1.{part}", (1, out_features)) for part in parts)))
        self.chain = (
            Convolution(tuple(name for name, _ in first), ("layer0.bias",), plain=False),
            Convolution(("layer1.weight",), ("layer1.bias",), plain=False),
        )
        self.aggregation_widths = (heads * hidden, out_features)

    def initial(self, seeds: Sequence[int], name: str, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
        """Glorot over all heads of a layer, as PyG has it, attention vectors too; biases 0."""
        if name.endswith("bias"):
            return super().initial(seeds, name, shape, device)
        fans = self.in_features + self.heads * self.hidden if name.startswith("layer0.head") else None
        return glorot(seeds, name, shape, device, fans)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> _Stem:
        """The first dropout is on the features: only products of parameters and the arcs' scores come before it."""
        return x, self._projected(weights, graph), ops.arc_values(graph, edge_values)

    def head(self, weights: Weights, graph: GraphBatch, state: _Stem, dropout: Dropout | None) -> Tensor:
        features, projected, scores = state
        x = dropout.features(features, _INPUT, self.dropout) if dropout is not None else features
        coefficients = self._attention(graph, 0, x.matmul(projected), scores, dropout)
        z = self._first_layer(weights, graph.layer(0), coefficients, x, dropout)
        vectors = torch.stack([weights["layer1.source"], weights["layer1.target"]], dim=-1)  # [S, 1, C, 2]
        (values,) = self._attention(graph, 1, z @ vectors[:, 0], scores, dropout)
        return ops.spmm(graph.layer(1), values, z) + weights["layer1.bias"]

    def layers(self, weights: Weights) -> list[LayerSpec]:
        firsts = [weights[_first(head)] for head in range(self.heads)]
        return [_spec(weights, 0, firsts, "elu"), _spec(weights, 1, [weights["layer1.weight"]], "none")]

    def _first_layer(
        self,
        weights: Weights,
        block: Block,
        coefficients: tuple[Tensor, ...],
        x: Features | DroppedFeatures,
        dropout: Dropout | None,
    ) -> Tensor:
        """[S, N, C]: the hidden layer times the second layer's weight, summed over the heads."""
        biases = weights["layer0.bias"].unbind(1)
        second = weights["layer1.weight"].unflatten(1, (self.heads, self.hidden)).unbind(1)
        parts = []
        for head, values in enumerate(coefficients):
            aggregated = ops.spmm(block, values, x.matmul(weights[_first(head)]))
            keep = None if dropout is None else dropout.keep(aggregated, block.nodes, _HIDDEN + head, self.dropout)
            hidden = ops.elu_dropout(
                aggregated, biases[head], keep, 1.0 if keep is None else 1.0 / (1.0 - self.dropout)
            )
            parts.append(block.kernels.linear(hidden, second[head]))
        return torch.stack(parts).sum(dim=0)

    def _projected(self, weights: Weights, graph: GraphBatch) -> Tensor:
        """[S, F, 2·heads]: weights times attention vectors, all sources then all targets.

        Logits (X·W)·a as X·(W·a): no pass over the [N, hidden] tensors, neither now nor in the gradient.
        """
        vectors = torch.stack([weights["layer0.source"], weights["layer0.target"]], dim=-1).unbind(1)
        heads = [
            graph.kernels.linear(weights[_first(head)], vector) for head, vector in enumerate(vectors)
        ]  # [S, F, 2]
        return torch.stack(heads, dim=-1).flatten(2)

    def _attention(
        self, graph: GraphBatch, layer: int, logits: Tensor, scores: Tensor, dropout: Dropout | None
    ) -> tuple[Tensor, ...]:
        """Coefficients [A] of each head from the nodes' logits [S, N, 2·heads]."""
        block = graph.layer(layer)
        source, target = logits.chunk(2, dim=2)
        sums = ops.arc_sum(block, source.flatten(0, 1), target[:, : block.targets].flatten(0, 1))
        coefficients = ops.row_softmax(block, F.leaky_relu(sums, SLOPE))  # [A, heads]
        if dropout is not None:
            coefficients = dropout.arcs(coefficients, graph, block, _ATTENTION[layer], self.dropout)
        return (coefficients * ops.pick(block, scores).unsqueeze(1)).t().contiguous().unbind(0)


def _spec(weights: Weights, layer: int, matrices: list[Tensor], activation: str) -> LayerSpec:
    """Attention logits (h·W)·a are h·(W·a), so units whose outputs nobody reads may still go."""
    sides = [
        weight @ vector
        for side in ("source", "target")
        for weight, vector in zip(matrices, weights[f"layer{layer}.{side}"], strict=True)
    ]
    return LayerSpec(
        torch.cat(matrices, dim=1),
        tuple(weight.shape[1] for weight in matrices),
        activation,
        bias=weights[f"layer{layer}.bias"].flatten(),
        attention=torch.stack(sides, dim=1),
    )


def _first(head: int) -> str:
    return f"layer0.head{head}.weight"
