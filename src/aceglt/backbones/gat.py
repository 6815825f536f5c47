"""The graph attention network of Veličković et al."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.backbones.base import Dropout, Footprint, Weights, glorot
from aceglt.backbones.layered import Blocks, Inputs, Layered, Shapes, at_sources, joined, times
from aceglt.backbones.portable import SLOPE, LayerSpec
from aceglt.config.groups import GatOptions
from aceglt.numerics import ops
from aceglt.numerics.batch import Block, GraphBatch
from aceglt.numerics.features import DroppedFeatures, Features

_Arcs = tuple[Tensor, Tensor]  # the first layer's weights times its attention vectors, and the arcs' scores

# Dropout draws by place: features, coefficients of the first two layers, then hidden units head by head.
_INPUT, _COEFFICIENTS, _HIDDEN, _PER_LAYER = 0, 1, 3, 1024


class GAT(Layered):
    """Hidden layers have `heads` heads of `hidden` each, concatenated, and ELU; the output has one head.

    As in the authors' code, dropout is on the input of each layer and on the attention coefficients. An edge's score
    multiplies its coefficient after the softmax. Attention vectors and biases are not pruned.

    A head is worked off before the next begins: its [N, hidden] tensors stay in the cache, and nothing is ever
    arcs × hidden. Each has a weight matrix of its own, so that their gradients need not be put together.
    """

    name = "gat"
    kind = GatOptions
    activation = "elu"
    attends = True
    self_loops = True
    footprint = Footprint(6.0, 115.0)
    coefficients = "attention"
    features_draw = _INPUT
    options: GatOptions

    @property
    def width(self) -> int:
        return self.options.heads * self.options.hidden

    def _weights(self, number: int, hidden: bool) -> tuple[str, ...]:
        if not hidden:
            return super()._weights(number, hidden)
        return tuple(f"layer{number}.head{head}.weight" for head in range(self.options.heads))

    def _vectors(self) -> Shapes:
        made: Shapes = []
        for number, stage in enumerate(self.chain):
            heads, parts = len(stage.weights), [name for name in stage.along if name.endswith("bias")]
            parts = [*self._attention_names(number), *parts]
            made += [(name, (heads, stage.units // heads)) for name in parts]
        return made

    def _attention_names(self, number: int) -> tuple[str, ...]:
        return (f"layer{number}.source", f"layer{number}.target") if self.chain[number].attends else ()

    def initial(self, seeds: Sequence[int], name: str, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
        """Glorot over all heads of a layer, as PyG has it, attention vectors too; biases 0."""
        if name.endswith(("source", "target")):
            return glorot(seeds, name, shape, device)
        if ".head" in name:
            return glorot(seeds, name, shape, device, shape[0] + self.width)
        return super().initial(seeds, name, shape, device)

    @property
    def early(self) -> bool:
        return False  # there is dropout of coefficients too

    def arcs(self, weights: Weights, graph: GraphBatch, edge_values: Tensor) -> _Arcs:
        """Only products of parameters and the arcs' scores come before the first dropout, which is on the features."""
        return self._projected(weights, graph, 0), ops.arc_values(graph, edge_values)

    def outputs(
        self, weights: Weights, graph: GraphBatch, number: int, arcs: _Arcs, inputs: Inputs, dropout: Dropout | None
    ) -> Blocks:
        stage, bias = self.chain[number], weights.get(f"layer{number}.bias")  # [S, heads, hidden]
        if not stage.messages:
            return super().outputs(weights, graph, number, arcs, inputs, dropout)
        heads = self._heads(weights, graph, number, arcs, inputs, dropout)
        if stage.activation == "elu" and stage.norm == "none" and bias is not None and not stage.adds_inputs:
            finish = self._finished(graph, number, dropout)
            return [finish(h, b, head) for head, (h, b) in enumerate(zip(heads, bias.unbind(1), strict=True))]
        units = joined(list(heads))
        if bias is not None:
            units = units + bias.flatten(1).unsqueeze(1)
        units = self._activated(
            weights, number, self.skipped(weights, graph, number, units, inputs), dropout is not None
        )
        return [self._dropped(graph, number, units, dropout)]

    def _finished(self, graph: GraphBatch, number: int, dropout: Dropout | None) -> Callable[..., Tensor]:
        """Bias, ELU and dropout of one head in few passes."""
        nodes, p = graph.layer(number).nodes, self.chain[number].dropout

        def finish(units: Tensor, bias: Tensor, head: int) -> Tensor:
            if dropout is None or not p:
                return ops.elu_dropout(units, bias)
            keep = dropout.keep(units, nodes, self.draw(number) + head, p, self.drawn(number))
            return ops.elu_dropout(units, bias, keep, 1.0 / (1.0 - p))

        return finish

    def draw(self, number: int) -> int:
        return number * _PER_LAYER + _HIDDEN

    def _heads(
        self, weights: Weights, graph: GraphBatch, number: int, arcs: _Arcs, inputs: Inputs, dropout: Dropout | None
    ) -> Iterator[Tensor]:
        """[S, T, hidden] of each head after the aggregation."""
        stage, block, (projected, scores) = self.chain[number], graph.layer(number), arcs
        inputs = at_sources(block, inputs)
        if isinstance(inputs, Features | DroppedFeatures):
            logits = inputs.matmul(projected)
        elif len(stage.weights) == 1:
            z, vectors = times(graph, stage, inputs, weights[stage.weights[0]]), self._attention(weights, number)
            (values,) = self._coefficients(graph, number, z @ vectors[:, 0], scores, dropout)
            yield ops.spmm(block, values, z)
            return
        else:
            inputs = [joined(inputs)]
            logits = inputs[0] @ self._projected(weights, graph, number)
        coefficients = self._coefficients(graph, number, logits, scores, dropout)
        for name, values in zip(stage.weights, coefficients, strict=True):
            yield ops.spmm(block, values, times(graph, stage, inputs, weights[name]))

    def _attention(self, weights: Weights, number: int) -> Tensor:
        """[S, heads, units, 2]: what units are multiplied by for the logits of sources and of targets."""
        return torch.stack([weights[f"layer{number}.source"], weights[f"layer{number}.target"]], dim=-1)

    def _projected(self, weights: Weights, graph: GraphBatch, number: int) -> Tensor:
        """[S, inputs, 2·heads]: weights times attention vectors, all sources then all targets.

        Logits (X·W)·a as X·(W·a): no pass over the [N, hidden] tensors, neither now nor in the gradient.
        """
        vectors = self._attention(weights, number).unbind(1)
        names = self.chain[number].weights
        heads = [graph.kernels.linear(weights[name], v) for name, v in zip(names, vectors, strict=True)]
        return torch.stack(heads, dim=-1).flatten(2)

    def _coefficients(
        self, graph: GraphBatch, number: int, logits: Tensor, scores: Tensor, dropout: Dropout | None
    ) -> tuple[Tensor, ...]:
        """[A] of each head from the nodes' logits [S, N, 2·heads]."""
        block, p = graph.layer(number), self.options.dropout
        source, target = logits.chunk(2, dim=2)
        sums = ops.arc_sum(block, source.flatten(0, 1), target[:, : block.targets].flatten(0, 1))
        coefficients = ops.row_softmax(block, F.leaky_relu(sums, SLOPE))  # [A, heads]
        if dropout is not None and p:
            draw = _COEFFICIENTS + (number if number < 2 else number * _PER_LAYER)
            coefficients = dropout.arcs(coefficients, graph, block, draw, p)
        return (coefficients * ops.pick(block, scores).unsqueeze(1)).t().contiguous().unbind(0)

    def aggregate(self, weights: Weights, number: int, block: Block, arcs: _Arcs, z: Tensor) -> Tensor:
        raise NotImplementedError("a layer is made head by head")

    def _spec(self, weights: Weights, number: int, **more: Tensor | None) -> LayerSpec:
        """Attention logits (h·W)·a are h·(W·a), so units whose outputs nobody reads may still go."""
        stage = self.chain[number]
        if not stage.attends:
            return super()._spec(weights, number)
        sides = [
            weights[name] @ vector
            for side in ("source", "target")
            for name, vector in zip(stage.weights, weights[f"layer{number}.{side}"], strict=True)
        ]
        return super()._spec(weights, number, attention=torch.stack(sides, dim=1))
