"""A graph neural network for inference, in plain torch.

This file needs nothing but torch: `aceglt export` puts it as it is beside the weights of a ticket. Every operation in
it is one that `torch.export` and ONNX know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.2  # of the leaky ReLU on attention logits
EPSILON = 1e-7  # what GENConv adds to a message
NORM_EPSILON = 1e-5  # what a norm adds to a variance
SELF_LOOPS = frozenset({"symmetric", "attention"})  # ways to weigh arcs for which every node is its own neighbour

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda h: h,
    "relu": torch.relu_,
    "elu": lambda h: F.elu(h, inplace=True),
}


@dataclass(frozen=True)
class LayerSpec:
    """A layer: z = h·weight + shift; each node sums z over its arcs, adds own·z, h·root, units of h and the bias; then
    comes the norm, scale and offset, and the activation. Without messages, z is not summed.

    The columns of `weight` are the units of all heads side by side. With attention, the columns of `attention` give the
    logits of each head's sources, then of its targets.
    """

    weight: Tensor  # [in, units]
    widths: tuple[int, ...]  # units of each head
    activation: str = "none"
    shift: Tensor | None = None  # [units]
    own: Tensor | None = None  # []
    bias: Tensor | None = None  # [units]
    attention: Tensor | None = None  # [in, 2·heads]
    attention_shift: Tensor | None = None  # [2·heads]
    root: Tensor | None = None  # [in, units]
    identity: Tensor | None = None  # [units] which of the inputs is added to each unit
    messages: bool = True
    reads: tuple[int, ...] = ()  # numbers of the layers whose units, side by side, are h; by default the one before
    norm: bool = False  # of each node's units to mean 0 and variance 1
    scale: Tensor | None = None  # [units]
    offset: Tensor | None = None  # [units]

    def module(self, linear: type[Linear]) -> Layer:
        """The layer, with this kind of product."""
        return Layer(self, linear)


@dataclass(frozen=True)
class BlockSpec:
    """A step of a residual network: y·weight + bias, and h itself if it is residual.

    y is h, or ReLU(norm·scale + shift) of the units that are read if there is a norm, which is over all units of h.
    With a temperature, each node adds to its y the softmax-weighted messages of its neighbours; edge_weight and
    edge_bias make of an edge's features what is added to a message that goes along it.
    """

    weight: Tensor  # [read, units]
    bias: Tensor  # [units]
    read: Tensor | None = None  # [read] which units of h; None is all
    scale: Tensor | None = None  # [read]
    shift: Tensor | None = None  # [read]
    temperature: Tensor | None = None  # [1]
    edge_weight: Tensor | None = None  # [D, read]
    edge_bias: Tensor | None = None  # [read]
    residual: bool = False

    def module(self, linear: type[Linear]) -> ResidualBlock:
        """The step, with this kind of product."""
        return ResidualBlock(self, linear)


Spec = LayerSpec | BlockSpec
EdgeMap = tuple[Tensor, Tensor]  # weight [D, K] and bias [K]


class ArcGraph:
    """What layers need to know of the graph: arcs as PyG lists them, an undirected edge in both directions; self-loops
    are added where layers want them."""

    own: Tensor | None = None  # [A] coefficients that the graph alone gives
    weight: Tensor | None = None  # [A] weights of the arcs, 1 for added self-loops; None is 1

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        coefficients: str,
        dtype: torch.dtype,
        edge_weight: Tensor | None = None,
    ) -> None:
        self.source, self.target, self.num_nodes = edge_index[0], edge_index[1], num_nodes
        self.weight = None if edge_weight is None else edge_weight.to(dtype)
        if coefficients in SELF_LOOPS:
            nodes = torch.arange(num_nodes, device=edge_index.device)
            self.source, self.target = torch.cat([self.source, nodes]), torch.cat([self.target, nodes])
            if self.weight is not None:
                self.weight = torch.cat([self.weight, self.weight.new_ones(num_nodes)])
        ones = torch.ones_like(self.target, dtype=dtype)
        if self.weight is not None and coefficients == "symmetric":
            ones = self.weight.abs()
        self._weigh(coefficients, ones.new_zeros(num_nodes).index_add(0, self.target, ones))

    def _weigh(self, coefficients: str, degree: Tensor) -> None:
        """Set the graph's own coefficients, if there are such, from the nodes' degrees [N]: numbers of arcs, or with
        symmetric normalisation the sums of their weights' magnitudes."""
        if coefficients == "mean":
            self.own = 1.0 / degree.index_select(0, self.target)
        elif coefficients == "symmetric":
            root = degree.rsqrt()
            self.own = root.index_select(0, self.target) * root.index_select(0, self.source)
        if self.own is not None and self.weight is not None:
            self.own = self.own * self.weight

    def sum(self, z: Tensor, coefficients: Tensor | None = None) -> Tensor:
        """[N, units]: at each target, coefficient · z[source] over arcs; by default with the graph's own."""
        values = self.own if coefficients is None else coefficients
        assert values is not None
        messages = z[self.source] * values.unsqueeze(1)
        return z.new_zeros(self.num_nodes, z.shape[1]).index_add(0, self.target, messages)

    def pairs(self, source: Tensor, target: Tensor) -> Tensor:
        """[A, K]: source value + target value of each arc, from node values [N, K]."""
        return source[self.source] + target[self.target]

    def softmax(self, logits: Tensor) -> Tensor:
        """[A, K]: softmax of logits [A, K] over the arcs that share a target."""
        rows = logits.new_zeros(self.num_nodes, logits.shape[1])
        index = self.target.unsqueeze(1).expand_as(logits)
        highest = rows.scatter_reduce(0, index, logits, "amax", include_self=False)
        exps = (logits - highest[self.target]).exp()
        return exps / rows.index_add(0, self.target, exps)[self.target]

    def softmax_sum(self, y: Tensor, temperature: Tensor, edge: EdgeMap | None) -> Tensor:
        """[N, K]: at each target, Σ softmax(t·m)·m over arcs, m = ReLU(y[source] + e) + 1e-7; 0 without neighbours.

        e is what `edge` makes of the arc's features, or 0.
        """
        assert edge is None  # a ticket does not hold the features of its edges, so none that reads them is exported
        messages = torch.relu(y[self.source]) + EPSILON
        messages = self.softmax(messages * temperature) * messages
        messages = messages if self.weight is None else messages * self.weight.unsqueeze(1)
        return torch.zeros_like(y).index_add(0, self.target, messages)


class Linear(nn.Module):
    """h·weight + shift, with h in blocks side by side."""

    def __init__(self, weight: Tensor, shift: Tensor | None) -> None:
        super().__init__()
        self.weight, self.shift = fixed(weight), fixed(shift)

    def forward(self, blocks: Sequence[Tensor]) -> Tensor:
        parts = self.weight.split([block.shape[1] for block in blocks])
        out: Tensor = blocks[0] @ parts[0]
        for block, part in zip(blocks[1:], parts[1:], strict=True):
            out = out + block @ part
        return out if self.shift is None else out + self.shift


class Layer(nn.Module):
    """A layer head by head: each takes blocks [N, in] to its own block [N, units]."""

    identity: Tensor | None

    def __init__(self, spec: LayerSpec, linear: type[Linear] = Linear) -> None:
        super().__init__()
        self.activation, self.widths = spec.activation, spec.widths
        self.attends = spec.attention is not None
        self.attention = None
        if spec.attention is not None and len(spec.widths) == 1:  # one pass over h gives units and logits
            pairs = ((spec.weight, spec.shift), (spec.attention, spec.attention_shift))
            shifts = [weight.new_zeros(weight.shape[1]) if shift is None else shift for weight, shift in pairs]
            shift = None if all(shift is None for _, shift in pairs) else torch.cat(shifts)
            self.heads = nn.ModuleList([linear(torch.cat([weight for weight, _ in pairs], dim=1), shift)])
        else:
            heads = zip(spec.weight.split(spec.widths, dim=1), _split(spec.shift, spec.widths), strict=True)
            self.heads = nn.ModuleList(linear(*head) for head in heads)
            self.attention = None if spec.attention is None else linear(spec.attention, spec.attention_shift)
        self.root = None if spec.root is None else linear(spec.root, None)
        self.register_buffer("identity", spec.identity)
        self.messages, self.norm = spec.messages, spec.norm
        inputs, units = spec.weight.shape
        self.sums_inputs = self.messages and not self.attends and spec.shift is None and inputs < units
        """Whether h, which is narrower, is summed along arcs in place of z: (A·h)·weight is A·(h·weight)."""
        self.own, self.bias = fixed(spec.own), fixed(spec.bias)
        self.scale, self.offset = fixed(spec.scale), fixed(spec.offset)
        self.whole = spec.norm or any(part is not None for part in (spec.root, spec.identity, spec.scale))

    def forward(self, blocks: Sequence[Tensor], graph: ArcGraph) -> list[Tensor]:
        logits = None if self.attention is None else self.attention(blocks)
        units: Iterable[Tensor] = (head(blocks) for head in self.heads)  # made when asked for, so still in the cache
        if self.attends and logits is None:
            joined, logits = self.heads[0](blocks).split([self.widths[0], 2], dim=1)
            units = [joined.contiguous()]
        coefficients = [None] * len(self.widths) if logits is None else _attend(logits, graph)
        early = self.sums_inputs and all(block.layout == torch.strided for block in blocks)
        if early:
            sums = [self._summed(block, graph) for block in blocks]
            units = (head(sums) for head in self.heads)
        made = []
        for z, values, bias in zip(units, coefficients, _split(self.bias, self.widths), strict=True):
            out = z if early else self._summed(z, graph, values)
            made.append(self._finished(out if bias is None else out + bias))
        return [self._with_inputs(made, blocks)] if self.whole else made

    def _summed(self, z: Tensor, graph: ArcGraph, values: Tensor | None = None) -> Tensor:
        """Along arcs, and with a share of the node's own."""
        out = graph.sum(z, values) if self.messages else z
        return out if self.own is None else torch.addcmul(out, z, self.own)

    def _finished(self, out: Tensor) -> Tensor:
        return out if self.whole else ACTIVATIONS[self.activation](out)

    def _with_inputs(self, heads: Sequence[Tensor], blocks: Sequence[Tensor]) -> Tensor:
        """What needs all heads at once: the node's own inputs, the norm, and what comes after it."""
        out = heads[0] if len(heads) == 1 else torch.cat(list(heads), dim=1)
        if self.root is not None:
            out = out + self.root(blocks)
        if self.identity is not None:
            inputs = blocks[0] if len(blocks) == 1 else torch.cat(list(blocks), dim=1)
            out = out + inputs.index_select(1, self.identity)
        if self.norm:
            out = F.layer_norm(out, out.shape[-1:], eps=NORM_EPSILON)
        if self.scale is not None and self.offset is not None:
            out = torch.addcmul(self.offset, out, self.scale)
        return ACTIVATIONS[self.activation](out)


def _attend(logits: Tensor, graph: ArcGraph) -> Sequence[Tensor]:
    """Coefficients [A] of each head, from the logits of its sources and targets."""
    source, target = logits.chunk(2, dim=1)
    coefficients = graph.softmax(F.leaky_relu(graph.pairs(source, target), SLOPE))
    coefficients = coefficients if graph.weight is None else coefficients * graph.weight.unsqueeze(1)
    return coefficients.t().contiguous().unbind(0)


class ResidualBlock(nn.Module):
    """A step of a residual network, from one block [N, in] to one block [N, units]."""

    read: Tensor | None

    def __init__(self, spec: BlockSpec, linear: type[Linear] = Linear) -> None:
        super().__init__()
        self.entry = linear(spec.weight, spec.bias)
        self.register_buffer("read", spec.read)
        self.scale, self.shift, self.temperature = fixed(spec.scale), fixed(spec.shift), fixed(spec.temperature)
        self.edge_weight, self.edge_bias = fixed(spec.edge_weight), fixed(spec.edge_bias)
        self.residual = spec.residual

    def forward(self, blocks: Sequence[Tensor], graph: ArcGraph) -> list[Tensor]:
        h = y = blocks[0]
        if self.scale is not None and self.shift is not None:
            normed = F.layer_norm(h, h.shape[-1:])
            normed = normed if self.read is None else normed.index_select(1, self.read)
            y = torch.addcmul(self.shift, normed, self.scale).relu()
        if self.temperature is not None:
            edge = None if self.edge_weight is None or self.edge_bias is None else (self.edge_weight, self.edge_bias)
            y = y + graph.softmax_sum(y, self.temperature, edge)
        out: Tensor = self.entry([y])
        return [h + out if self.residual else out]


class TicketModel(nn.Module):
    """Outputs [N, classes] from all features x [N, F], dense or sparse, and the alive arcs edge_index [2, A], with
    their weights [A] if they have any.

    Arcs are those of PyG: both directions of an undirected edge, no self-loops, none twice.
    """

    features: Tensor

    def __init__(
        self, features: Tensor, layers: Sequence[Spec], coefficients: str, linear: type[Linear] = Linear
    ) -> None:
        super().__init__()
        self.coefficients = coefficients
        self.register_buffer("features", features)  # [F'] which features are read
        self.layers = nn.ModuleList(spec.module(linear) for spec in layers)
        self.reads = [getattr(spec, "reads", ()) or (number - 1,) for number, spec in enumerate(layers)]

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = ArcGraph(edge_index, x.shape[0], self.coefficients, x.dtype, edge_weight)
        x = x if x.layout == torch.strided else x.to_sparse_coo()  # columns can be selected of no other sparse one
        return self.propagate(x.index_select(1, self.features), graph)

    def propagate(self, x: Tensor, graph: ArcGraph) -> Tensor:
        """Outputs from the features that are read, [N, F']."""
        made: dict[int, Sequence[Tensor]] = {-1: [x]}
        for number, layer in enumerate(self.layers):
            made[number] = layer([block for read in self.reads[number] for block in made[read]], graph)
            later = {read for reads in self.reads[number + 1 :] for read in reads}
            made = {name: blocks for name, blocks in made.items() if name in later or name == number}
        return made[len(self.layers) - 1][0]


_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (LayerSpec, BlockSpec)}


def load(path: str | Path | None = None) -> tuple[Any, ...]:
    """The model and the ticket's arcs from `ticket.pt`, by default the one beside this file, and the arcs' weights if
    they have any; nothing is unpickled."""
    content = torch.load(path or Path(__file__).with_name("ticket.pt"), weights_only=True)
    layers = [_KINDS[spec.pop("kind")](**spec) for spec in content["layers"]]
    model = TicketModel(content["features"], layers, content["coefficients"]).eval()
    return (model, *(content[name] for name in ("edge_index", "edge_weight") if name in content))


def content(
    features: Tensor, layers: Sequence[Spec], coefficients: str, arcs: Mapping[str, Tensor]
) -> Mapping[str, Any]:
    """What `load` reads, for `torch.save`: plain values and tensors."""
    specs = [{"kind": type(spec).__name__, **vars(spec)} for spec in layers]
    return {"features": features, "layers": specs, "coefficients": coefficients, **arcs}


FixedOrNone = TypeVar("FixedOrNone", Tensor, Tensor | None)


def fixed(value: FixedOrNone) -> FixedOrNone:
    """A parameter that moves with its module and is not trained; a copy, as exporters want no views."""
    if value is None:
        return None
    return nn.Parameter(value.clone(memory_format=torch.contiguous_format), requires_grad=False)


def _split(values: Tensor | None, widths: Sequence[int]) -> Sequence[Tensor | None]:
    return [None] * len(widths) if values is None else values.split(list(widths))
