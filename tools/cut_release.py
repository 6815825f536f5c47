"""Write a release's version into the files that state it: python tools/cut_release.py 0.2.0

Then `make release`, commit and tag. What the changelog has under "Unreleased" becomes the release's, with today's date.
"""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path

from aceglt.files import write_atomic

ROOT = Path(__file__).parents[1]
PLACES = {
    "src/aceglt/version.py": (r'^__version__ = ".*"$', '__version__ = "{version}"'),
    "CITATION.cff": (r"^version: .*$", "version: {version}"),
    "CHANGELOG.md": (r"^## Unreleased$", "## Unreleased\n\n## {version} - {today}"),
}


def cut(version: str, root: Path = ROOT) -> None:
    """Change all three files, or none if one has no such line."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"not a version: {version!r}; such as 0.2.0")
    changed = {}
    for name, (line, text) in PLACES.items():
        new = text.format(version=version, today=date.today())
        changed[name], times = re.subn(line, new, (root / name).read_text(), flags=re.MULTILINE)
        if times != 1:
            sys.exit(f"{name} has {times} lines like {line}, not one")
    for name, content in changed.items():
        write_atomic(root / name, content.encode())


if __name__ == "__main__":
    cut(sys.argv[1])
