"""The keywords of `aceglt.search`: what type checkers know of them is what there is."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_committed_keywords_are_those_that_the_command_makes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_keywords.py"))
    assert tool["FILE"].read_text() == tool["keywords"]()
    assert tool["MACHINES"].read_text() == tool["machine_keywords"]()


def test_a_type_checker_reads_the_calls_that_it_must_refuse() -> None:
    """`make check` runs it, which takes longer than most of the tests; strict, so that an idle ignore is an error."""
    settings = (ROOT / "pyproject.toml").read_text().split("[tool.mypy]")[1].split("[[")[0]
    assert "strict = true" in settings
    assert '"tests/typed"' in settings
    assert "search(sedes=2)  # type: ignore[call-arg]" in (ROOT / "tests" / "typed" / "keywords.py").read_text()
