"""Is a ticket really winning, and is it the structure or the initial weights? Retrain it in isolation and compare."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from aceglt.backbones import Backbone, Params
from aceglt.config import MAX_SEEDS
from aceglt.config.checks import from_to
from aceglt.config.own import again
from aceglt.errors import TicketError
from aceglt.numerics import rng
from aceglt.numerics.masks import Masks
from aceglt.problems import build_problem
from aceglt.problems.base import Problem
from aceglt.problems.own import customise
from aceglt.searches.levels import outputs
from aceglt.searches.observer import Observer, tell
from aceglt.searches.progress import TrainingProgress, visible
from aceglt.searches.sketch import bars
from aceglt.searches.statistics import MIN_SEEDS, SIGNIFICANCE, Readings, metric_in_words, paired_t_test, winning
from aceglt.searches.wording import VERDICTS, escape, html_table, plus_minus, text_table
from aceglt.tickets import stored
from aceglt.tickets.ticket import Ticket
from aceglt.training.fit import fit
from aceglt.training.memory import PLANNED, Planner, free_memory
from aceglt.training.setup import build_backbone, build_parts, deterministic_torch, pick_device, usual_torch


@dataclass(frozen=True)
class Comparison:
    """Readings of the ticket and of the dense model, trained alike."""

    ticket: Readings
    dense: Readings
    metric: str

    @property
    def winning(self) -> dict[str, bool | None]:
        """The three criteria (None: undetermined)."""
        return winning(self.dense, self.ticket)

    @property
    def p_worse(self) -> float | None:
        """One-sided paired t-test: the probability of a test result this low if the ticket were as good as dense."""
        assert self.ticket.test is not None
        assert self.dense.test is not None
        return paired_t_test(self.ticket.test, self.dense.test, "less")


@dataclass(frozen=True, repr=False)
class Evaluation(Comparison):
    """Ticket and dense from the ticket's initial weights over dropout seeds, and both again from fresh weights."""

    fresh: Comparison
    """Each repetition from initial weights of its own, with the same dropout: what the structure alone is worth."""

    @property
    def p_weights(self) -> float | None:
        """Paired t-test: the probability of a test result this much higher than from fresh initial weights, if the
        ticket's own were no better than any others."""
        assert self.ticket.test is not None
        assert self.fresh.ticket.test is not None
        return paired_t_test(self.ticket.test, self.fresh.ticket.test, "greater")

    def __repr__(self) -> str:
        verdicts = []
        for name, pair in (("Winning", self), ("Winning from fresh weights", self.fresh)):
            told = ", ".join(f"{criterion} {VERDICTS[value]}" for criterion, value in pair.winning.items())
            verdicts.append(f"{name}? {told}{_p_value(pair.p_worse)}")
        enough = len(self.ticket.val) >= MIN_SEEDS and self.p_weights is not None
        helps = VERDICTS[self.p_weights < SIGNIFICANCE if enough else None]  # type: ignore[operator]
        verdicts.append(f"Do the ticket's own initial weights help? {helps}{_p_value(self.p_weights)}")
        return "\n".join([*text_table(self._rows(), left=2), *verdicts])

    def _repr_html_(self) -> str:
        rows, verdicts = self._rows(), repr(self).splitlines()[-3:]
        means = [(f"{row[0]} {row[1]}".strip(), float(row[3].split(" ")[0]) / 100, row[3]) for row in rows[1:]]
        drawn = bars(means, "test results")
        return f"{html_table(rows)}{drawn}<p>{'<br>'.join(map(escape, verdicts))}</p>"

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            ("initial weights", metric_in_words(self.metric), "val", "test"),
            *(
                (weights, kind, plus_minus(found.val), plus_minus(found.test))
                for name, pair in (("the ticket's", self), ("fresh", self.fresh))
                for weights, kind, found in ((name, "dense", pair.dense), ("", "ticket", pair.ticket))
            ),
        ]


def _p_value(p: float | None) -> str:
    return "" if p is None else f" (one-sided paired t-test: p = {p:.3f})"


def evaluate(
    ticket: Ticket | str | Path,
    data: Any = None,
    *,
    seeds: int = 5,
    device: str = "auto",
    data_root: str | Path | None = None,
    dataset: str | None = None,
    observer: Observer | None = None,
    backbone: Any = None,
    loss: Any = None,
    metric: Any = None,
    deterministic: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Retrain a ticket and the dense model `seeds` times on labels alone, from the ticket's initial weights and from
    fresh ones.

    With the ticket's weights only dropout differs between the repetitions; with fresh ones, each repetition has its
    own. `data` (a PyG `Data`) or `dataset` name the graph; by default it is the one that the ticket was found on.
    Raises TicketError if the graph is another one.

    Where the ticket was found with the user's own `backbone`, `loss` or `metric`, these must be given again, as objects
    or as "module:attribute": code that a file names is never run.

    `deterministic` is as in a search, and on where the ticket's search had it. `progress` is as in a search.

    Examples:
        >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
        >>> sorted(aceglt.evaluate(ticket, data, seeds=2, device="cpu").winning)
        ['paper', 'significant', 'strict']
    """
    from_to(1, MAX_SEEDS)("seeds", seeds)
    if not isinstance(ticket, Ticket):
        ticket = Ticket.load(ticket)
    stored.checked(ticket)
    config = ticket.config
    own = again(config.to_dict(), {"backbone": backbone, "loss": loss, "metric": metric})
    source = data if data is not None else ticket.load_data(dataset, data_root)
    with ExitStack() as stack:
        stack.enter_context(usual_torch())
        stack.enter_context(deterministic_torch(deterministic or config.training.deterministic))
        if observer is None and progress and visible(console := Console(stderr=True)):
            observer = stack.enter_context(TrainingProgress(console, 4 * seeds * config.training.epochs))
        problem = build_problem(config, source).to(pick_device(device))
        ticket.check(problem.graph)
        problem = customise(problem, own.loss, own.metric)
        network = build_backbone(config, problem, own)
        initial = _initial_weights(ticket, network, problem)
        own_weights = {
            which: Params(first.prunable.expand(seeds, -1), first.other.expand(seeds, -1))
            for which, first in zip(("dense", "ticket"), initial, strict=True)
        }
        others = [other for other in range(seeds + 1) if other != ticket.seed][:seeds]
        fresh = dict.fromkeys(own_weights, network.init(others, problem.device))
        as_trained = frozenset(PLANNED)  # how the ticket was trained is not the plan's to change, but how many at once
        planner = Planner(problem, network, config.replace(seeds=range(seeds)), None, as_trained)
        at_once = planner.plan(free_memory(problem.device)).runs_at_once
        masks = {"dense": Masks.full(1, ticket.masks.total, problem.device), "ticket": ticket.masks.to(problem.device)}
        readings = []
        for step, (weights, which) in enumerate(product((own_weights, fresh), masks)):
            tell(observer, "on_phase", step, f"{which}, fresh weights" if weights is fresh else which)
            readings.append(retrain(ticket, problem, network, weights[which], masks[which], step, observer, at_once))
    dense, kept, fresh_dense, fresh_kept = readings
    return Evaluation(kept, dense, problem.metric, Comparison(fresh_kept, fresh_dense, problem.metric))


def retrain(
    ticket: Ticket,
    problem: Problem,
    backbone: Backbone,
    start: Params,
    masks: Masks,
    step: int = 0,
    observer: Observer | None = None,
    runs_at_once: int | None = None,
) -> Readings:
    """Readings of one training per start, [S]: dropout differs between them. `step` is for the observer."""
    config, runs = ticket.config, len(start.prunable)
    unseen = None if masks.unseen is None else masks.unseen.expand(runs, -1)
    masks = Masks(masks.weights.expand(runs, -1), masks.edges.expand(runs, -1), unseen)
    keys = rng.keys(range(runs), ticket.seed, "evaluate", device=problem.device)
    training, parts = config.training, build_parts(config)
    tell(observer, "on_training", runs, training.epochs)
    result = fit(
        problem, backbone, start, masks, training.epochs, training, keys,
        observer=observer, runs_at_once=runs_at_once, parts=parts,
    )  # fmt: skip
    assert result.params is not None
    val = result.val
    if not parts.exact:
        val = problem.measure(outputs(problem, backbone, result.params, masks, "val"), "val")
    tell(observer, "on_test", step)
    test = problem.measure(outputs(problem, backbone, result.params, masks, "test"), "test")
    return Readings(val.tolist(), test.tolist())


def _initial_weights(ticket: Ticket, backbone: Backbone, problem: Problem) -> tuple[Params, Params]:
    """What the dense model and the ticket start from: W0, made anew from the seed, which the ticket's own initial
    weights must be among, unless it was rewound to a later epoch."""
    start = backbone.init([ticket.seed], problem.device)
    alive = ticket.masks.weights.to(problem.device)
    if start.prunable.shape != alive.shape:
        raise TicketError(
            f"the ticket has {alive.shape[1]} weights, the {backbone.name} for this graph {start.prunable.shape[1]}; "
            "were its features or classes changed?"
        )
    initial = stored.checked(ticket)
    given = initial.prunable.to(start.prunable)
    own = torch.where(alive, given, start.prunable)
    if ticket.config.training.rewind_epoch:
        return start, Params(own, initial.other.to(start.other))
    if not torch.allclose(start.prunable[alive], given[alive], rtol=1e-5, atol=1e-8):
        raise TicketError("the ticket's initial weights are not those that its seed gives in this version of aceglt")
    return Params(own, start.other), Params(own, start.other)
