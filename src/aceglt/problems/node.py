"""Transductive node classification."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from aceglt.backends import kernels
from aceglt.numerics import ops
from aceglt.numerics.csr import take_rows
from aceglt.numerics.kernels import PLAIN, Kernels
from aceglt.problems.base import Problem, Soft, Softened, Split
from aceglt.problems.checks import checked_features, checked_graph, checked_labels
from aceglt.problems.metrics import METRICS, check_metric
from aceglt.problems.objectives import ManyLabels, Objective, OneClass
from aceglt.problems.splits import split_data

_STEPS = 10  # of smoothing
_TURNED = 0.04  # share of the nodes whose answers a change of the teacher turns over, at least
_TOLERANCE = 0.1  # of the metric, that a change may cost on training nodes, which the teacher knows by heart


@dataclass(frozen=True)
class NodeProblem(Problem):
    """Predict the class or the labels of nodes, with the whole graph at hand in training."""

    y: Tensor  # [N] int64, or [N, T] of 0, 1 and NaN
    train: Tensor  # indices of the training nodes
    val: Tensor
    test: Tensor
    num_classes: int  # or labels
    measured_by: str
    """The metric's name."""

    task = "node"

    @classmethod
    def build(
        cls, data: Any, name: str, directed: bool, split: str = "given", metric: str | None = None
    ) -> NodeProblem:
        """With one of the data's splits, or one that is drawn (see `split_data`), and the metric of this name, of the
        data, or the usual one."""
        data = split_data(data, split, name)
        x = checked_features(data, name)
        graph = checked_graph(data, name, len(x), directed)
        y, num_classes, (train, val, test) = checked_labels(data, name, len(x))
        metric = metric or data.metric or _objective(y).metric
        check_metric(metric, y, {"validation": val, "test": test}, name)
        return NodeProblem(name, graph, x, y, train, val, test, num_classes, metric)

    @property
    def objective(self) -> Objective:
        return _objective(self.y)

    @property
    def several(self) -> bool:
        return self.y.dim() == 2

    @property
    def metric(self) -> str:
        return self.measured_by

    @property
    def out_features(self) -> int:
        return self.num_classes

    def loss(self, outputs: Tensor, soft: Soft | None, key: Tensor, kernels: Kernels = PLAIN) -> Tensor:
        """The objective's on the training nodes, plus the teacher's signal on all nodes."""
        if len(self.train):
            labelled = self.objective.loss(outputs.index_select(1, self.train), self.y.index_select(0, self.train))
        else:  # a part of a graph may be without training nodes
            labelled = 0.0 * outputs.sum(dim=(1, 2))
        if soft is None:
            return labelled
        return labelled + soft.beta * self.objective.distil(outputs, soft.targets, kernels)

    def part(self, nodes: Tensor, edges: Tensor) -> NodeProblem:
        """The problem on these nodes, numbered anew, with those of its splits that are among them."""
        train, val, test = ((self._split[nodes] == number).nonzero().squeeze(1) for number in (1, 2, 3))
        graph, x = self.graph.part(nodes, edges), take_rows(self.x, nodes)
        return NodeProblem(self.name, graph, x, self.y[nodes], train, val, test, self.num_classes, self.measured_by)

    @cached_property
    def _split(self) -> Tensor:
        """[N] 1, 2 or 3 for nodes of the three splits, 0 for others; so a small part costs no more than its size."""
        split = torch.zeros(len(self.x), dtype=torch.uint8, device=self.train.device)
        for number, nodes in enumerate((self.train, self.val, self.test), start=1):
            split[nodes] = number
        return split

    def soften(self, outputs: Tensor, temperature: float = 1.0, smoothing: float = 0.0) -> Softened:
        soften, changed = self.objective.soften, dict[str, Tensor]()
        if smoothing:
            smoothed = self.objective.outputs(self._smoothed(soften(outputs), smoothing))
            changed["smoothing"] = self._serves(smoothed, outputs)
            outputs = _where(changed["smoothing"], smoothed, outputs)
        answers = soften(outputs)
        if temperature != 1:
            tempered = soften(outputs / temperature)
            changed["temperature"] = self._serves(tempered, answers)
            answers = _where(changed["temperature"], tempered, answers)
        return Softened(answers, changed)

    def _smoothed(self, targets: Tensor, smoothing: float) -> Tensor:
        """Targets [S, N, C] spread over the graph, self-loops included, in steps of symmetric normalisation."""
        ones = targets.new_ones(1, self.graph.num_edges)
        batch = self.graph.batch(ones.bool(), self_loops=True, kernels=kernels(self.device.type))
        adjacency = ops.normalise(batch, ones).abs()

        def diffuse(own: Tensor) -> Tensor:
            now = own
            for _ in range(_STEPS):
                now = (1 - smoothing) * own + smoothing * ops.spmm(batch, adjacency, now, symmetric=True)
            return now

        whole = diffuse(targets.new_ones(1, targets.shape[1], 1))  # hubs get more than 1 of what is 1 everywhere
        return torch.cat([diffuse(run.unsqueeze(0)) / whole for run in targets])  # the batch has no influence

    def _serves(self, changed: Tensor, answers: Tensor) -> Tensor:
        """[S] whether changed answers know the validation nodes about as well: not smoothed ones where edges join
        unlike nodes, nor sharpened ones where the metric ranks. Where a training graph has no validation nodes, its
        training nodes say it."""
        measure = partial(NodeProblem.measure, self, split="val" if len(self.val) else "train")  # not a user's metric
        # two standard errors of the difference on so many nodes
        allowed = 2 * math.sqrt(_TURNED / len(self.val)) if len(self.val) else _TOLERANCE
        return measure(changed) >= measure(answers) - allowed

    def reads(self, split: Split) -> Tensor | None:
        nodes: Tensor = getattr(self, split)
        return nodes

    def measure(self, outputs: Tensor, split: Split) -> Tensor:
        nodes: Tensor = getattr(self, split)
        return METRICS[self.measured_by](outputs.index_select(1, nodes), self.y.index_select(0, nodes))


def _where(runs: Tensor, changed: Tensor, answers: Tensor) -> Tensor:
    """[S, N, C] the changed answers of these runs [S], the others' as they were."""
    return torch.where(runs.view(-1, 1, 1), changed, answers)


def _objective(y: Tensor) -> Objective:
    return ManyLabels() if y.dim() == 2 else OneClass()
