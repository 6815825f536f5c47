"""Numbers that are printed in the paper (Wang et al., ECAI 2023), quoted in paper.json.

A quote is written as printed: "89.64±0.45 b*" is bold and has a star, "u" is underlined, "-" is the paper's sign for
"no ticket was found". Of figures, only numbers that the text states are quoted; nothing is read off a plot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from aceglt.reproduction.tables import Entry

_MARKS = {"b": "best", "u": "second"}
_NUMBER = re.compile(r"(?P<mean>[\d.]+)(?:±(?P<std>[\d.]+)| (?P<unit>[sM]))?(?: (?P<mark>[bu]))?(?P<star>\*)?")


def quote(exhibit: str, row: str, column: str) -> Entry | None:
    """What the paper prints there; None where it prints nothing."""
    return quotes(exhibit).get((row, column))


@cache
def quotes(exhibit: str) -> dict[tuple[str, str], Entry]:
    """All quotes for a table or figure by keys of row and column."""
    table = _paper().get(exhibit)
    if table is None:
        return {}
    return {
        (row, column): _read(text)
        for row, texts in table["rows"].items()
        for column, text in zip(table["columns"], texts, strict=True)
    }


@cache
def _paper() -> Mapping[str, Any]:
    tables: dict[str, Any] = json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
    return tables


def _read(text: str) -> Entry:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return Entry(text)  # "-", or a formula
    mean, std, unit = found["mean"], found["std"], found["unit"]
    shown = mean + (f" ± {std}" if std else "") + (f" {unit}" if unit else "")
    mark = _MARKS.get(found["mark"] or "", "")
    return Entry(shown, float(mean), float(std) if std else None, mark, bool(found["star"]))
