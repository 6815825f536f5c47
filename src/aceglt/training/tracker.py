"""How far the runs of a training are: finished epochs, the best validation metric, early stopping, divergence."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from aceglt.errors import TrainingError


class Tracker:
    """How far each run is and how it fares; on the device, in place and without synchronisation."""

    def __init__(self, runs: int, device: torch.device, patience: int | None, look_every: int) -> None:
        """With `patience`, a run is over after so many epochs without a better one; every `look_every` epochs the
        device is waited for, to see whether all are."""
        self._patience, self._every = patience, look_every
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)  # finished epochs
        self.val = torch.full((runs,), -1.0, dtype=torch.float64, device=device)  # best validation metric
        self.best = torch.zeros(runs, dtype=torch.int64, device=device)  # the first epoch that had it
        self._diverged = torch.zeros(runs, dtype=torch.int64, device=device)

    def validated(self, val: Tensor) -> Tensor:
        """[S] for which runs the last epoch was better than all before; before the first epoch, for none."""
        better = (val > self.val) & (self.epoch > 0)
        if self._patience is not None:  # a run that has waited so long is over for good, whatever others go on for
            better &= self.epoch - self.best <= self._patience
        if better.device.type == "cpu" and not bool(better.any()):  # where no device has to be waited for
            return better
        self.val.copy_(torch.where(better, val, self.val))
        self.best.copy_(torch.where(better, self.epoch, self.best))
        return better

    def over(self, epoch: int) -> bool:
        """Whether no run may get better any more."""
        if self._patience is None or epoch % self._every:
            return False
        return bool((self.epoch - self.best > self._patience).all())

    def trained(self, loss: Tensor) -> None:
        """One more epoch is finished, with this loss [S]."""
        self.epoch.add_(1)
        self._note(torch.isfinite(loss))

    def check(self, finite: Tensor) -> None:
        """Raises TrainingError if a loss, or now the last update, which no loss has seen, was not finite."""
        self._note(finite)
        epochs = self._diverged[self._diverged > 0].tolist()
        if epochs:
            raise TrainingError(
                f"the loss became NaN or infinite at epoch {min(epochs)} in {len(epochs)} run(s); "
                "try a lower learning rate (--lr) or check the features"
            )

    def _note(self, finite: Tensor) -> None:
        if finite.device.type == "cpu" and bool(finite.all()):
            return
        self._diverged.copy_(torch.where((self._diverged == 0) & ~finite, self.epoch, self._diverged))

    def mean(self) -> float:
        """Of the runs' best validation metrics; NaN before the first."""
        return float(self.val.mean()) if bool(self.best.all()) else math.nan
