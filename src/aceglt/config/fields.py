"""How a setting is written down, once: its default, its check, its help, and where `aceglt search` shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, ClassVar, get_type_hints

from aceglt.config.checks import Check, check_type


def setting(default: Any, help: str, check: Check | None = None, panel: str = "Options", **more: Any) -> Any:
    """A field of a dataclass of settings.

    `{default}` in the help stands for the default; `panel` is where the help of `aceglt search` has it. Further:
    `shown`, whether the command line shows the default behind the help; `options`, its names there, where they do not
    follow from the field's; `keyword`, the type that `aceglt.search` takes, where it is wider than the field's.
    """
    metadata = {"help": help, "check": check, "panel": panel, "shown": False, "options": (), "keyword": "", **more}
    return field(metadata=metadata, default=default)


def with_default(kind: type[Group], name: str, default: Any) -> Any:
    """A setting of another group, of which only the default differs."""
    return field(metadata=settings_of(kind)[name].metadata, default=default)


stop_setting = partial(setting, panel="When to stop")
train_setting = partial(setting, panel="Training")
score_setting = partial(setting, panel="Scores and pruning")


@dataclass(frozen=True)
class Group:
    """Settings that belong together; they are checked when they are made."""

    title: ClassVar[str] = ""
    """What messages put before a setting's name."""

    def __post_init__(self) -> None:
        hints = type_hints(type(self))
        for name, part in settings_of(type(self)).items():
            check_value(f"{self.title}{name}", getattr(self, name), hints[name], part)


def check_value(name: str, value: Any, hint: Any, part: Any) -> None:
    """Refuse a value that is not of a field's type, or not as its check says."""
    check_type(name, value, hint)
    if part.metadata["check"] is not None and value is not None:
        part.metadata["check"](name, value)


type_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
"""The types of a dataclass's fields, by name."""


settings_of: Callable[[Any], Mapping[str, Any]] = cache(
    lambda kind: {part.name: part for part in fields(kind) if "help" in part.metadata}
)
"""The fields of a dataclass that are settings, by name."""
