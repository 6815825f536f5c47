"""The benchmark of a ticket: what is counted, and that measuring leaves everything as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from search_samples import graph, npz
from ticket_samples import BACKBONES, random_ticket
from typer.testing import CliRunner

from aceglt import Ticket, benchmark
from aceglt.cli import app
from aceglt.errors import ConfigError, TicketError
from aceglt.tickets.bench import Allocations, Benchmark, Latency


@pytest.fixture(scope="module", params=[*BACKBONES, "gcn, layer norm, linear skips", "sage, batch norm"])
def ticket(request: pytest.FixtureRequest) -> Ticket:
    return random_ticket(request.param, 0.3)


@pytest.fixture(scope="module")
def result(ticket: Ticket) -> Benchmark:
    return benchmark(ticket, graph(), device="cpu", repeats=3)


def test_the_plain_model_has_the_shape_of_ours(result: Benchmark) -> None:
    assert [row.variant for row in result.rows] == ["pyg", "dense", "ticket"]
    assert result["pyg"].macs == result["dense"].macs > result["ticket"].macs


def test_a_ticket_counts_what_is_alive(ticket: Ticket, result: Benchmark) -> None:
    assert result["ticket"].edges == ticket.masks.alive.edges < result["dense"].edges == ticket.masks.total.edges
    assert result["ticket"].parameters == ticket.masks.alive.weights
    assert result["pyg"].parameters == result["dense"].parameters == ticket.masks.total.weights


def test_every_figure_is_there(result: Benchmark) -> None:
    for row in result.rows:
        assert row.file_bytes > 0
        assert row.memory_bytes > graph().x.nbytes
        for latency in (row.first, row.full, row.node, row.batch):
            assert 0 < latency.median <= latency.p95
    assert result.speedup("dense") == result["dense"].first.median / result["ticket"].first.median
    assert {name.split(".")[1] for name in result.kernels} >= {"0", "1"}


def test_median_and_95th_percentile_are_in_milliseconds() -> None:
    latency = Latency.of([i / 1000 for i in range(1, 101)])
    assert latency == Latency(pytest.approx(50.5), pytest.approx(96.0))


def test_memory_is_the_most_that_was_alive_at_once() -> None:
    x = torch.zeros(1000)
    allocations = Allocations()
    with allocations:
        for _ in range(5):
            y = x + 1  # 4,000 bytes, and the last one's for a moment
            y.add_(1)
            y.view(10, 100)
        z = torch.cat([x, y])
    assert z.shape == (2000,)
    assert 12_000 <= allocations.peak <= 16_000


def test_another_graph_no_repetition_or_too_many_are_refused() -> None:
    with pytest.raises(TicketError, match="was found on"):
        benchmark(random_ticket(), graph(seed=1), device="cpu")
    with pytest.raises(ConfigError, match="repeats must be 1 or more"):
        benchmark(random_ticket(), graph(), repeats=0)
    with pytest.raises(ConfigError, match="repeats must be 10000 or fewer, found 65536"):
        benchmark(random_ticket(), graph(), repeats=65536)


def test_the_command_prints_a_table_and_writes_what_is_asked_for(tmp_path: Path) -> None:
    random_ticket(alive=0.5).save(tmp_path / "ticket")
    files = {name: str(tmp_path / name) for name in ("ticket", "b.json", "b.html")}
    arguments = ["bench", files["ticket"], "--dataset", str(npz(tmp_path)), "--repeats", "2", "--device", "cpu"]
    outcome = CliRunner().invoke(app, [*arguments, "--json", files["b.json"], "--plot", files["b.html"]])
    assert outcome.exit_code == 0, outcome.output
    assert "full graph, ms" in outcome.output
    assert "as fast as PyG" in outcome.output
    rows = json.loads(Path(files["b.json"]).read_text())["rows"]
    assert {row["variant"] for row in rows} == {"pyg", "dense", "ticket"}
    assert "one node's neighbourhood" in Path(files["b.html"]).read_text().replace("\\u0027", "'")


@pytest.mark.gpu
def test_a_gpu_is_measured_too() -> None:
    result = benchmark(random_ticket("gcn", 0.3), graph(), device="cuda", repeats=3)
    assert all(row.memory_bytes > graph().x.nbytes for row in result.rows)
    assert result.device == torch.cuda.get_device_name()
