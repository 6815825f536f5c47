"""Tickets of a search that is in memory."""

from __future__ import annotations

from dataclasses import replace

from aceglt.backbones.base import Params
from aceglt.config.own import is_own
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.tickets.own import Names
from aceglt.tickets.ticket import Ticket


def found_ticket(search: Search, state: State, params: Params, i: int) -> Ticket:
    """The ticket of the last level for the i-th seed, with its trained weights."""
    assert state.masks is not None
    assert state.dense is not None
    one, record, problem, config = slice(i, i + 1), state.records[-1], search.problem, search.config
    masks, start = state.masks[one], search.rewound[one]
    readings = {"": record.outcome, "dense_": state.dense}
    edge_features = search.backbone.edge_features
    return Ticket(
        config=config,
        seed=config.seeds[i],
        level=state.level,
        masks=masks.to("cpu"),
        initial=search.alive_params(start, masks).to("cpu"),
        trained=params[one].to("cpu"),
        metrics={
            f"{of}{name}": values[i] if values else None
            for of, found in readings.items()
            for name, values in (("val", found.val), ("test", found.test))
        },
        sizes={
            "in_features": problem.x.shape[1],
            "out_features": problem.out_features,
            "macs": search.macs(record.alive, unseen=record.unseen)
            if record.structure is None
            else record.structure["macs"][i],
            "dense_macs": search.macs(),
            **({"edge_features": edge_features} if edge_features else {}),
        },
        graph=replace(problem.graph.to("cpu"), edge_attr=None),
        fingerprint=problem.graph.fingerprint,
        several=problem.several,
        names=Names.of(search.backbone) if is_own(config.backbone) else None,
        backend=search.backend.description,
        method=search.method.name if is_own(config.method) else "",
        nodes=None if problem.numbers is None else problem.numbers.cpu(),
    )
