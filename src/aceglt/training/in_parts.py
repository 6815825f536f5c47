"""An epoch of several steps of Adam, each on some parts of the graph; processes share the parts of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from aceglt.backbones.base import Weights
from aceglt.backends.base import Place
from aceglt.backends.fields import Passes, Site
from aceglt.numerics import rng
from aceglt.training import processes
from aceglt.training.dropedge import edges_of_step
from aceglt.training.group import RunGroup
from aceglt.training.losses import LossGradients, gradients, training_loss
from aceglt.training.partitions import Outputs, Part
from aceglt.training.sampling import Sampler


class InParts:
    """The steps of a group's training, and its validation, in parts."""

    def __init__(self, group: RunGroup) -> None:
        train, val = group.places
        self._group, self._val, graph, parts = group, val, group.problem.graph, group.parts
        alive = group.start.masks.edges
        self.steps: Callable[[Tensor], Iterable[Sequence[Part | None]]] = partial(parts.steps, graph)
        """(finished epochs): the parts of each step of the next epoch; None where another process makes one."""
        if parts.sampled:
            layers = len(group.backbone.aggregation_widths)
            self.steps = Sampler(parts, graph, alive[0], train.nodes, layers).steps
        self._outputs = Outputs(group.backend, group.backbone, val.graph, val.features, val.values(alive), parts)

    def validate(self, weights: Weights, edge_values: Tensor) -> Tensor:
        """[S, N, C] outputs for validation."""
        return self._outputs(weights, self._val.values(edge_values))

    def gradients(
        self,
        parts: Sequence[Part | None],
        weights: Mapping[str, Tensor],
        edge_values: Tensor,
        buffers: Weights,
        key: Tensor,
    ) -> tuple[Tensor, LossGradients]:
        """The loss [S] of one step and its gradients: means over its parts, of which every process takes its share."""
        sums = {name: torch.zeros_like(part) for name, part in weights.items()}
        edges = torch.zeros_like(edge_values) if edge_values.requires_grad else None
        total = edge_values.new_zeros(len(edge_values))
        for number, part in processes.mine(list(enumerate(parts))):
            assert part is not None
            values = edge_values.detach()[:, part.edges].requires_grad_(edges is not None)
            loss = self._loss(part, {**weights, **buffers}, values, rng.fold(key, number))
            grads, of_edges = gradients(loss.sum() / len(parts), weights, values)
            for name, summed in sums.items():
                summed += grads[name]
            if edges is not None and of_edges is not None:
                edges[:, part.edges] += of_edges
            total += loss.detach() / len(parts)
        processes.add_up([*sums.values(), total, *([edges] if edges is not None else [])])
        return total, (sums, edges)

    def _loss(self, part: Part, weights: Weights, edge_values: Tensor, key: Tensor) -> Tensor:
        """[S] of the training pass over one part."""
        group, kernels, backbone = self._group, self._group.backend.kernels, self._group.backbone
        problem, aim, at = group.problem.part(part.nodes, part.edges), part.nodes, None
        alive = edges_of_step(group.start, key)[:, part.edges]
        graph = problem.graph.batch(alive, backbone.self_loops, kernels)
        site = Site(graph, problem.features.using(kernels), Place(problem.graph, problem.features))
        if part.seeds is not None:  # the loss is theirs alone, and layers are computed where they depend on them
            aim, at = part.seeds, torch.searchsorted(part.nodes, part.seeds)
            if steps := backbone.steps:
                field = problem.graph.field(at, steps)
                site = Site(graph.within(field), site.features.rows(field.nodes), site.place, field)
            problem = group.problem.part(aim, part.edges[:0])
        step = Passes(group.backend.network(backbone), site, site, kernels).step(weights, edge_values)
        return training_loss(problem, group.soft.at(aim) if group.soft else None, step, weights, key, kernels, at)
