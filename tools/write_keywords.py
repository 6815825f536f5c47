"""Write src/aceglt/config/keywords.pyi, the keywords of `aceglt.search` with their types, from the settings' fields,
and src/aceglt/sweeps/keywords.pyi, those of `sweep`, `compare` and `tune`, from the fields of `Machines`.

    PYTHONPATH=src python tools/write_keywords.py

Type checkers and editors do not run code, so the stub is committed; a test says that it is what this command makes.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from aceglt.config import SETTINGS
from aceglt.sweeps.machines import Machines

PACKAGE = Path(__file__).parents[1] / "src" / "aceglt"
FILE = PACKAGE / "config" / "keywords.pyi"
MACHINES = PACKAGE / "sweeps" / "keywords.pyi"
_HEAD = '''"""The keywords of `aceglt.search`, for type checkers. Made by tools/write_keywords.py: do not edit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

class Settings(TypedDict, total=False):
    """Settings of a search; None counts as not given."""

'''
_MACHINES_HEAD = '''\
"""The keywords of `aceglt.sweep` and its like, for type checkers. Made by tools/write_keywords.py: do not edit."""

from pathlib import Path
from typing import TypedDict

from aceglt.config.keywords import Settings

class MachineKeywords(TypedDict, total=False):
    """Where searches run."""

'''
_MACHINES_TAIL = '''
class TuneKeywords(Settings, MachineKeywords):
    """Settings of a search, and where trials run."""
'''


def machine_keywords() -> str:
    """The text of the second stub."""
    return _MACHINES_HEAD + "".join(f"    {f.name}: {f.type}\n" for f in fields(Machines)) + _MACHINES_TAIL


def keywords() -> str:
    """The text of the first stub."""
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
    MACHINES.write_text(machine_keywords())
