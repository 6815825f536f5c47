"""The method that a configuration names."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from aceglt.config import Config, check_type
from aceglt.config.methods import check_names
from aceglt.config.own import NOTHING, Own, name_of
from aceglt.errors import ConfigError
from aceglt.methods import METHODS, Method


def build_method(config: Config, own: Own = NOTHING) -> Method:
    """The method, built in or the user's own, with its options."""
    kind = own.method if own.method is not None else METHODS[config.method]
    if isinstance(kind, type):
        kind = _with_options(kind, config)
    if own.method is not None and is_dataclass(kind):
        _check_types(kind)
    if not isinstance(kind, Method):
        raise ConfigError(
            f"{name_of(kind)} is no method: it needs a name, select(level) and cost(epochs); see aceglt.methods.Method"
        )
    if config.pruning.structure is not None and not getattr(kind, "by_units", False):
        raise ConfigError(f"structure: {name_of(kind)} does not say by_units = True, that it cuts by Level.prune")
    return kind


def _with_options(kind: type, config: Config) -> Any:
    """An instance; options that are not the method's are refused."""
    check_names(config.method, config.method_options, [f.name for f in fields(kind)] if is_dataclass(kind) else [])
    try:
        return kind(**config.method_options)
    except (TypeError, ValueError) as problem:
        raise ConfigError(f"{name_of(kind)} cannot be made of its options: {problem}") from problem


def _check_types(method: Any) -> None:
    """Refuse options of the user's own method that are not of the types that it states."""
    try:
        types = get_type_hints(type(method))
    except NameError:  # a type that is imported for type checkers alone
        return
    for part in fields(method):
        if types.get(part.name) in (int, float, bool, str):
            check_type(f"{method.name}: {part.name}", getattr(method, part.name), types[part.name])
