"""What a method is: a function from where a level starts to sparser masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from aceglt import rng
from aceglt.masks import Counts, Masks, Scores
from aceglt.train import Fit


@dataclass(frozen=True)
class Level:
    """What a method is given: one level of iterative pruning, for a batch of runs."""

    number: int
    masks: Masks
    """Where the level starts."""
    keep: Counts
    """How many weights and edges must be alive in the selection."""
    seeds: Sequence[int]
    epochs: int
    """Epochs of a full training."""
    train_scores: Callable[[Masks, int, str], Fit]
    """(masks, epochs, phase) → scores trained beside the weights, from the initial weights. Takes any number of batches
    of these runs, one after the other, as one."""

    def key(self, purpose: str, batches: int = 1) -> Tensor:
        """[batches · S] random keys for a purpose of this level; see `aceglt.rng`."""
        keys = [self._batch_key(purpose, b) for b in range(batches)]
        return torch.cat(keys)

    def _batch_key(self, purpose: str, batch: int) -> Tensor:
        return rng.keys(self.seeds, self.number, purpose, batch, device=self.masks.weights.device)


@dataclass(frozen=True)
class Selection:
    """What a method returns."""

    masks: Masks
    scores: Scores | None = None
    """The scores that the level's cut was made by, if the method has any."""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    """Plain numbers and lists over runs, for results.json."""
    epochs: int = 0
    """Training epochs that the selection cost, per run."""


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass of hyper-parameters with a name and two functions."""

    name: ClassVar[str]

    def select(self, level: Level) -> Selection:
        """Choose masks with exactly `level.keep` alive elements."""

    def cost(self, epochs: int) -> int:
        """Epochs that `select` will train per run and level, for estimates of the time left."""
