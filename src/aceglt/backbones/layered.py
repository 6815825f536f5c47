"""A stack of message-passing layers with norms, skips and dropout: what GCN, GraphSAGE, GIN and GAT have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.backbones.base import FEATURES, Axis, Backbone, Dropout, Layout, Stage, Weights, glorot
from aceglt.backbones.portable import LayerSpec
from aceglt.config.groups import LayerOptions
from aceglt.numerics import ops
from aceglt.numerics.batch import Block, GraphBatch
from aceglt.numerics.features import DroppedFeatures, Features

INPUT = 1 << 16  # number of the features' dropout, above that of any stage
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"none": lambda h: h, "relu": torch.relu, "elu": F.elu}
_NORMS = {"none": (), "layer": ("scale", "shift"), "batch": ("scale", "shift", "mean", "variance")}
_BUFFERS = ("mean", "variance")

Shapes = list[tuple[str, tuple[int, ...]]]
Blocks = Sequence[Tensor]
"""Units [S, n, H] side by side."""
Inputs = Features | DroppedFeatures | Blocks
Stack = TypeVar("Stack", bound="Layered")


class Layered(Backbone):
    """The network that `chain` describes, made from the options of a stack of layers.

    A layer's weight comes before the aggregation: linear maps commute, and both widths get smaller. Weights, root
    weights, linear skips and the output map are pruned; biases, norms and what else a layer has are not.
    """

    kind: ClassVar[type[LayerOptions]] = LayerOptions
    """Of the options."""
    activation: ClassVar[str] = "relu"
    attends: ClassVar[bool] = False
    rooted: ClassVar[bool] = False
    """Whether a node's own inputs have a weight of their own."""
    linear_maps: ClassVar[tuple[str, ...]] = (".skip", "output.weight")
    """How the names of weights end that start as those of a linear map do."""
    linear_biases: ClassVar[tuple[str, ...]] = ("output.bias",)
    """… and those of biases; a GIN's start at 0 in its layers, as the paper's form always did."""
    features_draw: ClassVar[int] = INPUT
    """Number of the features' dropout."""

    def __init__(self, in_features: int, out_features: int, hidden: int = 512, **options: Any) -> None:
        self.options = self.kind(hidden=hidden, **options)
        self.input_dropout = self.options.input_dropout
        self.chain = self._chain(in_features, out_features)
        self._present: Mapping[str, Tensor] = {}
        self._drawn: Mapping[int, int] = {}  # by stage, units of a head that dropout draws for, if not those there are
        self._lay_out()

    def _lay_out(self) -> None:
        """What follows from the chain."""
        matrices: Shapes = []
        norms: Shapes = []
        for number, stage in enumerate(self.chain):
            matrices += [(name, (stage.inputs, stage.units // len(stage.weights))) for name in stage.weights]
            matrices += [(name, (stage.inputs, stage.units)) for name in stage.roots]
            norms += [(f"norm{number}.{part}", (1, stage.units)) for part in _NORMS[stage.norm]]
        self.prunable, self.other = Layout(tuple(matrices)), Layout((*self._vectors(), *norms))
        self.buffers = frozenset(name for name, _ in norms if name.endswith(_BUFFERS))
        self.aggregation_widths = tuple(stage.units for stage in self.chain if stage.messages)
        self._describe_units()

    def _describe_units(self) -> None:
        widths = {FEATURES: self.chain[0].inputs}
        sides: dict[str, tuple[Axis, Axis]] = {}
        layers: dict[int, Axis] = {-1: (FEATURES,)}  # of each stage's outputs
        for number, stage in enumerate(self.chain):
            inputs = tuple(layer for read in stage.reads for layer in layers[read])
            layers[number] = inputs if stage.identity else self._layers_of(number)
            widths |= {layer: stage.units // len(stage.weights) for layer in layers[number]}
            heads: Sequence[Axis] = [(layer,) for layer in layers[number]] or [()]
            sides |= {name: (inputs, head) for name, head in zip(stage.weights, heads, strict=True)}
            sides |= dict.fromkeys(stage.roots, (inputs, layers[number]))
            if layers[number]:
                sides |= dict.fromkeys((*stage.along, *self._attention_names(number)), ((), layers[number]))
        self.widths, self.sides = widths, sides

    def _layers_of(self, number: int) -> Axis:
        """The layers that a stage's units are of; none of the outputs, which cannot go."""
        heads = len(self.chain[number].weights)
        if number == len(self.chain) - 1:
            return ()
        return (f"layer{number}",) if heads == 1 else tuple(f"layer{number}.head{head}" for head in range(heads))

    def _attention_names(self, number: int) -> tuple[str, ...]:
        """Parameters of a stage with an entry per unit that are not in its `along`."""
        return ()

    def narrowed(self: Stack, widths: Mapping[str, int], present: Mapping[str, Tensor]) -> Stack:
        made, stages = copy(self), []
        for stage in self.chain:
            inputs, _ = self.sides[stage.weights[0]]
            units = [layer for name in stage.weights for layer in self.sides[name][1]]
            sizes = sum(widths[layer] for layer in inputs), sum(widths[layer] for layer in units) or stage.units
            stages.append(replace(stage, inputs=sizes[0], units=sizes[1]))
        made.chain, made._present = tuple(stages), present
        made._drawn = {number: stage.units // len(stage.weights) for number, stage in enumerate(self.chain)}
        made._lay_out()
        return made

    @property
    def width(self) -> int:
        """Units of a hidden layer."""
        return self.options.hidden

    def _chain(self, in_features: int, out_features: int) -> tuple[Stage, ...]:
        o, linear = self.options, self.options.output == "linear"
        hidden = o.layers if linear else o.layers - 1
        made = []
        for number in range(hidden):
            inputs, tied = self.width if number else in_features, o.skip == "identity" and number > 0
            more = {"identity": tied, "norm": o.norm, "activation": self.activation, "dropout": o.dropout}
            made.append(self._stage(number, inputs, self.width, (number - 1,), **more))
        reads = tuple(range(hidden)) if o.jumping == "cat" and hidden else (hidden - 1,)
        inputs = len(reads) * self.width if hidden else in_features
        if not linear:
            return (*made, self._stage(hidden, inputs, out_features, reads))
        along = ("output.bias",) if o.bias else ()
        return (*made, Stage(("output.weight",), inputs, out_features, reads, along=along, messages=False))

    def _stage(self, number: int, inputs: int, units: int, reads: tuple[int, ...], **more: Any) -> Stage:
        """A stage with messages."""
        layer, o = f"layer{number}", self.options
        roots = [f"{layer}.root"] * self.rooted + [f"{layer}.skip"] * (o.skip == "linear")
        norm = more.get("norm", "none")  # a batch norm takes away what a bias adds
        along = [f"{layer}.bias"] * (o.bias and norm != "batch") + [f"norm{number}.{part}" for part in _NORMS[norm]]
        weights = self._weights(number, hidden="norm" in more)
        options = {"roots": tuple(roots), "along": tuple(along), "attends": self.attends, **more}
        return Stage(weights, inputs, units, reads, **options)

    def _weights(self, number: int, hidden: bool) -> tuple[str, ...]:
        """Names of the matrices of a hidden layer, or of the output."""
        return (f"layer{number}.weight",)

    def _vectors(self) -> Shapes:
        """Parameters besides weights and norms."""
        return [(name, (1, stage.units)) for stage in self.chain for name in stage.along if name.endswith("bias")]

    def initial(self, seeds: Sequence[int], name: str, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
        """As PyG's layers start: Glorot for message passing, ± 1/√inputs for linear maps and their biases; 0 for the
        rest, but 1 for the norms' scales and running variances."""
        values = super().initial(seeds, name, shape, device)
        if name.startswith("norm") and name.endswith(("scale", "variance")):
            return torch.ones_like(values)
        if name.endswith(self.linear_maps):
            inputs, units = shape
            return values * math.sqrt((inputs + units) / (6 * inputs))
        if name.endswith(self.linear_biases):
            inputs = next(stage.inputs for stage in self.chain if name in stage.along)
            return glorot(seeds, name, shape, device, fans=6 * inputs)
        return values

    @property
    def early(self) -> bool:
        """Whether the first layer comes before any dropout."""
        return not self.input_dropout

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> tuple[Any, Any]:
        """What the first layer gives, up to batch normalisation, and what its messages and the next are multiplied by;
        where dropout comes before it, the features."""
        arcs = self.arcs(weights, graph, edge_values)
        if not self.early:
            return x, arcs
        units = self.units(weights, graph, 0, arcs, x)
        return units if self.chain[0].norm == "batch" else self._activated(weights, 0, units, False), arcs

    def head(self, weights: Weights, graph: GraphBatch, state: tuple[Any, Any], dropout: Dropout | None) -> Tensor:
        first, arcs = state
        made: dict[int, Blocks] = {}
        for number, stage in enumerate(self.chain):
            if number == 0 and self.early:
                started = first
                if stage.norm == "batch":
                    started = self._activated(weights, 0, first, dropout is not None)
                made[0] = [self._dropped(graph, 0, started, dropout)]
                continue
            inputs: Inputs = first
            if number > 0:
                inputs = [block for read in stage.reads for block in made[read]]
            elif dropout is not None and self.input_dropout:
                inputs = dropout.features(first, self.features_draw, self.input_dropout)
            made[number] = self.outputs(weights, graph, number, arcs, inputs, dropout)
            for read in set(made) - {number}:
                if not any(read in later.reads for later in self.chain[number + 1 :]):
                    del made[read]
        return made[len(self.chain) - 1][0]

    def outputs(
        self, weights: Weights, graph: GraphBatch, number: int, arcs: Any, inputs: Inputs, dropout: Dropout | None
    ) -> Blocks:
        """What a stage gives, dropout included."""
        units = self.units(weights, graph, number, arcs, inputs)
        return [self._dropped(graph, number, self._activated(weights, number, units, dropout is not None), dropout)]

    def units(self, weights: Weights, graph: GraphBatch, number: int, arcs: Any, inputs: Inputs) -> Tensor:
        """[S, T, units] of a stage before its norm."""
        stage = self.chain[number]
        if not stage.messages:
            made = times(graph, stage, at_targets(graph.layer(number - 1), inputs), weights[stage.weights[0]])
            return made + weights[stage.along[0]] if stage.along else made
        block = graph.layer(number)
        z = times(graph, stage, at_sources(block, inputs), weights[stage.weights[0]])
        return self.skipped(weights, graph, number, self.aggregate(weights, number, block, arcs, z), inputs)

    def skipped(self, weights: Weights, graph: GraphBatch, number: int, units: Tensor, inputs: Inputs) -> Tensor:
        """With what a node's own inputs add."""
        stage, block = self.chain[number], graph.layer(number)
        own = at_targets(block, inputs)
        for name in stage.roots:
            if isinstance(own, Sequence) and len(own) == 1:
                units = graph.kernels.matmul(own[0], weights[name], units)  # in one pass
            else:
                units = units + block.at_targets(times(graph, stage, own, weights[name]))
        if stage.identity:
            assert isinstance(own, Sequence)
            units = units + joined(own)
        return units

    def _activated(self, weights: Weights, number: int, units: Tensor, training: bool) -> Tensor:
        stage = self.chain[number]
        parts = [weights[f"norm{number}.{part}"] for part in _NORMS[stage.norm]]
        if stage.norm == "layer" and self._present:
            there = [self._present[layer] for name in stage.weights for layer in self.sides[name][1]]
            units = ops.layer_norm_of(torch.cat(there, dim=2), units, *parts)
        elif stage.norm == "layer" and stage.activation == "relu":
            return ops.layer_norm_relu(units, *parts)
        elif stage.norm == "layer":
            units = ops.layer_norm(units, *parts)
        elif stage.norm == "batch":
            units = ops.batch_norm(training, units, *parts)
        return ACTIVATIONS[stage.activation](units)

    def _dropped(self, graph: GraphBatch, number: int, h: Tensor, dropout: Dropout | None) -> Tensor:
        p = self.chain[number].dropout
        if dropout is None or not p:
            return h
        nodes, heads, whole = graph.layer(number).nodes, len(self.chain[number].weights), self.drawn(number)
        if whole is None or heads == 1:
            return dropout(h, nodes, self.draw(number), p, whole)
        nodes = torch.arange(h.shape[1], device=h.device) if nodes is None else nodes
        rows = (nodes.unsqueeze(1) * heads + torch.arange(heads, device=h.device)).flatten()  # heads draw apart
        return dropout(h.reshape(len(h), len(rows), -1), rows, self.draw(number), p, whole).view(h.shape)

    def drawn(self, number: int) -> int | None:
        """Of a narrowed stage, the units of each head that dropout draws for; None is those that there are."""
        return self._drawn.get(number)

    def draw(self, number: int) -> int:
        """Number of the dropout of a stage's outputs."""
        return number

    @abstractmethod
    def arcs(self, weights: Weights, graph: GraphBatch, edge_values: Tensor) -> Any:
        """What the messages of arcs are multiplied by, or made from, in every layer."""

    def aggregate(self, weights: Weights, number: int, block: Block, arcs: Any, z: Tensor) -> Tensor:
        """A layer after its weight, z [S, N, H], with its bias."""
        return self.biased(weights, number, self.gather(weights, number, block, arcs, z))

    def gather(self, weights: Weights, number: int, block: Block, arcs: Any, h: Tensor) -> Tensor:
        """[S, T, H] what nodes get of h [S, N, H] along arcs; linear in h."""
        return ops.spmm(block, ops.pick(block, arcs), h, symmetric=self.coefficients == "symmetric")

    def biased(self, weights: Weights, number: int, units: Tensor) -> Tensor:
        """With the bias of a layer, if it has one."""
        bias = weights.get(f"layer{number}.bias")
        return units if bias is None else units + bias

    def layers(self, weights: Weights) -> list[LayerSpec]:
        return [self._spec(weights, number) for number in range(len(self.chain))]

    def _spec(self, weights: Weights, number: int, **more: Tensor | None) -> LayerSpec:
        stage = self.chain[number]
        matrices = [weights[name] for name in stage.weights]
        root = sum((weights[name] for name in stage.roots[1:]), weights[stage.roots[0]]) if stage.roots else None
        bias = next((weights[name].flatten() for name in stage.along if name.endswith("bias")), None)
        scale, offset, *running = [weights[f"norm{number}.{part}"][0] for part in _NORMS[stage.norm]] or (None, None)
        if scale is not None and offset is not None and running:  # fixed statistics are a scale and an offset too
            mean, variance = running
            scale = scale * (variance + ops.NORM_EPSILON).rsqrt()
            offset = offset - scale * mean
        return LayerSpec(
            torch.cat(matrices, dim=1) if len(matrices) > 1 else matrices[0],
            tuple(matrix.shape[1] for matrix in matrices),
            stage.activation,
            bias=bias,
            root=root,
            identity=torch.arange(stage.units, device=matrices[0].device) if stage.identity else None,
            messages=stage.messages,
            reads=stage.reads,
            norm=stage.norm == "layer",
            scale=scale,
            offset=offset,
            **more,
        )


def times(graph: GraphBatch, stage: Stage, inputs: Inputs, weight: Tensor) -> Tensor:
    """[S, n, H] inputs · weight [S, inputs, H]."""
    if isinstance(inputs, Features | DroppedFeatures):
        return inputs.matmul(weight)
    multiply = graph.kernels.linear if stage.activation == "none" else graph.kernels.matmul  # outputs are narrow
    if len(inputs) == 1:
        return multiply(inputs[0], weight)
    parts = weight.split([block.shape[2] for block in inputs], dim=1)
    return torch.stack([multiply(block, part) for block, part in zip(inputs, parts, strict=True)]).sum(dim=0)


def joined(blocks: Blocks) -> Tensor:
    """Side by side."""
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks), dim=2)


def at_targets(block: Block, inputs: Inputs) -> Inputs:
    """Units at the targets of a layer; features are of its sources, and stay so."""
    if isinstance(inputs, Features | DroppedFeatures):
        return inputs
    return [block.at_targets(h) for h in inputs]


def at_sources(block: Block, inputs: Inputs) -> Inputs:
    """Units at the sources of a layer, which are the first of those that layers before it have."""
    if isinstance(inputs, Features | DroppedFeatures):
        return inputs
    return [h if h.shape[1] == block.sources else h[:, : block.sources] for h in inputs]
