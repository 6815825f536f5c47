"""Is a ticket really winning? Retrain it in isolation and compare with dense, over fresh dropout seeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aceglt import datasets, rng
from aceglt.backbones import Backbone, Params
from aceglt.errors import ConfigError, TicketError
from aceglt.levels import SearchObserver, outputs
from aceglt.masks import Masks
from aceglt.problem import Problem
from aceglt.resolve import again
from aceglt.runner import build_backbone, pick_device
from aceglt.stats import Readings, p_worse, winning
from aceglt.tasks import build_problem
from aceglt.tasks.own import customise
from aceglt.ticket import Ticket
from aceglt.train import Training, fit


@dataclass(frozen=True)
class Evaluation:
    """Readings of the ticket and of the dense model, each trained from the same initial weights, over dropout seeds."""

    ticket: Readings
    dense: Readings
    metric: str = "accuracy"

    @property
    def winning(self) -> dict[str, bool | None]:
        """The three criteria (None: undetermined)."""
        return winning(self.dense, self.ticket)

    @property
    def p_worse(self) -> float | None:
        """One-sided paired t-test: the probability of a test result this low if the ticket were as good as dense."""
        assert self.ticket.test is not None
        assert self.dense.test is not None
        return p_worse(self.ticket.test, self.dense.test)


def evaluate(
    ticket: Ticket | str | Path,
    data: Any = None,
    *,
    seeds: int = 5,
    device: str = "auto",
    data_root: str | Path | None = None,
    dataset: str | None = None,
    observer: SearchObserver | None = None,
    backbone: Any = None,
    loss: Any = None,
    metric: Any = None,
) -> Evaluation:
    """Retrain a ticket and the dense model `seeds` times from the ticket's initial weights, on labels alone.

    Only dropout differs between the repetitions. `data` (a PyG `Data`) or `dataset` name the graph; by default it is
    the one that the ticket was found on. Raises TicketError if the graph is another one.

    Where the ticket was found with the user's own `backbone`, `loss` or `metric`, these must be given again, as objects
    or as "module:attribute": code that a file names is never run.
    """
    if seeds < 1:
        raise ConfigError(f"seeds must be 1 or more, found {seeds}")
    if not isinstance(ticket, Ticket):
        ticket = Ticket.load(ticket)
    config = ticket.config
    own = again(config.to_dict(), {"backbone": backbone, "loss": loss, "metric": metric})
    source = data if data is not None else datasets.load(dataset or config.dataset, data_root)
    problem = build_problem(config, source).to(pick_device(device))
    ticket.check(problem.graph)
    problem = customise(problem, own.loss, own.metric)
    model = build_backbone(config, problem, own)
    start = _initial_weights(ticket, model, problem)
    full = Masks.full(1, ticket.masks.total, problem.device)
    dense = _train(problem, model, ticket, start, full, seeds, 0, observer)
    ours = _train(problem, model, ticket, start, ticket.masks.to(problem.device), seeds, 1, observer)
    return Evaluation(ours, dense, problem.metric)


def _initial_weights(ticket: Ticket, backbone: Backbone, problem: Problem) -> Params:
    """W0, made anew from the seed; the ticket's own initial weights must be among them."""
    start = backbone.init([ticket.seed], problem.device)
    alive = ticket.masks.weights.to(problem.device)
    if start.prunable.shape != alive.shape:
        raise TicketError(
            f"the ticket has {alive.shape[1]} weights, the {backbone.name} for this graph {start.prunable.shape[1]}; "
            "were its features or classes changed?"
        )
    given = ticket.initial.prunable.to(problem.device)
    if not torch.allclose(start.prunable[alive], given[alive], rtol=1e-5, atol=1e-8):
        raise TicketError("the ticket's initial weights are not those that its seed gives in this version of aceglt")
    return Params(torch.where(alive, given, start.prunable), start.other)


def _train(
    problem: Problem,
    backbone: Backbone,
    ticket: Ticket,
    start: Params,
    masks: Masks,
    seeds: int,
    level: int,
    observer: SearchObserver | None,
) -> Readings:
    config = ticket.config
    if observer is not None:
        observer.on_phase(level, "ticket" if level else "dense")
    masks = Masks(masks.weights.expand(seeds, -1), masks.edges.expand(seeds, -1))
    keys = rng.keys(range(seeds), ticket.seed, "evaluate", device=problem.device)
    start = Params(start.prunable.expand(seeds, -1), start.other.expand(seeds, -1))
    training = Training(config.lr, config.weight_decay)
    result = fit(problem, backbone, start, masks, config.epochs, training, keys, observer=observer)
    assert result.params is not None
    if observer is not None:
        observer.on_test(level)
    test = problem.measure(outputs(problem, backbone, result.params, masks, "test"), "test")
    return Readings(result.val.tolist(), test.tolist())
