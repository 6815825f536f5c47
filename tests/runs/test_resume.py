"""Killed at any moment, the same command continues and ends as an undisturbed run does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from search_samples import TINY, Breaks, Stop, events, files, outcome, search

ACE: dict[str, Any] = {
    "method": "ace", "axis": "model", "signal": "teacher", "seeds": 1, "epochs": 2, "levels": 1,
    "method_options": {"rounds": 1, "refine_epochs": 1},
}  # fmt: skip
UGS = {**TINY, "levels": 1, "epochs": 2}
LONGER = pytest.param({**ACE, "levels": 2}, marks=pytest.mark.slow)


def _callbacks(folder: Path, **settings: Any) -> int:
    observer = Breaks(None)
    search(out=folder, observer=observer, **settings)
    return observer.calls


@pytest.mark.parametrize("settings", [ACE, UGS, LONGER], ids=["ace", "ugs", "ace, two levels"])
def test_a_search_broken_at_any_moment_ends_as_an_undisturbed_one(settings: dict[str, Any], tmp_path: Path) -> None:
    moments = _callbacks(tmp_path / "whole", **settings)
    assert moments > 12
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


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("settings", [ACE, LONGER], ids=["one level", "two levels"])
def test_a_search_killed_around_any_write_ends_as_an_undisturbed_one(
    settings: dict[str, Any], moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writes, deadly = os.replace, 0, 0

    def replace(*paths: Any) -> None:
        nonlocal writes
        writes += 1
        if writes == deadly and moment == "before":
            raise _Killed
        real(*paths)
        if writes == deadly:
            raise _Killed

    monkeypatch.setattr(os, "replace", replace)
    search(out=tmp_path / "whole", **settings)
    for deadly in range(1, writes + 1):
        writes, run = 0, tmp_path / f"killed-{deadly}"
        with pytest.raises(_Killed):
            search(out=run, **settings)
        search(out=run, **settings)
        assert outcome(run) == outcome(tmp_path / "whole"), f"killed {moment} write {deadly}"
        assert files(run) == files(tmp_path / "whole")
    assert deadly > 8


def test_an_interrupted_search_repeats_only_the_stage_it_was_in(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        search(out=tmp_path / "run", levels=1, observer=Breaks(20))  # in the middle of the first retraining
    search(out=tmp_path / "run", levels=1)
    assert [(e["level"], e["phase"]) for e in events(tmp_path / "run", "phase")] == [
        (0, "dense"), (1, "score"), (1, "retrain"), (1, "retrain"),
    ]  # fmt: skip
    assert [e["level"] for e in events(tmp_path / "run", "resume")] == [0]
