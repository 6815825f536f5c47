"""A search with everything of the user's own, from end to end."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from samples import tiny_data
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv, models
from typer.testing import CliRunner

import aceglt
from aceglt.cli import app
from aceglt.datasets import save_npz
from aceglt.errors import ConfigError, TicketError
from aceglt.methods import Level, Selection
from aceglt.pruning.ranking import prune

QUICK: Mapping[str, Any] = {"epochs": 6, "seeds": (0, 3), "axis": "joint", "tickets": "all", "device": "cpu"}
HERE = f"{__name__}:"


class Net(Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.first, self.norm, self.second = SAGEConv(in_features, 6), BatchNorm1d(6), SAGEConv(6, out_features)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.norm(self.first(x, edge_index)).relu(), 0.5, self.training)
        return self.second(hidden, edge_index)


class Looped(Module):
    """Its layers take weights of edges and add self-loops."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(in_features, 6), GCNConv(6, out_features)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


@dataclass(frozen=True)
class Halfway:
    """Scores of a shorter training."""

    name: ClassVar[str] = "halfway"
    share: float = 0.5

    def select(self, level: Level) -> Selection:
        epochs = self.cost(level.epochs)
        scores = level.train_scores(level.masks, epochs, "score").scores
        assert scores is not None
        return Selection(prune(level.masks, scores, level.keep, level.key("drop")), scores, epochs=epochs)

    def cost(self, epochs: int) -> int:
        return int(self.share * epochs)


def squared(outputs: Tensor, problem: Any) -> Tensor:
    target = F.one_hot(problem.y, problem.out_features).to(outputs.dtype)
    return (outputs - target)[:, problem.train].square().mean(dim=(1, 2))


def recall(outputs: Tensor, problem: Any, split: str) -> Tensor:
    nodes = getattr(problem, split)
    nodes = nodes[problem.y[nodes] == 1]
    return (outputs[:, nodes].argmax(dim=-1) == 1).double().mean(dim=1)


def share_right(outputs: Tensor, problem: Any, split: str) -> Tensor:
    nodes = getattr(problem, split)
    return (outputs[:, nodes].argmax(dim=-1) == problem.y[nodes]).double().mean(dim=1)


def data() -> Data:
    return Data(**vars(tiny_data()))


def own_search(**settings: Any) -> aceglt.SearchResult:
    parts = {"backbone": Net, "method": Halfway(0.4), "loss": squared, "metric": recall, "levels": 2}
    return aceglt.search(data(), **{**QUICK, **parts, **settings})


def test_backbone_method_loss_and_metric_of_ones_own(tmp_path: Path) -> None:
    result = own_search(out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["backbone"] == HERE + "Net"
    assert (config["method"], config["method_options"]) == (HERE + "Halfway", {"share": 0.4})
    assert (config["loss"], config["metric"]) == (HERE + "squared", HERE + "recall")
    assert result.results["metric"] == "recall"
    assert [level["epochs"]["select"] for level in result.results["levels"]] == [2, 2]
    ticket = result.tickets[-1]
    saved = next(iter(sorted((tmp_path / "run" / "tickets").iterdir())))
    assert repr(ticket).startswith("Ticket of halfway,")
    assert repr(aceglt.Ticket.load(saved)).startswith("Ticket of halfway,")
    assert ticket.model_sparsity == pytest.approx(0.36, abs=0.01)
    assert result.results["levels"][1]["macs"] == ticket.sizes["macs"]


def test_stopped_between_levels_and_continued_it_ends_with_the_same_tickets(tmp_path: Path) -> None:
    own_search(out=tmp_path, levels=1)
    torch.manual_seed(99)  # must not matter
    continued, at_once = own_search(out=tmp_path), own_search()
    assert len(continued.tickets) == len(at_once.tickets) == 4
    for ticket, expected in zip(continued.tickets, at_once.tickets, strict=True):
        assert torch.equal(ticket.masks.weights, expected.masks.weights)
        assert torch.equal(ticket.masks.edges, expected.masks.edges)
        assert torch.equal(ticket.trained.other, expected.trained.other)


def test_a_seed_gives_the_same_ticket_alone() -> None:
    together, alone = own_search(), own_search(seeds=(3,))
    assert torch.equal(together.tickets[-1].trained.prunable, alone.tickets[-1].trained.prunable)


def test_a_ticket_is_evaluated_again_with_the_code_that_is_given() -> None:
    ticket = own_search(levels=1).tickets[0]
    found = aceglt.evaluate(ticket, data(), seeds=2, device="cpu", backbone=Net, loss=squared, metric=HERE + "recall")
    assert len(found.ticket.val) == 2
    with pytest.raises(TicketError, match=r"your own backbone .*:Net; .*--backbone .*:Net, or backbone=Net"):
        aceglt.evaluate(ticket, data(), loss=squared, metric=recall)
    with pytest.raises(TicketError, match="your own loss"):
        aceglt.evaluate(ticket, data(), backbone=Net, metric=recall)
    built_in = aceglt.search(data(), hidden=4, levels=1, method="random", **QUICK).tickets[0]
    with pytest.raises(ConfigError, match="built-in backbone"):
        aceglt.evaluate(built_in, data(), backbone=Net)


def test_what_a_ticket_names_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket of somebody else's may name anything."""
    ticket = own_search(levels=1).tickets[0]
    (tmp_path / "trap.py").write_text("raise SystemExit('code of a ticket was run')")
    monkeypatch.chdir(tmp_path)
    trap = replace(ticket, config=ticket.config.replace(backbone="trap:Net", loss=None, metric=None))
    trap.save(tmp_path / "ticket")
    with pytest.raises(TicketError, match="trap:Net"):
        aceglt.evaluate(tmp_path / "ticket", data())


def test_a_chosen_function_of_names_is_recorded_as_names() -> None:
    result = own_search(levels=1, prunable=lambda name, value: name.startswith("first") and value.dim() == 2)
    assert result.config.pruning.prunable == ("first.lin_l.weight", "first.lin_r.weight")
    same = own_search(levels=1, prunable=["first.*.weight"])
    assert torch.equal(result.tickets[0].trained.prunable, same.tickets[0].trained.prunable)


def test_an_instance_and_the_default_method() -> None:
    model = models.GCN(12, 6, 2, 3, dropout=0.3)
    options = {"rounds": 1, "refine_epochs": 2}
    result = aceglt.search(data(), backbone=model, levels=1, method_options=options, **QUICK)
    assert result.config.backbone == "torch_geometric.nn.models.basic_gnn:GCN"
    assert result.tickets[0].model_sparsity == pytest.approx(0.2, abs=0.01)


class Blind(Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.map = Linear(in_features, out_features)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.map(x)


@pytest.mark.parametrize("axis", ["model", "graph", "joint"])
def test_a_model_that_takes_no_edges_is_refused_before_anything_is_written(axis: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="do not depend on the edges"):
        aceglt.search(data(), backbone=Blind, out=tmp_path / "run", **{**QUICK, "axis": axis})
    assert not (tmp_path / "run").exists()


MODULE = f"""
from {__name__} import Halfway as MyMethod, Net as MyModel, recall as my_metric, squared as my_loss
"""
PARTS = ("--backbone", "mine:MyModel", "--loss", "mine:my_loss", "--metric", "mine:my_metric")


def own_folder(folder: Path) -> list[str]:
    """A folder with the user's code and graph; options of a quick search there."""
    (folder / "mine.py").write_text(MODULE)
    save_npz(folder / "graph.npz", data())
    return [*shlex.split("--dataset graph.npz --epochs 4 --seeds 1 --levels 1 --device cpu --out run"), *PARTS]


@pytest.fixture
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in, of which the interpreter's path knows nothing, as that of a console script does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", ".")])


@pytest.mark.usefixtures("own_path")
def test_own_code_by_name_on_the_command_line(tmp_path: Path) -> None:
    options = [*own_folder(tmp_path), *["--method", "mine:MyMethod", "-m", "share=0.5", "--prunable", "*.weight"]]
    done = CliRunner().invoke(app, ["search", *options])
    assert done.exit_code == 0, done.output
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["backbone"], config["method"], config["prunable"]) == ("mine:MyModel", "mine:MyMethod", ["*.weight"])
    assert (config["loss"], config["metric"], config["method_options"]) == (
        "mine:my_loss",
        "mine:my_metric",
        {"share": 0.5},
    )


@pytest.mark.usefixtures("own_path")
def test_a_ticket_is_evaluated_on_the_command_line_if_its_code_is_named(tmp_path: Path) -> None:
    cli = CliRunner()
    assert cli.invoke(app, ["search", "--method", "random", *own_folder(tmp_path)]).exit_code == 0
    (ticket,) = (tmp_path / "run" / "tickets").iterdir()
    evaluate = ["evaluate", str(ticket), "--seeds", "1", "--device", "cpu"]
    assert cli.invoke(app, evaluate).exit_code == 2
    assert cli.invoke(app, [*evaluate, *PARTS]).exit_code == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "bfloat16"},
        {"partitions": 2},
        {"task": "inductive"},
        {"task": "link", "embedding": 3, "objective": "infoclust"},
    ],
)
def test_an_own_model_goes_with_every_task_and_aid(settings: dict[str, Any]) -> None:
    for net in (Net, Looped):
        result = aceglt.search(data(), backbone=net, method="ugs", levels=1, **QUICK, **settings)
        ticket = result.tickets[0]
        assert ticket.trained.prunable.dtype == ticket.trained.other.dtype == torch.float32
        assert not torch.equal(ticket.trained.prunable, ticket.initial.prunable)
        assert len(aceglt.evaluate(ticket, data(), backbone=net, seeds=1, device="cpu").ticket.val) == 1


def test_an_own_metric_of_the_inductive_task_sees_the_nodes_of_its_split() -> None:
    result = aceglt.search(data(), task="inductive", metric=share_right, levels=0, **QUICK)
    accuracy = aceglt.search(data(), task="inductive", levels=0, **QUICK)
    assert result.results["dense"]["test"] == accuracy.results["dense"]["test"]
