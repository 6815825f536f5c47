"""What got through once, with its class: nothing lost, nothing let in, one line in place of a traceback."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ogb_samples
import planetoid_samples
import pytest
import torch
from search_samples import Stop, command, environment, files, npz, search
from ticket_samples import random_ticket
from typer.testing import CliRunner

import aceglt
from aceglt import cli, datasets, runner
from aceglt.backbones import Params
from aceglt.cli.shell import Terminal
from aceglt.errors import ConfigError, DataError, RunError, TicketError, TrainingError
from aceglt.files import tensors as storage
from aceglt.files import write_checked_json
from aceglt.report import load_runs
from aceglt.report import terminal as pages
from aceglt.runs.directory import read_json, results_of
from aceglt.sweeps.grid import plan
from aceglt.tickets.ticket import Ticket


@pytest.fixture(autouse=True)
def _short_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "write_report", lambda runs, path: path.write_text("report"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "write_report", lambda runs, path: path.write_text("report"))
        search(out=path, tickets="all")
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run with all tickets."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def ticket(tmp_path: Path) -> Path:
    random_ticket(hidden=3).save(tmp_path / "ticket")
    return tmp_path / "ticket"


def refused(*arguments: str | Path) -> str:
    """The one line of a command that ends with 2."""
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    assert re.fullmatch(r"error: [^\n]+\n", result.stderr), result.stderr
    return result.stderr


# Nothing lost


def test_predictions_never_overwrite_the_ticket_or_the_graph(ticket: Path, tmp_path: Path) -> None:
    data, before = npz(tmp_path), ticket.read_bytes()
    graph_before = data.read_bytes()
    for out in (ticket, data):
        assert "is what the command reads" in refused("predict", ticket, "--dataset", data, "--out", out)
        assert "is what the command reads" in refused("bench", ticket, "--dataset", data, "--json", out)
    assert (ticket.read_bytes(), data.read_bytes()) == (before, graph_before)


def test_a_graph_that_only_the_ticket_names_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACEGLT_DATA", str(tmp_path))
    (tmp_path / "graphs").mkdir()
    data = npz(tmp_path / "graphs")
    for number, name in enumerate((str(data), "tiny")):  # by its path, and by its name among the graphs
        search(name, out=tmp_path / f"run{number}", tickets="all", levels=1, seeds=1)
        before = data.read_bytes()
        (found,) = (tmp_path / f"run{number}" / "tickets").iterdir()
        assert "is what the command reads" in refused("predict", found, "--out", data)
        assert "is what the command reads" in refused("bench", found, "--plot", data)
        assert data.read_bytes() == before


def test_two_outputs_are_not_written_into_one_file(ticket: Path, tmp_path: Path) -> None:
    out, same = tmp_path / "x", tmp_path / "." / "x"
    line = "--dataset", npz(tmp_path), "--json", out, "--plot", same
    assert "name two files" in refused("bench", ticket, *line)
    assert not out.exists()


def test_no_output_replaces_a_ticket_or_a_graph(run: Path, ticket: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    shutil.copy(ticket, other)
    graph = npz(tmp_path)
    before = graph.read_bytes()
    for path, what in ((other, "is a ticket, or holds other tensors"), (graph, "is a graph or another archive")):
        for line in (
            ("report", run, "--out", path),
            ("predict", ticket, "--out", path),
            ("bench", ticket, "--json", path),
            ("export", ticket, path, "--format", "ticket"),
        ):
            assert what in refused(*line)
    assert other.read_bytes() == ticket.read_bytes()
    assert graph.read_bytes() == before


def test_a_name_of_a_graph_that_no_file_can_have_is_refused(ticket: Path, tmp_path: Path) -> None:
    (tmp_path / "csv").touch()
    assert "unknown dataset" in refused("predict", ticket, "--out", tmp_path / "csv", "--dataset", "\0")


def test_a_comparison_overwrites_nothing_of_others_and_a_refused_one_leaves_nothing(run: Path, tmp_path: Path) -> None:
    (mine := tmp_path / "mine").mkdir()
    (mine / "pairs.csv").write_text("0,1")
    results = read_json(run / "results.json")
    (other := tmp_path / "other.json").write_text(json.dumps({**results, "method": "random", "label": "random"}))
    assert "nothing to compare" in refused("compare", run, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "is no folder of a comparison" in refused("compare", run, other, "--out", mine)
    assert files(mine) == {"pairs.csv"}
    for _ in range(2):  # its own folder it may write again
        aceglt.compare([run, other], tmp_path / "out")


def test_a_report_never_overwrites_what_it_is_made_of(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for name in ("results.json", "config.json", "final", "tickets/level_01_seed_0.safetensors"):
        assert "is what the command reads" in refused("report", run, "-o", run / name)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_report_never_overwrites_the_searches_of_a_sweep_nor_what_was_measured(run: Path, tmp_path: Path) -> None:
    (one := tmp_path / "swept" / "runs" / "one").parent.mkdir(parents=True)
    run.rename(one)
    for path in (tmp_path / "swept" / "grid.json", tmp_path / "swept" / "sweep.json", one / "savings.json"):
        path.write_text("{}")
    before = {path: path.read_bytes() for path in (tmp_path / "swept").rglob("*") if path.is_file()}
    for name in ("grid.json", "sweep.json", "runs/one/results.json", "runs/one/config.json", "runs/one/savings.json"):
        assert "is what the command reads" in refused("report", tmp_path / "swept", "--out", tmp_path / "swept" / name)
    assert "is what the command reads" in refused("report", one, "--out", one / "savings.json")
    assert {path: path.read_bytes() for path in (tmp_path / "swept").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("dataset", ["cora", "amazon-photo", "ogbn-arxiv"])
def test_raw_files_of_a_graph_are_not_overwritten(
    dataset: str, ticket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACEGLT_DATA", raising=False)
    if dataset == "cora":
        (place := tmp_path / "Cora/raw").mkdir(parents=True)
        made = {f"ind.cora.{part}": content for part, content in planetoid_samples.raw().items()}
    elif dataset == "amazon-photo":
        (place := tmp_path / dataset).mkdir()
        made = {"amazon_electronics_photo.npz": b"not even an archive"}
    else:
        place = ogb_samples.arxiv(tmp_path)
        made = {name: (place / name).read_bytes() for name in ("raw/edge.csv.gz", "split/time/valid.csv.gz")}
    for name, content in made.items():
        (place / name).write_bytes(content)
    for name in made:
        line = "--dataset", dataset, "--data-root", tmp_path
        assert "is what the command reads" in refused("predict", ticket, *line, "--out", place / name)
        assert "is what the command reads" in refused("bench", ticket, *line, "--json", place / name)
    assert {name: (place / name).read_bytes() for name in made} == made


def test_a_link_in_place_of_a_lock_leaves_what_it_leads_to(run: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (run / ".lock").unlink()
    (run / ".lock").symlink_to(tmp_path / "precious")
    search(out=run, tickets="all")
    assert (tmp_path / "precious").read_text() == "mine"


def test_another_choice_of_tickets_is_refused_and_removes_nothing(run: Path) -> None:
    before = files(run)
    for other in ("best", "none"):
        with pytest.raises(RunError, match=f"tickets: all → {other}"):
            search(out=run, tickets=other)
    assert files(run) == before


def test_what_is_not_the_searchs_is_not_touched_and_tickets_without_a_record_stay(run: Path) -> None:
    strays = ["level_xx.safetensors", "level_01_seed_9.safetensors", "level_01_seed_0.safetensors.bak", "notes"]
    for name in strays:
        (run / "tickets" / name).write_text("mine")
    recorded = read_json(run / "environment.json")
    write_checked_json(run / "environment.json", {k: v for k, v in recorded.items() if k != "tickets"})
    before = files(run)
    for _ in range(2):  # nor does a second session remove what the first has spared
        result = search(out=run, tickets="best")
        assert files(run) == before
    assert len(result.tickets) == len(aceglt.load_run(run).tickets) == 4


def test_whatever_seed_is_accepted_its_results_can_be_read(tmp_path: Path) -> None:
    largest = 2**63 - 1
    search(out=tmp_path / "run", seeds=[largest], levels=1)
    assert results_of(tmp_path / "run")["seeds"] == [largest]
    assert Ticket.load(tmp_path / f"run/tickets/level_01_seed_{largest}.safetensors").seed == largest
    with pytest.raises(ConfigError, match=r"seeds must be below 2\^63"):
        search(seeds=[largest + 1])


def _bad_on_test(value: float) -> Any:
    def metric(outputs: torch.Tensor, problem: Any, split: str) -> torch.Tensor:
        if split == "test" and value == 0:
            raise ZeroDivisionError("late")
        return torch.full((len(outputs),), value if split == "test" else 0.5)

    return metric


@pytest.mark.parametrize("value", [float("nan"), 0.0, 7.0])
def test_a_metric_that_fails_on_test_is_refused_before_anything_is_trained(value: float) -> None:
    class NoTraining:
        def on_phase(self, level: int, phase: str) -> None:
            raise Stop

    with pytest.raises(ConfigError, match=r"must be in \[0, 1\]|failed on outputs"):
        search(metric=_bad_on_test(value), observer=NoTraining())
    with pytest.raises(Stop):
        search(metric=_bad_on_test(value), test=False, observer=NoTraining())


def test_a_metric_that_becomes_nan_later_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from aceglt.problems import NodeProblem

    measure = NodeProblem.measure
    monkeypatch.setattr(
        NodeProblem, "measure", lambda self, o, split: measure(self, o, split) + (0.0 if split == "val" else torch.nan)
    )
    with pytest.raises(TrainingError, match=r"level 0: accuracy on test is \[nan, nan\]"):
        search()


def test_a_run_directory_that_is_not_utf8_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/r\xffn"))
    with pytest.raises(RunError, match=r"r\\udcffn: its name is not UTF-8; choose another --out"):
        search(out=path)
    assert not path.exists()


def test_predictions_that_overflow_are_refused(ticket: Path, tmp_path: Path) -> None:
    loaded = Ticket.load(ticket)
    huge = Params(loaded.trained.prunable * 1e37, loaded.trained.other)
    replace(loaded, trained=huge).save(ticket)
    out = tmp_path / "csv"
    assert "outputs on this graph are not finite" in refused(
        "predict", ticket, "--dataset", npz(tmp_path), "--out", out
    )
    assert not out.exists()


def test_a_teacher_of_another_shape_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    search(out=run, signal="teacher")
    payload, tensors = storage.read_tensors(run / "final", "checkpoint", 1, RunError)
    storage.write_tensors(run / "final", "checkpoint", 1, payload, {**tensors, "soft": tensors["soft"][:, :1]})
    with pytest.raises(RunError, match=r"\(predictions of shape \[2, 1, 2\], not \[2, 24, 2\]"):
        search(out=run, signal="teacher")


def test_a_search_that_stops_early_says_why(tmp_path: Path) -> None:
    result = search(axis="model", hidden=2, prune_model=0.999)
    assert [note.partition(": ")[0] for note in result.notes] == ["stopped after 0 of 2 levels"]
    assert "would keep 0 of 16 weights" in result.notes[0]
    assert search().notes == []


# Nothing let in


EVIL = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"


def shown(*parts: Any) -> str:
    """What a terminal with colours would be sent."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    terminal = Terminal(file=stream, width=200, force_terminal=True, color_system="truecolor")
    for part in parts:
        part(terminal)
    stream.flush()
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def test_names_from_outside_reach_a_terminal_as_they_are_but_for_escapes(ticket: Path, tmp_path: Path) -> None:
    loaded = replace(Ticket.load(ticket), fingerprint=f"{EVIL}[bold]:smile:")
    text = shown(lambda terminal: pages.print_ticket(terminal, loaded))
    assert not set(EVIL) & set("\x1b\x07\u202e\x9b") & set(text)
    assert "[bold]:smile:" in text
    row = shown(lambda terminal: terminal.print(pages._table(("a",), [(f"{EVIL}[red]:smile:",)])))
    assert r"\x1b[2J" in row
    assert "[red]:smile:" in row
    assert "\x1b[2J" not in row


def test_a_line_break_in_a_name_makes_no_line_of_its_own(run: Path, tmp_path: Path) -> None:
    odd = run.rename(tmp_path / "run\nerror: the disk is full")
    text = shown(lambda terminal: pages.print_run(terminal, odd, results_of(odd)))
    assert r"run\nerror: the disk is full" in text
    assert "\nerror" not in text


def test_a_ticket_with_escapes_in_it_is_refused(ticket: Path) -> None:
    payload, tensors = storage.read_tensors(ticket, "ticket", 2, TicketError)
    payload["graph"]["fingerprint"] = EVIL
    storage.write_tensors(ticket, "ticket", 2, payload, tensors)
    assert "fingerprint must be printable text" in refused("show", ticket)


def test_a_mask_that_few_bytes_claim_is_not_unpacked(ticket: Path) -> None:
    payload, tensors = storage.read_tensors(ticket, "ticket", 2, TicketError)
    payload["counts"]["weights"] = 24_000_000 * 8
    tensors["masks.weights"] = torch.zeros(1, 24_000_000, dtype=torch.uint8)
    storage.write_tensors(ticket, "ticket", 2, payload, tensors)
    with pytest.raises(TicketError, match=r"its masks: would take \S+ GiB of memory"):
        Ticket.load(ticket)


@pytest.mark.parametrize(
    ("place", "value"), [("sizes.macs", 10**4000), ("sizes.macs", 2**63), ("level", 1e308), ("seed", "9" * 5000),
                         ("metrics.val", 10**400), ("sizes.in_features", 0)]
)  # fmt: skip
def test_numbers_of_any_size_in_a_ticket_are_refused_in_one_line(place: str, value: Any, ticket: Path) -> None:
    payload, tensors = storage.read_tensors(ticket, "ticket", 2, TicketError)
    *path, last = place.split(".")
    (payload[path[0]] if path else payload)[last] = value
    storage.write_tensors(ticket, "ticket", 2, payload, tensors)
    assert f"{last} must be" in refused("show", ticket)


@pytest.mark.parametrize("name", ["config.json", "results.json", "environment.json", "events.jsonl", ".lock", "final"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_in_a_run_directory_is_refused(kind: str, name: str, run: Path) -> None:
    (run / name).unlink()
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to("/dev/zero")
    if name == "results.json":
        with pytest.raises(RunError, match="not a regular file"):
            results_of(run)
        return
    with pytest.raises(RunError, match=r"not a regular file|no such file"):
        search(out=run, tickets="all")


@pytest.mark.parametrize("dataset", ["cora", "ogbn-arxiv", "synthetic-proteins"])
def test_what_only_a_ticket_names_is_neither_downloaded_nor_made_at_any_size(
    dataset: str, ticket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACEGLT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, lambda *_: pytest.fail("it opens a connection"))
    loaded = Ticket.load(ticket)
    forged = replace(loaded, config=loaded.config.replace(dataset=dataset))
    with pytest.raises((DataError, TicketError), match=r"--dataset"):
        forged.load_data()


@pytest.mark.parametrize("dataset", ["Cora", "ogbn-arxiv", "amazon-photo"])
def test_what_only_a_file_of_settings_names_is_not_downloaded(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACEGLT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for module in (datasets.planetoid, datasets.ogb, datasets.collections):
        monkeypatch.setattr(module, "_download", lambda name: pytest.fail("it is downloaded"))
    (tmp_path / "tuned.json").write_text(json.dumps({"dataset": dataset}))
    line = "search", "--config", tmp_path / "tuned.json", "--out", tmp_path / "run"
    assert f"name it yourself: --dataset {dataset.lower()}" in refused(*line)
    assert not (tmp_path / "run").exists()


def test_a_graph_that_is_here_is_searched_whoever_names_it(tmp_path: Path) -> None:
    (tmp_path / "tuned.json").write_text(json.dumps({"dataset": str(npz(tmp_path))}))
    line = ["--config", "tuned.json", "--epochs", "1", "--hidden", "2", "--levels", "1", "--seeds", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner().invoke(cli.app, ["search", *line, "--device", "cpu", "--out", "run"])
    assert result.exit_code == 0, result.output


def test_a_damaged_search_does_not_keep_a_sweep_from_its_report(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        shutil.copytree(run, tmp_path / "swept" / "runs" / name)
    (tmp_path / "swept" / "grid.json").write_text("{}")
    (tmp_path / "swept" / "runs" / "one" / "config.json").write_text('{"format": 2, "x')
    (view,) = load_runs([tmp_path / "swept"], tmp_path)
    assert view.folder.endswith("two")
    assert "left out: " in caplog.text
    with pytest.raises(RunError, match="damaged"):  # whoever names it is told
        load_runs([tmp_path / "swept" / "runs" / "one"], tmp_path)
    shutil.rmtree(tmp_path / "swept" / "runs" / "two")
    with pytest.raises(RunError, match="damaged"):
        load_runs([tmp_path / "swept"], tmp_path)


def test_options_of_methods_count_towards_the_limit_of_a_grid() -> None:
    many = list(range(1, 60))
    grid = {"methods": ["ace"], "epochs": many, "method_options": {"ace": {"rounds": many, "refine_epochs": many}}}
    with pytest.raises(ConfigError, match="10000 are the most"):
        plan(grid)


# One line


def _unexpected(problem: BaseException, monkeypatch: pytest.MonkeyPatch, *more: str) -> Any:
    def fail(*args: Any) -> None:
        raise problem

    monkeypatch.setattr(Ticket, "load", fail)
    return CliRunner().invoke(cli.app, ["show", "x", *more])


def test_what_nobody_expected_is_one_line_and_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("aceglt.cli.shell._own_frames", lambda problem: [])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for problem in (ValueError("a\nb\x1b"), type("PanicException", (BaseException,), {})("rust")):
        result = _unexpected(problem, monkeypatch)
        assert result.exit_code == 2
        line = r"error: unexpected: (\w+: [^\n]+) \(a bug of ours, please report (\S+)\)\n"
        found = re.fullmatch(line, result.stderr)
        assert found, result.stderr
        assert "\x1b" not in result.stderr
        assert "Traceback" in Path(found[2]).read_text()
    assert isinstance(_unexpected(ValueError("x"), monkeypatch, "--debug").exception, ValueError)


def test_ones_own_code_is_named_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_late.py").write_text(
        "calls = []\ndef loss(outputs, problem):\n    calls.append(1)\n    if len(calls) > 3:\n"
        "        raise KeyError('mine')\n    return outputs.square().mean(dim=(1, 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    line = ["search", "--dataset", str(npz(tmp_path)), "--loss", "own_late:loss", "--epochs", "9", "--device", "cpu"]
    result = CliRunner().invoke(cli.app, [*line, "--hidden", "2", "--out", "run"])
    assert result.exit_code == 2
    assert 'own_late.py", line 5, in loss' in result.stderr
    assert "error: your own code failed (KeyError: 'mine'); the same command continues" in result.stderr
    assert "aceglt/training" not in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        ("report", "LOOP"), ("compare", "LOOP", "LOOP", "--out", "OUT"), ("show", "LOOP"), ("export", "TICKET", "LOOP"),
        ("bench", "TICKET", "--dataset", "GRAPH", "--json", "LOOP", "--plot", "LOOP"),
        ("search", "--dataset", "~nobody-is-called-that/x.npz", "--out", "OUT"),
        ("search", "--dataset", "nothing", "--data-root", "~nobody-is-called-that", "--out", "OUT"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_link_to_itself_and_the_home_of_nobody_are_refused_in_one_line(
    line: tuple[str, ...], ticket: Path, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    names = {"LOOP": tmp_path / "loop", "TICKET": ticket, "GRAPH": npz(tmp_path), "OUT": tmp_path / "out"}
    assert "unexpected" not in refused(*(names.get(word, word) for word in line))
    assert files(tmp_path) <= {"loop", "ticket", "tiny.npz"}


@pytest.mark.parametrize(
    "problem", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")], ids=str
)
def test_memory_shortage_is_called_that_and_no_file_is_blamed(
    problem: Exception, ticket: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise problem

    data = npz(ticket.parent)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "unpack", fail)
        assert refused("show", ticket) == "error: not enough memory\n"
        with pytest.raises(type(problem)):
            search(out=run, tickets="all")
    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", fail)
        line = refused("predict", ticket, "--dataset", data, "--out", ticket.parent / "csv")
        assert line == "error: not enough memory\n"


def test_an_export_on_a_full_disk_is_one_line_and_leaves_nothing(ticket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for format in ("pyg", "torch-export"):
        line = refused("export", ticket, ticket.parent / "out", "--format", format)
        assert line.endswith(": No space left on device\n")
    assert files(ticket.parent) == {"ticket"}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "cannot meet"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "cannot meet"),
        ({"ACEGLT_READ_GIB": "x"}, "ACEGLT_READ_GIB"),
        ({"ACEGLT_READ_GIB": "1e200"}, "ACEGLT_READ_GIB"),
        ({"ACEGLT_READ_GIB": "1e300"}, "ACEGLT_READ_GIB"),
    ],
)
def test_variables_of_launchers_are_refused_in_one_line(
    variables: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = npz(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert words in refused("search", "--dataset", data, "--device", "cpu", "--out", tmp_path / "run", "--epochs", "1")


def test_a_terminal_that_knows_ascii_alone_is_served(finished: Path) -> None:
    ascii_alone = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain = {**environment(), **ascii_alone}
    shown = subprocess.run(command("show", finished), capture_output=True, env=plain, check=True).stdout.decode("ascii")
    assert "Dense:       test" in shown
    assert " ? " in shown  # for ±


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
def test_a_terminal_of_no_width_is_served() -> None:
    stream = io.StringIO()
    Terminal(file=stream, _environ={"COLUMNS": "0"}).print("found")
    assert stream.getvalue() == "found\n"


def test_the_exit_code_is_right_where_nothing_can_be_printed(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        line = command("show", tmp_path / "nothing")
        assert subprocess.run(line, stdout=full, stderr=full, env=environment()).returncode == 2


def test_the_checkpoint_of_a_run_and_its_record_say_what_computed_it(run: Path) -> None:
    backend = read_json(run / "environment.json")["backend"]
    assert re.fullmatch(r"cpu \((numba [\d.]+|torch)\)", backend)
    assert Ticket.load(run / "tickets/level_01_seed_0.safetensors").backend == backend
