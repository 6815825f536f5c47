"""Forward passes: over the whole graph, or over the receptive fields of the nodes that are read, where that is less
work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Weights
from aceglt.backends.base import Place
from aceglt.backends.layers import Ordered
from aceglt.numerics.batch import Field, GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.kernels import Kernels

Made = TypeVar("Made")

_WORTH = 2.5  # of 3 passes over all nodes: use receptive fields only if they save more than 1/6 of the work


@dataclass(frozen=True)
class Site:
    """Where a pass of one training runs: alive arcs, and what is computed of them."""

    graph: GraphBatch
    features: Features
    place: Place
    field: Field | None = None
    """The receptive field of the nodes that are read; None is everything."""
    whole: GraphBatch | None = None
    """All nodes, where only the last layer is computed for those that are read, and others share the stem."""

    def outputs(self, outputs: Tensor) -> Tensor:
        """[S, N, C] of all nodes; those that are not computed are 0."""
        if self.field is None:
            return outputs
        zeros = outputs.new_zeros(outputs.shape[0], self.place.graph.num_nodes, outputs.shape[2])
        return zeros.index_copy(1, self.field.nodes[: self.field.sizes[0]], outputs)


class Fields:
    """Receptive fields and features with the products of a backend, kept for all trainings of a search."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels, self._lock = kernels, RLock()  # trainings side by side ask at once
        self._made: dict[tuple[int, ...], tuple[Any, Any]] = {}  # by ids; with what has them, so that it lasts

    def kept(self, make: Callable[[], Made], *things: Any) -> Made:
        """What `make` makes of these things, made once."""
        key = tuple(map(id, things))
        with self._lock:
            if key not in self._made:
                self._made[key] = things, make()
            made: Made = self._made[key][1]
        return made

    def features(self, features: Features) -> Features:
        """With products of the backend."""
        return self.kept(lambda: features.using(self._kernels), features)

    def field(self, place: Place, steps: int) -> tuple[Field, Features] | None:
        """What the outputs that are read there depend on after so many layers, and its features; None if all nodes."""
        nodes = place.nodes
        if nodes is None or steps == 0:
            return None

        def made() -> tuple[Field, Features]:
            field = place.graph.field(nodes, steps)
            return field, self.features(place.features).rows(field.nodes)

        return self.kept(made, place.features, nodes, steps)

    def sites(self, backbone: Backbone, train: Place, val: Place, alive: Tensor) -> tuple[Site, Site]:
        """Where training and validation run. Where fields of their own would not be cheaper, both share the stem; the
        last layer of a deep network is then computed for the nodes alone that are read."""
        steps, loops = backbone.steps, backbone.self_loops
        of_train, of_val = self.field(train, steps), self.field(val, steps)
        batch = train.graph.batch(alive, loops, self._kernels)
        if val.scatter is not None:
            there = val.graph.batch(val.scatter(alive), loops, self._kernels)
            return self._site(batch, train, of_train), self._site(there, val, of_val)
        if of_train is not None and of_val is not None:
            work = 2 * len(of_train[0].nodes) + len(of_val[0].nodes)  # two passes forward and one back
            if work <= _WORTH * train.graph.num_nodes:
                return self._site(batch, train, of_train), self._site(batch, val, of_val)
        if isinstance(backbone, Ordered) and backbone.early and steps > 1:
            return self._ending_site(batch, train, steps), self._ending_site(batch, val, steps)
        whole = self._site(batch, train, None)
        return whole, whole

    def _ending_site(self, whole: GraphBatch, place: Place, steps: int) -> Site:
        graph, field, nodes = whole, None, place.nodes
        if nodes is not None and len(nodes) < whole.num_nodes:
            graph, field = whole.ending_at(nodes, steps - 1), Field(nodes, (len(nodes),))
        return Site(graph, self.features(place.features), place, field, whole)

    def _site(self, graph: GraphBatch, place: Place, focus: tuple[Field, Features] | None) -> Site:
        if focus is None:
            return Site(graph, self.features(place.features), place)
        field, features = focus
        return Site(graph.within(field), features, place, field)


@dataclass
class Passes:
    """The passes of one training at their sites; where these are the same, both share the stem."""

    network: Backbone
    train_site: Site
    val_site: Site
    kernels: Kernels
    units: Tensor | None = None
    """[H] bool: the hidden units of the first layer that are computed; None is all."""

    def step(self, weights: Weights, edge_values: Tensor) -> Step:
        """The passes with these weights (prunable, others and buffers) and values [S, E] of the edges."""
        return Step(self, weights, edge_values, self.train_site.features, self.val_site.features)

    def beside(self, validate: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Begin a validation pass, beside the training pass where there is something to spare for that."""
        outputs = validate()
        return lambda: outputs


class Step:
    """One pass of validation and one of training, with the same weights and edge values."""

    def __init__(self, passes: Passes, weights: Weights, edge_values: Tensor, train: Features, val: Features) -> None:
        self._passes, self._weights, self._edge_values = passes, weights, edge_values
        self._train, self._val, self._state = train, val, None

    def validate(self) -> Callable[[], Tensor]:
        """Begin the validation pass, which may run beside the training pass; the function waits for its outputs,
        [S, N, C], which may be 0 at nodes that are not read."""
        passes = self._passes
        val = passes.val_site
        if val is passes.train_site or val.whole is not None:
            with torch.no_grad():
                outputs = val.outputs(passes.network.end(self._weights, val.graph, self._stem(), None))
            return lambda: outputs
        return passes.beside(self._validate)

    @torch.no_grad()
    def _validate(self) -> Tensor:
        val = self._passes.val_site
        values = val.place.values(self._edge_values)
        return val.outputs(self._passes.network.apply(self._weights, val.graph, values, self._val))

    def outputs(self, dropout: Dropout | None, order: Tensor | None = None) -> Tensor:
        """Outputs [S, N, C] of the training pass, which may be 0 at nodes that are not read; or, without dropout, on
        features in another order of the nodes, [S, N]."""
        passes, train, given = self._passes, self._passes.train_site, (self._weights, self._edge_values)
        if order is not None:
            return train.outputs(passes.network.apply(given[0], train.graph, given[1], self._train.permuted(order)))
        if dropout is not None:
            dropout = dropout.using(passes.kernels, {} if passes.units is None else {0: passes.units})
        return train.outputs(passes.network.end(self._weights, train.graph, self._stem(), dropout))

    def _stem(self) -> Any:
        """With gradients, whoever asks for it first."""
        if self._state is None:
            with torch.enable_grad():
                train, network = self._passes.train_site, self._passes.network
                self._state = network.begin(self._weights, train.whole or train.graph, self._edge_values, self._train)
        return self._state
