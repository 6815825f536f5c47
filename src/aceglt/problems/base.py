"""A problem: graph, task, split and metric."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from aceglt.backbones.base import Weights
from aceglt.numerics.csr import dense_blocks, take_columns
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.kernels import PLAIN, Kernels
from aceglt.problems.checks import check_one_graph

Split = Literal["train", "val", "test"]
Self = TypeVar("Self", bound="Problem")


@dataclass(frozen=True)
class Soft:
    """The teacher's signal: soft predictions that outputs are trained towards, with weight beta."""

    targets: Tensor  # [S, …] what `Problem.soften` made of the teacher's outputs
    beta: float

    def __getitem__(self, runs: slice) -> Soft:
        return Soft(self.targets[runs], self.beta)

    def at(self, nodes: Tensor) -> Soft:
        """The signal at some of the nodes [n]."""
        return Soft(self.targets[:, nodes], self.beta)


@dataclass(frozen=True)
class Softened:
    """A teacher's outputs as soft targets."""

    targets: Tensor  # [S, …]
    changed: Mapping[str, Tensor] = field(default_factory=dict)
    """By `smoothing` and `temperature`, [S] bool: whether a run's answers were changed so, where that was a choice."""


class Contrast(Protocol):
    """An objective that tells outputs from those on features whose rows are permuted, with parameters of its own."""

    def start(self, runs: int, device: torch.device) -> dict[str, Tensor]:
        """Its parameters' initial values [S, …] by name; they are trained beside the weights and then dropped."""

    def loss(self, outputs: Tensor, corrupted: Tensor, parameters: Weights) -> Tensor:
        """[S] training loss of outputs [S, N, C] and of those on permuted features."""


@dataclass(frozen=True)
class View:
    """The graph that a split is evaluated on, where it is not the training graph; edges unseen in training live."""

    graph: Graph
    features: Features
    seen: Tensor  # [E] where each training edge is among the view's
    first: int = 0
    """Where its unseen edges begin among those of all views, as `Masks.unseen` has them."""

    def scatter(self, values: Tensor, unseen: Tensor | None = None) -> Tensor:
        """Values [S, E] of the training edges among ones for the unseen that are alive ([S, U] bool of all views; None:
        all are), [S, E of the view]."""
        ones = torch.ones(len(values), self.graph.num_edges, dtype=values.dtype, device=values.device)
        if unseen is not None:
            there = self.unseen
            ones.index_copy_(1, there, unseen[:, self.first : self.first + len(there)].to(values.dtype))
        return ones.index_copy(1, self.seen, values)

    @cached_property
    def unseen(self) -> Tensor:
        """[n] the view's edges that training does not see; kept, since a GPU is waited for to count them."""
        everywhere = torch.ones(self.graph.num_edges, dtype=torch.bool, device=self.seen.device)
        return everywhere.index_fill_(0, self.seen, False).nonzero().squeeze(1)


@dataclass(frozen=True)
class Problem(ABC):
    """What is learned, on which graph, and how it is measured."""

    name: str
    graph: Graph
    """The training graph: what masks and scores are about."""
    x: Tensor  # [N, F] dense or CSR

    task: ClassVar[str]
    tasks: ClassVar[Mapping[str, type[Problem]]]
    """Problems by the name of their task; `aceglt.problems`, which knows them all, says which."""

    @staticmethod
    def from_data(
        data: Any, name: str | None = None, task: str = "node", directed: bool = False, **options: Any
    ) -> Problem:
        """Check a PyG `Data` (or anything with its attributes) and make a problem of it.

        `options` are the task's own, as `Config.task_options` has them, and for nodes the name of a `metric`.
        Raises DataError with the first thing that is wrong.

        Examples:
            >>> aceglt.Problem.from_data(data).metric
            'accuracy'
        """
        name = name or getattr(data, "name", None) or "data"
        check_one_graph(data, name)
        return Problem.tasks[task].build(data, name, directed, **options)

    @classmethod
    @abstractmethod
    def build(cls, data: Any, name: str, directed: bool, *args: Any, **options: Any) -> Problem:
        """The problem of this task on checked data; see `from_data`."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """The metric's name."""

    @property
    def several(self) -> bool:
        """Whether a node may have several labels (or none) rather than one class."""
        return False

    @property
    @abstractmethod
    def out_features(self) -> int:
        """Width of the backbone's outputs."""

    @abstractmethod
    def loss(self, outputs: Tensor, soft: Soft | None, key: Tensor, kernels: Kernels = PLAIN) -> Tensor:
        """[S] training loss of outputs [S, N, C]; `key` [S] is for random draws of this step."""

    @abstractmethod
    def soften(self, outputs: Tensor, temperature: float = 1.0, smoothing: float = 0.0) -> Softened:
        """A teacher's outputs as soft targets, surer of themselves at a temperature below 1; on nodes, with so much
        smoothing along edges first."""

    @abstractmethod
    def measure(self, outputs: Tensor, split: Split) -> Tensor:
        """[S] the metric on a split, in [0, 1]."""

    @abstractmethod
    def part(self, nodes: Tensor, edges: Tensor) -> Problem:
        """What is to be learned on a part of the training graph (see `Graph.part`); it is trained on, not measured."""

    def measured(self, split: Split) -> Problem:
        """The problem whose nodes a split's outputs are about: this one, unless there are more nodes to evaluate on."""
        return self

    def view(self, split: Split) -> View | None:
        """The graph that a split is evaluated on; None if it is the training graph."""
        return None

    @property
    def numbers(self) -> Tensor | None:
        """[N] the numbers of the training graph's nodes in the data, ascending; None if they are the same."""
        return None

    def reads(self, split: Split) -> Tensor | None:
        """Nodes whose outputs the loss on labels ("train") or the metric reads; None if it may be all."""
        return None

    @property
    def contrast(self) -> Contrast | None:
        """What is trained in place of `loss`, if anything."""
        return None

    @cached_property
    def features(self) -> Features:
        return Features(self.x)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal problems: task, graph, features (however they are stored), labels and split."""
        digest = hashlib.sha256(f"{self.task} {self.graph.fingerprint}".encode())
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Tensor):
                for block in dense_blocks(value):
                    digest.update(block.cpu().contiguous().numpy().tobytes())
            elif isinstance(value, Problem):
                digest.update(value.fingerprint.encode())
        return digest.hexdigest()[:32]

    @property
    def device(self) -> torch.device:
        return self.x.device

    def columns(self: Self, kept: Tensor) -> Self:
        """The same problem with some of the features ([F] bool) alone."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        inner: dict[str, Any] = {name: part.columns(kept) for name, part in values.items() if isinstance(part, Problem)}
        made = replace(self, x=take_columns(self.x, kept), **inner)
        vars(made)["features"] = self.features.columns(kept)  # cheaper than to find out anew how they are best kept
        return made

    def to(self: Self, device: torch.device | str) -> Self:
        """The same problem on a device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in values.items() if isinstance(value, Tensor | Graph | Problem)
        }
        return replace(self, **moved)
