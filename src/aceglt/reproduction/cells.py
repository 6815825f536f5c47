"""One search of the paper, and at which scale it is done here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aceglt.config import Config, resolve

IDENTITY = ("dataset", "backbone", "axis", "method", "task")
"""Fields of `Config` that a cell says."""

# Options of methods that count epochs: they shrink with --epochs, as shares of the preset's full training.
_IN_EPOCHS = {"ace": "refine_epochs", "gebt": "max_epochs"}


@dataclass(frozen=True)
class Scale:
    """What all searches of a reproduction share; None is the paper's."""

    preset: str = "paper"
    seeds: Sequence[int] | int = 3
    """As many trials as the paper's."""
    levels: int | None = None
    epochs: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `Config`."""


@dataclass(frozen=True)
class Cell:
    """One search: what is searched where, but for seeds and scale."""

    dataset: str
    backbone: str
    axis: str
    method: str
    task: str = "node"
    variant: str = ""
    """Tells cells apart that differ in `settings`."""
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    levels: int | None = field(default=None, compare=False)
    """How many the exhibit needs; None is the preset's number."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What --cell can pick it by; the usual task, node, goes without saying."""
        task = "" if self.task == "node" else self.task
        parts = (self.dataset, self.backbone, self.axis, self.method, task, self.variant)
        return tuple(part for part in parts if part)

    @property
    def name(self) -> str:
        return "/".join(self.parts)

    @property
    def sparsity(self) -> str:
        """The sparsity that grows along the axis."""
        return f"{self.axis}_sparsity"

    def choices(self, scale: Scale) -> dict[str, Any]:
        """The settings to search with, beside the preset."""
        choices: dict[str, Any] = {
            **{name: getattr(self, name) for name in IDENTITY},
            **self.settings,
            "seeds": scale.seeds,
            "levels": self.levels if scale.levels is None else _fewer(scale.levels, self.levels),
            "epochs": scale.epochs,
            **scale.settings,
        }
        options = {**self.settings.get("method_options", {}), **scale.settings.get("method_options", {})}
        return {**choices, "method_options": {**_scaled_options(self.method, scale), **options}}

    def config(self, scale: Scale) -> Config:
        return resolve(scale.preset, **self.choices(scale))


def _fewer(asked: int, needed: int | None) -> int:
    """More levels than an exhibit shows would be searched for nothing."""
    return asked if needed is None else min(asked, needed)


def _scaled_options(method: str, scale: Scale) -> dict[str, int]:
    name = _IN_EPOCHS.get(method)
    full = resolve(scale.preset, method=method)
    if name is None or scale.epochs is None or scale.epochs == full.training.epochs:
        return {}
    return {name: max(1, round(full.method_options[name] * scale.epochs / full.training.epochs))}
