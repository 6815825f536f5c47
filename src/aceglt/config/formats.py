"""Configurations in files: format 2 says every option; format 1 left out those of the method that were the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aceglt.config.configuration import SETTINGS, Config
from aceglt.config.fields import settings_of
from aceglt.config.groups import BACKBONE_OPTIONS, TASK_OPTIONS, BackboneOptions, TaskOptions
from aceglt.config.methods import METHOD_OPTIONS
from aceglt.errors import ConfigError

FORMAT = 2
FORMATS = (1, 2)
"""Those that are read."""

FORMAT_1_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "random": {"draws": 1},
    "ugs": {"one_shot": False, "trainings": 1},
    "gebt": {"max_epochs": 100, "min_epochs": 5, "window": 3, "threshold": 0.1},
    "ace": {
        "refine_epochs": 30, "exchange": 0.05, "temperature": 0.0, "replacement": False, "threshold": 0.6,
        "adaptive_k": True, "resample": True, "keep": "last",
    },
}  # fmt: skip
"""What a method's options were that a file of format 1 does not name; `rounds` of ace, 0, is read as ugs. Frozen: it
describes files that exist."""
LATER: Mapping[str, Mapping[str, Any]] = {"ace": {"reading": "default", "pruned_graph": "pruned", "hand_on": True}}
"""Options that came after format 2, and what was done without them."""
ADDED: Mapping[str, Any] = {
    "neighbours": 10, "drop_edge": 0.0, "rewind_epoch": 0, "structure": None, "round_to": 1, "ignored": None,
    "floors": None, "ratios": None,
}  # fmt: skip
"""Settings that came after the first files of format 2, as they were before. Frozen as well."""
_LAYERS = {"resgcn": 28}  # where a file of format 1 says null
_TWO_LAYERS: Mapping[str, Any] = {
    "layers": 2, "output": "conv", "norm": "none", "skip": "none", "jumping": "none", "dropout": 0.5,
    "input_dropout": 0.0,
}  # fmt: skip
BEFORE_LAYERS: Mapping[str, Mapping[str, Any]] = {
    "gcn": {**_TWO_LAYERS, "bias": False},
    "gin": {**_TWO_LAYERS, "bias": True},
    "gat": {**_TWO_LAYERS, "dropout": 0.6, "input_dropout": 0.6, "bias": True, "heads": 8},
}
"""What backbones were before files said more of their layers than `hidden`. Frozen as well."""


def read_config(values: Any, format: int) -> Config:
    """The configuration of a file of one of `FORMATS`; ConfigError where it is none, or lacks a setting."""
    if isinstance(values, Mapping):
        names = BEFORE_LAYERS["gat"].keys()
        before = not values.keys() & (names - {"layers"})
        values = {**ADDED, **(from_format_1(values) if format == 1 else values)}
        if before:
            had = BEFORE_LAYERS.get(str(values.get("backbone")), {})
            values = {**dict.fromkeys((*names, "early_stopping")), **values, **had}
    if isinstance(values, Mapping) and (absent := sorted(SETTINGS.keys() - values.keys())):
        raise IncompleteError(f"no {', '.join(absent)}")
    if isinstance(values, Mapping) and isinstance(values["method_options"], Mapping):
        values = {**values, "method_options": {**LATER.get(str(values["method"]), {}), **values["method_options"]}}
    config = Config.from_dict(values)
    if absent := sorted(config.method_options.keys() - values["method_options"].keys()):
        raise IncompleteError(f"no {', '.join(absent)} in method_options")
    return config


class IncompleteError(ConfigError):
    """A file says less than this version needs to know."""


def from_format_1(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same configuration in format 2."""
    method, options = values.get("method"), values.get("method_options")
    if not isinstance(method, str) or not isinstance(options, Mapping):
        return dict(values)
    if method == "ace" and not options.get("rounds"):
        method, options = "ugs", {}
    defaults = FORMAT_1_DEFAULTS.get(method, {})
    gone = defaults.keys() - settings_of(METHOD_OPTIONS[method]).keys() if defaults else set()
    if lost := [f"{name}={options[name]}" for name in gone if options.get(name, defaults[name]) != defaults[name]]:
        raise IncompleteError(f"{', '.join(lost)} of {method} is gone in this version; use the aceglt that wrote it")
    options = {name: value for name, value in {**defaults, **options}.items() if name not in gone}
    backbone, task = str(values.get("backbone")), str(values.get("task"))
    had = {
        *settings_of(BACKBONE_OPTIONS.get(backbone, BackboneOptions)),
        *settings_of(TASK_OPTIONS.get(task, TaskOptions)),
    }
    # It wrote defaults of options that the backbone or task does not have.
    kinds = (*BACKBONE_OPTIONS.values(), *TASK_OPTIONS.values())
    not_had = {name: None for kind in kinds for name in settings_of(kind) if name not in had}
    layers = values.get("layers") or _LAYERS.get(backbone)
    return {**values, "method": method, "method_options": options, "layers": layers, **not_had}
