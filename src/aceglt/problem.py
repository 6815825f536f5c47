"""A problem: graph, task, split and metric, checked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.errors import DataError
from aceglt.graph import Graph
from aceglt.ops import Features

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Soft:
    """The teacher's signal: soft predictions that every node is trained towards, with weight beta."""

    targets: Tensor  # [S, N, C] probabilities
    beta: float

    def __getitem__(self, runs: slice) -> Soft:
        return Soft(self.targets[runs], self.beta)


@dataclass(frozen=True)
class Problem:
    """Node classification on one graph."""

    name: str
    graph: Graph
    x: Tensor  # [N, F]
    y: Tensor  # [N] int64
    train: Tensor  # indices of the training nodes
    val: Tensor
    test: Tensor
    num_classes: int

    task = "node"
    metric = "accuracy"

    @classmethod
    def from_data(cls, data: Any, name: str | None = None, directed: bool = False) -> Problem:
        """Check a PyG `Data` (or anything with its attributes) and make a problem of it.

        Raises DataError with the first thing that is wrong.
        """
        name = name or getattr(data, "name", None) or "data"
        x, edge_index, y = (_attribute(data, name, part) for part in ("x", "edge_index", "y"))
        x = _checked_features(x, name)
        num_nodes = x.shape[0]
        _check_edges(edge_index, num_nodes, name)
        y, num_classes = _checked_labels(y, num_nodes, name)
        masks = {split: _checked_mask(data, name, split, num_nodes) for split in ("train", "val", "test")}
        _check_split(masks, y, num_classes, name)
        nodes = {split: mask.nonzero().squeeze(1) for split, mask in masks.items()}
        graph = Graph.from_edge_index(edge_index.cpu(), num_nodes, directed)
        if graph.num_edges == 0:
            raise DataError(f"{name}: the graph has no edge between two different nodes; there is nothing to prune")
        return cls(name, graph, x, y, nodes["train"], nodes["val"], nodes["test"], num_classes)

    @cached_property
    def features(self) -> Features:
        return Features(self.x)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal problems: graph, features, labels and split."""
        digest = hashlib.sha256(self.graph.fingerprint.encode())
        for part in (self.x, self.y, self.train, self.val, self.test):
            digest.update(part.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:32]

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: torch.device | str) -> Problem:
        if torch.device(device) == self.device:
            return self
        parts = {name: getattr(self, name).to(device) for name in ("graph", "x", "y", "train", "val", "test")}
        return replace(self, **parts)

    def loss(self, logits: Tensor, soft: Soft | None = None) -> Tensor:
        """[S] training loss: cross-entropy on the training nodes, plus the teacher's signal on all nodes."""
        labelled = F.cross_entropy(
            logits[:, self.train].transpose(1, 2),
            self.y[self.train].expand(logits.shape[0], -1),
            reduction="none",
        ).mean(dim=1)
        if soft is None:
            return labelled
        taught = -(soft.targets * logits.log_softmax(dim=-1)).sum(dim=-1).mean(dim=1)
        return labelled + soft.beta * taught

    def soften(self, logits: Tensor) -> Tensor:
        """A teacher's outputs as soft targets."""
        return logits.softmax(dim=-1)

    def measure(self, logits: Tensor, split: Split) -> Tensor:
        """[S] the metric, in [0, 1], on the nodes of a split."""
        nodes: Tensor = getattr(self, split)
        return (logits[:, nodes].argmax(dim=-1) == self.y[nodes]).double().mean(dim=1)


def _attribute(data: Any, name: str, part: str) -> Tensor:
    value = getattr(data, part, None)
    if not isinstance(value, Tensor):
        raise DataError(
            f"{name}: needs a tensor `{part}`, found {'nothing' if value is None else type(value).__name__}"
        )
    return value.detach().cpu()


def _checked_features(x: Tensor, name: str) -> Tensor:
    if x.dim() != 2 or 0 in x.shape:
        raise DataError(f"{name}: x must be [nodes, features] and not empty, found shape {list(x.shape)}")
    x = x.to(torch.get_default_dtype())
    bad = (~torch.isfinite(x)).any(dim=1).nonzero().squeeze(1)
    if len(bad):
        raise DataError(f"{name}: x has NaN or infinite values at {len(bad)} nodes, the first is node {int(bad[0])}")
    return x


def _check_edges(edge_index: Tensor, num_nodes: int, name: str) -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise DataError(
            f"{name}: edge_index must be integers of shape [2, edges], "
            f"found {edge_index.dtype} of shape {list(edge_index.shape)}"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        bad = int(edge_index.min()) if int(edge_index.min()) < 0 else int(edge_index.max())
        raise DataError(f"{name}: edge_index names node {bad}, but x has nodes 0 to {num_nodes - 1}")


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
    mask = _attribute(data, name, f"{split}_mask")
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
