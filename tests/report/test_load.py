"""Runs on their way from their directories into one report."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from search_samples import search
from test_report import Page

from aceglt.errors import ConfigError, RunError
from aceglt.files import write_checked_json
from aceglt.report import load_runs, write_report
from aceglt.runs.directory import results_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods beside each other."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("ugs", "random"):
        command = f"aceglt search --method {method}"
        search(out=folder / method, method=method, tickets="all", command=command, report=method == "ugs")
    return folder


def _names(*paths: Path) -> list[str]:
    return [run.name for run in load_runs(paths, paths[0])]


def test_several_runs_make_one_page(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "both.html"
    write_report(load_runs([runs / "ugs", runs / "random"], tmp_path), path)
    found = Page(path.read_text(encoding="utf-8"))
    assert "aceglt search --method random" in found.text
    assert {"ugs (labels): levels", "random: levels"} <= set(found.tables)
    links = [attrs["href"] or "" for tag, attrs in found.tags if tag == "a"]
    assert len(links) == 8
    assert all((tmp_path / link).is_file() for link in links)


def test_the_report_of_a_search_links_its_own_tickets(runs: Path) -> None:
    found = Page((runs / "ugs" / "report.html").read_text(encoding="utf-8"))
    links = [attrs["href"] or "" for tag, attrs in found.tags if tag == "a"]
    assert links[0] == "tickets/level_01_seed_0.safetensors"


def _with(runs: Path, folder: Path, name: str, **changes: Any) -> Path:
    """A copy of a run whose results say something else."""
    copy = folder / name
    shutil.copytree(runs / "ugs", copy)
    write_checked_json(copy / "results.json", {**results_of(copy), **changes})
    return copy


def test_runs_are_named_by_what_differs(runs: Path, tmp_path: Path) -> None:
    assert _names(runs / "ugs", runs / "random") == ["ugs (labels)", "random"]
    elsewhere = _with(runs, tmp_path, "other", dataset="elsewhere")
    assert _names(runs / "ugs", elsewhere) == ["ugs (labels), data", "ugs (labels), elsewhere"]
    same = _with(runs, tmp_path, "again")
    assert _names(runs / "ugs", same) == [f"ugs (labels), {runs / 'ugs'}", f"ugs (labels), {same}"]


@pytest.mark.parametrize(
    "changes",
    [{"dense": None}, {"levels": 3}, {"levels": [{}]}, {"excerpt": {"edges": [[1]]}}, {"seeds": 5}, {"levels": None}],
)
def test_a_damaged_run_is_named(changes: dict[str, Any], runs: Path, tmp_path: Path) -> None:
    damaged = _with(runs, tmp_path, "damaged", **changes)
    with pytest.raises(RunError, match=r"damaged/results\.json: damaged"):
        load_runs([runs / "random", damaged], tmp_path)


def test_what_is_no_run_is_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a run directory"):
        load_runs([tmp_path], tmp_path)
    with pytest.raises(ConfigError, match="given twice"):
        load_runs([runs / "ugs", runs / "random" / ".." / "ugs"], tmp_path)


def test_a_log_that_was_cut_or_lost_costs_only_the_command(runs: Path, tmp_path: Path) -> None:
    cut = _with(runs, tmp_path, "cut")
    (cut / "events.jsonl").write_text('{"command": "the first"}\n{"command": "cut in the mid')
    assert load_runs([cut], cut)[0].command == "the first"
    (cut / "events.jsonl").unlink()
    assert load_runs([cut], cut)[0].command == "not recorded"
