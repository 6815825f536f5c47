"""Two processes that train one search, against one process with the same settings."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed_worker import CASES, IN_FLOAT32, run
from search_samples import TENSORS, environment, graph, npz, search
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from aceglt import Ticket
from aceglt.errors import ConfigError
from aceglt.training import processes


class Normed(nn.Module):
    """A model with running statistics."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm1d(in_features), SAGEConv(in_features, out_features)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.conv(self.norm(x), edge_index)
        return outputs


def sparse_split() -> Data:
    """Two thirds of the nodes outside of validation and test, so that the inductive task has edges."""
    data = graph(nodes=120)
    part = torch.arange(120) // 2 % 6
    data.train_mask, data.val_mask, data.test_mask = part < 4, part == 4, part == 5
    return data


def torchrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, *map(str, arguments)], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


def two_processes(*arguments: str | Path) -> None:
    """As torchrun starts them, without its own process, which takes as long to start as each of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    command = [sys.executable, *map(str, arguments)]
    started = [
        subprocess.Popen(
            command,
            env={**environment(), **meeting, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    for process in started:
        _, complaints = process.communicate(timeout=300)
        assert process.returncode == 0, complaints


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Runs of two processes and of one, for both types of numbers."""
    together, alone = tmp_path_factory.mktemp("together"), tmp_path_factory.mktemp("alone")
    split = sparse_split()
    data = npz(together, **{name: split[name] for name in TENSORS})
    two_processes(Path(__file__).parents[1] / "distributed_worker.py", data, together)
    run(data, alone)
    return together, alone


def masks(folder: Path) -> torch.Tensor:
    tickets = [Ticket.load(path) for path in sorted((folder / "tickets").iterdir())]
    assert tickets
    return torch.cat([part.flatten() for t in tickets for part in (t.masks.weights, t.masks.edges)])


@pytest.mark.parametrize("case", CASES)
def test_in_float64_two_processes_find_the_masks_of_one(folders: tuple[Path, Path], case: str) -> None:
    together, alone = (masks(folder / "torch.float64" / case) for folder in folders)
    assert together.equal(alone)


@pytest.mark.parametrize("case", IN_FLOAT32)
def test_in_float32_they_find_nearly_all_of_them(folders: tuple[Path, Path], case: str) -> None:
    together, alone = (masks(folder / "torch.float32" / case) for folder in folders)
    assert float((together == alone).double().mean()) >= 0.999


def test_metrics_are_those_of_one_process(folders: tuple[Path, Path]) -> None:
    for case in CASES:
        together, alone = (
            json.loads((folder / "torch.float64" / case / "results.json").read_text()) for folder in folders
        )
        assert together["dense"]["test"] == alone["dense"]["test"]
        assert [level["val"] for level in together["levels"]] == [level["val"] for level in alone["levels"]]


@pytest.mark.slow
def test_torchrun_starts_the_command_line_and_one_process_writes_and_continues(tmp_path: Path) -> None:
    command = ["-m", "--", "aceglt", "search", "--dataset", npz(tmp_path), "--method", "ugs", "--signal", "labels"]
    command += ["--seeds", "1", "--epochs", "3", "--hidden", "8", "--partitions", "2", "--parts-per-step", "2"]
    first = torchrun(*command, "--levels", "1", "--out", tmp_path / "run")
    assert first.stdout.count("Ticket:") == 1  # the other process is silent
    torchrun(*command, "--levels", "2", "--out", tmp_path / "run")
    assert len(json.loads((tmp_path / "run" / "results.json").read_text())["levels"]) == 2


def test_more_processes_than_parts_of_a_step_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count", lambda: 3)
    with pytest.raises(ConfigError, match=r"3 processes share .* must be 3 or more, found parts_per_step 2"):
        search(partitions=4, parts_per_step=2)
    with pytest.raises(ConfigError, match="found partitions 1"):
        search(parts_per_step=3)


def test_running_statistics_are_refused_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "count", lambda: 2)
    with pytest.raises(ConfigError, match=r"keeps running statistics .*train it in one"):
        search(sparse_split(), backbone=Normed, hidden=None, partitions=2, parts_per_step=2)
