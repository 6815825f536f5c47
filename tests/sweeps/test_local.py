"""Workers that are processes: killed ones, orphans, and how many fit."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from engine_samples import without_processes
from search_samples import command, environment, events
from sweep_samples import Watches, grid, merged, tickets

import aceglt
from aceglt.errors import ConfigError
from aceglt.runs.directory import read_json
from aceglt.sweeps import engines
from aceglt.sweeps.engines import LocalEngine, Need

STUCK = """
import os, signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from aceglt.methods import Random

@dataclass(frozen=True)
class Stuck(Random):
    name: ClassVar[str] = "stuck"

    def select(self, level):
        if level.number == 2 and not Path("free").exists():
            with open("pipe", "w") as pipe:
                print(os.getpid(), file=pipe, flush=True)
                signal.pause()
        return super().select(level)
"""
"""A method that gets stuck at the second level, unless there is a file that frees it, and says where in a pipe."""


class _Pipe:
    """Waits for a worker to get stuck, and for its end: only its process holds the pipe open."""

    def __init__(self, folder: Path) -> None:
        (folder / "stuck.py").write_text(STUCK)
        os.mkfifo(folder / "pipe")
        self._free, self._end = folder / "free", os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    def process(self) -> int:
        """The worker that is stuck; the next one will not be."""
        number = int(self._read())
        self._free.touch()
        return number

    def wait_for_end(self) -> None:
        assert self._read() == b""

    def _read(self) -> bytes:
        assert select.select([self._end], [], [], 120)[0], "no worker has got there"
        return os.read(self._end, 100)


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Pipe:
    monkeypatch.chdir(tmp_path)
    return _Pipe(tmp_path)


def test_a_killed_worker_is_replaced_and_the_sweep_ends_as_an_undisturbed_one(tmp_path: Path, pipe: _Pipe) -> None:
    killed: list[str] = []

    def kill(levels: Mapping[str, int]) -> None:
        for name, level in levels.items():
            if "Stuck" in name and level >= 1 and not killed:
                killed.append(name)
                os.kill(pipe.process(), signal.SIGKILL)

    watches, wanted = Watches(kill), grid(tmp_path, methods=["random", "stuck:Stuck"], axes=["joint"], seeds=1)
    result = aceglt.sweep(wanted, tmp_path / "out", device="cpu", workers=2, observer=watches)
    assert watches.failures == [(killed[0], "its worker was killed by SIGKILL", True)]
    assert result.failed == []
    assert len(events(tmp_path / "out" / "runs" / killed[0], "resume")) == 1
    assert "random" in (tmp_path / "out" / "report.html").read_text()
    for cell in result.cells:
        aceglt.search(device="cpu", out=tmp_path / "alone" / "runs" / cell["name"], report=False, **cell["config"])
    assert tickets(tmp_path / "out") == tickets(tmp_path / "alone") != {}
    assert [cell["name"] for cell in merged(tmp_path / "out")] == [cell["name"] for cell in result.cells]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow)]
)
def test_a_stopped_sweep_takes_its_workers_with_it_and_continues(
    number: int, code: int, tmp_path: Path, pipe: _Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    npz = grid(tmp_path)["datasets"][0]
    (tmp_path / "grid.toml").write_text(
        f'dataset = "{npz}"\nmethod = "stuck:Stuck"\nsignal = "labels"\nepochs = 3\nlevels = 2\nhidden = 8\n'
    )
    words = ("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--device", "cpu")
    process = subprocess.Popen(
        command(*words), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        preexec_fn=_heed_interrupts,
    )  # fmt: skip
    pipe.process()
    process.send_signal(number)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == code, complaints
    assert "Traceback" not in complaints
    pipe.wait_for_end()
    without_processes(monkeypatch)
    result = aceglt.sweep(tmp_path / "grid.toml", tmp_path / "out", device="cpu")
    assert result.failed == []
    assert len(events(tmp_path / "out" / "runs" / result.cells[0]["name"], "resume")) == 1


def _heed_interrupts() -> None:
    """A suite that a shell runs in the background ignores SIGINT, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.gpu
def test_two_searches_share_a_gpu(tmp_path: Path) -> None:
    result = aceglt.sweep(grid(tmp_path, axes=["joint"]), tmp_path / "out", device="cuda", gpus=0.5)
    assert result.failed == []
    for cell in result.cells:
        assert read_json(tmp_path / "out" / "runs" / cell["name"] / "environment.json")["device"] != "cpu"


GIB = 2**30


@pytest.mark.parametrize(
    ("need", "gpus", "expected"),
    [
        (Need(1, GIB), [], 8),
        (Need(4, GIB), [], 2),
        (Need(1, 5 * GIB), [], 3),
        (Need(16, 64 * GIB), [], 1),
        (Need(1, GIB), ["0", "1"], 2),
        (Need(1, GIB, gpus=0.5), ["0", "1"], 4),
        (Need(1, GIB, "cpu"), ["0", "1"], 8),
        (Need(1, GIB, gpus=0), ["0", "1"], 8),
    ],
)
def test_as_many_workers_as_fit(need: Need, gpus: list[str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "cores", lambda: 8)
    monkeypatch.setattr(engines, "free_memory", lambda device: 16 * GIB)
    monkeypatch.setattr(engines, "visible_gpus", lambda: gpus)
    engine = LocalEngine(need)
    assert engine.workers == expected
    assert engine.device == ("cuda" if gpus and need.device != "cpu" and need.gpus != 0 else "cpu")


@pytest.mark.parametrize("need", [Need(1, GIB, "cuda"), Need(1, GIB, gpus=0.5)])
def test_a_gpu_that_is_not_there_is_refused(need: Need, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "visible_gpus", list)
    with pytest.raises(ConfigError, match="there is no GPU here"):
        LocalEngine(need)


def test_a_share_of_a_gpu_does_not_go_with_the_cpu() -> None:
    with pytest.raises(ConfigError, match="device 'cpu' does not go with"):
        LocalEngine(Need(1, GIB, "cpu", 0.5))


def test_signals_without_a_name_are_told_by_their_number() -> None:
    assert engines.signal_name(signal.SIGKILL) == "SIGKILL"
    assert engines.signal_name(signal.SIGRTMIN + 1) == f"signal {signal.SIGRTMIN + 1}"


def test_no_share_of_a_gpu_does_not_go_with_one() -> None:
    with pytest.raises(ConfigError, match="device 'cuda' does not go with no share of a GPU"):
        Need(1, GIB, "cuda", 0).on(1)


def test_this_machine_has_cores() -> None:
    assert engines.cores() >= 1
