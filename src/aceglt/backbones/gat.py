"""The graph attention network of Veličković et al."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt import ops
from aceglt.backbones.base import Backbone, Dropout, Layout, Params, Weights, glorot
from aceglt.graph import GraphBatch
from aceglt.ops import DroppedFeatures, Features

_Stem = tuple[Features, Tensor, Tensor]

_SLOPE = 0.2  # of the leaky ReLU on attention logits

# Dropout draws by place: features, coefficients of both layers, then the hidden layer head by head.
_INPUT, _ATTENTION_0, _ATTENTION_1, _HIDDEN = range(4)


class GAT(Backbone):
    """Two layers: `heads` heads of `hidden` each, concatenated, ELU; then one head.

    As in the authors' code, dropout is on the input of each layer and on the attention coefficients. An edge's score
    multiplies its coefficient after the softmax. Attention vectors and biases are not pruned.

    A head is worked off before the next begins: its [N, hidden] tensors stay in the cache, and nothing is ever
    arcs × hidden. Each has a weight matrix of its own, so that their gradients need not be put together.
    """

    name = "gat"
    self_loops = True

    def __init__(
        self, in_features: int, out_features: int, hidden: int = 512, heads: int = 8, dropout: float = 0.6
    ) -> None:
        self.in_features, self.out_features, self.hidden, self.heads = in_features, out_features, hidden, heads
        self.dropout = dropout
        first = [(f"layer0.head{head}.weight", (in_features, hidden)) for head in range(heads)]
        self.prunable = Layout((*first, ("layer1.weight", (heads * hidden, out_features))))
        self.other = Layout(
            (
                ("layer0.source", (heads, hidden)),
                ("layer0.target", (heads, hidden)),
                ("layer0.bias", (heads, hidden)),
                ("layer1.source", (1, out_features)),
                ("layer1.target", (1, out_features)),
                ("layer1.bias", (1, out_features)),
            )
        )
        self.aggregation_widths = (heads * hidden, out_features)

    def init(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> Params:
        """Glorot over the whole layer, as PyG has it; biases 0."""
        fans = self.in_features + self.heads * self.hidden
        drawn = {name: glorot(seeds, name, shape, device, fans) for name, shape in self.prunable.shapes[:-1]}
        for name, shape in (self.prunable.shapes[-1], *self.other.shapes):
            bias = name.endswith("bias")
            drawn[name] = drawn[_first(0)].new_zeros(len(seeds), *shape) if bias else glorot(seeds, name, shape, device)
        return Params(self.prunable.join(drawn), self.other.join(drawn))

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> _Stem:
        """The first dropout is on the features: only products of parameters and the arcs' scores come before it."""
        return x, self._projected(weights), ops.arc_values(graph, edge_values)

    def head(self, weights: Weights, graph: GraphBatch, state: _Stem, dropout: Dropout | None) -> Tensor:
        features, projected, scores = state
        x = dropout.features(features, _INPUT, self.dropout) if dropout is not None else features
        coefficients = self._attention(graph, x.matmul(projected), scores, dropout, _ATTENTION_0)
        z = self._first_layer(weights, graph, coefficients, x, dropout)
        vectors = torch.stack([weights["layer1.source"], weights["layer1.target"]], dim=-1)  # [S, 1, C, 2]
        (values,) = self._attention(graph, z @ vectors[:, 0], scores, dropout, _ATTENTION_1)
        return ops.spmm(graph, values, z) + weights["layer1.bias"]

    def _first_layer(
        self,
        weights: Weights,
        graph: GraphBatch,
        coefficients: tuple[Tensor, ...],
        x: Features | DroppedFeatures,
        dropout: Dropout | None,
    ) -> Tensor:
        """[S, N, C]: the hidden layer times the second layer's weight, summed over the heads."""
        biases = weights["layer0.bias"].unbind(1)
        second = weights["layer1.weight"].unflatten(1, (self.heads, self.hidden)).unbind(1)
        parts = []
        for head, values in enumerate(coefficients):
            aggregated = ops.spmm(graph, values, x.matmul(weights[_first(head)]))
            hidden = self._activate(aggregated, biases[head], dropout, _HIDDEN + head)
            parts.append(ops.linear(hidden, second[head]))
        return torch.stack(parts).sum(dim=0)

    def _projected(self, weights: Weights) -> Tensor:
        """[S, F, 2·heads]: weights times attention vectors, all sources then all targets.

        Logits (X·W)·a as X·(W·a): no pass over the [N, hidden] tensors, neither now nor in the gradient.
        """
        vectors = torch.stack([weights["layer0.source"], weights["layer0.target"]], dim=-1).unbind(1)
        products = [
            ops.linear(weights[_first(head)], vector) for head, vector in enumerate(vectors)
        ]  # heads of [S, F, 2]
        projected: Tensor = torch.stack(products, dim=-1).flatten(2)
        return projected

    def _attention(
        self, graph: GraphBatch, logits: Tensor, scores: Tensor, dropout: Dropout | None, place: int
    ) -> tuple[Tensor, ...]:
        """Coefficients [A] of each head from the nodes' logits [S, N, 2·heads]."""
        source, target = logits.flatten(0, 1).chunk(2, dim=1)
        arcs = F.leaky_relu(ops.arc_sum(graph, source, target), _SLOPE)
        coefficients = ops.row_softmax(graph, arcs)  # [A, heads]
        if dropout is not None:
            coefficients = dropout.arcs(coefficients, graph, place, self.dropout)
        return (coefficients * scores.unsqueeze(1)).t().contiguous().unbind(0)

    def _activate(self, h: Tensor, bias: Tensor, dropout: Dropout | None, place: int) -> Tensor:
        if dropout is None:
            return ops.elu_dropout(h, bias)
        keep = dropout.keep(h[0].numel(), place, self.dropout).view(h.shape)
        return ops.elu_dropout(h, bias, keep, 1.0 / (1.0 - self.dropout))


def _first(head: int) -> str:
    return f"layer0.head{head}.weight"
