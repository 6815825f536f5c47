"""Stacks of layers that sum along arcs before they multiply, where that is less work: linear maps commute."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Weights
from aceglt.backbones.layered import Inputs, Layered, at_sources, joined
from aceglt.numerics.batch import Block, GraphBatch
from aceglt.numerics.features import Features

_GATHER = 16  # multiplications that take as long as to read one number along an arc


class Ordered(Layered):
    """Made by `ordered` of a backbone, whose class it extends."""

    fixed: bool
    """Whether edge values stay what they are, so that what is made of them alone may be kept."""
    kept: dict[tuple[str, int], tuple[Any, Any]]  # by what it is and a graph's id, with the graph, so that it lasts

    def arcs(self, weights: Weights, graph: GraphBatch, edge_values: Tensor) -> Any:
        return self._once("arcs", graph, lambda: super(Ordered, self).arcs(weights, graph, edge_values))  # type: ignore[safe-super]

    def units(self, weights: Weights, graph: GraphBatch, number: int, arcs: Any, inputs: Inputs) -> Tensor:
        stage = self.chain[number]
        if not stage.messages:
            return super().units(weights, graph, number, arcs, inputs)
        block = graph.layer(number)
        if number == 0:
            if not self._sums_features(block, inputs):
                return super().units(weights, graph, number, arcs, inputs)
            x = cast(Features, inputs)
            sums = self._once("sums", graph, lambda: self._feature_sums(block, arcs, x))
        elif sums_first(block, stage.inputs, stage.units):
            blocks = cast(Any, at_sources(block, inputs))
            sums = self.gather(weights, number, block, arcs, joined(blocks))
        else:
            return super().units(weights, graph, number, arcs, inputs)
        units = self.biased(weights, number, block.kernels.matmul(sums, weights[stage.weights[0]]))
        return self.skipped(weights, graph, number, units, inputs)

    def _sums_features(self, block: Block, inputs: Inputs) -> bool:
        """Whether A·X comes before its product with the weight: it is made once where edge values are fixed."""
        if type(inputs) is not Features or inputs.sparse or type(self).gather is not Layered.gather:
            return False
        width, units = self.chain[0].inputs, self.chain[0].units
        return width <= (2 * units if self.fixed else units // 2)

    def _feature_sums(self, block: Block, arcs: Tensor, x: Features) -> Tensor:
        """[S, T, F] of the features along arcs; [T, F] where they are the same for all runs."""
        sums = self.gather({}, 0, block, arcs, x.dense.to(arcs.dtype).expand(block.runs, -1, -1))
        if self.fixed and block.runs > 1 and bool((sums == sums[0]).all()):
            return sums[0].clone()
        return sums

    def _once(self, what: str, graph: GraphBatch, make: Any) -> Any:
        if not self.fixed:
            return make()
        key = what, id(graph)
        if key not in self.kept:
            with torch.no_grad():
                self.kept[key] = graph, make()
        return self.kept[key][1]


def sums_first(block: Block, inputs: int, units: int, margin: float = 1.0) -> bool:
    """Whether sums of inputs along arcs and their product are less work, by a margin, than to multiply before."""
    arcs = _GATHER * block.num_arcs // block.runs
    before = arcs * inputs + block.targets * inputs * units
    return margin * before < arcs * units + block.sources * inputs * units


def ordered(backbone: Backbone, fixed: bool = False, kind: type[Ordered] = Ordered) -> Backbone:
    """The backbone so, if it is a stack of layers without attention, as a `kind` of it; `fixed` see `Ordered`."""
    if not isinstance(backbone, Layered) or backbone.attends or backbone.dtype is not None:
        return backbone
    made = copy(backbone)
    made.__class__ = type(kind.__name__, (kind, type(backbone)), {})
    made.fixed, made.kept = fixed, {}  # type: ignore[attr-defined]
    return made


def of_the_paper(backbone: Backbone) -> bool:
    """Whether a stack is of two plain layers, as the paper's, whose results stay as they are bit by bit."""
    plain = all(stage.plain and stage.messages and stage.norm == "none" for stage in backbone.chain)
    return plain and len(backbone.chain) == 2 and not backbone.input_dropout
