"""One search of the paper, and at which scale it is done here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aceglt.config import Config, resolve

IDENTITY = ("dataset", "backbone", "axis", "method", "task")
"""Fields of `Config` that a cell says."""
Results = Mapping[str, Any]
"""The content of results.json, its dense baseline or one of its levels."""

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
        mine, options = {name: getattr(self, name) for name in IDENTITY}, {}
        if self.method in _IN_EPOCHS and scale.epochs is not None:
            name, full = _IN_EPOCHS[self.method], resolve(scale.preset, method=self.method)
            if scale.epochs != full.training.epochs:
                options[name] = max(1, round(full.method_options[name] * scale.epochs / full.training.epochs))
        for settings in (self.settings, scale.settings):
            options |= settings.get("method_options", {})
        # More levels than an exhibit shows would be searched for nothing.
        levels = min((number for number in (self.levels, scale.levels) if number is not None), default=None)
        wanted = {"seeds": scale.seeds, "levels": levels, "epochs": scale.epochs}
        return {**mine, **self.settings, **wanted, **scale.settings, "method_options": options}

    def config(self, scale: Scale) -> Config:
        return resolve(scale.preset, **self.choices(scale))
