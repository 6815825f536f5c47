"""The same command gives the same bits, whatever is computed beside it and however it is interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from campaign import SHORTER
from campaign_table import Tell
from samples import random_masks, tiny_problem
from search_samples import graph, outcome, search

import aceglt
from aceglt.backbones import build
from aceglt.config import BACKBONE_OPTIONS, METHOD_OPTIONS, TASK_OPTIONS, Training
from aceglt.errors import ConfigError, RunError
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts
from aceglt.runs.directory import read_json
from aceglt.tickets.ticket import Ticket
from aceglt.training.fit import fit
from aceglt.training.setup import deterministic_torch

ACE: dict[str, Any] = {"method": "ace", "signal": "teacher", "method_options": {"rounds": 1, "refine_epochs": 2}}


def _found(result: aceglt.SearchResult) -> list[tuple[Any, ...]]:
    """The masks, weights and metrics of all tickets."""
    return [
        (t.level, t.seed, t.metrics, *(x.tolist() for x in (t.masks.weights, t.masks.edges, t.trained.prunable)))
        for t in result.tickets
    ]


def test_deterministic_searches_are_recorded_as_such_and_give_the_same_bits(tmp_path: Path) -> None:
    for name in ("one", "other"):
        search(out=tmp_path / name, deterministic=True, tickets="all", **ACE)
        assert read_json(tmp_path / name / "environment.json", "")["deterministic"] is True
    assert outcome(tmp_path / "one") == outcome(tmp_path / "other")
    with pytest.raises(RunError, match="deterministic: True → False"):
        search(out=tmp_path / "one", **ACE)
    assert not torch.are_deterministic_algorithms_enabled()


def test_on_a_cpu_every_search_is_deterministic(tmp_path: Path) -> None:
    plain, held = search(tickets="all", **ACE), search(tickets="all", deterministic=True, **ACE)
    assert _found(plain) == _found(held)


@pytest.mark.parametrize("settings", [{"method": "random"}, {"method": "ugs"}, {"method": "gebt"}, ACE], ids=lambda s: s["method"])  # noqa: E501  # fmt: skip
def test_a_seed_gives_the_same_bits_alone_and_among_others(settings: dict[str, Any]) -> None:
    together = _found(search(seeds=[3, 0, 7], tickets="all", **settings))
    alone = [found for seed in (3, 0, 7) for found in _found(search(seeds=[seed], tickets="all", **settings))]
    assert sorted(together, key=lambda found: found[:2]) == sorted(alone, key=lambda found: found[:2])


@pytest.fixture
def ticket(tmp_path: Path) -> Ticket:
    return search(levels=1, seeds=1).tickets[0]


def test_an_evaluation_is_deterministic_where_it_or_the_search_is_asked_to_be(
    ticket: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(
        "aceglt.tickets.evaluation.deterministic_torch",
        lambda wanted: seen.append(wanted) or deterministic_torch(wanted),
    )
    given = [aceglt.evaluate(ticket, graph(), seeds=1, device="cpu", deterministic=wanted) for wanted in (False, True)]
    assert given[0] == given[1]
    assert seen == [False, True]


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_the_number_of_threads_changes_results_within_tolerance_only(backbone: str) -> None:
    problem = tiny_problem(nodes=300, features=200)
    model = build(backbone, 200, 3, 8 if backbone == "gat" else 64)  # eight heads
    total = Counts(model.prunable.size, problem.graph.num_edges)
    masks, start = random_masks(total, total), model.init([0], problem.device)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(
            fit(problem, model, start, masks, 3, Training(lr=0.01, weight_decay=5e-4), rng.keys([0], 1, "threads"))
        )
    for other in found[1:]:
        assert other.params is not None
        assert found[0].params is not None
        torch.testing.assert_close(other.params.prunable, found[0].params.prunable, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(other.val, found[0].val, rtol=0, atol=0.02)


def test_what_cannot_be_computed_deterministically_is_refused_and_torch_left_as_it_was() -> None:
    with pytest.raises(ConfigError, match="cannot be computed deterministically"), deterministic_torch(True):
        torch.zeros(3).put_(torch.tensor([0]), torch.tensor([1.0]))
    assert not torch.are_deterministic_algorithms_enabled()


def test_warnings_are_not_enough_other_errors_pass_and_what_was_set_before_stays_set() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with pytest.raises(ZeroDivisionError), deterministic_torch(True):
            1 / torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def _options(method: str, backbone: str = "gcn") -> dict[str, Any]:
    short = dict(option.split("=") for option in SHORTER.get(method, ()))
    if (method, backbone) == ("cgp", "resgcn"):  # whose weights do not say which features they read
        short["features"] = "0"
    return {"method": method, "method_options": {name: int(value) for name, value in short.items()}}


PAPER = {"rounds": 1, "refine_epochs": 2, "replacement": True, "temperature": 1.0}
GPU_SEARCHES: dict[str, dict[str, Any]] = {
    **{
        f"{method}-{backbone}-{task}": {**_options(method, backbone), "backbone": backbone, "task": task}
        for method, backbone, task in product(METHOD_OPTIONS, BACKBONE_OPTIONS, TASK_OPTIONS)
    },
    "ace with replacement": {"method": "ace", "method_options": PAPER},
    "bfloat16": {**_options("ace"), "precision": "bfloat16"},
    "directed": {**_options("ace"), "directed": True},
    "partitions": {**_options("ace"), "partitions": 2},
    "neighbours": {**_options("ugs"), "partitions": 2, "partition_by": "neighbours", "signal": "labels"},
    "infoclust": {**_options("ace"), "task": "link", "objective": "infoclust"},
    "deep gcn": {**_options("ace"), "layers": 3, "norm": "layer", "skip": "linear", "output": "linear"},
    "deep sage": {**_options("ugs"), "backbone": "sage", "layers": 3, "norm": "batch", "jumping": "cat"},
    "deep gin": {**_options("ugs"), "backbone": "gin", "layers": 3, "norm": "batch", "skip": "identity"},
    "deep gat": {**_options("ugs"), "backbone": "gat", "layers": 3, "norm": "layer", "skip": "linear"},
    "units": {**_options("ugs"), "structure": "units"},
    "features": {**_options("ace"), "backbone": "sage", "structure": "units,features"},
    "dropped edges": {**_options("ugs"), "drop_edge": 0.2, "rewind_epoch": 2, "early_stopping": 2},
}
"""Every method with every backbone on every task, and what takes a path of its own."""


def searched_twice(settings: dict[str, Any], device: str) -> tuple[bool, int]:
    """Whether two searches gave the same bits, and how many tickets each."""
    torch.set_num_threads(1)
    layers = {"layers": 3} if settings.get("backbone") == "resgcn" else {}
    data = graph(nodes=400) if settings.get("task") != "inductive" else _with_unlabelled(graph(nodes=400))
    one, other = (
        _found(
            aceglt.search(
                data, device=device, deterministic=True, tickets="all", axis="joint", levels=2, seeds=2, epochs=5,
                hidden=32, **layers, **settings,
            )
        )
        for _ in range(2)
    )  # fmt: skip
    return one == other, len(one)


@pytest.fixture(scope="module")
def searches(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[tuple[bool, int]]]]:
    """All that are asked for, in several processes: a search of a tiny graph leaves a GPU idle most of the time."""
    asked = [item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")]
    pool = ProcessPoolExecutor(max(1, min(10, (os.cpu_count() or 1) * 2 // 3)), get_context("spawn"))
    yield {name: pool.submit(searched_twice, GPU_SEARCHES[name], "cuda") for name in asked if name in GPU_SEARCHES}
    pool.shutdown(cancel_futures=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_SEARCHES)
def test_a_gpu_gives_the_same_bits_twice(name: str, searches: dict[str, Future[tuple[bool, int]]], tell: Tell) -> None:
    same, tickets = searches[name].result()
    tell("GPU: searched twice", name, "the same bits", searches=2, tickets=2 * tickets)
    assert same


@pytest.mark.gpu
def test_an_evaluation_on_a_gpu_gives_the_same_bits_twice() -> None:
    data = graph(nodes=400)
    settings: dict[str, Any] = {"levels": 1, "seeds": 1, "epochs": 10, "hidden": 64, **ACE}
    ticket = aceglt.search(data, device="cuda", deterministic=True, **settings).tickets[0]
    one, other = (aceglt.evaluate(ticket, data, seeds=3, device="cuda") for _ in range(2))
    assert one == other


def _with_unlabelled(data: Any) -> Any:
    """Some training nodes are in no split any more, so that the training graph is more than labelled nodes."""
    data.train_mask = data.train_mask & (torch.arange(len(data.y)) % 4 != 0)
    return data
