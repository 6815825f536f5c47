"""Transductive node classification."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from aceglt.backends import kernels
from aceglt.errors import DataError
from aceglt.numerics import ops, rng
from aceglt.numerics.csr import take_rows
from aceglt.problems.base import Problem, Soft, Split
from aceglt.problems.checks import checked_features, checked_graph, checked_labels
from aceglt.problems.objectives import ManyLabels, Objective, OneClass

PER_CLASS, VALIDATION, TEST = 20, 500, 1000  # nodes of a split that is drawn: for training, of each class
_STEPS = 10  # of smoothing
_TOLERANCE = 0.1  # of the metric on training nodes, that smoothing may cost


@dataclass(frozen=True)
class NodeProblem(Problem):
    """Predict the class or the labels of nodes, with the whole graph at hand in training."""

    y: Tensor  # [N] int64, or [N, T] of 0, 1 and NaN
    train: Tensor  # indices of the training nodes
    val: Tensor
    test: Tensor
    num_classes: int  # or labels

    task = "node"

    @classmethod
    def build(cls, data: Any, name: str, directed: bool, split: str = "given") -> NodeProblem:
        """With the split "random:SEED", masks are drawn (see `random_split`)."""
        data = data if split == "given" else resplit(data, split, name)
        x = checked_features(data, name)
        graph = checked_graph(data, name, len(x), directed)
        y, num_classes, (train, val, test) = checked_labels(data, name, len(x))
        return NodeProblem(name, graph, x, y, train, val, test, num_classes)

    @property
    def objective(self) -> Objective:
        return ManyLabels() if self.several else OneClass()

    @property
    def several(self) -> bool:
        return self.y.dim() == 2

    @property
    def metric(self) -> str:
        return self.objective.metric

    @property
    def out_features(self) -> int:
        return self.num_classes

    def loss(self, outputs: Tensor, soft: Soft | None, key: Tensor) -> Tensor:
        """The objective's on the training nodes, plus the teacher's signal on all nodes."""
        if len(self.train):
            labelled = self.objective.loss(outputs.index_select(1, self.train), self.y[self.train])
        else:  # a part of a graph may be without training nodes
            labelled = 0.0 * outputs.sum(dim=(1, 2))
        if soft is None:
            return labelled
        return labelled + soft.beta * self.objective.distil(outputs, soft.targets)

    def part(self, nodes: Tensor, edges: Tensor) -> NodeProblem:
        """The problem on these nodes, numbered anew, with those of its splits that are among them."""
        number = torch.full((len(self.x),), -1, device=nodes.device)
        number[nodes] = torch.arange(len(nodes), device=nodes.device)
        train, val, test = (n[n >= 0] for n in (number[split] for split in (self.train, self.val, self.test)))
        graph, x = self.graph.part(nodes, edges), take_rows(self.x, nodes)
        return NodeProblem(self.name, graph, x, self.y[nodes], train, val, test, self.num_classes)

    def soften(self, outputs: Tensor, temperature: float = 1.0, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            smoothed = self.objective.outputs(self._smoothed(self.objective.soften(outputs), smoothing))
            outputs = torch.where(self._serves(smoothed, outputs).view(-1, 1, 1), smoothed, outputs)
        return self.objective.soften(outputs / temperature)

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

    def _serves(self, smoothed: Tensor, outputs: Tensor) -> Tensor:
        """[S] whether smoothed outputs know the training nodes about as well: not where edges join unlike nodes."""
        measure = partial(NodeProblem.measure, self, split="train")  # not a user's metric
        return measure(smoothed) >= measure(outputs) - _TOLERANCE

    def reads(self, split: Split) -> Tensor | None:
        nodes: Tensor = getattr(self, split)
        return nodes

    def measure(self, outputs: Tensor, split: Split) -> Tensor:
        nodes: Tensor = getattr(self, split)
        return self.objective.measure(outputs.index_select(1, nodes), self.y[nodes])


def resplit(data: Any, split: str, name: str) -> Any:
    """What a problem needs of the data, with masks drawn as "random:SEED" says."""
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor):
        raise DataError(f"{name}: a random split needs y, one class per node")
    parts = {part: getattr(data, part, None) for part in ("x", "edge_index", "edge_weight", "edge_attr")}
    masks = random_split(y.detach().cpu(), int(split.removeprefix("random:")), name)
    return SimpleNamespace(**parts, y=y, **masks)


def random_split(y: Tensor, seed: int, name: str) -> dict[str, Tensor]:
    """Masks [N] bool by name, drawn by a seed among the nodes with a class (y [N] from 0; others are left out).

    Raises DataError where y is not one class per node, or there are too few nodes.
    """
    if y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if y.dim() != 1 or y.is_floating_point():
        raise DataError(
            f"{name}: a random split needs one integer class per node in y, found {y.dtype} {list(y.shape)}"
        )
    train = torch.zeros(len(y), dtype=torch.bool)
    for label in range(int(y.max()) + 1 if len(y) else 0):
        members = (y == label).nonzero().squeeze(1)
        if len(members) < PER_CLASS:
            raise DataError(
                f"{name}: a random split needs {PER_CLASS} nodes of each class, class {label} has {len(members)}; "
                "give masks of your own"
            )
        order = rng.uniform_at(rng.keys([seed], "split", "train"), members)[0].argsort()
        train[members[order[:PER_CLASS]]] = True
    rest = ((y >= 0) & ~train).nonzero().squeeze(1)
    if len(rest) < VALIDATION + TEST:
        raise DataError(
            f"{name}: a random split needs {VALIDATION + TEST} nodes for validation and test besides "
            f"{PER_CLASS} per class, found {len(rest)}; give masks of your own"
        )
    rest = rest[rng.uniform_at(rng.keys([seed], "split", "rest"), rest)[0].argsort()][: VALIDATION + TEST]
    val, test = (torch.zeros_like(train).index_fill_(0, nodes, True) for nodes in rest.split([VALIDATION, TEST]))
    return {"train_mask": train, "val_mask": val, "test_mask": test}
