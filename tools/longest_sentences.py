"""List the longest sentences of the prose, to be halved: python tools/longest_sentences.py [HOW_MANY] [PART…]

A PART is a part of a page's path. Code, tables and headings do not count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^ *(```|\$\$).*?^ *\1$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(<!--|\||#+ |:::).*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?:(?<=[.!?:])|(?<=[.!?:]\*\*))\s+(?=[A-Z`*“\"])|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+")


def sentences(text: str) -> Iterator[str]:
    """Those of a page's prose; a piece of code counts as one word."""
    prose = re.sub(r"\n +(?![-*\d ])", "\n", _LINK.sub(r"\1", text))
    for sentence in _END.split(_LINE.sub("\n\n", _BLOCK.sub("\n\n", prose))):
        if words := " ".join(sentence.split()):
            yield words


def length(sentence: str) -> int:
    """In words."""
    return len(_CODE.sub("code", sentence).split())


def main(arguments: list[str]) -> None:
    how_many = int(arguments[0]) if arguments else 10
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    wanted = [page for page in pages if any(part in str(page.relative_to(ROOT)) for part in arguments[1:] or [""])]
    found = [(length(each), page, each) for page in wanted for each in sentences(page.read_text())]
    for words, page, each in sorted(found, key=lambda entry: -entry[0])[:how_many]:
        print(f"{words} {page.relative_to(ROOT)}: {each}")


if __name__ == "__main__":
    main(sys.argv[1:])
