"""Text as HTML. Everything that comes from data goes through here."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from urllib.parse import quote

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[TGMkhs]|min)\b|%)")


@dataclass(frozen=True)
class Link:
    """A file beside the report, and what it is called."""

    path: str
    name: str

    def __str__(self) -> str:
        return self.name


def escape(text: object) -> str:
    """Text that no HTML parser takes for markup, in which a number stays beside its unit."""
    return html.escape(_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", str(text)))


def cell(content: str | Link) -> str:
    """The content of a table's cell."""
    if isinstance(content, Link):
        return f'<a href="{quote(content.path)}">{escape(content)}</a>'
    return escape(content)
