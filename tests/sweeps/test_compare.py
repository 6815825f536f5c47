"""`aceglt compare`: a grid, which may have methods with settings of their own, or results that are there."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from engine_samples import InThisProcess, without_processes
from search_samples import npz
from typer.testing import CliRunner

import aceglt
from aceglt import cli
from aceglt.errors import ConfigError
from aceglt.sweeps.compare import with_baseline
from aceglt.sweeps.engines import Ended
from aceglt.sweeps.grid import plan


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[InThisProcess]:
    return without_processes(monkeypatch)


def test_a_method_of_a_grid_may_have_settings_and_options_of_its_own() -> None:
    own = {"method": "ace", "rounds": [2, 4], "signal": "labels"}
    cells = plan({"methods": ["random", own, {"method": "ugs", "signal": ["labels", "teacher"]}], "epochs": 7})
    whole, units = plan({"methods": ["random", {"method": "random", "structure": "units"}]})
    assert (whole.config.label, units.config.label) == ("random", "random (units)")
    told = [(cell.config.label, cell.config.training.epochs) for cell in cells]
    ran = ["random", "ace (labels, 2 rounds)", "ace (labels, 4 rounds)", "ugs (labels)", "ugs (teacher)"]
    assert told == [(name, 7) for name in ran]
    with pytest.raises(ConfigError, match="its name, or a table with method = NAME"):
        plan({"methods": [{"signal": "labels"}]})
    with pytest.raises(ConfigError, match="method ugs has no option 'rounds'"):
        plan({"methods": [{"method": "ugs", "rounds": 2}]})


def test_random_is_in_every_grid_once() -> None:
    assert with_baseline({"methods": ["ugs"], "levels": 2}) == {"methods": ["ugs", "random"], "levels": 2}
    assert with_baseline({"method": "ugs"})["methods"] == ["ugs", "random"]
    assert with_baseline({})["methods"] == ["ace", "random"]
    kept = {"methods": [{"method": "random"}, "ugs"]}
    assert with_baseline(kept) == kept


GRID: dict[str, Any] = {"methods": ["ugs"], "signal": "labels", "epochs": 2, "hidden": 4, "levels": 1, "seeds": 1}


def test_a_grid_leaves_a_sweep_and_a_comparison_and_more_seeds_run_what_is_missing(
    engine: Any,
    tmp_path: Path,
) -> None:
    grid = {**GRID, "dataset": str(npz(tmp_path))}
    first = aceglt.compare(grid, tmp_path / "out", progress=False)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "sweep.json", "levels.csv", "comparison.html", "comparison.csv", "pairs.csv",
    }  # fmt: skip
    assert len(aceglt.load_sweep(tmp_path / "out").cells) == len(first.cells) == 2
    more = aceglt.compare({**grid, "seeds": 2}, tmp_path / "out", progress=False)
    assert list(more.table()["seeds"]) == [2, 2]
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2
    assert len(engine.started) == 4
    assert len(more.to_dataframe()) == 2 * 2 * 2
    assert "<table" in more._repr_html_()
    assert "none is marked ≈: a test takes 5 seeds" in repr(more)
    shown = CliRunner().invoke(cli.app, ["show", str(tmp_path / "out")])
    assert shown.stdout.startswith(repr(more).partition(";")[0])
    assert shown.stdout.endswith(f"comparison: {tmp_path / 'out' / 'comparison.html'}\n")


@pytest.mark.parametrize("change", [{"methods": ["random"]}, {"levels": 0}])
def test_a_grid_of_which_nothing_can_be_compared_is_refused_before_it_is_searched(
    change: dict[str, Any], engine: type[InThisProcess], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"levels must be 1 or more|it takes two methods to compare"):
        aceglt.compare({**GRID, "dataset": str(npz(tmp_path)), **change}, tmp_path / "out")
    assert engine.started == []


def test_where_searches_fail_the_command_says_so_and_ends_with_1(engine: type[InThisProcess], tmp_path: Path) -> None:
    engine.trouble = staticmethod(lambda job: None if "random" in job.name else Ended(job, "broke", hopeless=True))
    grid = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {**GRID, "dataset": str(npz(tmp_path))}.items())
    (tmp_path / "grid.toml").write_text(grid)
    made = CliRunner().invoke(cli.app, ["compare", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "out")])
    assert made.exit_code == 1
    assert "failed: broke" in made.stdout


def test_results_of_any_kind_make_the_same_page(engine: Any, tmp_path: Path) -> None:
    found = aceglt.compare({**GRID, "dataset": str(npz(tmp_path)), "seeds": 2}, tmp_path / "out", progress=False)
    kept = [{**cell["results"], "config": cell["config"]} for cell in found.cells]
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    one, other = (tmp_path / "out" / "runs" / cell["name"] for cell in found.cells)
    for number, sources in enumerate(
        ([tmp_path / "out"], [tmp_path / "kept.json"], [one, other / "results.json"], [tmp_path / "out" / "sweep.json"])
    ):
        out = tmp_path / f"page{number}"
        made = CliRunner().invoke(cli.app, ["compare", *map(str, sources), "--out", str(out)], env={"COLUMNS": "80"})
        assert made.exit_code == 0, made.output
        with open(out / "comparison.csv", newline="") as file:
            means = {row["method"]: float(row["mean"]) for row in csv.DictReader(file)}
        assert means == pytest.approx({record["method"]: record["mean"] for record in found.comparison.records()})
        assert (out / "comparison.html").exists()
        assert max(map(len, made.stdout.splitlines()[:-1])) <= 80


@pytest.mark.parametrize("content", ["{}", "[1]", "not JSON", '{"levels": []}', '{"cells": [3]}', '{"cells": 3}'])
def test_a_file_without_results_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(aceglt.AcegltError, match=r"x\.json: ") as problem:
        aceglt.compare([tmp_path / "x.json"], tmp_path / "out")
    assert "\n" not in str(problem.value)
