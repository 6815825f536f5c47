"""The page of the campaign gets the whole table of a campaign that passed, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BEFORE = "<!-- campaign -->\n| the last one |\n<!-- end of campaign -->\n"
CAMPAIGN = """
import pytest

@pytest.fixture(scope="session")
def _one_thread(): ...

@pytest.mark.parametrize("kind", range(4))
def test_campaign(kind, tell):
    tell("part", str(kind), "fine", inputs=1)
    assert kind != {fails}
"""


@pytest.mark.parametrize("fails", [3, None], ids=["a test fails", "all pass"])
def test_only_the_process_that_has_all_results_writes_and_only_if_all_passed(fails: int | None, tmp_path: Path) -> None:
    for name in ("conftest.py", "campaign_table.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(CAMPAIGN.format(fails=fails))
    page = tmp_path / "page.md"
    page.write_text(BEFORE)
    line = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--table", str(page)]
    result = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "COMMIT": "abc"}
    )
    assert result.returncode == (0 if fails is None else 1), result.stdout
    if fails is None:
        assert "2 processes" in page.read_text()
        assert "| part | 4 | fine | 4 inputs |" in page.read_text()
    else:
        assert page.read_text() == BEFORE
        assert "is left as it was: tests failed" in result.stdout
