"""Trainings on the CPU: one run at a time or several side by side, with compiled kernels where numba is installed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from copy import copy

import torch

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Observer, Place, Result, Start, Train
from aceglt.backends.cpu.allocator import keep_memory
from aceglt.backends.cpu.elements import AliveElements, CompiledElements, Thresholds
from aceglt.backends.cpu.gcn import CompiledGCN, serves
from aceglt.backends.cpu.kernels import CompiledKernels, described
from aceglt.backends.cpu.passes import CpuPasses, narrowed, narrows
from aceglt.backends.cpu.workers import Spare, side_by_side, under_way
from aceglt.backends.fields import Fields, Passes
from aceglt.backends.layers import of_the_paper, ordered
from aceglt.backends.reference import PlainElements, Reference
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph


class Cpu(Reference):
    """Each run is trained by itself, small ones side by side with a thread each; results are bitwise the same for any
    batch."""

    name = "cpu"

    def __init__(self, kernels: CompiledKernels | None = None, thresholds: Thresholds | None = None) -> None:
        self.kernels: CompiledKernels = kernels or CompiledKernels()
        self.thresholds = thresholds or Thresholds()
        self._fields = Fields(self.kernels)
        keep_memory()  # before threads begin, which would have arenas of their own
        self._spare: Spare | None = None  # while trainings run side by side
        self._reuses = True

    @property
    def description(self) -> str:
        return f"{self.name} ({described()})"

    def afresh(self) -> Cpu:
        made = copy(self)
        made._fields = Fields(self.kernels)
        return made

    def able_to(self, own_elements: bool, changing_arcs: bool) -> Reference:
        """The arcs of a training are prepared once; elements of a method's own may keep gradients."""
        if changing_arcs:
            return Reference()
        if not own_elements:
            return self
        made = copy(self)
        made._reuses = False
        return made

    def network(self, backbone: Backbone, fixed: bool = False, reuses: bool = False) -> Backbone:
        """`fixed` and `reuses` see `CompiledGCN`."""
        if serves(backbone):
            return CompiledGCN(backbone, self.kernels, fixed, reuses)
        return backbone if of_the_paper(backbone) else ordered(backbone, fixed)

    def features(self, features: Features) -> Features:
        return self._fields.features(features)

    def passes(self, backbone: Backbone, train: Place, val: Place, start: Start) -> CpuPasses:
        reuses = self._reuses and not start.extra  # an objective of its own makes several passes for a gradient
        network = self.network(backbone, start.scoring is None, reuses)
        sites = self._fields.sites(network, train, val, start.masks.edges)
        passes = CpuPasses(network, *sites, self.kernels, spare=self._spare)
        if start.masks.runs > 1 or start.extra or not narrows(backbone):
            return passes
        return narrowed(passes, self._fields, backbone.prunable.split(start.masks.weights), self.thresholds)

    def elements(self, backbone: Backbone, start: Start, passes: Passes | None) -> PlainElements:
        active = passes.active if isinstance(passes, CpuPasses) else {}
        compiled = self.kernels.computes(start.params.prunable, start.params.prunable.shape[-1])
        if not compiled:
            return AliveElements(backbone, start, active, self.thresholds.compact, self.kernels)
        scored, few = start.scoring is not None and start.scoring.weights, self.thresholds
        return CompiledElements(backbone, start, active, few.compact if scored else few.compact_weights, self.kernels)

    def group_size(self, runs: int, at_once: int | None) -> int:
        return at_once or 1

    def side_by_side(self, backbone: Backbone, graph: Graph, groups: int) -> int:
        """Cores do more so than with the small tensors of one group between them."""
        widths = backbone.aggregation_widths
        width = max(widths, default=0) if of_the_paper(backbone) or not backbone.chain else sum(widths)
        size = graph.num_nodes * width + graph.num_edges * graph.arcs_per_edge + backbone.prunable.size
        alone = size > self.thresholds.small or not backbone.batched
        return 0 if alone else under_way(groups, torch.get_num_threads())

    def train(
        self, groups: Sequence[slice], train: Train[Result], observer: Observer | None, workers: int
    ) -> list[Result]:
        if not workers:
            return super().train(groups, train, observer, workers)
        threads = min(workers, torch.get_num_threads())
        with closing(Spare(torch.get_num_threads(), self.kernels.workers)) as spare:
            self._spare = spare

            def train_one(group: slice, observer: Observer | None) -> Result:
                with spare.training():
                    return train(group, observer)

            try:
                return side_by_side(train_one, groups, observer, threads, workers - threads)
            finally:
                self._spare = None
