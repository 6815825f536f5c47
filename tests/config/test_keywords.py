"""The keywords of `aceglt.search`: what type checkers know of them is what there is."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_committed_keywords_are_those_that_the_command_makes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_keywords.py"))
    assert tool["FILE"].read_text() == tool["keywords"]()


def test_a_type_checker_refuses_a_keyword_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    calls = ["search(seeds=2)", "search(sedes=2)", 'search(lr="high")', "search(backbone=object, levels=None)"]
    (tmp_path / "calls.py").write_text("from aceglt import search\n" + "\n".join(calls) + "\n")
    # The libraries below aceglt are many, and say nothing about its keywords.
    outside = (
        "torch",
        "torch_geometric",
        "numpy",
        "scipy",
        "safetensors",
        "plotly",
        "rich",
        "typer",
        "pandas",
        "matplotlib",
    )
    skipped = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in outside)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nignore_missing_imports = True\nfollow_imports = silent\n{skipped}")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache")]
    found, problems, _ = api.run([*options, str(tmp_path / "calls.py")])
    assert problems == ""
    wrong = {int(line.split(":")[1]) - 2 for line in found.splitlines() if ": error:" in line}
    assert [calls[i] for i in sorted(wrong)] == ["search(sedes=2)", 'search(lr="high")'], found
