"""What a search finds as TensorBoard scalars: one point per level, the mean over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aceglt.errors import ConfigError
from aceglt.searches.statistics import mean_std


def check_tensorboard(out: object) -> None:
    """Raises ConfigError if scalars cannot be written: no TensorBoard, or no run directory to write them to."""
    if out is None:
        raise ConfigError("tensorboard needs a run directory: give out")
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ConfigError("--tensorboard needs TensorBoard: pip install 'aceglt[tensorboard]'") from None


class Scalars:
    """A folder of scalars that holds what results.json holds. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for old in folder.glob("events.out.tfevents.*"):  # a continued search writes its earlier levels again
            old.unlink()
        self._writer = SummaryWriter(str(folder))
        self._written = -1

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def update(self, results: Mapping[str, Any]) -> None:
        """Write the levels that are new."""
        for entry in ({"level": 0, **results["dense"]}, *results["levels"]):
            if entry["level"] > self._written:
                self._written = entry["level"]
                for name, value in _scalars(results["metric"], entry):
                    self._writer.add_scalar(name, value, self._written)
        self._writer.flush()


def _scalars(metric: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    per_seed = {f"{metric}/{key}": entry.get(key) for key in ("val", "test")}
    per_seed |= {f"fluctuation/{side}": values for side, values in (entry.get("fluctuation") or {}).items()}
    for name, values in per_seed.items():
        known = [value for value in values or [] if value is not None]
        if known:
            yield name, mean_std(known)[0]
    for name in ("model_sparsity", "graph_sparsity", "macs", "seconds"):
        if name in entry:
            yield name, entry[name]
