"""Passes of one run on the CPU, without the features and hidden units that no alive weight reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Dropout, Weights
from aceglt.backends.base import Place
from aceglt.backends.cpu.elements import Active, Thresholds, alive_rows, read_units
from aceglt.backends.cpu.gcn import AggregatedFeatures, CompiledGCN, ReadyFeatures, aggregated
from aceglt.backends.cpu.kernels import CompiledKernels
from aceglt.backends.cpu.workers import Spare
from aceglt.backends.fields import FieldPasses, Fields, FieldStep, Site
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Field


@dataclass(frozen=True)
class Shared:
    """Features of the nodes that training and validation depend on, so that those of both are multiplied by a weight
    once."""

    features: Features
    train: Tensor  # [n] int32, where the training's nodes are
    val: Tensor  # and where the validation's are

    def reading(self, features: Tensor | None) -> Shared:
        """The same with some of the features ([F] bool) alone; None is all."""
        return self if features is None else replace(self, features=self.features.columns(features))

    def ready(self, weight: Tensor, train: Features, val: Features) -> tuple[Features, Features]:
        """Features of training and of validation, for passes that begin with their product with this weight."""
        product = self.features.product(weight)
        return ReadyFeatures(train, product, self.train), ReadyFeatures(val, product, self.val)


class Products:
    """What trainings of a search share of their products with features; kept."""

    def __init__(self, fields: Fields, apart: float) -> None:
        """`apart` see `Thresholds`."""
        self._fields, self._apart, self._lock = fields, apart, Lock()  # trainings side by side ask at once
        self._known: dict[tuple[int, int], tuple[Field, Field, Shared | None]] = {}  # by ids; with what has them

    def shared(self, train: Site, val: Site) -> Shared | None:
        """What training and validation share of their receptive fields; None if that is too little to pay."""
        if train.field is None or val.field is None or val.place.scatter is not None:
            return None
        key = id(train.field), id(val.field)
        with self._lock:
            if key not in self._known:
                self._known[key] = train.field, val.field, self._share(train.place, train.field, val.field)
            return self._known[key][2]

    def _share(self, there: Place, train: Field, val: Field) -> Shared | None:
        nodes, others, place = val.nodes, train.nodes, val.place(there.graph.num_nodes)
        apart = others[place[others] == len(nodes)]
        if len(apart) > self._apart * len(others):
            return None
        place[apart] = len(nodes) + torch.arange(len(apart))
        features = self._fields.features(there.features).rows(torch.cat([nodes, apart]))
        return Shared(features, place[others].int(), place[nodes].int())


class CpuPasses(FieldPasses):
    """Passes that read what alive weights read, and nothing else.

    `active` are the parts of the first two matrices that take part, by name; `units` the hidden units that do.
    """

    def __init__(
        self, network: Backbone, train: Site, val: Site, kernels: CompiledKernels, spare: Spare | None
    ) -> None:
        super().__init__(network, train, val, kernels)
        self.spare = spare
        self.shared: Shared | None = None
        self.units: Tensor | None = None
        self.active: Mapping[str, Active] = {}
        self._along: tuple[str, ...] = ()

    @classmethod
    def narrowed(
        cls,
        network: Backbone,
        train: Site,
        val: Site,
        kernels: CompiledKernels,
        spare: Spare | None,
        products: Products,
        alive: Weights,
        thresholds: Thresholds,
    ) -> CpuPasses:
        """For one run of a chain whose first convolution does nothing with features but multiply them."""
        first = network.chain[0]
        (name,), units, active = first.weights, None, {}
        if len(network.chain) == 2 and network.chain[1].plain:
            (second,) = network.chain[1].weights
            units = read_units(alive[second], thresholds)
            if units is not None:
                active = {name: Active(columns=units), second: Active(rows=units)}
        width = alive[name].shape[2] if units is None else int(units.sum())
        plain_train, plain_val = train, val
        if isinstance(network, CompiledGCN) and val is not train:
            most = thresholds.sums
            train = replace(train, features=aggregated(train.features, train.graph, width, True, kernels, most))
            val = replace(val, features=aggregated(val.features, val.graph, width, False, kernels, most))
        rows = alive_rows(alive[name], thresholds)
        if rows is not None and all(_exact(site, rows, width, kernels) for site in (train, val)):
            active = {**active, name: Active(rows, units)}
        else:
            rows = None
        read_train = train.reading(rows)
        made = cls(network, read_train, read_train if val is train else val.reading(rows), kernels, spare)
        made.units, made.active, made._along = units, active, first.along
        together = val is not train and not any(isinstance(s.features, AggregatedFeatures) for s in (train, val))
        shared = products.shared(plain_train, plain_val) if together else None
        made.shared = None if shared is None else shared.reading(rows)
        return made

    def step(self, weights: Weights, edge_values: Tensor) -> FieldStep:
        if self.units is not None:
            weights = {**weights, **{name: weights[name][..., self.units] for name in self._along}}
        train, val = self.train_site.features, self.val_site.features
        if self.shared is not None:
            train, val = self.shared.ready(weights[self.network.chain[0].weights[0]].detach(), train, val)
        return FieldStep(self, weights, edge_values, train, val)

    def dropout(self, dropout: Dropout | None) -> Dropout | None:
        units = {} if self.units is None else {0: self.units}
        return None if dropout is None else dropout.using(self.kernels, units)

    def beside(self, validate: Callable[[], Tensor]) -> Callable[[], Tensor] | None:
        return None if self.spare is None or self.network.buffers else self.spare.submit(validate)


def _exact(site: Site, rows: Tensor, width: int, kernels: CompiledKernels) -> bool:
    """Whether products with some of the features ([F] bool) alone are the same, bit by bit, where the weights of the
    others, in a matrix of this width, are 0."""
    x = site.features
    if x.csr is None:
        return False
    if isinstance(x, AggregatedFeatures):
        return bool(rows.any()) and kernels.computes(x.csr.values(), site.graph.layer(0).targets * width)
    return x.csr_t is not None and kernels.multiplies(int(rows[x.csr.col_indices()].sum()), width)
