"""A ticket on a graph: which of its edges stay, as the ticket's model reads them."""

from __future__ import annotations

import copy
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aceglt.errors import ConfigError, DataError, TicketError
from aceglt.numerics.graph import Graph
from aceglt.problems import build_problem

if TYPE_CHECKING:
    from aceglt.tickets.ticket import Ticket

UNSEEN = ("error", "keep", "drop")


def check_unseen(unseen: str) -> None:
    """Refuse an unknown policy for what the search never saw."""
    if unseen not in UNSEEN:
        raise ConfigError(f"unknown policy '{unseen}' for what the search never saw; known are {', '.join(UNSEEN)}")


def applied(ticket: Ticket, data: Any, unseen: str) -> Any:
    """See `Ticket.apply`."""
    check_unseen(unseen)
    if not isinstance(getattr(data, "edge_index", None), Tensor):
        raise DataError(f"a ticket applies to a Data with edge_index, found {type(data).__name__}; see datasets.load")
    edge_index = data.edge_index.cpu()
    kept = _kept(ticket, data, edge_index, unseen) & (edge_index[0] != edge_index[1])
    return as_searched(data.edge_subgraph(kept.to(data.edge_index.device)), ticket.graph.directed)


def as_searched(data: Any, directed: bool) -> Any:
    """Data without self-loops with each arc once, and both directions of an undirected edge; itself if it is so."""
    arcs, size = data.edge_index, int(data.num_nodes)
    code = arcs[0] * size + arcs[1]
    each = torch.unique(code)
    twice = len(each) < len(code)
    if not twice and (directed or torch.equal(each, torch.unique(arcs[1] * size + arcs[0]))):
        return data
    values = {name: v for name in ("edge_weight", "edge_attr") if (v := getattr(data, name, None)) is not None}
    graph = Graph.from_edge_index(arcs, size, directed, **values)
    source, target = arcs if directed else arcs.sort(dim=0).values
    edge = torch.unique(source * size + target, return_inverse=True)[1]  # in the order of the graph's
    column = torch.arange(len(code), device=arcs.device)
    first = column.new_full((graph.num_edges,), len(code)).scatter_reduce(0, edge, column, "amin")
    listed, times = data.edge_subgraph(first.repeat(graph.arcs_per_edge)), graph.arcs_per_edge
    merged = {name: torch.cat([graph.values[name]] * times).to(values[name]) for name in values} if twice else {}
    return _with(listed, edge_index=graph.arcs()[0], **{n: v.view(-1, *values[n].shape[1:]) for n, v in merged.items()})


def _with(data: Any, **parts: Tensor) -> Any:
    if is_dataclass(data) and not isinstance(data, type):
        return replace(data, **parts)
    data = copy.copy(data)
    for name, value in parts.items():
        setattr(data, name, value)
    return data


def _kept(ticket: Ticket, data: Any, edge_index: Tensor, unseen: str) -> Tensor:
    """[A] bool: which columns of the data's `edge_index` stay."""
    task, num_nodes, numbers = ticket.config.task, int(data.num_nodes), ticket.nodes
    if unseen == "keep" and ticket.whole is not None:
        raise TicketError(
            "the ticket was saved for inference, without its dead edges, and cannot tell them from unseen ones; use "
            "unseen='drop', or the whole ticket"
        )
    if task == "inductive" and numbers is None:  # of an earlier version
        numbers = build_problem(ticket.config, data).numbers
    most = ticket.graph.num_nodes if numbers is None else int(numbers.max()) + 1
    if num_nodes < most and (unseen != "error" or numbers is not None):
        raise TicketError(
            f"the ticket's graph has {most} nodes, this one {num_nodes}; nodes are known by their "
            "number, so apply the ticket before taking a part of the graph"
        )
    if unseen == "error":
        _check(ticket, _searched(ticket, data, edge_index, numbers))
    stays = unseen == "keep" or (unseen == "error" and task == "inductive")
    alive = ticket.masks.edges[0]
    if numbers is None:
        return ticket.graph.expand(alive, edge_index, stays)
    number = torch.full((num_nodes,), -1).index_copy_(0, numbers, torch.arange(len(numbers)))
    edges = number[edge_index]
    seen = (edges >= 0).all(dim=0)
    kept = torch.full((edge_index.shape[1],), stays)
    kept[seen] = ticket.graph.expand(alive, edges[:, seen], stays and ticket.whole is None)
    return kept & _unseen_kept(ticket, data, edge_index) if unseen == "error" else kept


def _check(ticket: Ticket, graph: Graph) -> None:
    try:
        ticket.check_structure(graph)
    except TicketError as problem:
        if graph.num_nodes < ticket.graph.num_nodes:
            raise
        hint = "apply and predict take it with unseen='keep' or 'drop' (--unseen), for edges that the search never saw"
        raise TicketError(f"{problem}; {hint}") from None


def _unseen_kept(ticket: Ticket, data: Any, edge_index: Tensor) -> Tensor:
    """[A] bool: all columns but those of edges unseen in training that the ticket prunes."""
    problem = build_problem(ticket.config, data) if ticket.masks.unseen is not None else None
    view = problem.view("test") if problem is not None else None
    if problem is None or view is None:
        return torch.ones(edge_index.shape[1], dtype=torch.bool)
    if ticket.masks.unseen is not None and ticket.masks.unseen.shape[1] != view.first + len(view.unseen):
        raise TicketError("the ticket prunes edges unseen in training of another graph or split")
    seen = torch.ones(1, problem.graph.num_edges, dtype=torch.bool)
    return view.graph.expand(view.scatter(seen, ticket.masks.unseen)[0], edge_index)


def _searched(ticket: Ticket, data: Any, edge_index: Tensor, numbers: Tensor | None) -> Graph:
    """The graph that a search on this data is about."""
    if ticket.config.task == "link":
        return build_problem(ticket.config, data).graph
    graph = Graph.from_edge_index(edge_index, int(data.num_nodes), ticket.graph.directed)
    if numbers is None:
        return graph
    among = torch.zeros(graph.num_nodes, dtype=torch.bool).index_fill_(0, numbers, True)
    return graph.part(numbers, among[graph.edges].all(dim=0).nonzero().squeeze(1))
