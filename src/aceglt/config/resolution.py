"""From the choices of a user to a whole configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aceglt.config.checks import check_type, one_of
from aceglt.config.configuration import MAX_SEEDS, SETTINGS, Config, as_stored, check_known, hints
from aceglt.config.groups import BACKBONE_OPTIONS, TASK_OPTIONS, BackboneOptions
from aceglt.config.methods import METHOD_OPTIONS, MethodOptions
from aceglt.config.presets import PRESETS, overrides
from aceglt.errors import ConfigError


def resolve(preset: str = "default", **choices: Any) -> Config:
    """The configuration of a preset for the chosen dataset and backbone, with explicit choices on top of it.

    Choices that are None count as not made. `seeds` may be a number: that many seeds from 0.

    Examples:
        >>> aceglt.resolve("quick", method="ugs", seeds=2).training.epochs
        100
    """
    one_of(*PRESETS)("preset", preset)
    made = _made(choices)
    place: dict[str, Any] = {
        name: made.get(name, PRESETS[preset].get(name, SETTINGS[name].default))
        for name in ("dataset", "backbone", "method", "task")
    }
    changed = overrides(preset, **{**place, "dataset": place["dataset"].lower()})
    one_of(*TASK_OPTIONS)("task", place["task"])
    task = TASK_OPTIONS[place["task"]]
    task.check_choices({**changed, **made})
    settings = {
        **BACKBONE_OPTIONS.get(place["backbone"], BackboneOptions).usual,
        **task.usual({**changed, **made}),
        **METHOD_OPTIONS.get(place["method"], MethodOptions).usual,
        **changed,
        "method": place["method"],
    }
    if "levels" not in made and ("target_model" in made or "target_graph" in made):
        settings["levels"] = _levels_to_target({**settings, **made})
    options = {**changed.get("method_options", {}), **made.get("method_options", {})}
    return Config.from_dict({**settings, **made, "preset": preset, "method_options": options})


def _made(choices: Mapping[str, Any]) -> dict[str, Any]:
    """The choices that were made, of the right types."""
    made = {name: value for name, value in choices.items() if value is not None}
    check_known(made)
    if isinstance(count := made.get("seeds"), int):
        if not 1 <= count <= MAX_SEEDS:
            raise ConfigError(f"seeds must be {'1 or more' if count < 1 else f'{MAX_SEEDS} or fewer'}, found {count}")
        made["seeds"] = range(count)
    made |= as_stored(made)
    for name, value in made.items():
        check_type(name, value, hints()[name])
    return made


def _levels_to_target(settings: Mapping[str, Any]) -> int:
    """Levels after which a target is reached; one more than the formula, since counts are rounded."""
    needed = [1]
    for side in ("model", "graph"):
        target = settings.get(f"target_{side}")
        prune = settings.get(f"prune_{side}", SETTINGS[f"prune_{side}"].default)
        if target is not None and 0 < target < 1 and 0 < prune < 1:
            needed.append(math.ceil(math.log1p(-target) / math.log1p(-prune)) + 1)
    return max(needed)


def as_call(settings: Mapping[str, Any], *data: str) -> str:
    """The search with these settings, as one writes it in Python."""
    given = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
    return f"aceglt.search({', '.join([*data, *given])})"


def with_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings with the options of the method beside the other settings."""
    return {**{k: v for k, v in settings.items() if k != "method_options"}, **(settings.get("method_options") or {})}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines "name: old → new" for what differs; of the options of one method, those that do."""
    lines = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name != "method_options":
            lines.append(f"{name}: {before} → {after}")
        elif old.get("method") == new.get("method"):
            lines += difference(before or {}, after or {})
    return lines
