"""The exchanges that the study tried."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.config import resolve
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from study import exchanges


@pytest.mark.parametrize("name", exchanges.EXCHANGES)
def test_every_exchange_keeps_exactly_what_is_asked_for(name: str) -> None:
    problem = tiny_problem()
    short = {"hidden": 4, "epochs": 2, "score_epochs": 2, "prune_model": 0.4, "prune_graph": 0.3, "balance": 0.75}
    config = resolve(method="ugs", seeds=1, **short)
    backbone = GCN(problem.x.shape[1], problem.num_classes, 4)
    search = Search(problem, backbone, exchanges.EXCHANGES[name], config)
    state = search.select(search.train_dense(State()))  # raises where a method miscounts
    assert state.selected is not None
    again, _ = search.retrain(state)
    method = exchanges.EXCHANGES[name]
    extra = max(0, getattr(method, "trainings", 0) - 1) * 2
    assert again.records[0].select_epochs == method.cost(2) + extra


def test_the_halves_are_of_validation_nodes_and_no_test_node_is_known() -> None:
    part = torch.arange(90) % 9
    data = SimpleNamespace(
        x=torch.ones(90, 2), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.arange(90) % 3,
        train_mask=part < 2, val_mask=(part >= 2) & (part < 7), test_mask=part >= 7,
    )  # fmt: skip
    for dataset, fold in [("cora", 0), ("cora", 2), ("amazon-photo", 0), ("amazon-photo", 1)]:
        made = exchanges.halved(data, dataset, fold)
        parts = torch.stack([made.train_mask, made.val_mask, made.test_mask])
        assert int(parts.sum(dim=0).max()) == 1
        assert not bool((parts.any(dim=0) & data.test_mask).any())
        assert abs(int(made.val_mask.sum()) - int(made.test_mask.sum())) <= 1
    one, other = (exchanges.halved(data, "amazon-photo", fold) for fold in (0, 1))
    assert torch.equal(one.val_mask, other.test_mask)


def test_what_is_tried_is_added_to_the_record(tmp_path: Path) -> None:
    few = {"levels": 1, "epochs": 2, "score_epochs": 2, "hidden": 4}
    line = exchanges.try_exchange("citeseer", "graph", 1, "none", 1, "cpu", **few)
    path = tmp_path / "record.csv"
    exchanges.record([line], path)
    exchanges.record([line], path)
    assert [row["mean"] for row in exchanges.read(path)] == [line["mean"]] * 2
    assert (line["exchange"], line["step 1"]) == ("none", line["mean"])
