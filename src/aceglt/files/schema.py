"""What JSON that others may have written must look like. Cheap to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aceglt.errors import printable

Schema = Any
"""A `Kind`; a dictionary of schemas, for an object that has at least these names; a list of one schema, for a list of
such; a tuple of one schema, for such or null."""

LARGEST = 2**63 - 1
"""Of the whole numbers that a setting may be and a file may hold; far below where sums of squares overflow."""


@dataclass(frozen=True)
class Kind:
    """A plain value."""

    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


NUMBER = Kind("a number", _is_number)
COUNT = Kind("a whole number from 0", lambda value: isinstance(value, int) and _is_number(value) and value >= 0)
TEXT = Kind("printable text", lambda value: isinstance(value, str) and printable(value) == value)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))


def check(value: Any, schema: Schema, name: str) -> None:
    """Raise ValueError, naming the first part that is not as the schema says; `name` is the whole's."""
    if isinstance(schema, tuple):
        if value is not None:
            check(value, schema[0], name)
    elif isinstance(schema, list):
        _require(value, Kind("a list", lambda found: isinstance(found, list)), name)
        for i, part in enumerate(value):
            check(part, schema[0], f"{name}[{i}]")
    elif isinstance(schema, dict):
        _require(value, OBJECT, name)
        for key, part in schema.items():
            if key not in value:
                raise ValueError(f"{name} lacks {key}")
            check(value[key], part, f"{name}.{key}")
    else:
        _require(value, schema, name)


def _require(value: Any, kind: Kind, name: str) -> None:
    if not kind.fits(value):
        raise ValueError(f"{name} must be {kind.words}, found {shortened(value)}")


def shortened(value: Any) -> str:
    """A value as a message shows it."""
    try:
        text = repr(value)
    except ValueError:  # of a whole number with more digits than Python writes
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:80]}…"
