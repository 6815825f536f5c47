"""What a backbone is: its weights' layout, their initial values, and a forward pass for a batch of runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from aceglt.backbones.portable import Spec
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.numerics.batch import Block, GraphBatch
from aceglt.numerics.features import DroppedFeatures, Features
from aceglt.numerics.kernels import PLAIN, Kernels

Weights = Mapping[str, Tensor]
"""Named weights of a batch of runs, each [S, *shape]."""
Axis = tuple[str, ...]
"""Of a side of a parameter: the layers whose units lie along it, side by side; none where it cannot get shorter."""
FEATURES = "features"
"""The layer of the input features."""


@dataclass(frozen=True)
class Layout:
    """How named tensors lie in one flat vector per run, so that weights of all tensors can be ranked together."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for _, shape in self.shapes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Views [S, *shape] of a flat [S, size] tensor."""
        parts = flat.split([math.prod(shape) for _, shape in self.shapes], dim=1)
        return {name: part.view(-1, *shape) for (name, shape), part in zip(self.shapes, parts, strict=True)}

    def join(self, parts: Mapping[str, Tensor]) -> Tensor:
        """The flat [S, size] tensor of named ones, among them those of this layout."""
        any_part = next(iter(parts.values()))
        empty = any_part.new_empty(len(any_part), 0)
        return torch.cat([empty, *(parts[name].reshape(-1, math.prod(shape)) for name, shape in self.shapes)], dim=1)


@dataclass(frozen=True)
class Footprint:
    """Numbers that one run holds at the peak of score training; tests/training/test_memory.py has them measured."""

    per_node: float = 12.0
    """For each node and unit of width that the layers aggregate; unless given, the most of any backbone."""
    per_edge: float = 115.0
    """For each edge that messages pass over; unless given, the most of any backbone."""
    at_work: float = 0.0
    """For each node and unit of the widest layer, where layers are computed again in the gradient."""


@dataclass(frozen=True)
class Params:
    """All parameters of a batch of runs."""

    prunable: Tensor  # [S, P]
    other: Tensor  # [S, Q]: biases, norms, ε, attention vectors

    def to(self, device: torch.device | str) -> Params:
        return Params(self.prunable.to(device), self.other.to(device))

    def __getitem__(self, runs: slice) -> Params:
        return Params(self.prunable[runs], self.other[runs])

    @staticmethod
    def cat(parts: Sequence[Params]) -> Params:
        """One batch of the runs of several."""
        return Params(torch.cat([part.prunable for part in parts]), torch.cat([part.other for part in parts]))


class Dropout:
    """Dropout of one training step; what it draws depends on the run, the epoch and the layer alone."""

    def __init__(self, key: Tensor, kernels: Kernels = PLAIN, units: Mapping[int, Tensor] | None = None) -> None:
        """`units` says, for layers of which only some columns are computed, which ([width] bool)."""
        self.key = key  # [S]
        self._kernels, self._units = kernels, units or {}

    def using(self, kernels: Kernels, units: Mapping[int, Tensor]) -> Dropout:
        """The same draws by these kernels, for layers with some of their columns alone."""
        return Dropout(self.key, kernels, units)

    def __call__(self, h: Tensor, nodes: Tensor | None, layer: int, p: float, whole: int | None = None) -> Tensor:
        """Drop elements of h [S, n, H] with probability p and scale up the rest; see `keep`."""
        dropped = self._kernels.dropped(self._fold(layer), h, nodes, p, whole, self._units.get(layer))
        if dropped is not None:
            return dropped
        return h * self.keep(h, nodes, layer, p, whole).mul_(1.0 / (1.0 - p))

    def keep(self, h: Tensor, nodes: Tensor | None, layer: int, p: float, whole: int | None = None) -> Tensor:
        """1 where elements of h [S, n, H] stay, 0 elsewhere, for layers that do the rest themselves.

        `nodes` [n] are the rows' numbers (None: all nodes); a node's unit draws the same whichever others are there.
        Of a layer that was narrowed from `whole` units, h has so many that they draw as the first of all do.
        """
        key, units = self._fold(layer), self._units.get(layer)
        if whole is not None:
            return self._first_columns(key, h, nodes, p, whole)
        width = h.shape[2] if units is None else len(units)
        if nodes is None:
            draws = self._kernels.keep_mask(key, h.shape[1] * width, p, h.dtype).view(len(h), -1, width)
        else:
            draws = self._kernels.keep_mask(key, width, p, h.dtype, nodes)
        return draws if units is None else draws.index_select(2, units.nonzero().squeeze(1))

    def _first_columns(self, key: Tensor, h: Tensor, nodes: Tensor | None, p: float, whole: int) -> Tensor:
        """Four elements share one hash, so a row of four is drawn for each: no draw depends on how many are there."""
        nodes = torch.arange(h.shape[1], device=h.device) if nodes is None else nodes
        hashes = torch.arange((h.shape[2] + 3) // 4, device=h.device)
        rows = (nodes.unsqueeze(1) * ((whole + 3) // 4) + hashes).flatten()
        draws = self._kernels.keep_mask(key, 4, p, h.dtype, rows)  # [S, n · hashes, 4]
        return draws.view(len(h), h.shape[1], -1)[..., : h.shape[2]]

    def drawing(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """The keys [S] that a layer draws with, and which of its columns are computed ([width] bool; None is all)."""
        return self._fold(layer), self._units.get(layer)

    def _fold(self, layer: int) -> Tensor:
        return self._kernels.fold(self.key, layer)

    def features(self, x: Features, layer: int, p: float) -> DroppedFeatures:
        """Drop entries of the features, for each run its own, with probability p and scale up the rest."""
        return x.dropped(self._kernels.keep_mask(self._fold(layer), x.entries, p), 1.0 / (1.0 - p))

    def arcs(self, values: Tensor, graph: GraphBatch, block: Block, layer: int, p: float) -> Tensor:
        """Drop values [A, K] of a block's arcs with probability p; an arc draws the same whichever others are alive."""
        heads = values.shape[1]
        draws = self._kernels.keep_mask(self._fold(layer), graph.draws_per_run * heads, p, values.dtype)
        slot = graph.draw_slot if block.arcs is None else graph.draw_slot[block.arcs]
        return values * draws.reshape(-1, heads)[slot].mul_(1.0 / (1.0 - p))


@dataclass(frozen=True)
class Stage:
    """A layer of a network as the reference runs it, and as others may read it.

    Units are Σ over arcs of h·W, plus h·R and h itself at the node, plus what the backbone adds; then norm, activation
    and dropout, whose draws have the stage's number. The i-th stage with messages passes them over `graph.layer(i)`.
    """

    weights: tuple[str, ...]
    """Its prunable matrices W [inputs, units]; several are heads, side by side."""
    inputs: int
    units: int
    """Of all heads together."""
    reads: tuple[int, ...]
    """The stages whose outputs, side by side, are its inputs h; -1 are the features."""
    roots: tuple[str, ...] = ()
    """Prunable matrices R [inputs, units]: of the node's own inputs, or a linear skip."""
    along: tuple[str, ...] = ()
    """Parameters besides with one entry per unit, in their last dimension."""
    messages: bool = True
    """False: a linear map, without arcs."""
    attends: bool = False
    """Whether arcs are weighed by attention to the inputs."""
    identity: bool = False
    """Whether its inputs are added to its units."""
    norm: str = "none"
    activation: str = "none"
    dropout: float = 0.0

    @property
    def adds_inputs(self) -> bool:
        """Whether a node's own inputs are part of its units, but for messages."""
        return bool(self.roots) or self.identity

    @property
    def plain(self) -> bool:
        """Whether its inputs are multiplied by one weight, and nothing else is done with them."""
        return len(self.weights) == 1 and not self.attends and not self.adds_inputs


Self = TypeVar("Self", bound="Backbone")


class Backbone(ABC):
    """A graph neural network for S runs at once.

    The forward pass is cut in two at the first dropout: validation and the next training step have the same weights,
    so they can share the `stem`.
    """

    name: str
    self_loops: bool
    """Whether the layers add self-loops (never pruned) to the graph."""
    prunable: Layout
    other: Layout
    buffers: frozenset[str] = frozenset()
    """Names in `other` that have no gradient, such as running statistics; `head` updates them in place in training."""
    chain: tuple[Stage, ...] = ()
    """The network stage by stage, from the features to the outputs; empty where it is anything else."""
    input_dropout: float = 0.0
    """Of the features, before the first stage of a chain."""
    widths: Mapping[str, int] = {}
    """The layers whose units can go, and how many each has; `features` are one. Heads are layers of their own, called
    `layer0.head1`. Empty where the backbone does not say."""
    sides: Mapping[str, tuple[Axis, Axis]] = {}
    """By the name of a parameter, as a matrix, what lies along its rows and columns; those without units are left out.
    Layers whose units are added to each other are one."""
    whole_units: bool = False
    """Whether a unit without an alive weight is a deleted one, as in structured tickets: norms are over the others."""
    batched: bool = True
    """Whether runs are computed together; a user's own model computes one after the other, and may draw from torch's
    generators."""
    aggregation_widths: tuple[int, ...]
    """Width of the messages of each layer, for counting operations."""
    edge_features: int = 0
    """How many features of edges the layers read."""
    footprint: Footprint = Footprint()
    coefficients: Literal["symmetric", "mean", "attention", "softmax"]
    """How arcs are weighed at inference: symmetric normalisation, mean over neighbours, attention, or a softmax of the
    messages themselves."""
    dtype: torch.dtype | None = None
    """What forward passes compute in, if not in the type of the weights."""

    @property
    def steps(self) -> int:
        """Along how many edges outputs depend on other nodes; 0 where that is not known, or they depend on all: batch
        normalisation is over every node."""
        if any(stage.norm == "batch" for stage in self.chain):
            return 0
        return sum(stage.messages for stage in self.chain)

    def init(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> Params:
        """Initial weights of each run, fixed by its seed."""
        shapes = (*self.prunable.shapes, *self.other.shapes)
        drawn = {name: self.initial(seeds, name, shape, device) for name, shape in shapes}
        return Params(self.prunable.join(drawn), self.other.join(drawn))

    def initial(self, seeds: Sequence[int], name: str, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
        """[S, *shape] of a parameter: Glorot for the prunable matrices, 0 for the rest."""
        if (name, shape) in self.prunable.shapes:
            return glorot(seeds, name, shape, device)
        return torch.zeros(len(seeds), *shape, device=device)

    @abstractmethod
    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        """Everything before the first dropout. `edge_values` [S, E] multiply the messages; dead ones are unused."""

    @abstractmethod
    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        """Outputs [S, N, C] from what `stem` returned; without `dropout`, for evaluation."""

    def begin(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Any:
        """The stem, in the backbone's precision."""
        return self.stem(self._cast(weights), graph, edge_values, x)

    def end(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        """The head, in the backbone's precision; outputs are of the weights' type."""
        return self.head(self._cast(weights), graph, state, dropout).to(next(iter(weights.values())).dtype)

    def apply(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> Tensor:
        """Outputs [S, N, C] for evaluation."""
        return self.end(weights, graph, self.begin(weights, graph, edge_values, x), None)

    def computing_in(self: Self, dtype: torch.dtype) -> Self:
        """The same network with forward passes in another type of number; weights and gradients keep theirs."""
        made = copy(self)
        made.dtype = dtype
        return made

    def with_whole_units(self: Self) -> Self:
        """The same network, with weights that live and die by units."""
        made = copy(self)
        made.whole_units = True
        return made

    def narrowed(self: Self, widths: Mapping[str, int], present: Mapping[str, Tensor]) -> Self:
        """The network with these widths in place of its own. Where runs have fewer units than that, `present` [S, 1,
        width] is 1 where there is one, and 0 where one is made up; see `aceglt.backbones.narrow`."""
        raise NotImplementedError(f"{self.name} does not say which units its weights belong to")

    def _cast(self, weights: Weights) -> Weights:
        """All but the buffers, which are updated in place."""
        if self.dtype is None:
            return weights
        return {name: w if name in self.buffers else w.to(self.dtype) for name, w in weights.items()}

    def layers(self, weights: Weights) -> Sequence[Spec]:
        """The same network for inference, layer by layer; weights of one run, without the leading dimension.

        Raises ConfigError where the backbone cannot be told layer by layer, as a user's own model.
        """
        raise ConfigError(f"{self.name} has no compact form")

    def lighter(self: Self) -> Self | None:
        """The same network in less memory and more time, where there is such a way."""
        return None

    def weights(self, params: Params) -> Weights:
        """Named views of all parameters."""
        return {**self.prunable.split(params.prunable), **self.other.split(params.other)}


def glorot(
    seeds: Sequence[int], name: str, shape: tuple[int, ...], device: torch.device | str, fans: int | None = None
) -> Tensor:
    """[S, *shape] uniform on ±sqrt(6 / fans); fans are fan in + fan out, that is the sum of the shape, unless given."""
    bound = math.sqrt(6.0 / (fans or sum(shape)))
    draws = rng.uniform(rng.keys(seeds, "init", name, device=device), math.prod(shape))
    return ((2.0 * draws - 1.0) * bound).to(torch.get_default_dtype()).view(-1, *shape)
