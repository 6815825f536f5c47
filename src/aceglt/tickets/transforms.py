"""A ticket as a PyG transform."""

from __future__ import annotations

from typing import Any

from torch_geometric.transforms import BaseTransform

from aceglt.tickets.applied import check_unseen
from aceglt.tickets.ticket import Ticket


class ApplyTicket(BaseTransform):  # type: ignore[misc]  # PyG is not typed
    """Remove the ticket's dead edges from a `Data`; see `Ticket.apply`.

    Examples:
        >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
        >>> transform = aceglt.ApplyTicket(ticket)
        >>> transform(data).num_edges < data.num_edges
        True
    """

    def __init__(self, ticket: Ticket, unseen: str = "error") -> None:
        check_unseen(unseen)
        self.ticket, self.unseen = ticket, unseen

    def forward(self, data: Any) -> Any:
        return self.ticket.apply(data, self.unseen)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(graph sparsity {self.ticket.graph_sparsity:.4f}, unseen={self.unseen!r})"
