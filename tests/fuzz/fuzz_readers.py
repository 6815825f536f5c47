"""The readers that are fuzzed. A new one joins by one row of READERS."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import collection_samples
import numpy as np
import ogb_samples
import planetoid_samples
import torch
import typer
from fuzz_guard import Reached
from fuzz_mutations import (
    BOMB,
    BOMBS,
    NUMBERS,
    TEXTS,
    bytes_of,
    json_of,
    json_text_of,
    npz_bomb,
    npz_of,
    pickles,
    tensors_of,
    values,
    words,
)
from hypothesis import strategies as st
from safetensors.torch import save
from search_samples import Noisy, graph, npz, tickets_of
from ticket_samples import random_ticket
from typer.testing import CliRunner

import aceglt
from aceglt import config, datasets
from aceglt.cli import app
from aceglt.cli.shell import Terminal
from aceglt.config import own
from aceglt.config.formats import FORMAT
from aceglt.datasets import planetoid
from aceglt.datasets.collections import COLLECTIONS
from aceglt.datasets.unpickle import unpickle
from aceglt.errors import AcegltError, ConfigError, DataError, RunError, TicketError, is_shortage
from aceglt.files import tensors as storage
from aceglt.methods.build import build_method
from aceglt.problems.base import Problem
from aceglt.report import load_runs
from aceglt.report import terminal as show
from aceglt.report.page import render
from aceglt.runs import checkpoint
from aceglt.runs.directory import RunDir, results_of
from aceglt.searches.levels import Search
from aceglt.searches.results import summarise
from aceglt.sweeps.compare import compare
from aceglt.sweeps.grid import plan, read_grid
from aceglt.sweeps.merged import load_sweep
from aceglt.sweeps.tune import read_settings
from aceglt.tickets.tables import read_pairs
from aceglt.tickets.ticket import Ticket

Inputs = st.SearchStrategy[Any]


@dataclass(frozen=True)
class Reader:
    """Something that takes what others wrote."""

    name: str
    inputs: Callable[[], Inputs]
    read: Callable[[Any], object]
    """Reads an input and uses what came of it; raises an AcegltError, or Reached where a training would begin."""
    campaign: int
    """Inputs in the slow campaign."""


@cache
def place() -> Path:
    """A folder of this process's own."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    _FOLDERS.append(folder)
    return Path(folder.name)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # removed at exit


def written(content: bytes, name: str) -> Path:
    path = place() / name
    path.write_bytes(content)
    return path


_OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printed(show: Callable[..., None], *given: Any) -> None:
    """Prints to a strict UTF-8 file, as a terminal would be, and nothing that a terminal obeys."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    show(Terminal(file=stream, width=120), *given)
    stream.flush()
    assert not _OBEYED.search(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]


def no_training(*args: Any, **kwargs: Any) -> Any:
    raise Reached


def training_is_out() -> mock._patch[Any]:
    return mock.patch("aceglt.searches.levels.fit", no_training)


# Tickets and checkpoints: safetensors with a payload and a digest.


def signed(kind: str, payload: Any, tensors: Mapping[str, torch.Tensor]) -> bytes:
    """A file whose digest is right, whatever is in it."""
    text = json.dumps(payload)
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    metadata = {"kind": kind, "format": "1", "payload": text, "sha256": storage._digest(text, plain)}
    return save(plain, metadata)


def storage_inputs(content: bytes, kind: str, error: type[AcegltError]) -> Inputs:
    payload, tensors = storage.read_tensors(written(content, "valid"), kind, FORMAT, error)
    end = 8 + int.from_bytes(content[:8], "little")

    def with_header(header: Any) -> bytes:
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[end:]

    return st.one_of(
        json_of(payload).map(lambda changed: signed(kind, changed, tensors)),
        json_of(payload).map(lambda changed: signed(kind, changed, tensors)),
        tensors_of(tensors).map(lambda changed: signed(kind, payload, changed)),
        json_of(json.loads(content[8:end])).map(with_header),
        bytes_of(content),
        st.binary(max_size=100),
        *[claims(payload, tensors).map(lambda claimed: signed(kind, *claimed))] * (kind == "ticket"),
    )


def claims(payload: Any, tensors: Mapping[str, torch.Tensor]) -> Inputs:
    """Masks that say to be of more elements than the file has anything of."""

    def claimed(side: str, size: int) -> tuple[Any, dict[str, torch.Tensor]]:
        bits = torch.zeros(1, size, dtype=torch.uint8)
        return {**payload, "counts": {**payload["counts"], side: 8 * size}}, {**tensors, f"masks.{side}": bits}

    sizes = st.sampled_from([1 << 16, 1 << 20, 1 << 22, 1 << 24])
    return st.builds(claimed, st.sampled_from(["weights", "edges"]), sizes)


@cache
def tickets() -> dict[str, bytes]:
    """Valid ones, of each form that a file has."""
    path = place() / "ticket.safetensors"
    small = {"axis": "joint", "levels": 1, "seeds": 1, "epochs": 1, "hidden": 4, "report": False, "device": "cpu"}
    narrow = aceglt.search(graph(), method="magnitude", structure="units", **small).tickets[0]
    links = aceglt.search(graph(), method="random", task="link", **small).tickets[0]
    made: list[tuple[str, Ticket, dict[str, Any]]] = [
        ("gcn", random_ticket(hidden=3), {}),
        ("sage", random_ticket("sage, batch norm", hidden=3), {}),
        ("gat", random_ticket("gat, batch norm, identity", hidden=3), {}),
        ("structured", narrow, {}),
        ("link", links, {}),
        ("for inference", random_ticket(hidden=3), {"parts": "inference"}),
        ("in float16", narrow, {"parts": "inference", "half": True}),
    ]
    found = {}
    for name, ticket, form in made:
        ticket.save(path, **form)
        found[name] = path.read_bytes()
    return found


def ticket_inputs() -> Inputs:
    return st.one_of([storage_inputs(content, "ticket", TicketError) for content in tickets().values()])


def read_ticket(content: bytes) -> None:
    ticket = Ticket.load(written(content, "ticket.safetensors"))
    printed(show.print_ticket, ticket)
    ticket.save(place() / "again.safetensors")
    assert Ticket.load(place() / "again.safetensors").config == ticket.config
    pruned = ticket.apply(graph())
    assert pruned.num_edges <= graph().num_edges
    outputs = ticket.model()(pruned.x, pruned.edge_index)
    assert len(outputs) == graph().num_nodes


@cache
def finished_run() -> Path:
    """A run directory with one level of random pruning over two seeds."""
    path = place() / "run"
    small = {"method": "ugs", "axis": "joint", "levels": 2, "seeds": 2, "epochs": 1, "hidden": 2, "tickets": "all"}
    with mock.patch("aceglt.runner.write_report"):
        aceglt.search(graph(), out=path, device="cpu", **small)
    return path


@cache
def tiny_search() -> Search:
    """The search of that run, to read its checkpoint into."""
    with mock.patch("aceglt.runner._Runner.go", autospec=True, side_effect=lambda runner: runner.search):
        small = {"method": "ugs", "axis": "joint", "levels": 2, "seeds": 2, "epochs": 1, "hidden": 2}
        return aceglt.search(graph(), device="cpu", **small)  # type: ignore[return-value]


def checkpoint_inputs() -> Inputs:
    return storage_inputs((finished_run() / "final").read_bytes(), "checkpoint", RunError)


def read_checkpoint(content: bytes) -> None:
    search = tiny_search()
    state = checkpoint.load(written(content, "checkpoint"), search.total, 2)
    if state.dense is not None:
        json.dumps(summarise(search, state, finished=False), allow_nan=False)
    search.start_masks(state)
    search.keep(state)


# Graphs.


def npz_inputs() -> Inputs:
    data = graph(nodes=12)
    arrays = {name: data[name].numpy() for name in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")}
    weighted = {**arrays, "edge_weight": np.ones(data.num_edges), "edge_attr": np.ones((data.num_edges, 2))}
    parts = {
        "x_data": np.ones(12),
        "x_indices": np.zeros(12, int),
        "x_indptr": np.arange(13),
        "x_shape": np.array([12, 6]),
    }
    sparse = {**arrays, **parts}
    del sparse["x"]
    several = {**arrays, "y": np.eye(12, 3)[np.arange(12) % 3]}
    unsplit = {name: arrays[name] for name in ("x", "edge_index", "y")}
    return st.sampled_from([arrays, weighted, sparse, several, unsplit]).flatmap(npz_of)


def use_graph(data: Any) -> None:
    """A problem can be made of it, or it is refused."""
    nodes = data.num_nodes
    assert len(data.x) == nodes
    assert data.edge_index.numel() == 0 or 0 <= int(data.edge_index.min()) <= int(data.edge_index.max()) < nodes
    for task in ("node", "inductive", "link"):
        Problem.from_data(data, task=task)


def read_npz(content: bytes) -> None:
    use_graph(datasets.load(str(written(npz_bomb(content) if content in BOMBS else content, "graph.npz"))))


RAW = {
    "amazon-photo": collection_samples.shchur, "questions": collection_samples.platonov,
    "wikics": collection_samples.wikics, "actor": collection_samples.actor, "flickr": collection_samples.flickr,
    "reddit": collection_samples.reddit,
}  # fmt: skip
"""A dataset of each format."""


@cache
def raw_files(name: str) -> dict[str, bytes]:
    folder = place() / "raw-valid" / name
    folder.mkdir(parents=True)
    RAW[name](folder, COLLECTIONS[name].files[0])
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def collection_inputs() -> Inputs:
    """(dataset, file, content)"""

    def changed(name: str, file: str) -> Inputs:
        content = raw_files(name)[file]
        variants: list[Inputs] = [bytes_of(content)]
        if file.endswith(".npz"):
            with np.load(io.BytesIO(content), allow_pickle=True) as found:
                arrays = {name: array for name, array in found.items() if array.ndim and array.dtype.kind in "biuf"}
            variants += [npz_of(arrays)] * 3
        elif file.endswith(".json"):
            valid = json.loads(content)
            masks = [{**valid, "train_masks": [[]] * size, "test_mask": [1] * size} for size in (50_000, 100_000)]
            variants += [json_text_of(valid)] * 3 + [st.sampled_from(masks).map(lambda tree: json.dumps(tree).encode())]
        return st.one_of(variants).map(lambda new: (name, file, new))

    files = [(name, file) for name in RAW for file in raw_files(name) if not re.search(r"_[1-9]\.npz$", file)]
    return st.sampled_from(files).flatmap(lambda row: changed(*row))


def read_collection(given: tuple[str, str, bytes]) -> None:
    name, changed, content = given
    unpacked = npz_bomb(content) if content in BOMBS else content
    folder = place() / "raw" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, valid in raw_files(name).items():
        (folder / file).write_bytes(valid if file != changed else unpacked)
    data = datasets.load(name, place() / "raw")
    several = "train_mask" in data and data.train_mask.ndim == 2
    Problem.from_data(data, split="0" if several else "given")


OGB = {"ogbn-arxiv": ogb_samples.arxiv, "ogbn-proteins": ogb_samples.proteins, "ogbl-collab": ogb_samples.collab}


@cache
def ogb_files(name: str) -> dict[str, bytes]:
    """The files of a small dataset, by their path below the data root."""
    root = place() / "ogb-valid"
    OGB[name](root)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and p.parts[-1][0] != "R"}


def ogb_inputs() -> Inputs:
    _gzip_bomb()

    def changed(name: str, path: str) -> Inputs:
        content = ogb_files(name)[path]
        variants: list[Inputs] = [bytes_of(content), pickles()]
        if path.endswith(".gz"):
            text = gzip.decompress(content)
            variants += [bytes_of(text).map(gzip.compress)] * 4 + [st.just(BOMB)]
        else:
            variants += [json_of(_pairs(content)).map(_saved), values().map(_saved)]
        return st.one_of(variants).map(lambda new: (name, path, new))

    return st.sampled_from([(name, path) for name in OGB for path in ogb_files(name)]).flatmap(
        lambda row: changed(*row)
    )


def _pairs(content: bytes) -> dict[str, Any]:
    found = torch.load(io.BytesIO(content), weights_only=False)
    return {name: array.tolist() for name, array in found.items()}


def _saved(value: Any) -> bytes:
    if isinstance(value, dict):
        value = {key: _array(part) for key, part in value.items()}
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _array(value: Any) -> Any:
    try:
        return np.array(value)
    except (ValueError, OverflowError):
        return value


@cache
def _gzip_bomb() -> bytes:
    return gzip.compress(b"1\n" * (100 << 20))


def read_ogb(given: tuple[str, str, bytes]) -> None:
    name, path, content = given
    root = place() / "ogb"
    for file, valid in ogb_files(name).items():
        target = root / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(valid if file != path else _gzip_bomb() if content == BOMB else content)
    data = datasets.load(name, root)
    Problem.from_data(data, task="link" if name == "ogbl-collab" else "node")


def planetoid_inputs() -> Inputs:
    """One of the eight files, changed."""
    raw = planetoid_samples.raw()
    return st.sampled_from(sorted(raw)).flatmap(
        lambda part: st.one_of(bytes_of(raw[part]), bytes_of(raw[part]), pickles()).map(lambda new: {**raw, part: new})
    )


def read_planetoid(files: dict[str, bytes]) -> None:
    """With the checksums of the unchanged files in place of the release's."""
    folder = place() / "Cora/raw"
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in files.items():
        (folder / f"ind.cora.{part}").write_bytes(content)
    sums = {part: planetoid.hashlib.sha256(content).hexdigest() for part, content in planetoid_samples.raw().items()}
    with mock.patch.dict(planetoid.SHA256, {"cora": sums}):
        data = planetoid.load_planetoid("cora", place())
    assert files == planetoid_samples.raw()
    assert data.num_nodes == 6


def read_pickle(files: dict[str, bytes]) -> None:
    """Behind the checksum, only this is promised: nothing is run."""
    refused = False
    for part, content in files.items():
        if part != "test.index":
            try:
                unpickle(content)
            except Exception:
                refused = True
    if refused:
        raise DataError("not a pickle of the release")


# What a run directory holds.


def run_json(name: str) -> Any:
    """Without the checksum, so that changes are looked at."""
    found = json.loads((finished_run() / name).read_text())
    return {key: value for key, value in found.items() if key != "sha256"}


def read_config(content: bytes) -> None:
    folder = place() / "config"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(content)
    found = RunDir(folder).read_config()
    assert config.Config.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found
    if not own.is_own(found.method):
        build_method(found)


def read_results(content: bytes) -> None:
    folder = place() / "results"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "results.json").write_bytes(content)
    results = results_of(folder)
    printed(show.print_run, folder, results)


def settings_inputs() -> Inputs:
    """Settings that a file has: some of a configuration."""
    valid = run_json("config.json")
    some = {name: valid[name] for name in ("method", "lr", "weight_decay", "dropout", "hidden", "norm", "epochs")}
    return st.sampled_from([some, valid]).flatmap(json_text_of)


def read_settings_file(content: bytes) -> None:
    found = config.resolve(**read_settings(written(content, "tuned.json"), {}))
    assert config.Config.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


@cache
def other_results() -> Path:
    """Another method's, which those of the run are compared with."""
    changed = {**run_json("results.json"), "method": "random"}
    return written(json.dumps(changed).encode(), "other.json")


def comparison_inputs() -> Inputs:
    valid = run_json("results.json")
    several = {"cells": [{"name": "one", "results": valid, "config": run_json("config.json")}]}
    return st.one_of(json_text_of(valid), json_text_of(valid), json_text_of(several))


def read_comparison(content: bytes) -> None:
    """A page that sets the results beside others, in which nothing of the data's is markup."""
    result = compare([written(content, "some.json"), other_results()], place() / "compared", progress=False)
    printed(show.print_comparison, result)
    page = (place() / "compared" / "comparison.html").read_bytes()
    assert b"<script>alert" not in page
    assert b"<img src=x" not in page


def sweep_inputs() -> Inputs:
    cell = {"name": "one", "status": "finished", "error": None, "log": "", "varied": {}, "environment": {}}
    settings = RunDir(finished_run()).read_config().to_dict()
    whole = {**cell, "config": settings, "results": run_json("results.json")}
    failed = {**cell, "name": "two", "status": "failed", "error": "x", "config": whole["config"], "results": None}
    return json_text_of({"format": 1, "cells": [whole, failed]})


def read_merged(content: bytes) -> None:
    folder = place() / "sweep"
    folder.mkdir(exist_ok=True)
    (folder / "sweep.json").write_bytes(content)
    result = load_sweep(folder)
    printed(show.print_sweep, result)
    result._repr_html_()


FILES = ("config.json", "environment.json", "results.json", "events.jsonl", "final")


ODD = ("folder", "dangling", "loop", "pipe", "/dev/zero", "/dev/null", "/dev/full")
"""What is no file: a name of a device is a link to it."""


def run_inputs() -> Inputs:
    """(file, content): None is no such file, a word stands for something that is no file."""

    def changed(name: str) -> Inputs:
        content = (finished_run() / name).read_bytes()
        structured = json_text_of(run_json(name)) if name.endswith(".json") else bytes_of(content)
        if name == "final":
            structured = checkpoint_inputs()
        odd = st.sampled_from([None, b"", *ODD])
        return st.one_of(structured, structured, structured, bytes_of(content), odd).map(lambda new: (name, new))

    tickets = [f"tickets/{path.name}" for path in (finished_run() / "tickets").iterdir()]
    return st.sampled_from([*FILES, *FILES, tickets[0]]).flatmap(changed)


def read_run(given: tuple[str, Any]) -> None:
    """Continue the finished run, whose results then are what they were."""
    name, folder = given[0], _damaged_run("continued", *given)
    small = {"method": "ugs", "axis": "joint", "levels": 2, "seeds": 2, "epochs": 1, "hidden": 2, "tickets": "all"}
    with training_is_out(), mock.patch("aceglt.runner.write_report"):
        aceglt.search(graph(), out=folder, device="cpu", **small)
    if name != "final":
        found = json.loads((folder / "results.json").read_text())
        assert {key: value for key, value in found.items() if key != "sha256"} == run_json("results.json")


def read_for_report(given: tuple[str, Any]) -> None:
    """A page about the run, in which nothing of the data's is markup."""
    folder = _damaged_run("reported", *given)
    page = render(load_runs([folder], folder), "").encode()
    assert b"<script>alert" not in page
    assert b"<img src=x" not in page


def _damaged_run(copy: str, name: str, content: Any) -> Path:
    """A copy of the finished run with another content in one of its files."""
    folder = place() / copy
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(finished_run(), folder)
    _put(folder / name, content)
    return folder


def _put(path: Path, content: Any) -> None:
    path.unlink()
    if content == "folder":
        path.mkdir()
    elif content == "dangling":
        path.symlink_to(path.parent / "nowhere")
    elif content == "loop":
        path.symlink_to(path)
    elif content == "pipe":
        os.mkfifo(path)
    elif isinstance(content, str):
        path.symlink_to(content)
    elif content is not None:
        path.write_bytes(content)


# Pairs of nodes.

PAIRS = b"source,target\n0,1\n2,3\n17,4\n"


def read_pairs_file(content: bytes) -> None:
    pairs = read_pairs(written(content, "pairs.csv"))
    assert pairs.dtype == torch.int64
    assert pairs.shape[0] == 2


# Grids of sweeps.

GRID = b"""dataset = "tiny.npz"
backbones = ["gcn", "gin"]
methods = ["ugs", "ace"]
seeds = [0, 1]
epochs = [1, 2]
lr = 0.01

[method_options.ace]
rounds = [1, 2]
"""


HUGE = "".join(f"{name} = {list(range(1, 60))}\n" for name in ("epochs", "hidden", "levels", "patience", "lr")).encode()


def read_sweep(content: bytes) -> None:
    for cell in plan(read_grid(written(content, "grid.toml"))):
        assert "/" not in cell.name


# The command line.

GOOD: dict[str, Sequence[str]] = {
    "--dataset": ["tiny.npz", "tiny.npz", "citeseer", "nothing.npz", "."],
    "--backbone": [*config.BACKBONE_OPTIONS, "mine:Model"],
    "--method": [*config.METHOD_OPTIONS],
    "--axis": config.AXES,
    "--task": [*config.TASK_OPTIONS],
    "--split": ["given", "random:1"],
    "--objective": ["bce", "infoclust"],
    "--edge-split": ["random", "connected"],
    "--preset": [*config.PRESETS],
    "--signal": ["teacher", "labels"],
    "--seeds": ["2", "0,4", "5-7", "0-999999999", "9-1", "1001", "0,0"],
    "--device": ["cpu", "auto", "cuda:7", "meta", "mps", "xla", "cpu:9"],
    "--data-root": [".", "~nobody-is-called-that", "loop"],
    "--tickets": ["best", "all", "none"],
    "--out": ["out", "tiny.npz", "tiny.npz/x", ".", "ticket", "pipe", "null", "link", "loop", "/dev/full",
              "run/results.json", "run/savings.json", "many/sweep.json", "many/runs/one/results.json"],
    "--json": ["out.json", "tiny.npz", "ticket", "pipe", "null", "link", "loop"],
    "--precision": ["float32", "bfloat16"],
    "--score-epoch": ["best", "last"],
    "--loss": ["mine:loss"],
    "--metric": ["mine:metric"],
    "--prunable": ["*"],
    "--method-option": ["rounds=2", "rounds=0", "keep=best", "exchange=nan", "x=1", "=", "rounds=1e999", "rounds"],
    "--unseen": ["keep", "drop", "error"],
    "--format": ["pyg", "ticket", "svg"],
    "--norm": ["layer", "batch"],
    "--skip": ["linear", "identity"],
    "--jumping": ["cat"],
    "--output": ["linear"],
    "--structure": ["units", "features", "units,features"],
    "--ignored": ["layer0", "layer9"],
    "--floors": ["layer1=0.25", "layer1=2", "=", "layer9=0.5"],
    "--ratios": ["layer1=2", "layer1=nan", "layer1"],
    "--partition-by": ["random", "neighbours"],
    "--config": ["tuned.json", "tiny.npz", "pipe", "null", "/dev/zero"],
    "--pairs": ["pairs.csv", "pipe", "null", "/dev/zero"],
    "--engine": ["local", "x"],
    "--address": [],
    "--workers": ["1"],
    "--static": ["plots", "tiny.npz", "pipe"],
    "--plot": ["plot.html", "ticket", "pipe", "null"],
    "--repeats": ["1"],
    "--cell": ["citeseer", "x"],
}  # fmt: skip
"""Values that an option takes; of all others, numbers."""

COMMANDS = {"search": [], "show": ["ticket"], "evaluate": ["ticket"], "predict": ["ticket", "--out", "csv"],
            "export": ["ticket", "served"], "datasets": [], "report": ["run", "many"], "tune": ["--out", "tuned"],
            "sweep": ["grid.toml", "--out", "swept"], "compare": ["run", "results.json", "--out", "compared"],
            "bench": ["ticket", "--repeats", "1"], "reproduce": ["--list"]}  # fmt: skip
"""Commands with the arguments that they need."""

BASE = {"search": ["--dataset", "tiny.npz", "--epochs", "1", "--hidden", "2", "--seeds", "1", "--device", "cpu"],
        "tune": ["--dataset", "tiny.npz", "--epochs", "1"], "evaluate": ["--dataset", "tiny.npz"],
        "predict": ["--dataset", "tiny.npz"], "bench": ["--dataset", "tiny.npz"]}  # fmt: skip


def options(command: str) -> list[tuple[str, Sequence[str]]]:
    """What the command takes, from its own definition."""
    found: list[tuple[str, Sequence[str]]] = []
    for parameter in typer.main.get_command(app).commands[command].params:  # type: ignore[attr-defined]
        for name in [o for o in parameter.opts if o.startswith("--")]:
            good = [] if getattr(parameter, "is_flag", False) else GOOD.get(name, ["1", "2", "0.5"])
            found.append((name, good))
    return [*found, ("--no-such-option", []), ("stray", [])]


def command_inputs() -> Inputs:
    desk()  # here: making it is no answer to an input

    def lines(command: str) -> Inputs:
        start = [command, *COMMANDS[command], *BASE.get(command, [])]
        return words(options(command)).map(lambda rest: [*start, *rest])

    return st.sampled_from(["search"] * 6 + list(COMMANDS)).flatmap(lines)


@cache
def desk() -> Path:
    folder = place() / "desk/work"
    folder.mkdir(parents=True)
    npz(folder)
    random_ticket(hidden=3).save(folder / "ticket")
    shutil.copytree(finished_run(), folder / "run")
    for name, content in (("grid.toml", GRID), ("pairs.csv", PAIRS), ("results.json", other_results().read_bytes())):
        (folder / name).write_bytes(content)
    (folder / "tuned.json").write_text('{"lr": 0.1}')
    os.mkfifo(folder / "pipe")
    (folder / "null").symlink_to("/dev/null")
    (folder / "link").symlink_to("linked")
    (folder / "loop").symlink_to("loop")
    (folder / "run/savings.json").write_text("{}")
    shutil.copytree(folder / "run", folder / "many/runs/one")
    for name in ("grid.json", "sweep.json"):
        (folder / "many" / name).write_text("{}")
    return folder


def kept() -> tuple[Any, ...]:
    """What no command may change: its inputs, and what is no file."""
    special = [(desk() / "pipe").is_fifo(), (desk() / "null").is_symlink(), (desk() / "link").is_symlink()]
    inputs = ["ticket", "tiny.npz", "grid.toml", "pairs.csv", "results.json", "tuned.json"]
    runs = ("run", "many/runs/one")
    inputs += [f"{run}/{name}" for run in runs for name in (*FILES, "savings.json") if name != "events.jsonl"]
    inputs += ["many/grid.json", "many/sweep.json"]
    return *special, Path("/dev/null").is_char_device(), *((desk() / name).read_bytes() for name in inputs)


def read_command(line: list[str]) -> None:
    """A line that is refused ends with 2 and says why; where memory ends, --debug shows the traceback in its place."""
    before, inputs = Path.cwd(), kept()
    for name in ("served", "out", "runs", "tuned", "swept", "compared", "plots"):
        shutil.rmtree(desk() / name, ignore_errors=True)
    os.chdir(desk())
    try:
        with (
            training_is_out(),
            mock.patch("aceglt.tickets.evaluation.fit", no_training),
            mock.patch("aceglt.sweeps.run.LocalEngine", no_training),
        ):
            result = CliRunner().invoke(app, line)
    finally:
        os.chdir(before)
    assert kept() == inputs
    assert "unexpected: " not in result.output, result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        if "--debug" in line and is_shortage(result.exception):
            raise ConfigError("refused")
        raise result.exception
    assert result.exit_code in (0, 2), result.output
    if result.exit_code == 2:
        assert result.output.strip()
        raise ConfigError("refused")
    assert not (desk() / "hacked").exists()


# What else the process has: modes of torch, variables of the environment, other threads.

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
MODES = {"": nullcontext, "inference": torch.inference_mode, "no gradients": torch.no_grad,
         "autocast": lambda: torch.autocast("cpu"), "meta": lambda: torch.device("meta")}  # fmt: skip
VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "ACEGLT_READ_GIB", "ACEGLT_DATA", "XDG_CACHE_HOME", "COLUMNS", "HOME")


def process_inputs() -> Inputs:
    """(type of number, mode, variables, threads)"""
    finished_run()
    for seed in range(2):
        noisy_alone(seed)  # here: what is loaded once is no answer to an input
    texts = st.one_of(st.sampled_from([text for text in TEXTS if "\0" not in text]), st.sampled_from(NUMBERS).map(str))
    variables = st.dictionaries(st.sampled_from(VARIABLES), texts, max_size=2)
    return st.tuples(st.sampled_from(DTYPES), st.sampled_from(sorted(MODES)), variables, st.integers(1, 2))


def noisy_search(seed: int) -> Any:
    settings = {"method": "random", "axis": "joint", "levels": 1, "seeds": [seed], "epochs": 2, "hidden": 2}
    return tickets_of(aceglt.search(small_graph(), device="cpu", backbone=Noisy, tickets="all", **settings))


small_graph, noisy_alone = cache(lambda: graph(nodes=12)), cache(noisy_search)


def read_process(given: tuple[torch.dtype, str, Mapping[str, str], int]) -> None:
    """Searches there are refused, or find what they find in peace."""
    dtype, mode, variables, threads = given
    expected = [noisy_alone(seed) for seed in range(threads)]
    raw = {name: value.encode(errors="surrogatepass") for name, value in variables.items()}
    safe = {name: value.decode(errors="surrogateescape") for name, value in raw.items()}
    with mock.patch.dict(os.environ, safe):
        torch.set_default_dtype(dtype)
        try:
            with MODES[mode]():
                RunDir(finished_run()).read_config()
                if threads == 1:
                    found = [noisy_search(0)]
                else:
                    with ThreadPoolExecutor(threads) as pool:
                        found = list(pool.map(noisy_search, range(threads)))
        finally:
            torch.set_default_dtype(torch.float32)
    assert dtype != torch.float32 or found == expected


READERS = (
    Reader("ticket", ticket_inputs, read_ticket, 60_000),
    Reader("checkpoint", checkpoint_inputs, read_checkpoint, 36_000),
    Reader("npz graph", npz_inputs, read_npz, 18_000),
    Reader("raw files of PyG's collections", collection_inputs, read_collection, 8_000),
    Reader("OGB files", ogb_inputs, read_ogb, 5_000),
    Reader("Planetoid files", planetoid_inputs, read_planetoid, 8_000),
    Reader("pickles behind the checksum", planetoid_inputs, read_pickle, 16_000),
    Reader("config.json", lambda: json_text_of(run_json("config.json")), read_config, 18_000),
    Reader("settings", settings_inputs, read_settings_file, 14_000),
    Reader("results.json", lambda: json_text_of(run_json("results.json")), read_results, 14_000),
    Reader("results to compare", comparison_inputs, read_comparison, 2_000),
    Reader("sweep.json", sweep_inputs, read_merged, 4_000),
    Reader("run for a report", run_inputs, read_for_report, 2_000),
    Reader("run directory", run_inputs, read_run, 2_000),
    Reader("pairs of nodes", lambda: st.one_of(bytes_of(PAIRS), st.binary(max_size=60)), read_pairs_file, 6_000),
    Reader(
        "grid of a sweep", lambda: st.one_of(bytes_of(GRID), bytes_of(HUGE), st.binary(max_size=60)), read_sweep, 6_000
    ),
    Reader("command line", command_inputs, read_command, 3_000),
    Reader("state of the process", process_inputs, read_process, 500),
)
