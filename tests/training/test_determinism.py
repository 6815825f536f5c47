"""The same command gives the same bits, whatever is computed beside it and however it is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from campaign import ROWS
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


GPU_METHODS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in METHOD_OPTIONS},
    "ace": ACE,
    "paper": {**ACE, "method_options": {**ACE["method_options"], "replacement": True, "temperature": 1.0}},
}


@pytest.mark.gpu
@pytest.mark.parametrize("task", TASK_OPTIONS)
@pytest.mark.parametrize("backbone", BACKBONE_OPTIONS)
@pytest.mark.parametrize("method", GPU_METHODS)
def test_a_gpu_gives_the_same_bits_twice(method: str, backbone: str, task: str) -> None:
    layers = {"layers": 3} if backbone == "resgcn" else {}
    data = graph(nodes=400) if task != "inductive" else _with_unlabelled(graph(nodes=400))
    one, other = (
        aceglt.search(
            data, device="cuda", deterministic=True, tickets="all", backbone=backbone, task=task, axis="joint",
            levels=2, seeds=3, epochs=30, hidden=64, **layers, **GPU_METHODS[method],
        )
        for _ in range(2)
    )  # fmt: skip
    assert _found(one) == _found(other)
    ROWS.append((f"{method}-{backbone}-{task} on a GPU", "the same bits twice", f"{len(one.tickets)} tickets"))


@pytest.mark.gpu
def test_an_evaluation_on_a_gpu_gives_the_same_bits_twice() -> None:
    data = graph(nodes=400)
    ticket = aceglt.search(data, device="cuda", deterministic=True, levels=1, seeds=1, epochs=30, hidden=64, **ACE).tickets[0]  # noqa: E501  # fmt: skip
    one, other = (aceglt.evaluate(ticket, data, seeds=3, device="cuda") for _ in range(2))
    assert one == other


def _with_unlabelled(data: Any) -> Any:
    """Some training nodes are in no split any more, so that the training graph is more than labelled nodes."""
    data.train_mask = data.train_mask & (torch.arange(len(data.y)) % 4 != 0)
    return data
