"""Searches killed at random, in the middle of writes too, end byte by byte as undisturbed ones; -s shows how."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from campaign import CASES, Batch, Case, Undisturbed, kill
from campaign_table import Tell
from search_samples import events, npz

SHORT = [Case("random", "gat", "node"), Case("ace", "gcn", "link")]  # the campaign kills them all


def _undisturbed(case: Case | Batch, folder: Path) -> Undisturbed:
    return Undisturbed(case, npz(folder), folder)


@pytest.mark.parametrize("case", SHORT, ids=str)
def test_a_search_killed_three_times_ends_as_an_undisturbed_one(case: Case, tmp_path: Path) -> None:
    kill(_undisturbed(case, tmp_path), 3, random.Random(2023))


def test_a_search_stopped_by_any_signal_continues_to_the_same_end(tmp_path: Path) -> None:
    undisturbed = _undisturbed(Case("ace", "gcn", "node"), tmp_path)
    run, codes = undisturbed.fresh(), {signal.SIGINT: 130, signal.SIGKILL: -9, signal.SIGTERM: 143}
    for number, expected in codes.items():
        stopped = undisturbed.start(run, at=undisturbed.steps // 4, number=number)
        assert stopped.ended() == expected, stopped.said
        assert "Traceback" not in stopped.said
        if number != signal.SIGKILL:
            assert stopped.said.splitlines()[-1] == "interrupted; the same command continues where it stopped"
    undisturbed.continued(run)
    assert len(events(run, "start") + events(run, "resume")) == 4


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_search_killed_often_ends_as_an_undisturbed_one(
    case: Case | Batch, share: float, tell: Tell, tmp_path: Path
) -> None:
    """First asked to stop, twice by each signal, then killed; one undisturbed run is what all are compared with."""
    undisturbed, draw = _undisturbed(case, tmp_path), random.Random(str(case))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        run, left = undisturbed.fresh(), 2 if share == 1 else 1  # the second time, it has continued
        while left:
            started = undisturbed.start(run)
            seconds = started.send(number, draw.uniform(0, 0.3 * undisturbed.seconds))
            if started.ended() == 0:  # too late
                undisturbed.compare(run)
                run = undisturbed.fresh()
                continue
            left -= 1
            tell("signals", str(case), "one line, then the same end, bit by bit", signals=1, seconds_to_end=seconds)
            assert started.ended() == code, started.said
            assert started.said.splitlines()[-1] == "interrupted; the same command continues where it stopped"
            assert seconds < 2
        undisturbed.continued(run)
    tally = kill(undisturbed, 6 if share == 1 else 2, draw)
    places = {f"at_{place}": count for place, count in sorted(tally.items())}
    tell("kills", str(case), "whole files, then the same end, bit by bit", kills=tally.total(), **places)
