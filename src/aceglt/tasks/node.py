"""Transductive node classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.errors import DataError
from aceglt.graph import Graph
from aceglt.problem import Problem, Soft, Split


@dataclass(frozen=True)
class NodeProblem(Problem):
    """Predict the class of nodes, with the whole graph at hand in training."""

    y: Tensor  # [N] int64
    train: Tensor  # indices of the training nodes
    val: Tensor
    test: Tensor
    num_classes: int

    task = "node"

    @classmethod
    def build(cls, data: Any, name: str, directed: bool) -> NodeProblem:
        x, edge_index, y = (attribute(data, name, part) for part in ("x", "edge_index", "y"))
        x = checked_features(x, name)
        num_nodes = x.shape[0]
        check_edges(edge_index, num_nodes, name)
        y, num_classes = _checked_labels(y, num_nodes, name)
        masks = {split: _checked_mask(data, name, split, num_nodes) for split in ("train", "val", "test")}
        _check_split(masks, y, num_classes, name)
        nodes = {split: mask.nonzero().squeeze(1) for split, mask in masks.items()}
        graph = Graph.from_edge_index(edge_index, num_nodes, directed)
        check_not_empty(graph, name)
        return cls(name, graph, x, y, nodes["train"], nodes["val"], nodes["test"], num_classes)

    @property
    def metric(self) -> str:
        return "accuracy"

    @property
    def out_features(self) -> int:
        return self.num_classes

    def loss(self, outputs: Tensor, soft: Soft | None, key: Tensor) -> Tensor:
        """Cross-entropy on the training nodes, plus the teacher's signal on all nodes."""
        labelled = F.cross_entropy(
            outputs[:, self.train].transpose(1, 2), self.y[self.train].expand(len(outputs), -1), reduction="none"
        ).mean(dim=1)
        if soft is None:
            return labelled
        taught = -(soft.targets * outputs.log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)
        return labelled + soft.beta * taught

    def soften(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=-1)

    def measure(self, outputs: Tensor, split: Split) -> Tensor:
        nodes: Tensor = getattr(self, split)
        return (outputs[:, nodes].argmax(dim=-1) == self.y[nodes]).double().mean(dim=1)


def check_not_empty(graph: Graph, name: str) -> None:
    if graph.num_edges == 0:
        raise DataError(f"{name}: the graph has no edge between two different nodes; there is nothing to prune")


def attribute(data: Any, name: str, part: str) -> Tensor:
    value = getattr(data, part, None)
    if not isinstance(value, Tensor):
        raise DataError(
            f"{name}: needs a tensor `{part}`, found {'nothing' if value is None else type(value).__name__}"
        )
    return value.detach().cpu()


def checked_features(x: Tensor, name: str) -> Tensor:
    if x.dim() != 2 or 0 in x.shape:
        raise DataError(f"{name}: x must be [nodes, features] and not empty, found shape {list(x.shape)}")
    x = x.to(torch.get_default_dtype())
    bad = (~torch.isfinite(x)).any(dim=1).nonzero().squeeze(1)
    if len(bad):
        raise DataError(f"{name}: x has NaN or infinite values at {len(bad)} nodes, the first is node {int(bad[0])}")
    return x


def check_edges(edge_index: Tensor, num_nodes: int, name: str, part: str = "edge_index") -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise DataError(
            f"{name}: {part} must be integers of shape [2, edges], "
            f"found {edge_index.dtype} of shape {list(edge_index.shape)}"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        bad = int(edge_index.min()) if int(edge_index.min()) < 0 else int(edge_index.max())
        raise DataError(f"{name}: {part} names node {bad}, but x has nodes 0 to {num_nodes - 1}")


def _checked_labels(y: Tensor, num_nodes: int, name: str) -> tuple[Tensor, int]:
    if y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if y.shape != (num_nodes,) or y.is_floating_point():
        raise DataError(
            f"{name}: y must hold one integer class for each of the {num_nodes} nodes, "
            f"found {y.dtype} of shape {list(y.shape)}"
        )
    y = y.long()
    num_classes = int(y.max()) + 1
    if num_classes < 2:
        raise DataError(f"{name}: y has {num_classes} class; classification needs two or more")
    return y, num_classes


def _checked_mask(data: Any, name: str, split: str, num_nodes: int) -> Tensor:
    mask = attribute(data, name, f"{split}_mask")
    if mask.dtype != torch.bool or mask.shape != (num_nodes,):
        raise DataError(
            f"{name}: {split}_mask must hold one boolean for each of the {num_nodes} nodes, "
            f"found {mask.dtype} of shape {list(mask.shape)}"
        )
    return mask


def _check_split(masks: dict[str, Tensor], y: Tensor, num_classes: int, name: str) -> None:
    for split, word in (("train", "training"), ("val", "validation"), ("test", "test")):
        if not bool(masks[split].any()):
            raise DataError(f"{name}: {split}_mask marks no {word} node; each of the three masks needs at least one")
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        shared = int((masks[first] & masks[second]).sum())
        if shared:
            raise DataError(f"{name}: {first}_mask and {second}_mask share {shared} nodes; they must be disjoint")
    labelled = y[masks["train"] | masks["val"] | masks["test"]]
    if int(labelled.min()) < 0:
        raise DataError(f"{name}: y has a negative class at a node of the split")
    seen = torch.bincount(y[masks["train"]], minlength=num_classes)
    missing = (seen == 0).nonzero().squeeze(1).tolist()
    if missing:
        raise DataError(
            f"{name}: no training node has class {', '.join(map(str, missing))} (classes 0 to {num_classes - 1})"
        )
