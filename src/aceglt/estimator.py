"""A search in the manner of scikit-learn: settings first, then fit, then what was found under names that end in _."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aceglt import datasets
from aceglt.config.own import is_own
from aceglt.errors import ConfigError
from aceglt.problems import build_problem
from aceglt.report.result import SearchResult
from aceglt.runner import search
from aceglt.tickets.ticket import Ticket


class TicketSearch:
    """Finds a ticket of a graph neural network on a graph; thin over `aceglt.search`.

    Args:
        target: the sparsity to stop at, of the weights, or on the axis "graph" of the edges.
        settings: keywords of `aceglt.search`, such as backbone, method, axis, levels, seeds, epochs, out.

    After `fit`: `result_` (the `SearchResult`), `best_ticket_` (the strict winner or, where no level wins, the best on
    validation of those that were kept) and `wins_` (whether it is a winner).

    Examples:
        >>> search = aceglt.TicketSearch(backbone="gcn", method="random", target=0.3, seeds=1, epochs=2).fit(data)
        >>> search.best_ticket_.level <= len(search.result_.results["levels"])
        True
        >>> search.predict(data).shape
        torch.Size([24])
    """

    result_: SearchResult
    best_ticket_: Ticket
    wins_: bool

    def __init__(self, *, target: float | None = None, **settings: Any) -> None:
        self.target, self.settings = target, settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All that the estimator was made with."""
        return {"target": self.target, **self.settings}

    def set_params(self, **params: Any) -> TicketSearch:
        """Change some of it."""
        self.target = params.pop("target", self.target)
        self.settings = {**self.settings, **params}
        return self

    def fit(self, data: Any, y: None = None) -> TicketSearch:
        """Search on a PyG `Data`, or on a dataset by its name.

        Raises:
            AcegltError: something given is wrong; the message says what.
        """
        stop = "target_graph" if self.settings.get("axis") == "graph" else "target_model"
        given: dict[str, Any] = {} if self.target is None else {stop: self.target}
        self.result_ = search(data, **given, **self.settings)
        best, kept = self.result_.best, self.result_.tickets
        if not kept:
            raise ConfigError("no ticket was kept; TicketSearch needs levels of 1 or more and tickets 'best' or 'all'")
        self.wins_ = best is not None
        self.best_ticket_ = best or max(kept, key=lambda ticket: ticket.metrics["val"] or 0.0)
        return self

    def predict_proba(self, data: Any) -> Tensor:
        """Probability of each class at each node, [N, classes], by the best ticket."""
        if not hasattr(self, "best_ticket_"):
            raise ConfigError("this TicketSearch has no ticket yet; call fit(data) first")
        own = self.settings.get("backbone") if is_own(self.best_ticket_.config.backbone) else None
        return self.best_ticket_.predict(data, backbone=own)

    def predict(self, data: Any) -> Tensor:
        """The likeliest class of each node [N]; where nodes may have several labels, which are likely [N, labels]."""
        found = self.predict_proba(data)
        return found > 0.5 if self.best_ticket_.several else found.argmax(dim=1)

    def score(self, data: Any, y: None = None) -> float:
        """The metric of the search on the data's test nodes; one of your own is not known here."""
        given = datasets.read(data, self.settings.get("data_root")) if isinstance(data, str) else data
        found, config = self.predict_proba(given), self.best_ticket_.config
        if config.metric is not None and is_own(config.metric):
            raise ConfigError("score knows the metrics of aceglt; compute yours from predict_proba(data)")
        outputs = found.double().logit(1e-15) if self.best_ticket_.several else found.double().clamp_min(1e-300).log()
        return float(build_problem(config, given).measure(outputs[None], "test"))

    def __repr__(self) -> str:
        return f"TicketSearch({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"
