"""The method that a configuration names."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from aceglt.config import Config
from aceglt.config.methods import check_names
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
    check_names(config.method, config.method_options, [f.name for f in fields(kind)] if is_dataclass(kind) else [])
    return kind(**config.method_options)
