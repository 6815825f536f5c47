"""How a setting is written down, once: its default, its check, its help, and where `aceglt search` shows it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from types import UnionType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from aceglt.config.own import is_own
from aceglt.errors import ConfigError, printable
from aceglt.files.schema import shortened

Check = Callable[[str, Any], None]
"""Raises ConfigError about the setting of a name where its value is not as it must be."""


def setting(default: Any, help: str, check: Check | None = None, panel: str = "Options", **more: Any) -> Any:
    """A field of a dataclass of settings.

    `{default}` in the help stands for the default; `panel` is where the help of `aceglt search` has it. Further:
    `shown`, whether the command line shows the default behind the help; `options`, its names there, where they do not
    follow from the field's; `keyword`, the type that `aceglt.search` takes, where it is wider than the field's.
    """
    metadata = {"help": help, "check": check, "panel": panel, "shown": False, "options": (), "keyword": "", **more}
    return field(metadata=metadata, default=default)


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


def settings_of(kind: type[Group]) -> dict[str, Any]:
    """The fields of a dataclass that are settings, by name."""
    return {part.name: part for part in fields(kind) if "help" in part.metadata}


def must_be(expected: str, ok: Callable[[Any], bool]) -> Check:
    """A check that says what was expected."""

    def check(name: str, value: Any) -> None:
        if not ok(value):
            raise ConfigError(f"{name} must be {expected}, found {value}")

    return check


def at_least(least: float) -> Check:
    return must_be(f"{least} or more", lambda value: value >= least)


def from_to(least: float, most: float) -> Check:
    return must_be(f"from {least} to {most}", lambda value: least <= value <= most)


def one_of(*known: str, or_own: bool = False) -> Check:
    def check(name: str, value: Any) -> None:
        if value not in known and not (or_own and is_own(value)):
            more = ", and your own as module:attribute" if or_own else ""
            raise ConfigError(f"unknown {name} '{value}'; known are {', '.join(known)}{more}")

    return check


POSITIVE = must_be("above 0", lambda value: value > 0)
SHARE = must_be("between 0 and 1", lambda value: 0 < value < 1)
SHARE_OR_NONE = must_be("0 or more and below 1", lambda value: 0 <= value < 1)
OWN_FUNCTION = must_be("module:function", is_own)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of a field's type; numbers may be whole where fractions are meant."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds: set[Any] = {get_origin(part) or part for part in parts}
    if Literal in kinds:
        one_of(*get_args(hint))(name, value)
        return
    kinds |= {wider for kind, wider in ((float, int), (tuple, list)) if kind in kinds}
    if not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and bool not in kinds):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise ConfigError(
            f"{name} must be {words.get(hint, getattr(hint, '__name__', hint))}, found {shortened(value)}"
        )
    if isinstance(value, tuple | list):
        for part in value:
            check_type(name, part, next(get_args(p)[0] for p in parts if get_origin(p) is tuple))
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, found {value}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{name} must be below 2^63, found {shortened(value)}")
    if isinstance(value, str) and printable(value) != value:
        raise ConfigError(f"{name} must be text without control characters, found {shortened(value)}")


def suggest(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(known)}"
