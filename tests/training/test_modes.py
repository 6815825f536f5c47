"""A search does not depend on what else the process does: threads, and modes that torch is in."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from search_samples import Noisy, graph, search, tickets_of

import aceglt
from aceglt.errors import ConfigError
from aceglt.training.setup import usual_torch


@pytest.mark.parametrize("deterministic", [False, True])
def test_searches_in_threads_find_what_they_find_alone(deterministic: bool) -> None:
    def one(seed: int) -> list[Any]:
        settings = {"seeds": [seed], "levels": 1, "epochs": 12, "deterministic": deterministic}
        return tickets_of(search(backbone=Noisy, tickets="all", **settings))

    alone = [one(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(3))) == alone
    assert not torch.are_deterministic_algorithms_enabled()


MODES: dict[str, Any] = {
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu"),
    "another device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_caller_do_not_reach_a_search_or_an_evaluation(mode: str) -> None:
    plain, data = search(levels=1), graph()
    entered: AbstractContextManager[Any] = MODES[mode]()
    with entered:
        given = data if mode == "another device" else graph()  # made in this mode
        result = search(given, levels=1)
        evaluation = aceglt.evaluate(plain.tickets[0], given, seeds=1, device="cpu")
    assert tickets_of(result) == tickets_of(plain)
    assert evaluation == aceglt.evaluate(plain.tickets[0], data, seeds=1, device="cpu")


@pytest.fixture
def _default_type() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("_default_type")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_default_type_that_trainings_cannot_use_is_refused(dtype: torch.dtype) -> None:
    data = graph()
    torch.set_default_dtype(dtype)
    with pytest.raises(ConfigError, match=f"torch's default type is {dtype}"):
        search(data, levels=1)


@pytest.mark.usefixtures("_default_type")
def test_a_ticket_of_float32_is_evaluated_in_float64(problem: Any) -> None:
    data, ticket = graph(), search(levels=1).tickets[0]
    torch.set_default_dtype(torch.float64)
    assert len(aceglt.evaluate(ticket, data, seeds=1, device="cpu").ticket.val) == 1


def test_what_was_set_before_is_set_again() -> None:
    with torch.inference_mode():
        with usual_torch():
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()
        assert torch.is_inference_mode_enabled()
