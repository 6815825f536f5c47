"""Retraining a ticket in isolation, against dense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from campaign_table import Tell
from search_samples import graph, npz, search

import aceglt
from aceglt import Ticket, evaluate
from aceglt.backbones import Params
from aceglt.errors import ConfigError, DataError, TicketError
from aceglt.searches.statistics import Readings
from aceglt.tickets import evaluation
from aceglt.tickets.evaluation import Comparison, Evaluation, retrain
from aceglt.training.setup import build_backbone


@pytest.fixture(scope="module")
def ticket() -> Ticket:
    return search(tickets="all", epochs=10).tickets[0]


def test_ticket_and_dense_are_each_trained_as_often_as_asked(ticket: Ticket) -> None:
    result = evaluate(ticket, graph(), seeds=3, device="cpu")
    for readings in (result.ticket, result.dense, result.fresh.ticket, result.fresh.dense):
        assert readings.test is not None
        assert len(readings.val) == len(readings.test) == 3
        assert all(0 <= value <= 1 for value in readings.val + readings.test)


def test_an_evaluation_can_be_repeated_and_its_seeds_do_not_depend_on_their_number(ticket: Ticket) -> None:
    one, many = (evaluate(ticket, graph(), seeds=n, device="cpu") for n in (2, 4))
    assert many == evaluate(ticket, graph(), seeds=4, device="cpu")
    assert many.ticket.val[:2] == one.ticket.val
    assert many.dense.test is not None
    assert one.dense.test == many.dense.test[:2]


def test_a_ticket_that_prunes_nothing_equals_dense(ticket: Ticket) -> None:
    start = torch.ones_like(ticket.masks.weights)
    full = replace(ticket.masks, weights=start, edges=torch.ones_like(ticket.masks.edges))
    problem = aceglt.Problem.from_data(graph())
    initial = build_backbone(ticket.config, problem).init([ticket.seed])
    result = evaluate(replace(ticket, masks=full, initial=initial), graph(), seeds=3, device="cpu")
    assert result.ticket == result.dense
    assert result.winning["paper"]
    assert result.winning["strict"]


def test_a_saved_ticket_gives_the_same_evaluation(ticket: Ticket, tmp_path: Path) -> None:
    ticket.save(tmp_path / "ticket")
    again = evaluate(tmp_path / "ticket", graph(), seeds=2, device="cpu")
    assert again == evaluate(ticket, graph(), seeds=2, device="cpu")


def test_the_graph_may_lie_in_a_file(ticket: Ticket, tmp_path: Path) -> None:
    found = evaluate(ticket, dataset=str(npz(tmp_path)), seeds=2, device="cpu")
    assert found == evaluate(ticket, graph(), seeds=2, device="cpu")


def test_another_graph_is_refused(ticket: Ticket) -> None:
    with pytest.raises(TicketError, match="was found on a graph with 24 nodes"):
        evaluate(ticket, graph(seed=1), device="cpu")


def test_other_features_are_refused(ticket: Ticket) -> None:
    data = graph()
    data.x = data.x[:, :4]
    with pytest.raises(TicketError, match="were its features or classes changed"):
        evaluate(ticket, data, device="cpu")


def test_a_rewound_ticket_says_so_and_starts_from_the_weights_of_that_epoch() -> None:
    rewound = search(tickets="all", epochs=4, rewind_epoch=2).tickets[0]
    assert "4 epochs, rewound to epoch 2" in repr(rewound)
    plain = search(tickets="all", epochs=4).tickets[0]
    assert not torch.equal(rewound.initial.prunable, plain.initial.prunable)
    result = evaluate(rewound, graph(), seeds=2, device="cpu")
    assert result.dense == evaluate(plain, graph(), seeds=2, device="cpu").dense


def test_initial_weights_that_the_seed_does_not_give_are_refused(ticket: Ticket) -> None:
    forged = replace(ticket, initial=Params(ticket.initial.prunable * 2, ticket.initial.other))
    with pytest.raises(TicketError, match="initial weights"):
        evaluate(forged, graph(), device="cpu")


def test_a_graph_that_cannot_be_found_by_name_is_refused(ticket: Ticket) -> None:
    with pytest.raises(ConfigError, match="given in Python; say where it is"):
        evaluate(ticket, device="cpu")
    with pytest.raises(DataError, match="unknown dataset 'elsewhere'"):
        evaluate(ticket, dataset="elsewhere", device="cpu")


def test_fewer_than_one_seed_are_refused(ticket: Ticket) -> None:
    with pytest.raises(ConfigError, match="seeds must be from 1 to 1000"):
        evaluate(ticket, graph(), seeds=0)


def test_the_test_set_is_read_once_for_each_training(ticket: Ticket) -> None:
    told: list[tuple[str, int]] = []

    class Notes:
        def on_phase(self, level: int, phase: str) -> None:
            told.append((phase, level))

        def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
            pass

        def on_test(self, level: int) -> None:
            told.append(("test", level))

    evaluate(ticket, graph(), seeds=2, device="cpu", observer=Notes())
    names = ("dense", "ticket", "dense, fresh weights", "ticket, fresh weights")
    assert told == [entry for step, name in enumerate(names) for entry in ((name, step), ("test", step))]


def test_fresh_weights_are_those_of_other_seeds_with_the_same_dropout(ticket: Ticket) -> None:
    problem = aceglt.Problem.from_data(graph())
    from aceglt.runner import build_backbone

    backbone = build_backbone(ticket.config, problem)
    start = backbone.init([seed for seed in range(3) if seed != ticket.seed])
    again = retrain(ticket, problem, backbone, start, ticket.masks)
    assert evaluate(ticket, graph(), seeds=2, device="cpu").fresh.ticket == again


def test_own_weights_help_when_they_beat_fresh_ones_on_every_seed() -> None:
    low, high = ([base + 0.01 * i for i in range(5)] for base in (0.5, 0.7))
    low[0] -= 0.02
    own, fresh = Readings(high, high), Readings(low, low)
    helped = Evaluation(own, own, "accuracy", Comparison(fresh, fresh, "accuracy")).p_weights
    harmed = Evaluation(fresh, fresh, "accuracy", Comparison(own, own, "accuracy")).p_weights
    assert helped is not None
    assert harmed is not None
    assert helped < 0.001 < 0.999 < harmed


def test_the_verdict_follows_the_readings() -> None:
    dense = Readings([0.5] * 5, [0.5, 0.6, 0.5, 0.6, 0.5])
    worse = Comparison(Readings([0.5] * 5, [0.1, 0.1, 0.2, 0.1, 0.1]), dense, "accuracy")
    assert worse.winning == {"paper": False, "strict": True, "significant": False}
    assert worse.p_worse is not None
    assert worse.p_worse < 0.01
    assert Comparison(dense, dense, "accuracy").winning == {"paper": True, "strict": True, "significant": True}


@pytest.mark.gpu
def test_an_evaluation_on_a_gpu_trains_as_many_at_once_as_fit(monkeypatch: pytest.MonkeyPatch, tell: Tell) -> None:
    data, seen = graph(nodes=400), []
    ticket = search(data, levels=1, seeds=1).tickets[0]
    spied = evaluation.fit

    def fit(*args: Any, **options: Any) -> Any:
        seen.append(options["runs_at_once"])
        return spied(*args, **options)

    monkeypatch.setattr(evaluation, "fit", fit)
    plenty = aceglt.evaluate(ticket, data, seeds=4, device="cuda")
    monkeypatch.setattr(evaluation, "free_memory", lambda device: 1 << 19)
    tight = aceglt.evaluate(ticket, data, seeds=4, device="cuda")
    assert seen == [None] * 4 + [1] * 4
    tell("GPU: plan of an evaluation", "evaluate", "as many at once as fit", trainings=8)
    assert tight.ticket.val == pytest.approx(plenty.ticket.val, abs=0.05)
