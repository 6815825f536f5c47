"""Killed at any moment, the same command continues and ends as an undisturbed run does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from search_samples import TINY, Breaks, Stop, command, environment, events, files, npz, outcome, search

from aceglt import runner

ACE: dict[str, Any] = {
    "method": "ace", "axis": "model", "signal": "teacher", "seeds": 1, "epochs": 2,
    "method_options": {"rounds": 1, "refine_epochs": 1},
}  # fmt: skip


@pytest.fixture
def _no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report takes longer than these searches."""
    monkeypatch.setattr(runner, "write_report", lambda runs, path: path.write_text("report"))


def _callbacks(folder: Path, **settings: Any) -> int:
    observer = Breaks(None)
    search(out=folder, observer=observer, **settings)
    return observer.calls


@pytest.mark.usefixtures("_no_report")
@pytest.mark.parametrize("settings", [ACE, {**TINY, "tickets": "all", "epochs": 2}], ids=["ace", "ugs"])
def test_a_search_broken_at_any_moment_ends_as_an_undisturbed_one(settings: dict[str, Any], tmp_path: Path) -> None:
    moments = _callbacks(tmp_path / "whole", **settings)
    assert moments > 20
    expected = outcome(tmp_path / "whole")
    for moment in range(1, moments + 1):
        run = tmp_path / f"broken-{moment}"
        with pytest.raises(Stop):
            search(out=run, observer=Breaks(moment), **settings)
        assert outcome_is_readable(run)
        search(out=run, **settings)
        assert outcome(run) == expected, f"broken at callback {moment}"
        assert files(run) == files(tmp_path / "whole")


def outcome_is_readable(run: Path) -> bool:
    """Whatever is there is whole."""
    return not (run / "results.json").exists() or outcome(run)[0]["finished"] is False


@pytest.mark.usefixtures("_no_report")
@pytest.mark.parametrize("after", [9, 13])
def test_a_search_broken_again_and_again_ends_as_an_undisturbed_one(after: int, tmp_path: Path) -> None:
    search(out=tmp_path / "whole", levels=3)
    breaks = 0
    while True:
        try:
            search(out=tmp_path / "run", levels=3, observer=Breaks(after))
            break
        except Stop:
            breaks += 1
            assert breaks < 20, "no progress"
    assert breaks >= 3
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


class _Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.usefixtures("_no_report")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_search_killed_around_any_write_ends_as_an_undisturbed_one(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.replace, 0

    def replace(*paths: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == deadly and moment == "before":
            raise _Killed
        real(*paths)
        if calls == deadly:
            raise _Killed

    search(out=tmp_path / "whole", **ACE)
    deadly = 0
    while calls >= deadly:  # until a search ends with fewer writes
        deadly, calls, run = deadly + 1, 0, tmp_path / f"killed-{deadly}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                search(out=run, **ACE)
            except _Killed:
                calls = deadly
            else:
                calls = 0
        search(out=run, **ACE)
        assert outcome(run) == outcome(tmp_path / "whole"), f"killed {moment} write {deadly}"
        assert files(run) == files(tmp_path / "whole")
    assert deadly > 10


def test_an_interrupted_search_repeats_only_the_stage_it_was_in(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        search(out=tmp_path / "run", levels=1, observer=Breaks(20))  # in the middle of the first retraining
    search(out=tmp_path / "run", levels=1)
    assert [(e["level"], e["phase"]) for e in events(tmp_path / "run", "phase")] == [
        (0, "dense"), (1, "score"), (1, "retrain"), (1, "retrain"),
    ]  # fmt: skip
    assert [e["level"] for e in events(tmp_path / "run", "resume")] == [0]


# Real processes


class _Commands:
    """One command line, to be repeated, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._graph = npz(folder)

    def start(self, run: Path) -> subprocess.Popen[str]:
        arguments = command(
            "search", "--dataset", self._graph, "--hidden", "16", "--levels", "3", "--seeds", "2", "--epochs", "60",
            "-m", "rounds=1", "-m", "refine_epochs=20", "--tickets", "all", "--device", "cpu", "--out", run,
        )  # fmt: skip
        return subprocess.Popen(arguments, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, run: Path) -> str:
        process = self.start(run)
        printed, complaints = process.communicate(timeout=120)
        assert process.returncode == 0, complaints
        return printed

    def stop(self, run: Path, number: int, lines: int, moment: float = 0.0) -> tuple[int, str]:
        """Send a signal once the log has so many more lines, and a moment later; returns exit code and stderr."""
        process = self.start(run)
        wanted = _lines(run) + lines
        for _ in range(6000):
            if _lines(run) >= wanted or _ended_within(process, 0.01):
                break
        if not _ended_within(process, moment):
            process.send_signal(number)
        _, complaints = process.communicate(timeout=120)
        return process.returncode, complaints


def _lines(run: Path) -> int:
    log = run / "events.jsonl"
    return len(log.read_bytes().splitlines()) if log.exists() else 0


def _ended_within(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> _Commands:
    return _Commands(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def undisturbed(commands: _Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    commands.finish(run)
    return run


def test_a_killed_process_continues_to_the_same_end(commands: _Commands, undisturbed: Path, tmp_path: Path) -> None:
    draw = random.Random(2023)
    codes = [commands.stop(tmp_path / "run", signal.SIGKILL, draw.randint(2, 4), 0.2 * draw.random()) for _ in range(3)]
    assert [code for code, _ in codes].count(-signal.SIGKILL) >= 2
    commands.finish(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)
    assert files(tmp_path / "run") == files(undisturbed)
    assert len(events(tmp_path / "run", "start") + events(tmp_path / "run", "resume")) >= 3


def test_interrupt_and_termination_end_with_their_codes_and_the_run_continues(
    commands: _Commands, undisturbed: Path, tmp_path: Path
) -> None:
    for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        code, complaints = commands.stop(tmp_path / "run", number, 3)
        assert code == expected, complaints
        assert complaints.splitlines()[-1] == "interrupted; the same command continues where it stopped"
        assert "Traceback" not in complaints
    commands.finish(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(undisturbed)
