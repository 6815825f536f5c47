"""Passes over the receptive fields of the nodes that are read, where that is less work than over the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Weights
from aceglt.backends.base import Place, scatter_nodes
from aceglt.backends.reference import PlainPasses, PlainStep
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Field, GraphBatch
from aceglt.numerics.kernels import Kernels

_WORTH = 2.5  # of 3 passes over all nodes: use receptive fields only if they save more than 1/6 of the work


@dataclass(frozen=True)
class Site:
    """Where a pass of one training runs: alive arcs, and what is computed of them."""

    graph: GraphBatch
    features: Features
    place: Place
    field: Field | None = None
    """The receptive field of the nodes that are read; None is everything."""

    def outputs(self, outputs: Tensor) -> Tensor:
        """[S, N, C] of all nodes; those that are not computed are 0."""
        if self.field is None:
            return outputs
        return scatter_nodes(outputs, self.field.nodes[: self.field.sizes[0]], self.place.graph.num_nodes)

    def reading(self, features: Tensor | None) -> Site:
        """The same site with some of the features ([F] bool) alone; None is all."""
        return self if features is None else replace(self, features=self.features.columns(features))


class Fields:
    """Receptive fields and features with the products of a backend, kept for all trainings of a search."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels, self._lock = kernels, RLock()  # trainings side by side ask at once
        self._features: dict[int, tuple[Features, Features]] = {}  # by id; with what has the id, so that it lasts
        self._fields: dict[tuple[int, int, int], tuple[Place, Field, Features]] = {}

    def features(self, features: Features) -> Features:
        """With products of the backend."""
        with self._lock:
            if id(features) not in self._features:
                self._features[id(features)] = features, features.using(self._kernels)
            return self._features[id(features)][1]

    def field(self, place: Place, steps: int) -> tuple[Field, Features] | None:
        """What the outputs that are read there depend on after so many layers, and its features; None if all nodes."""
        if place.nodes is None or steps == 0:
            return None
        key = id(place.features), id(place.nodes), steps
        with self._lock:
            if key not in self._fields:
                field = place.graph.field(place.nodes, steps)
                self._fields[key] = place, field, self.features(place.features).rows(field.nodes)
            return self._fields[key][1:]

    def sites(self, backbone: Backbone, train: Place, val: Place, alive: Tensor) -> tuple[Site, Site]:
        """Where training and validation run; the same site, to share the stem, where their own would not be cheaper."""
        steps, loops = len(backbone.chain), backbone.self_loops
        of_train, of_val = self.field(train, steps), self.field(val, steps)
        batch = train.graph.batch(alive, loops, self._kernels)
        if val.scatter is not None:
            there = val.graph.batch(val.scatter(alive), loops, self._kernels)
            return self._site(batch, train, of_train), self._site(there, val, of_val)
        if not self._smaller(train, of_train, of_val):
            whole = self._site(batch, train, None)
            return whole, whole
        return self._site(batch, train, of_train), self._site(batch, val, of_val)

    def _site(self, graph: GraphBatch, place: Place, focus: tuple[Field, Features] | None) -> Site:
        if focus is None:
            return Site(graph, self.features(place.features), place)
        field, features = focus
        return Site(graph.within(field), features, place, field)

    @staticmethod
    def _smaller(place: Place, train: tuple[Field, Features] | None, val: tuple[Field, Features] | None) -> bool:
        """Whether two passes forward and one back over fields are less work than one each over the whole."""
        if train is None or val is None:
            return False
        return 2 * len(train[0].nodes) + len(val[0].nodes) <= _WORTH * place.graph.num_nodes


class FieldPasses(PlainPasses):
    """The passes of one training at their sites; where these are the same, both share the stem."""

    def __init__(self, network: Backbone, train: Site, val: Site, kernels: Kernels) -> None:
        self.network, self.train_site, self.val_site, self.kernels = network, train, val, kernels

    def step(self, weights: Weights, edge_values: Tensor) -> FieldStep:
        return FieldStep(self, weights, edge_values, self.train_site.features, self.val_site.features)

    def dropout(self, dropout: Dropout | None) -> Dropout | None:
        """With the draws of the backend."""
        return None if dropout is None else dropout.using(self.kernels, {})

    def beside(self, validate: Callable[[], Tensor]) -> Callable[[], Tensor] | None:
        """Begin a validation pass beside the training pass, where there is something to spare for that."""
        return None


class FieldStep(PlainStep):
    """Passes with the same weights and edge values."""

    def __init__(
        self, passes: FieldPasses, weights: Weights, edge_values: Tensor, train: Features, val: Features
    ) -> None:
        self._passes, self._weights, self._edge_values = passes, weights, edge_values
        self._train, self._val = train, val
        self._state: Any = None

    def validate(self) -> Callable[[], Tensor]:
        passes, val = self._passes, self._passes.val_site
        if val is passes.train_site:
            with torch.no_grad():
                outputs = passes.network.end(self._weights, val.graph, self._stem(), None)
            return lambda: outputs
        begun = passes.beside(self._validate)
        if begun is not None:
            return begun
        outputs = self._validate()
        return lambda: outputs

    @torch.no_grad()
    def _validate(self) -> Tensor:
        val = self._passes.val_site
        values = val.place.values(self._edge_values)
        return val.outputs(self._passes.network.apply(self._weights, val.graph, values, self._val))

    def outputs(self, dropout: Dropout | None) -> Tensor:
        passes, train = self._passes, self._passes.train_site
        made = passes.network.end(self._weights, train.graph, self._stem(), passes.dropout(dropout))
        return train.outputs(made)

    def outputs_on(self, features: Features) -> Tensor:
        passes, train = self._passes, self._passes.train_site
        return train.outputs(passes.network.apply(self._weights, train.graph, self._edge_values, features))

    def _stem(self) -> Any:
        """With gradients, whoever asks for it first."""
        if self._state is None:
            with torch.enable_grad():
                train = self._passes.train_site
                self._state = self._passes.network.begin(self._weights, train.graph, self._edge_values, self._train)
        return self._state
