"""Every fault has an outcome that is defined: refused with the way out, or harmless; never a wrong result."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from campaign import Case, Undisturbed, fill
from campaign_table import Tell
from search_samples import Breaks, Stop, files, npz, outcome, search

from aceglt.errors import RunError
from aceglt.files import append_line
from aceglt.runs.directory import results_of

CASE = Case("random", "gcn", "node")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    return Undisturbed(CASE, npz(folder), folder)


# Disks


def _full(undisturbed: Undisturbed, at: int) -> bool:
    """Whether the disk was full before the search ended; if so it must have said so."""
    said = fill(undisturbed, at)
    if said is None:
        return False
    last = said.splitlines()[-1]
    assert last.startswith(f"error: {undisturbed.folder}/run-")
    assert "No space left on device" in last
    assert last.endswith(("choose another --out", "the same command continues"))
    return True


def test_a_search_on_a_full_disk_says_so_and_continues_when_there_is_space(undisturbed: Undisturbed) -> None:
    assert all(_full(undisturbed, at) for at in range(1, undisturbed.steps, 24))


@pytest.mark.slow
def test_a_disk_may_be_full_at_any_step(undisturbed: Undisturbed, share: float, tell: Tell) -> None:
    steps = range(1, undisturbed.steps + 1, round(1 / share))
    struck = sum(_full(undisturbed, at) for at in steps)
    tell("fault: disk full", str(CASE), "one line, then the same end", steps=len(steps), failed=struck)
    assert struck > 0.8 * len(steps)  # the last steps may be such that a full disk allows


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many kilobytes, or another size of it."""
    place, mounted = tmp_path / "small", False
    place.mkdir()

    def mount(size: int) -> Path:
        nonlocal mounted
        options = ("remount," if mounted else "") + f"size={size}k"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True)
        if done.returncode:
            pytest.skip(f"cannot mount: {done.stderr.decode().strip()}")
        mounted = True
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_real_file_system_that_is_too_small_is_only_a_pause(
    undisturbed: Undisturbed, tmpfs: Callable[[int], Path], tell: Tell
) -> None:
    paused = 0
    for size in range(16, 129, 16):
        run = tmpfs(size) / "run"
        started = undisturbed.start(run)
        if started.ended():
            paused += 1
            assert started.ended() == 2
            assert "No space left on device" in started.said
        tmpfs(16_384)
        undisturbed.continued(run)
        shutil.rmtree(run)
    assert paused >= 4
    tell("fault: file system too small", str(CASE), "one line, then the same end", sizes=8, failed=paused)


@pytest.mark.parametrize("at", [1, 40])
def test_a_read_only_disk_is_said_so(at: int, undisturbed: Undisturbed) -> None:
    assert "Read-only file system" in str(fill(undisturbed, at, errno.EROFS))


def test_a_line_that_was_cut_short_does_not_spoil_the_next(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'{"a": 1}\n{"b"')
    append_line(log, '{"c": 3}')
    append_line(log, '{"d": 4}')
    assert log.read_text().splitlines() == ['{"a": 1}', '{"b"', '{"c": 3}', '{"d": 4}']


# Damage


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with a short report: the real one takes longer than these searches."""
    run = tmp_path_factory.mktemp("faults") / "finished"
    search(out=run, tickets="all")
    (run / "report.html").write_text("report")
    return run


def _damaged(finished: Path, name: str, bit: int) -> Path:
    """A copy of the run with one bit of a file flipped."""
    copy = finished.with_name("damaged")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(finished, copy)
    content = bytearray((copy / name).read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    (copy / name).write_bytes(content)
    return copy


def _content(run: Path) -> Any:
    """What readers of a run are told, None if they are refused."""
    try:
        return results_of(run)
    except RunError:
        return None


def _refused(run: Path, name: str) -> bool:
    """Whether the search refuses the run; if it does, it names the file and the way out."""
    message = _complaint(run)
    if not message:
        return False
    assert str(run / name) in message or name == "config.json"
    assert "without" in message or "choose another --out" in message
    return True


def _complaint(run: Path) -> str:
    try:
        search(out=run, tickets="all")
    except RunError as problem:
        return str(problem)
    return ""


def _check(finished: Path, name: str, bit: int) -> bool:
    """Whether the search refuses this damage; if it does not, it must end as it did, and readers are told no less."""
    run = _damaged(finished, name, bit)
    told = _content(run)
    assert told is None or told.items() >= _content(finished).items()
    refused = _refused(run, name)
    if not refused:
        assert outcome(run) == outcome(finished), f"bit {bit} of {name}"
        assert _content(run) == _content(finished)
    return refused


DERIVED = {"results.json", "events.jsonl", "report.html", ".lock"}
"""Files that nothing is resumed from: written anew, or for people."""


def _bits(finished: Path, every: int | None) -> Iterator[tuple[str, int]]:
    draw = random.Random(2023)
    for name in sorted(files(finished)):
        size = (finished / name).stat().st_size
        if (finished / name).is_file():
            places = range(0, size, every) if every else [draw.randrange(size) for _ in range(4 if size else 0)]
            yield from ((name, 8 * place + draw.randrange(8)) for place in places)


def _damage(finished: Path, every: int | None, tell: Tell) -> None:
    """Flips a random bit of four bytes of each file, or of every so manyth."""
    found: dict[str, list[bool]] = {}
    for name, bit in _bits(finished, every):
        found.setdefault(name, []).append(_check(finished, name, bit))
    for name, refused in found.items():
        derived = "harmless" if name in DERIVED else "refused, or harmless"
        numbers = {"flips": len(refused), "refused": sum(refused)}
        tell(f"fault: a bit flipped in {name.partition('_')[0]}", name, derived, **numbers)
    for name, refused in found.items():
        assert any(refused) != (name in DERIVED), name
        assert all(refused) or name in DERIVED | {"config.json", "environment.json"}, name


def test_a_flipped_bit_is_refused_or_harmless(finished: Path, tell: Tell) -> None:
    _damage(finished, None, tell)


@pytest.mark.slow
def test_a_flipped_bit_anywhere_is_refused_or_harmless(finished: Path, share: float, tell: Tell) -> None:
    _damage(finished, round(10 / share), tell)


@pytest.mark.parametrize("name", ["final", "environment.json", "tickets/level_01_seed_0.safetensors"])
def test_the_way_out_of_damage_leads_to_the_same_end(name: str, finished: Path) -> None:
    run = _damaged(finished, name, 999)
    assert _refused(run, name)
    for path in (run / name, *([run / "final"] if name.startswith("tickets") else [])):
        path.unlink()
    search(out=run, tickets="all")
    assert outcome(run) == outcome(finished)
    assert files(run) == files(finished)


def _cuts(finished: Path, run: Path, lengths: Any, tell: Tell) -> None:
    """Continuing from a checkpoint cut at these lengths is refused, and works without it."""
    with pytest.raises(Stop):
        search(out=run, tickets="all", observer=Breaks(20))
    content = (run / "checkpoint").read_bytes()
    for length in lengths(len(content)):
        (run / "checkpoint").write_bytes(content[:length])
        assert _refused(run, "checkpoint"), length
    tell("fault: checkpoint cut short", str(CASE), "refused", lengths=len(lengths(len(content))))
    (run / "checkpoint").unlink()
    search(out=run, tickets="all")
    assert outcome(run) == outcome(finished)


def test_a_checkpoint_that_was_cut_is_refused(finished: Path, tmp_path: Path, tell: Tell) -> None:
    _cuts(finished, tmp_path / "run", lambda size: [0, 1, 7, 8, 9, size // 2, size - 1], tell)


@pytest.mark.slow
def test_a_checkpoint_cut_at_any_length_is_refused(finished: Path, tmp_path: Path, share: float, tell: Tell) -> None:
    _cuts(finished, tmp_path / "run", lambda size: range(0, size, round(4 / share)), tell)


# Other processes, and time


def test_of_processes_that_race_for_a_directory_one_at_a_time_works(undisturbed: Undisturbed) -> None:
    run = undisturbed.fresh()
    racing = [undisturbed.start(run) for _ in range(4)]
    losers = [started for started in racing if started.ended()]
    assert len(losers) < len(racing)
    refusal = f"error: {run}: another process is working in this directory"
    assert [(started.ended(), started.said.strip()) for started in losers] == [(2, refusal)] * len(losers)
    undisturbed.compare(run)


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(out=tmp_path / "whole")
    now = time.time()

    def back() -> float:
        nonlocal now
        now -= 3600
        return now

    monkeypatch.setattr(time, "time", back)
    with pytest.raises(Stop):
        search(out=tmp_path / "run", observer=Breaks(12))
    search(out=tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    times = [json.loads(line)["time"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert times == sorted(times, reverse=True)
    assert all(level["seconds"] >= 0 for level in results_of(tmp_path / "run")["levels"])
