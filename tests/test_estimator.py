"""The estimator is what search is, in the manner of scikit-learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from samples import labels_data
from search_samples import TINY, graph, search
from test_own_search import Net
from torch_geometric.data import Data

import aceglt

QUICK: dict[str, Any] = {**TINY, "device": "cpu"}


def test_it_finds_what_search_finds() -> None:
    found = aceglt.TicketSearch(**QUICK).fit(graph())
    wanted = search()
    best = wanted.best or max(wanted.tickets, key=lambda ticket: ticket.metrics["val"] or 0)
    assert found.best_ticket_.trained.prunable.equal(best.trained.prunable)
    assert found.wins_ == (wanted.best is not None)
    data = graph()
    assert torch.equal(found.predict(data), found.best_ticket_.predict(data).argmax(dim=1))
    assert found.score(data) == pytest.approx(found.best_ticket_.metrics["test"])


def several_splits() -> Any:
    data = graph()
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = getattr(data, name)
        setattr(data, name, torch.stack([mask, mask.flip(0)], dim=1))
    return data


def no_masks() -> Any:
    data = graph()
    del data.train_mask, data.val_mask, data.test_mask
    return data


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (lambda: Data(**vars(labels_data())), {}),
        (several_splits, {"split": "1"}),
        (no_masks, {}),
        (graph, {"metric": "macro_f1"}),
    ],
    ids=["several labels", "several splits", "no masks", "another metric"],
)
def test_the_score_is_the_searchs_own_metric_on_test_nodes(data: Any, settings: dict[str, Any]) -> None:
    found = aceglt.TicketSearch(**{**QUICK, "method": "random", **settings}).fit(data())
    assert found.score(data()) == pytest.approx(found.best_ticket_.metrics["test"])


@pytest.mark.parametrize(("axis", "name"), [("model", "target_model"), ("graph", "target_graph")])
def test_the_target_is_of_what_gets_sparser(axis: str, name: str) -> None:
    found = aceglt.TicketSearch(target=0.1, **{**QUICK, "axis": axis, "levels": 9}).fit(graph())
    assert getattr(found.result_.config.stopping, name) == 0.1
    assert len(found.result_.results["levels"]) < 9


def test_an_own_model_predicts_too() -> None:
    settings = {**QUICK, "method": "random", "backbone": Net}
    del settings["hidden"]
    found = aceglt.TicketSearch(**settings).fit(graph())
    assert found.predict_proba(graph()).shape == (24, 2)


def test_scikit_learn_can_clone_and_change_it() -> None:
    base = pytest.importorskip("sklearn.base")
    made = aceglt.TicketSearch(target=0.5, method="ugs")
    other = base.clone(made).set_params(method="random", target=0.2)
    assert made.get_params() == {"target": 0.5, "method": "ugs"}
    assert other.get_params() == {"target": 0.2, "method": "random"}
    assert repr(other) == "TicketSearch(target=0.2, method='random')"


def test_before_fit_it_says_so() -> None:
    with pytest.raises(aceglt.AcegltError, match=r"call fit\(data\) first"):
        aceglt.TicketSearch(**QUICK).predict(graph())


def test_without_a_ticket_it_says_what_it_needs() -> None:
    with pytest.raises(aceglt.AcegltError, match="no ticket was kept"):
        aceglt.TicketSearch(**{**QUICK, "levels": 0}).fit(graph())
