"""Link prediction: nothing leaks, the loss and the metrics are what they say, and a search goes through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from samples import generator, tiny_data
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
from typer.testing import CliRunner

import aceglt
from aceglt.cli import app
from aceglt.config import Config, resolve
from aceglt.config.groups import LinkOptions
from aceglt.datasets import GraphData, save_npz
from aceglt.errors import ConfigError, DataError, TicketError
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.problems import LinkProblem
from aceglt.problems.base import Problem, Soft
from aceglt.problems.metrics import hits_at
from aceglt.report import RunView

QUICK: dict[str, Any] = {"task": "link", "levels": 2, "seeds": 2, "epochs": 3, "hidden": 8, "embedding": 4}
ACE = {"method": "ace", "method_options": {"rounds": 1, "refine_epochs": 2}}
VARIANTS = [
    pytest.param({"method": "random"}, id="random"),
    pytest.param({"method": "ugs", "axis": "graph"}, id="ugs-teacher-graph"),
    pytest.param({"method": "ugs", "backbone": "gin"}, id="ugs-teacher-gin"),
    pytest.param({"method": "ugs", "backbone": "gat", "objective": "infoclust"}, id="ugs-infoclust-gat"),
    pytest.param({**ACE, "axis": "joint"}, id="ace-teacher-joint"),
    pytest.param({**ACE, "objective": "infoclust", "edge_split": "connected"}, id="ace-infoclust"),
]


def bare_data() -> Any:
    """Features and edges, nothing else."""
    data = tiny_data()
    return Data(x=data.x, edge_index=data.edge_index)


def link_problem(**options: Any) -> LinkProblem:
    return LinkProblem.build(bare_data(), "tiny", False, **options)


def pairs(edges: Tensor) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in edges.t()}


def embeddings(runs: int, problem: LinkProblem) -> Tensor:
    return torch.randn(runs, problem.graph.num_nodes, problem.out_features, generator=generator(5))


# The problem


def test_labels_and_node_masks_are_not_needed() -> None:
    problem = Problem.from_data(bare_data(), task="link")
    assert (problem.task, problem.metric, problem.out_features) == ("link", "roc_auc", 64)


def test_held_out_edges_are_in_no_graph_and_negatives_are_edges_of_none() -> None:
    problem, full = link_problem(), pairs(Graph.from_edge_index(bare_data().edge_index, 30).edges)
    train, val, test = pairs(problem.graph.edges), pairs(problem.val), pairs(problem.test)
    assert train | val | test == full
    assert not train & (val | test)
    assert not val & test
    negatives = [pairs(problem.val_negatives), pairs(problem.test_negatives)]
    assert [len(n) for n in negatives] == [len(val), len(test)]
    assert not (negatives[0] | negatives[1]) & full
    assert not negatives[0] & negatives[1]
    assert problem.view("val") is None
    assert problem.view("test") is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_held_out_edge_carries_a_message_in_a_whole_search(
    variant: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: set[tuple[int, int]] = set()
    real = Graph.batch

    def spy(self: Graph, *given: Any) -> Any:
        batch = real(self, *given)
        row, col = batch.row % self.num_nodes, batch.col % self.num_nodes
        passed.update(pairs(torch.stack([torch.minimum(row, col), torch.maximum(row, col)])))
        return batch

    monkeypatch.setattr(Graph, "batch", spy)
    aceglt.search(bare_data(), **QUICK, **variant)
    problem = link_problem(edge_split=variant.get("edge_split", "random"))
    assert not passed & (pairs(problem.val) | pairs(problem.test))
    assert pairs(problem.graph.edges) <= passed


def test_held_out_edges_do_not_change_the_loss() -> None:
    """Not even as negatives that are avoided: validation and test edges are drawn like any other pair."""
    problem = link_problem()
    other = LinkProblem(
        "other", problem.graph, problem.x, problem.test, problem.test_negatives, problem.val, problem.val_negatives
    )
    outputs, key = embeddings(1, problem), rng.keys([0], "loss")
    assert problem.loss(outputs, None, key).equal(other.loss(outputs, None, key))
    drawn = set.union(*(pairs(problem._non_edges.draw(rng.keys([s]), 100)[:, 0]) for s in range(20)))
    assert pairs(problem.test) <= drawn


@pytest.mark.usefixtures("double")
def test_the_loss_is_the_cross_entropy_of_all_training_edges_and_as_many_fresh_pairs() -> None:
    problem, keys = link_problem(), rng.keys([0, 1], "loss")
    outputs = embeddings(2, problem)
    found = problem.loss(outputs, None, keys)
    count = problem.graph.num_edges
    for run in range(2):
        negatives = problem._non_edges.draw(keys[run : run + 1], count)[:, 0]
        both = torch.cat([problem.graph.edges, negatives], dim=1)
        logits = (outputs[run, both[0]] * outputs[run, both[1]]).sum(dim=1)
        labels = (torch.arange(2 * count) < count).to(logits.dtype)
        assert float(found[run]) == pytest.approx(float(F.binary_cross_entropy_with_logits(logits, labels)))
    assert not found.equal(problem.loss(outputs, None, rng.fold(keys, 1)))


@pytest.mark.usefixtures("double")
def test_the_teachers_temperature_divides_the_scores_of_pairs() -> None:
    problem = link_problem()
    outputs = embeddings(1, problem)
    sharp = problem.soften(outputs, 0.25).targets
    assert torch.allclose(sharp @ sharp.mT, 4.0 * outputs @ outputs.mT)


@pytest.mark.usefixtures("double")
def test_the_teachers_signal_has_no_gradient_where_it_is_met() -> None:
    problem, key = link_problem(), rng.keys([0], "loss")
    outputs = embeddings(1, problem).requires_grad_()
    targets = problem.soften(outputs.detach()).targets

    def added(teacher: Tensor) -> Tensor:
        with_teacher = problem.loss(outputs, Soft(teacher, 0.5), key) - problem.loss(outputs, None, key)
        return torch.autograd.grad(with_teacher.sum(), outputs)[0]

    assert torch.allclose(added(targets), torch.zeros(()), atol=1e-12)
    assert added(targets + 1.0).abs().max() > 1e-3


@pytest.mark.parametrize("objective", ["bce", "infoclust"])
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_metric_is_scikit_learns_roc_auc(objective: str, split: Any) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    problem = link_problem(objective=objective)
    outputs = embeddings(2, problem)
    outputs[:, ::3] = outputs[:, :1]  # equal embeddings, so that scores tie
    edges, negatives = getattr(problem, split), getattr(problem, f"{split}_negatives")
    labels = [1] * edges.shape[1] + [0] * negatives.shape[1]
    for run, found in enumerate(problem.measure(outputs, split).tolist()):
        z = outputs[run]
        if objective == "infoclust":
            z = torch.where(z > 0, z, 0.25 * z)
            z = z / z.norm(dim=1, keepdim=True)
        both = torch.cat([edges, negatives], dim=1)
        scores = (z[both[0]] * z[both[1]]).sum(dim=1)
        assert found == pytest.approx(metrics.roc_auc_score(labels, scores.numpy()), abs=1e-6)


def test_hits_counts_positives_above_the_kth_best_negative() -> None:
    negatives = torch.tensor([[0.1, 0.9, 0.5, 0.4], [9.0, 9.0, 9.0, 9.0]])
    positives = torch.tensor([[0.95, 0.6, 0.5, 0.3], [1.0, 2.0, 9.0, 9.5]])
    assert hits_at(1, positives, negatives).tolist() == [0.25, 0.25]
    assert hits_at(2, positives, negatives).tolist() == [0.5, 0.25]
    assert hits_at(5, positives, negatives).tolist() == [1.0, 1.0]


def test_hits_is_a_metric_of_the_problem() -> None:
    problem = link_problem(ranking="hits@2")
    outputs = embeddings(2, problem)
    score = (outputs[:, problem.val_negatives[0]] * outputs[:, problem.val_negatives[1]]).sum(dim=2)
    edges = (outputs[:, problem.val[0]] * outputs[:, problem.val[1]]).sum(dim=2)
    assert problem.metric == "hits@2"
    assert problem.measure(outputs, "val").equal(hits_at(2, edges, score))


@pytest.mark.parametrize(
    ("edge_index", "options", "message"),
    [
        ([[0, 1, 2], [1, 2, 3]], {}, "of the graph's 3 edges only 0 can be held out"),
        ([list(range(39)), list(range(1, 40))], {"edge_split": "connected"}, "of the graph's 39 edges only 0"),
        (torch.ones(40, 40).triu(1).nonzero().t().tolist(), {}, "needs 117 pairs of nodes that are no edges"),
        ([[0, 99], [1, 2]], {}, "names node 99"),
    ],
)
def test_graphs_that_cannot_be_split_are_refused(edge_index: Any, options: dict[str, Any], message: str) -> None:
    data = SimpleNamespace(x=torch.ones(40, 3), edge_index=torch.tensor(edge_index))
    with pytest.raises(DataError, match=message):
        LinkProblem.build(data, "odd", False, **options)


# The configuration


def test_defaults_of_the_task_and_of_the_objective() -> None:
    bce, contrast = resolve(task="link"), resolve(task="link", objective="infoclust")
    for config, signal in ((bce, "teacher"), (contrast, "labels")):
        assert (config.scoring.signal, config.pruning.balance, config.scoring_epochs) == (signal, 0.0, 200)
        assert (config.scoring.lambda_edges, config.pruning.degree_bonus) == (1e-4, 0.0)
        assert config.method_options == resolve().method_options
        assert config.training.weight_decay == 0.0
    assert bce.scoring.teacher_temperature == 1.0
    assert bce.task_options == LinkOptions("bce", "random", 64)
    assert contrast.task_options == LinkOptions("infoclust", "random", 16)
    assert resolve(task="link", weight_decay=0.1).training.weight_decay == 0.1
    assert resolve().training.weight_decay == 5e-4


@pytest.mark.parametrize(
    ("dataset", "lambdas"), [("cora", (1e-4, 1e-4)), ("citeseer", (2e-3, 2e-3)), ("pubmed", (1e-5, 1e-3))]
)
def test_the_paper_preset_has_the_rows_of_table_s2(dataset: str, lambdas: tuple[float, float]) -> None:
    c = resolve("paper", task="link", dataset=dataset)
    assert (c.training.lr, c.training.weight_decay) == (3e-4, 0.0)
    assert (c.scoring.lambda_edges, c.scoring.lambda_weights, c.scoring.signal) == (*lambdas, "labels")
    assert c.task_options == LinkOptions("infoclust", "connected", 16)
    assert resolve("paper", task="link", dataset=dataset, objective="bce").task_options == LinkOptions(
        "bce", "connected"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "link", "teacher_smoothing": 0.5}, "teacher_smoothing 0.5 is for tasks on nodes"),
        ({"task": "link", "objective": "infoclust", "signal": "teacher"}, "signal 'teacher' has nothing to teach"),
        ({"task": "link", "objective": "infoclust", "loss": "mine:loss"}, "'infoclust' has a loss of its own"),
        ({"task": "link", "objective": "infoclust", "norm": "batch"}, "norm 'batch' gathers no statistics"),
        ({"task": "link", "preset": "paper", "norm": "batch"}, "norm 'batch' gathers no statistics"),
        ({"objective": "infoclust", "signal": "labels"}, "objective 'infoclust' is for task link, not node"),
        ({"edge_split": "connected"}, "edge_split 'connected' is for task link, not node"),
        ({"task": "link", "split": "random:1"}, "split 'random:1' is of nodes"),
        ({"task": "link", "objective": "mse"}, "unknown objective 'mse'"),
        ({"task": "link", "embedding": 0}, "embedding must be from 1 to"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(**settings)


# The contract, through a search


def levels(result: aceglt.SearchResult) -> list[Any]:
    return [(level["val"], level["test"], level["model_sparsity"]) for level in result.results["levels"]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_counts_are_exact_and_runs_together_end_as_alone(variant: dict[str, Any]) -> None:
    both = aceglt.search(bare_data(), tickets="all", **QUICK, **variant)
    alone = aceglt.search(bare_data(), tickets="all", **{**QUICK, "seeds": [1]}, **variant)
    second = [ticket for ticket in both.tickets if ticket.seed == 1]
    for ours, theirs in zip(second, alone.tickets, strict=True):
        assert ours.masks.weights.equal(theirs.masks.weights)
        assert ours.masks.edges.equal(theirs.masks.edges)
        assert ours.trained.prunable.equal(theirs.trained.prunable)
        assert ours.metrics == theirs.metrics
        assert not ours.trained.prunable[~ours.masks.weights].any()
    for ticket in both.tickets:
        assert ticket.masks.alive == second[ticket.level - 1].masks.alive
    assert both.results["metric"] == "roc_auc"


class StopError(Exception):
    """An interruption."""


class StopAt:
    """Interrupts a search in the middle of a phase."""

    def __init__(self, level: int, phase: str) -> None:
        self.place, self.here = (level, phase), False

    def on_phase(self, level: int, phase: str) -> None:
        self.here = self.place == (level, phase)

    def on_epoch(self, epoch: int, *_: Any) -> None:
        if self.here and epoch == 2:
            raise StopError

    def on_test(self, level: int) -> None:
        pass


@pytest.mark.parametrize("variant", VARIANTS[-2:])
def test_an_interrupted_search_ends_as_an_uninterrupted_one(variant: dict[str, Any], tmp_path: Path) -> None:
    settings = {**QUICK, **variant}
    whole = aceglt.search(bare_data(), out=tmp_path / "whole", report=False, **settings)
    for place in ((0, "dense"), (2, "retrain")):
        with pytest.raises(StopError):
            aceglt.search(bare_data(), out=tmp_path / "run", observer=StopAt(*place), report=False, **settings)
    assert levels(aceglt.search(bare_data(), out=tmp_path / "run", report=False, **settings)) == levels(whole)


def test_a_ticket_is_evaluated_and_applied_on_the_training_edges_alone(tmp_path: Path) -> None:
    settings = {**QUICK, "edge_split": "connected", "axis": "graph"}
    result = aceglt.search(bare_data(), tickets="all", **settings, method="random")
    result.tickets[-1].save(tmp_path / "ticket.safetensors")
    ticket = aceglt.Ticket.load(tmp_path / "ticket.safetensors")
    pruned = ticket.apply(bare_data())
    problem = link_problem(edge_split="connected")
    kept = pairs(Graph.from_edge_index(pruned.edge_index, 30).edges)
    assert kept == pairs(problem.graph.edges[:, ticket.masks.edges[0]])
    evaluation = aceglt.evaluate(ticket, bare_data(), seeds=2)
    assert evaluation.metric == "roc_auc"
    assert len(evaluation.ticket.val) == 2
    other = Data(x=bare_data().x, edge_index=bare_data().edge_index[:, 1:])
    with pytest.raises(TicketError, match="the ticket was found on a graph with"):
        aceglt.evaluate(ticket, other)


def test_a_model_of_the_users_own_predicts_links() -> None:
    class Net(torch.nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.layer = SAGEConv(inputs, outputs)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.layer(x, edge_index)

    result = aceglt.search(bare_data(), **QUICK, method="ugs", backbone=Net)
    assert result.results["metric"] == "roc_auc"
    assert len(result.results["levels"]) == 2


def test_the_configuration_survives_its_json_form() -> None:
    config = resolve("paper", task="link", dataset="cora")
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


# The command line


def run(arguments: Sequence[str | Path]) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_search_show_and_evaluate_name_the_metric(tmp_path: Path) -> None:
    data = tiny_data()
    file, out = tmp_path / "tiny.npz", tmp_path / "run"
    masks = (data.train_mask, data.val_mask, data.test_mask)
    save_npz(file, GraphData("tiny", data.x, data.edge_index, data.y, *masks))
    options = ["--levels", 1, "--seeds", 1, "--epochs", 2, "--hidden", 8, "--method", "random", "--device", "cpu"]
    found = run(["search", "--task", "link", "--dataset", file, "--out", out, *map(str, options)])
    assert "ROC-AUC" in found
    assert "ROC-AUC" in run(["show", out])
    (ticket,) = (out / "tickets").iterdir()
    assert "link task" in run(["show", ticket])
    assert "ROC-AUC" in run(["evaluate", ticket, "--seeds", "1", "--device", "cpu"])
    results = json.loads((out / "results.json").read_text())
    assert (results["task"], results["metric"]) == ("link", "roc_auc")
    assert RunView("r", results, {}, "c", []).metric == "ROC-AUC"
