"""The method that a configuration names."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from aceglt.config import Config, check_type
from aceglt.config.own import NOTHING, Own, name_of
from aceglt.errors import ConfigError
from aceglt.methods import METHODS, Method


def build_method(config: Config, own: Own = NOTHING) -> Method:
    """The method, built in or the user's own, with its options."""
    kind = own.method if own.method is not None else METHODS[config.method]
    if isinstance(kind, type):
        kind = _with_options(kind, config)
    if not isinstance(kind, Method):
        raise ConfigError(
            f"{name_of(kind)} is no method: it needs a name, select(level) and cost(epochs); see aceglt.methods.Method"
        )
    return kind


def _with_options(kind: type, config: Config) -> Any:
    """An instance; options that are not the method's are refused."""
    known = [f.name for f in fields(kind)] if is_dataclass(kind) else []
    for name in config.method_options:
        if name not in known:
            options = f"its options are {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"method {config.method} has no option '{name}'; {options}")
        if kind in METHODS.values():  # an own method's hints may be of any kind; it checks its options itself
            check_type(f"{config.method}: {name}", config.method_options[name], get_type_hints(kind)[name])
    return kind(**config.method_options)
