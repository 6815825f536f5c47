"""What trains the scores: labels alone, or the dense model's soft predictions beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from aceglt.config import Config
from aceglt.problems.base import Problem, Softened


class Signal(Protocol):
    """Says what the dense model teaches, once it is trained, and how much that counts."""

    @property
    def beta(self) -> float:
        """Weight of the soft targets beside the labels."""

    def targets(self, problem: Problem, outputs: Callable[[], Tensor]) -> Softened | None:
        """Soft targets of the dense models' outputs [S, N, C], which are made when asked for; None: none."""


@dataclass(frozen=True)
class Labels:
    """Labels alone."""

    beta: ClassVar[float] = 0.0

    def targets(self, problem: Problem, outputs: Callable[[], Tensor]) -> Softened | None:
        return None


@dataclass(frozen=True)
class Teacher:
    """Beside the labels, `beta` times the cross-entropy to the dense model's predictions."""

    beta: float
    temperature: float = 1.0
    """What the dense model's outputs are divided by before they become probabilities."""
    smoothing: float = 0.0
    """How much of what a node is taught comes from its neighbours."""

    def targets(self, problem: Problem, outputs: Callable[[], Tensor]) -> Softened | None:
        return problem.soften(outputs(), self.temperature, self.smoothing)


def build_signal(config: Config, whole: bool = True) -> Signal:
    """The signal of a configuration; there is no smoothing where outputs are not made on the whole graph."""
    if config.scoring.signal == "labels":
        return Labels()
    smoothing = config.scoring.teacher_smoothing if whole else 0.0
    return Teacher(config.scoring.beta, config.scoring.teacher_temperature, smoothing)
