"""Passes of one run on the CPU, without the features and hidden units that no alive weight reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Weights
from aceglt.backends.cpu.elements import Active, Thresholds, alive_rows, read_units
from aceglt.backends.cpu.gcn import AggregatedFeatures, CompiledGCN, ReadyFeatures, aggregated
from aceglt.backends.cpu.kernels import CompiledKernels
from aceglt.backends.cpu.workers import Spare
from aceglt.backends.fields import Fields, Passes, Site, Step
from aceglt.numerics.features import Features


@dataclass(frozen=True)
class Shared:
    """Features of the nodes that training and validation depend on, so that those of both are multiplied by a weight
    once."""

    features: Features
    train: Tensor  # [n] int32, where the training's nodes are
    val: Tensor  # and where the validation's are

    def ready(
        self, weight: Tensor, train: Features, val: Features, gcn: CompiledGCN | None = None
    ) -> tuple[Features, Features]:
        """Features of training and of validation, for passes that begin with their product with this weight; in blocks,
        if these are a GCN's."""
        blocks = None if gcn is None else gcn.product(self.features, weight)
        of_all, blocked = self.features.product(weight) if blocks is None else blocks, blocks is not None

        def made() -> tuple[Features, Features]:
            return ReadyFeatures(train, of_all, self.train, blocked), ReadyFeatures(val, of_all, self.val, blocked)

        if gcn is None:
            return made()
        ready: tuple[Features, Features] = gcn.once("ready", self, made, of_all, train, val, kept=gcn.reuses)
        return ready


def shared(fields: Fields, train: Site, val: Site, apart: float) -> Shared | None:
    """What training and validation share of their receptive fields; None if that is too little to pay. `apart` see
    `Thresholds`."""
    of_train, of_val = train.field, val.field
    if of_train is None or of_val is None or val.place.scatter is not None or train.whole is not None:
        return None

    def made() -> Shared | None:
        nodes, others, place = of_val.nodes, of_train.nodes, of_val.place(train.place.graph.num_nodes)
        alone = others[place[others] == len(nodes)]
        if len(alone) > apart * len(others):
            return None
        place[alone] = len(nodes) + torch.arange(len(alone))
        features = fields.features(train.place.features).rows(torch.cat([nodes, alone]))
        return Shared(features, place[others].int(), place[nodes].int())

    return fields.kept(made, of_train, of_val)


@dataclass
class CpuPasses(Passes):
    """Passes that read what alive weights read, and nothing else."""

    spare: Spare | None = None
    shared: Shared | None = None
    active: Mapping[str, Active] = field(default_factory=dict)
    """The parts of the first two matrices that take part, by name."""

    def step(self, weights: Weights, edge_values: Tensor) -> Step:
        train, val, first = self.train_site.features, self.val_site.features, self.network.chain[:1]
        if self.units is not None:
            weights = {**weights, **{name: weights[name][..., self.units] for name in first[0].along}}
        if self.shared is not None:
            gcn = self.network if isinstance(self.network, CompiledGCN) else None
            gcn = gcn if gcn and gcn.computes(self.train_site.graph, weights) else None
            train, val = self.shared.ready(weights[first[0].weights[0]].detach(), train, val, gcn)
        return Step(self, weights, edge_values, train, val)

    def beside(self, validate: Callable[[], Tensor]) -> Callable[[], Tensor]:
        begun = None if self.spare is None or self.network.buffers else self.spare.submit(validate)
        return begun or super().beside(validate)


def narrows(backbone: Backbone) -> bool:
    """Whether `narrowed` knows how to leave out what a network does not read."""
    return bool(backbone.chain) and backbone.chain[0].plain and not backbone.input_dropout


def narrowed(whole: CpuPasses, fields: Fields, alive: Weights, thresholds: Thresholds) -> CpuPasses:
    """Passes of one run through a chain whose first convolution does nothing with features but multiply them, without
    what no alive weight reads."""
    network, train, val, kernels = whole.network, whole.train_site, whole.val_site, whole.kernels
    assert isinstance(kernels, CompiledKernels)
    (name,), units, together = network.chain[0].weights, None, None
    active: dict[str, Active] = {}
    if len(network.chain) == 2 and network.chain[1].plain and network.chain[0].norm == "none":
        (second,) = network.chain[1].weights
        units = read_units(alive[second], thresholds)
        if units is not None:
            active = {name: Active(columns=units), second: Active(rows=units)}
    width = alive[name].shape[2] if units is None else int(units.sum())
    sites = [train] if val is train else [train, val]
    if isinstance(network, CompiledGCN) and val is not train:
        most, before = thresholds.sums, network.drawn(0) or width
        sites = [
            replace(site, features=aggregated(site.features, site.graph, before, site is train, kernels, most))
            for site in sites
        ]
    if val is not train and not any(isinstance(site.features, AggregatedFeatures) for site in sites):
        together = shared(fields, train, val, thresholds.apart)
    rows = alive_rows(alive[name], thresholds)
    if rows is not None and all(_exact(site, rows, width, kernels) for site in sites):
        active[name] = Active(rows, units)
        sites = [replace(site, features=site.features.columns(rows)) for site in sites]
        together = None if together is None else replace(together, features=together.features.columns(rows))
    return CpuPasses(network, sites[0], sites[-1], kernels, units, whole.spare, together, active)


def _exact(site: Site, rows: Tensor, width: int, kernels: CompiledKernels) -> bool:
    """Whether products with some of the features ([F] bool) alone are the same, bit by bit, where the weights of the
    others, in a matrix of this width, are 0."""
    x = site.features
    if x.csr is None:
        return False
    if isinstance(x, AggregatedFeatures):
        return bool(rows.any()) and kernels.computes(x.csr.values(), site.graph.layer(0).targets * width)
    return x.csr_t is not None and kernels.multiplies(int(rows[x.csr.col_indices()].sum()), width)
