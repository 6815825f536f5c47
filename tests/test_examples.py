"""The examples in docstrings run, and so do the notebooks."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from search_samples import graph, npz

import aceglt
from aceglt.reproduction import reproduce
from aceglt.runner import search
from aceglt.sweeps.compare import compare
from aceglt.sweeps.engines import Ended, Need
from aceglt.sweeps.worker import Job, work

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LEAVES = {
    "own_model": ["served/model.onnx", "served/README.md"],
    "first_ticket": ["ticket.safetensors", "runs/first/report.html"],
    "compare_methods": ["compared/levels.csv", "compared/comparison.html"],
    "large_graph": ["runs/large/environment.json"],
    "reproduce_table": ["reproduction/table1/table1.md"],
}
"""What a notebook leaves behind."""
FUNCTIONS = [name for name in aceglt.__all__ if inspect.isfunction(getattr(aceglt, name))]
CLASSES = [
    "Observer",
    "SearchResult",
    "SweepResult",
    "CompareResult",
    "Ticket",
    "TicketSearch",
    "Config",
    "ApplyTicket",
    "Problem",
]


class _Here:
    """The engine of sweeps without processes, which take seconds to start."""

    device = "cpu"

    def __init__(self, need: Need, workers: int | None = None) -> None:
        self.jobs: list[Job] = []

    def close(self) -> None: ...

    def has_room(self) -> bool:
        return not self.jobs

    def start(self, job: Job) -> None:
        self.jobs.append(job)

    def wait(self, seconds: float) -> list[Ended]:
        job = self.jobs.pop()
        return [Ended(job, work(job))]


def _examples(name: str) -> list[doctest.DocTest]:
    thing = getattr(aceglt, name)
    module = inspect.getmodule(thing)
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(thing, name, module=module) if test.examples]


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_the_examples_of_a_public_name_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aceglt.sweeps.run.LocalEngine", _Here)
    tests = _examples(name)
    assert tests, f"{name} has no example"
    assert all("Examples:\n" in (test.docstring or "") for test in tests)  # the heading that the reference reads
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    grid = {"dataset": str(npz(tmp_path)), "methods": ["random", "ugs"], "signal": "labels", "epochs": 2, "hidden": 4}
    for test in tests:
        test.globs = {
            "aceglt": aceglt, "torch": torch, "data": graph(), "grid": {**grid, "levels": 1, "seeds": 2},
        }  # fmt: skip
        said: list[str] = []
        doctest.DocTestRunner(optionflags=flags).run(test, out=said.append)
        assert said == [], "".join(said)


def _code(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _lines(source: str) -> int:
    """Lines of code: neither empty nor comments."""
    return sum(1 for line in source.splitlines() if line.strip() and not line.strip().startswith("#"))


@pytest.mark.parametrize("notebook", [pytest.param(path, id=path.name) for path in NOTEBOOKS])
def test_a_notebook_runs_from_top_to_bottom_and_shows_something(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its searches are cut short."""

    def short(*args: Any, **settings: Any) -> aceglt.SearchResult:
        few = {"levels": 1, "epochs": 2, "seeds": 1, "method": "ugs"}
        return search(*args, **{**settings, **few, "hidden": min(64, settings.get("hidden", 64))})

    def small(grid: dict[str, Any], *args: Any, **settings: Any) -> aceglt.CompareResult:
        few = {"dataset": str(npz(tmp_path)), "levels": 1, "epochs": 2, "hidden": 4}
        return compare({**grid, **few}, *args, **settings)

    def tiny(*args: Any, **settings: Any) -> aceglt.Reproduction:
        return reproduce(*args, **{**settings, "levels": 1, "epochs": 2, "hidden": 4})

    for name, shorter in {"search": short, "compare": small, "reproduce": tiny}.items():
        monkeypatch.setattr(aceglt, name, shorter, raising=False)
    monkeypatch.setattr("aceglt.sweeps.run.LocalEngine", _Here)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for source in _code(notebook):
        body = ast.parse(source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), notebook.name, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    assert shown
    assert all((tmp_path / file).is_file() for file in LEAVES[notebook.stem])


def test_an_own_model_needs_at_most_15_lines() -> None:
    assert sum(map(_lines, _code(ROOT / "examples" / "own_model.ipynb"))) <= 15
