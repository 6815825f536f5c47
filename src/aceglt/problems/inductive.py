"""Inductive node classification, as in GraphSAGE: validation and test nodes do not exist in training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from aceglt.errors import DataError
from aceglt.problems.base import Split, View
from aceglt.problems.node import NodeProblem


@dataclass(frozen=True)
class InductiveProblem(NodeProblem):
    """Predict the class or the labels of nodes that were not there in training.

    The problem itself is the training one, on the subgraph of all nodes but validation and test ones; it holds nothing
    else. Masks are about its edges.
    """

    validation: NodeProblem
    """On the subgraph of all nodes but test ones."""
    whole: NodeProblem
    in_validation: Tensor  # [E] where each training edge is among those of `validation`
    in_whole: Tensor  # [E] … and of `whole`

    task = "inductive"

    @classmethod
    def build(
        cls, data: Any, name: str, directed: bool, split: str = "given", metric: str | None = None
    ) -> InductiveProblem:
        whole = NodeProblem.build(data, name, directed, split, metric)
        not_test = _without(whole, whole.test)
        in_training = _without(whole, whole.test, whole.val)
        validation, kept = _induced(whole, not_test)
        training, seen = _induced(whole, in_training)
        if training.graph.num_edges == 0:
            raise DataError(
                f"{name}: no edge lies between two nodes that are neither validation nor test ones; "
                "the training graph of the inductive task is empty"
            )
        own = {field.name: getattr(training, field.name) for field in fields(training)}
        return cls(
            **own, validation=validation, whole=whole, in_validation=torch.searchsorted(kept, seen), in_whole=seen
        )

    @property
    def numbers(self) -> Tensor:
        return _without(self.whole, self.whole.test, self.whole.val).nonzero().squeeze(1)

    def measure(self, outputs: Tensor, split: Split) -> Tensor:
        return super().measure(outputs, split) if split == "train" else self.measured(split).measure(outputs, split)

    def reads(self, split: Split) -> Tensor | None:
        return super().reads(split) if split == "train" else self.measured(split).reads(split)

    def measured(self, split: Split) -> NodeProblem:
        return {"train": self, "val": self.validation, "test": self.whole}[split]

    def view(self, split: Split) -> View | None:
        if split == "train":
            return None
        problem = self.measured(split)
        if split == "val":
            return View(problem.graph, problem.features, self.in_validation)
        first = self.validation.graph.num_edges - self.graph.num_edges  # after those of validation
        return View(problem.graph, problem.features, self.in_whole, first)


def _without(problem: NodeProblem, *left_out: Tensor) -> Tensor:
    """[N] bool: all nodes but these."""
    nodes = torch.ones(problem.graph.num_nodes, dtype=torch.bool, device=problem.device)
    return nodes.index_fill_(0, torch.cat(left_out), False)


def _induced(problem: NodeProblem, nodes: Tensor) -> tuple[NodeProblem, Tensor]:
    """The problem on the subgraph of these nodes ([N] bool), and which edges are left."""
    edges = nodes[problem.graph.edges].all(dim=0).nonzero().squeeze(1)
    return problem.part(nodes.nonzero().squeeze(1), edges), edges
