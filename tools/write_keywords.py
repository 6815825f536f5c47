"""Write src/aceglt/config/keywords.pyi: the keywords of `aceglt.search` with their types, from the settings' fields.

    PYTHONPATH=src python tools/write_keywords.py

Type checkers and editors do not run code, so the stub is committed; a test says that it is what this command makes.
"""

from __future__ import annotations

from pathlib import Path

from aceglt.config import SETTINGS

FILE = Path(__file__).parents[1] / "src" / "aceglt" / "config" / "keywords.pyi"
_HEAD = '''"""The keywords of `aceglt.search`, for type checkers. Made by tools/write_keywords.py: do not edit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

class Settings(TypedDict, total=False):
    """Settings of a search; None counts as not given."""

'''


def keywords() -> str:
    """The text of the stub."""
    lines = []
    for name, field in SETTINGS.items():
        if name == "preset":  # a parameter of its own
            continue
        kind = field.metadata["keyword"] or field.type
        optional = kind == "Any" or kind.endswith("| None")
        lines.append(f"    {name}: {kind if optional else f'{kind} | None'}\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    FILE.write_text(keywords())
