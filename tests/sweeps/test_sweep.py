"""A sweep: every search once, failures bounded, what is there is not done again. Workers are calls in this process."""

from __future__ import annotations

import csv
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from engine_samples import InThisProcess, Trouble, without_processes
from search_samples import Breaks, Stop, events, files, timeless
from sweep_samples import Watches, grid, merged
from typer.testing import CliRunner

import aceglt
from aceglt import cli, runner
from aceglt.errors import ConfigError, RunError, RunInUse
from aceglt.runs.directory import RunDir, read_json, results_of
from aceglt.sweeps import merged as merging
from aceglt.sweeps import run as sweeping
from aceglt.sweeps.engines import Ended
from aceglt.sweeps.merged import SweepDir
from aceglt.sweeps.worker import Job, work

Engine = type[InThisProcess]


def _in_this_process(patch: pytest.MonkeyPatch) -> Engine:
    """Without reports, which take longer than these searches."""
    for module in (runner, merging):
        patch.setattr(module, "write_report", lambda runs, path: path.write_text(f"{len(runs)} runs"))
    return without_processes(patch)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    monkeypatch.chdir(tmp_path)
    return _in_this_process(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a graph and of a finished sweep of it, `out`; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        _in_this_process(patch)
        aceglt.sweep(grid(folder), folder / "out")
    return folder


@pytest.fixture
def swept(finished: Path, engine: Engine, tmp_path: Path) -> dict[str, Any]:
    """The grid of a finished sweep, which lies in the folder `out`."""
    shutil.copytree(finished / "out", tmp_path / "out")
    engine.started.clear()
    return grid(finished)


def _killed(times: int, name: str = "ugs") -> Trouble:
    """The first so many workers of a search are killed, in the middle of it."""
    left = [times]

    def trouble(job: Job) -> Ended | None:
        if name not in job.name or not left[0]:
            return None
        left[0] -= 1
        with pytest.raises(Stop):
            runner.search(out=job.run, device="cpu", observer=Breaks(12), **job.settings)
        return Ended(job, "its worker was killed by SIGKILL")

    return trouble


def test_every_search_is_there_once_and_is_what_a_search_alone_finds(engine: Engine, tmp_path: Path) -> None:
    result = aceglt.sweep(grid(tmp_path), tmp_path / "out")
    assert len(engine.started) == len(set(engine.started)) == 4
    assert result.failed == []
    for cell in result.cells:
        alone = aceglt.search(device="cpu", **cell["config"])
        assert timeless(cell["results"]) == timeless(alone.results)
    assert [cell["name"] for cell in merged(tmp_path / "out")] == [cell["name"] for cell in result.cells]
    assert (tmp_path / "out" / "report.html").read_text() == "4 runs"


def test_the_table_has_a_line_for_each_search(engine: Engine, tmp_path: Path) -> None:
    result = aceglt.sweep(grid(tmp_path, lr=[0.01, 0.05], axes=["model"], levels=1), tmp_path / "out")
    with open(tmp_path / "out" / "sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [cell["name"] for cell in result.cells]
    assert [row["lr"] for row in rows] == ["0.01", "0.05"] * 2
    dense = result.cells[0]["results"]["dense"]["test"]
    assert float(rows[0]["dense_test"]) == pytest.approx(sum(dense) / len(dense))


def test_the_report_tells_searches_apart_by_name(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(merging, "write_report", lambda runs, path: names.extend(run.name for run in runs))
    aceglt.sweep(grid(tmp_path, methods=["ugs"], lr=[0.01, 0.05], levels=0, seeds=1), tmp_path / "out")
    assert names == [
        f"ugs (labels), lr {lr}, {axis}" for axis in ("model", "joint") for lr in (0.01, 0.05)
    ]  # fmt: skip


def test_a_finished_sweep_is_left_alone(swept: dict[str, Any], engine: Engine, tmp_path: Path) -> None:
    before = {path: os.stat(path).st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    watches = Watches()
    again = aceglt.sweep(swept, tmp_path / "out", observer=watches)
    assert engine.started == []
    assert len(watches.finished) == len(again.cells) == 4
    assert before == {path: os.stat(path).st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}


def test_a_larger_grid_runs_what_is_missing(swept: dict[str, Any], engine: Engine, tmp_path: Path) -> None:
    more = aceglt.sweep({**swept, "methods": ["random", "ugs", "gebt"]}, tmp_path / "out")
    assert [name.split("-")[2] for name in engine.started] == ["gebt", "gebt"]
    assert len(more.cells) == 6


def test_more_levels_continue_the_searches(swept: dict[str, Any], tmp_path: Path) -> None:
    result = aceglt.sweep({**swept, "levels": 3}, tmp_path / "out")
    assert [len(cell["results"]["levels"]) for cell in result.cells] == [3] * 4
    runs = list((tmp_path / "out" / "runs").iterdir())
    assert len(runs) == 4
    assert all(len(events(run, "resume")) == 1 for run in runs)


def test_a_search_that_was_told_of_more_levels_and_killed_is_not_taken_for_finished(
    engine: Engine, tmp_path: Path
) -> None:
    first = aceglt.sweep(grid(tmp_path, methods=["ugs"], axes=["model"]), tmp_path / "out")
    run = tmp_path / "out" / "runs" / first.cells[0]["name"]
    config = RunDir(run).read_config()
    with RunDir(run) as claimed:
        claimed.claim(
            aceglt.Config.from_dict({**config.to_dict(), "levels": 3}), read_json(run / "config.json")["data"]
        )
    result = aceglt.sweep(grid(tmp_path, methods=["ugs"], axes=["model"], levels=3), tmp_path / "out")
    assert len(result.cells[0]["results"]["levels"]) == 3


def test_times_of_files_say_nothing(swept: dict[str, Any], engine: Engine, tmp_path: Path) -> None:
    """A sweep that was copied has others, and clocks go backwards."""
    for results in (tmp_path / "out" / "runs").glob("*/results.json"):
        os.utime(results, (0, 0))
    aceglt.sweep(swept, tmp_path / "out")
    assert engine.started == []


def test_damaged_results_are_written_anew_without_training(
    swept: dict[str, Any], engine: Engine, tmp_path: Path
) -> None:
    first = aceglt.sweep(swept, tmp_path / "out")
    run = tmp_path / "out" / "runs" / first.cells[2]["name"]
    (run / "results.json").write_text("{")
    again = aceglt.sweep(swept, tmp_path / "out")
    assert engine.started == [run.name]
    assert again.cells == first.cells
    assert [event["level"] for event in events(run, "resume")] == [2]


def test_one_damaged_run_does_not_block_a_sweep(swept: dict[str, Any], tmp_path: Path) -> None:
    first, second, *others = sorted((tmp_path / "out" / "runs").iterdir())
    (first / "config.json").write_text("{}")
    (second / "results.json").unlink()
    result = aceglt.sweep(swept, tmp_path / "out", retries=0)
    [failed] = result.failed
    assert failed["name"] == first.name
    assert "config.json" in failed["error"]
    assert {cell["name"] for cell in result.cells if cell["status"] == "finished"} == {
        run.name for run in (second, *others)
    }


def test_a_search_whose_worker_is_killed_continues_to_the_same_end(
    finished: Path, engine: Engine, tmp_path: Path
) -> None:
    engine.trouble = staticmethod(_killed(2))
    watches = Watches()
    result = aceglt.sweep(grid(finished), tmp_path / "out", observer=watches)
    assert result.failed == []
    assert [again for _, _, again in watches.failures] == [True, True]
    assert len(watches.ended) == 4
    assert merged(tmp_path / "out") == merged(finished / "out")


def test_a_search_that_fails_again_and_again_is_given_up_and_the_rest_goes_on(engine: Engine, tmp_path: Path) -> None:
    engine.trouble = staticmethod(lambda job: Ended(job, "boom") if "ugs-labels-joint" in job.name else None)
    result = aceglt.sweep(grid(tmp_path), tmp_path / "out", retries=2)
    [failed] = result.failed
    assert failed["error"] == "boom"
    assert failed["results"] is None
    assert engine.started.count(failed["name"]) == 3
    assert [cell["status"] for cell in merged(tmp_path / "out")].count("finished") == 3
    engine.trouble = staticmethod(lambda job: None)
    assert aceglt.sweep(grid(tmp_path), tmp_path / "out").failed == []
    assert engine.started[6:] == [failed["name"]]


def test_what_would_happen_again_is_not_tried_again(engine: Engine, tmp_path: Path) -> None:
    engine.trouble = staticmethod(lambda job: Ended(job, "diverged", hopeless=True) if "ugs" in job.name else None)
    assert len(aceglt.sweep(grid(tmp_path), tmp_path / "out").failed) == 2
    assert len(engine.started) == 4


def test_a_worker_that_says_it_is_done_is_not_believed_without_results(engine: Engine, tmp_path: Path) -> None:
    engine.trouble = staticmethod(lambda job: Ended(job))
    result = aceglt.sweep(grid(tmp_path), tmp_path / "out", retries=0)
    assert {cell["error"] for cell in result.failed} == {"its worker ended before the search did"}


def test_a_worker_reports_what_the_user_must_mend_and_logs_it(engine: Engine, tmp_path: Path) -> None:
    foreign = tmp_path / "out" / "runs"
    foreign.mkdir(parents=True)
    [name] = [cell.name for cell in sweeping.plan(grid(tmp_path, methods=["ugs"], axes=["model"]))]
    (foreign / name).mkdir()
    (foreign / name / "thesis.txt").touch()
    [failed] = aceglt.sweep(grid(tmp_path, methods=["ugs"], axes=["model"]), tmp_path / "out").failed
    assert engine.started == [name]
    assert failed["error"].endswith("is not empty and is no run directory; choose another --out")
    assert failed["error"] in (tmp_path / "out" / failed["log"]).read_text()


def test_an_interrupted_sweep_leaves_what_it_has_found(engine: Engine, tmp_path: Path) -> None:
    def interrupt(job: Job) -> Ended | None:
        if job.name == engine.started[0]:
            return None
        raise KeyboardInterrupt

    engine.trouble = staticmethod(interrupt)
    with pytest.raises(KeyboardInterrupt):
        aceglt.sweep(grid(tmp_path), tmp_path / "out")
    assert [cell["status"] for cell in merged(tmp_path / "out")] == ["finished"] + ["unfinished"] * 3
    assert (tmp_path / "out" / "report.html").read_text() == "1 runs"


def test_a_search_in_use_is_waited_for(engine: Engine, tmp_path: Path) -> None:
    """A worker on a node that was lost may still be at it."""
    cell = sweeping.plan(grid(tmp_path, methods=["ugs"], axes=["model"]))[0]
    run = RunDir(tmp_path / "out" / "runs" / cell.name)
    other = run.__enter__()
    engine.work = staticmethod(lambda job: work(job, wait=lambda seconds: other.__exit__(None, None, None)))
    result = aceglt.sweep(grid(tmp_path, methods=["ugs"], axes=["model"]), tmp_path / "out")
    assert result.failed == []


def test_a_search_in_use_for_long_is_an_error_that_may_pass(engine: Engine, tmp_path: Path) -> None:
    cell = sweeping.plan(grid(tmp_path, methods=["ugs"], axes=["model"]))[0]
    waits: list[float] = []
    engine.work = staticmethod(lambda job: work(job, patience=3, wait=waits.append))
    with RunDir(tmp_path / "out" / "runs" / cell.name), pytest.raises(RunInUse):
        aceglt.sweep(grid(tmp_path, methods=["ugs"], axes=["model"]), tmp_path / "out")
    assert waits == [1.0] * 3


# Before anything is trained


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levles": 3}, "unknown key 'levles'"),
        ({"datasets": ["tiny.npz", "nowhere.npz"]}, "nowhere"),
        ({"methods": ["ugs", "ace"], "method_options": {"rounds": 2}}, "method ugs has no option 'rounds'"),
        ({"split": ["given", "random:1"]}, "split=random-1"),
        ({"backbones": ["gcn", "nomodule:Net"]}, "cannot import nomodule"),
    ],
)
def test_a_grid_with_one_bad_search_is_refused_whole(
    changes: dict[str, Any], message: str, engine: Engine, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        aceglt.sweep(grid(tmp_path, **changes), tmp_path / "out")
    assert engine.started == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "slurm"}, "unknown engine 'slurm'; known are local, ray"),
        ({"device": "cuda:1"}, "unknown device 'cuda:1'"),
        ({"tickets": "some"}, "unknown tickets 'some'"),
        ({"address": "auto"}, "an address is for the engine ray"),
        ({"engine": "ray", "workers": 2}, "workers are for the engine local"),
        ({"workers": 0}, "workers must be 1 or more, found 0"),
        ({"cpus": 0}, "cpus must be 1 or more"),
        ({"gpus": 2}, "gpus must be between 0 and 1, found 2"),
        ({"memory": 0}, "memory must be between 0.001 and 1e9 GiB, found 0"),
        ({"memory": 1e-12}, "memory must be between"),
        ({"memory": float("inf")}, "memory must be between"),
        ({"memory": 1e308}, "memory must be between"),
        ({"memory": float("nan")}, "memory must be between"),
        ({"retries": -1}, "retries must be 0 or more"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        aceglt.sweep(grid(tmp_path), tmp_path / "out", **arguments)


def test_someone_elses_folder_and_one_in_use_are_refused(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(RunError, match="no folder of a sweep"):
        aceglt.sweep(grid(tmp_path), tmp_path / "mine")
    with SweepDir(tmp_path / "out"), pytest.raises(RunInUse):
        aceglt.sweep(grid(tmp_path), tmp_path / "out")
    assert engine.started == []


def test_what_a_killed_sweep_was_writing_is_removed(swept: dict[str, Any], tmp_path: Path) -> None:
    whole = files(tmp_path / "out")
    (tmp_path / "out" / ".sweep.json.abcd1234").touch()
    aceglt.sweep(swept, tmp_path / "out")
    assert files(tmp_path / "out") == whole


# The command


def _command(tmp_path: Path, text: str) -> Any:
    (tmp_path / "grid.toml").write_text(text)
    return CliRunner().invoke(cli.app, ["sweep", "grid.toml", "--out", "out"])


GRID = 'dataset = "tiny.npz"\nmethods = ["random", "ugs"]\nepochs = 3\nhidden = 8\nlevels = 1\nseeds = 1\n'


def test_the_command_prints_each_search(engine: Engine, tmp_path: Path) -> None:
    grid(tmp_path)
    outcome = _command(tmp_path, GRID)
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"^random +(none|[\d.]+) ", outcome.stdout, re.MULTILINE)
    assert "2/2 tiny-gcn-ugs-teacher-model" in outcome.stderr
    assert results_of(next((tmp_path / "out" / "runs").iterdir()))["finished"]


def test_the_command_ends_with_1_where_a_search_failed_and_names_its_log(engine: Engine, tmp_path: Path) -> None:
    grid(tmp_path)
    engine.trouble = staticmethod(lambda job: Ended(job, "boom") if "ugs" in job.name else None)
    outcome = _command(tmp_path, GRID)
    assert outcome.exit_code == 1
    assert re.search(r"failed: boom \(log: .*/out/logs/tiny-gcn-ugs-teacher-model-\S+\.log\)", outcome.stdout)
    assert "given up: boom" in outcome.stderr


def test_the_command_refuses_a_bad_grid_in_one_line(engine: Engine, tmp_path: Path) -> None:
    outcome = _command(tmp_path, "levles = 3\n")
    assert outcome.exit_code == 2
    assert outcome.stderr == "error: unknown key 'levles' in the grid; did you mean 'levels'?\n"


def test_seeds_are_added_to_a_finished_sweep(swept: dict[str, Any], tmp_path: Path) -> None:
    watches = Watches()
    more = aceglt.sweep({**swept, "seeds": 3}, tmp_path / "out", observer=watches)
    assert (watches.finished, watches.begun) == ([], ["2 of 2 levels with 2 of 3 seeds"] * 4)
    assert [cell["results"]["seeds"] for cell in more.cells] == [[0, 1, 2]] * 4
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4
    alone = aceglt.search(device="cpu", **more.cells[0]["config"])
    assert timeless(more.cells[0]["results"]) == timeless(alone.results)
    aceglt.sweep(swept, tmp_path / "out")  # asks for fewer than there are
    rows = list(csv.DictReader((tmp_path / "out" / "sweep.csv").read_text().splitlines()))
    assert [row["seeds"] for row in rows] == ["3"] * 4


def test_a_sweep_is_shown_opened_and_reported_by_its_folder(swept: dict[str, Any], tmp_path: Path) -> None:
    result = aceglt.sweep(swept, tmp_path / "out")
    again = aceglt.load_sweep(tmp_path / "out")
    assert repr(again) == repr(result)
    assert max(map(len, repr(again).splitlines()[1:])) <= 80
    assert len(again.to_dataframe()) == 4 * 3 * 2
    assert "<table" in again._repr_html_()
    shown = CliRunner().invoke(cli.app, ["show", str(tmp_path / "out"), "--levels"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    assert "random" in shown.stdout
    page = tmp_path / "page.html"
    assert CliRunner().invoke(cli.app, ["report", str(tmp_path / "out"), "-o", str(page)]).exit_code == 0
    text = page.read_text()
    assert text.count("plotly.js v") == 1
    assert not list((tmp_path / "out").glob("runs/*/report.html"))


def test_an_argument_that_there_is_not_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown keyword 'worker'; did you mean 'workers'\?"):
        aceglt.sweep(grid(tmp_path), tmp_path / "out", worker=2)  # type: ignore[call-arg]


def test_losing_levels_and_deviations_are_in_the_tables(swept: dict[str, Any], tmp_path: Path) -> None:
    result = aceglt.sweep(swept, tmp_path / "out")
    with open(tmp_path / "out" / "levels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 3
    last = result.cells[0]["results"]["levels"][-1]["test"]
    row = rows[2]
    assert (row["ran"], row["level"]) == ("random", "2")
    assert float(row["test"]) == pytest.approx(sum(last) / 2)
    assert float(row["test_std"]) == pytest.approx(abs(last[0] - last[1]) / 2**0.5)
    with open(tmp_path / "out" / "sweep.csv", newline="") as file:
        first = next(csv.DictReader(file))
    assert float(first["last_test"]) == pytest.approx(sum(last) / 2)


WITHOUT_ERROR = '{"name": "x", "status": "failed", "log": "", "varied": {}, "config": {}, "results": null}'


@pytest.mark.parametrize(
    "content", ["{}", '{"cells": 3}', '{"cells": [{"name": "x"}]}', f'{{"cells": [{WITHOUT_ERROR}]}}', "not JSON"]
)
def test_a_damaged_sweep_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text("{}")
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(RunError, match=r"sweep\.json: damaged"):
        aceglt.load_sweep(tmp_path)
