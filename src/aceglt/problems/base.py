"""A problem: graph, task, split and metric."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from threading import Lock
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from aceglt.backbones.base import Weights
from aceglt.numerics.features import Features, ReadyFeatures
from aceglt.numerics.graph import Field, Graph
from aceglt.numerics.sparse import dense_blocks

Split = Literal["train", "val", "test"]
Self = TypeVar("Self", bound="Problem")
_APART = 0.5  # of the nodes that training depends on, the share that validation does not, at most
_SHARING = Lock()  # while what trainings share is made


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

    def spread(self, values: Tensor) -> Tensor:
        """Values [S, E] of the training edges among ones for the unseen, [S, E of the view]."""
        ones = torch.ones(len(values), self.graph.num_edges, dtype=values.dtype, device=values.device)
        return ones.index_copy(1, self.seen, values)


@dataclass(frozen=True)
class Focus:
    """The part of a graph that the outputs of some nodes depend on."""

    field: Field
    features: Features
    num_nodes: int  # of the whole graph

    def spread(self, outputs: Tensor) -> Tensor:
        """Outputs [S, n, C] among zeros for all other nodes, [S, N, C]."""
        zeros = outputs.new_zeros(outputs.shape[0], self.num_nodes, outputs.shape[2])
        return zeros.index_copy(1, self.field.nodes[: self.field.sizes[0]], outputs)


@dataclass(frozen=True)
class Shared:
    """Features of the nodes that training and validation depend on, so that those of both are multiplied by a weight
    once."""

    features: Features
    train: Tensor  # [n] int32, where the training's nodes are
    val: Tensor  # and where the validation's are

    def reading(self, features: Tensor) -> Shared:
        """The same with some of the features ([F] bool) alone."""
        return replace(self, features=self.features.columns(features))

    def ready(self, weight: Tensor, train: Features, val: Features) -> tuple[Features, Features]:
        """Features of training and of validation, for passes that begin with their product with this weight."""
        product = self.features.product(weight)
        return ReadyFeatures(train, product, self.train), ReadyFeatures(val, product, self.val)


@dataclass(frozen=True)
class Problem(ABC):
    """What is learned, on which graph, and how it is measured."""

    name: str
    graph: Graph
    """The training graph: what masks and scores are about."""
    x: Tensor  # [N, F] dense or CSR

    task: ClassVar[str]
    capturable: ClassVar[bool] = False
    """Whether loss and validation always launch the same work on a GPU and never wait for it."""

    @staticmethod
    def from_data(
        data: Any, name: str | None = None, task: str = "node", directed: bool = False, **options: Any
    ) -> Problem:
        """Check a PyG `Data` (or anything with its attributes) and make a problem of it.

        `options` are the task's own, as `Config.task_options` has them.
        Raises DataError with the first thing that is wrong.
        """
        from aceglt.problems import TASKS
        from aceglt.problems.checks import check_one_graph

        name = name or getattr(data, "name", None) or "data"
        check_one_graph(data, name)
        return TASKS[task].build(data, name, directed, **options)

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
    def loss(self, outputs: Tensor, soft: Soft | None, key: Tensor) -> Tensor:
        """[S] training loss of outputs [S, N, C]; `key` [S] is for random draws of this step."""

    @abstractmethod
    def soften(self, outputs: Tensor, temperature: float = 1.0, smoothing: float = 0.0) -> Tensor:
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

    def reads(self, split: Split) -> Tensor | None:
        """Nodes whose outputs the loss on labels ("train") or the metric reads; None if it may be all."""
        return None

    def focus(self, split: Split, steps: int) -> Focus | None:
        """What the outputs that a split reads depend on, after `steps` steps along edges; None if on all nodes."""
        known = self._focuses
        if (split, steps) not in known:
            nodes = self.reads(split)
            known[split, steps] = None if nodes is None else self._focus(split, nodes, steps)
        return known[split, steps]

    def _focus(self, split: Split, nodes: Tensor, steps: int) -> Focus:
        place = self.view(split) or self
        field = place.graph.field(nodes, steps)
        return Focus(field, place.features.rows(field.nodes), place.graph.num_nodes)

    def shared(self, steps: int) -> Shared | None:
        """What training on labels and validation share of their focus; None if that is too little to pay."""
        with _SHARING:  # trainings side by side ask at once
            if steps not in self._shares:
                self._shares[steps] = self._share(steps)
            return self._shares[steps]

    def _share(self, steps: int) -> Shared | None:
        train, val = self.focus("train", steps), self.focus("val", steps)
        if train is None or val is None or self.view("val") is not None:
            return None
        nodes, others, place = val.field.nodes, train.field.nodes, val.field.place(self.graph.num_nodes)
        apart = others[place[others] == len(nodes)]
        if len(apart) > _APART * len(others):
            return None
        place[apart] = len(nodes) + torch.arange(len(apart), device=apart.device)
        features = self.features.rows(torch.cat([nodes, apart]))
        return Shared(features, place[others].int(), place[nodes].int())

    @cached_property
    def _shares(self) -> dict[int, Shared | None]:
        return {}

    @cached_property
    def _focuses(self) -> dict[tuple[Split, int], Focus | None]:
        return {}

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
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                for block in dense_blocks(value):
                    digest.update(block.cpu().contiguous().numpy().tobytes())
            elif isinstance(value, Problem):
                digest.update(value.fingerprint.encode())
        return digest.hexdigest()[:32]

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self: Self, device: torch.device | str) -> Self:
        """The same problem on a device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in values.items() if isinstance(value, Tensor | Graph | Problem)
        }
        return replace(self, **moved)
