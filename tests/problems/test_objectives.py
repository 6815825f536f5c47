"""Several labels per node: binary cross-entropy and ROC-AUC, unknown answers left out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from samples import generator, labels_data, sparse_split_data, tiny_data

import aceglt
from aceglt.errors import DataError
from aceglt.problems import NodeProblem
from aceglt.problems.base import Problem, Soft
from aceglt.problems.metrics import roc_auc

KEY = torch.tensor([0])


def problem_of(data: Any) -> NodeProblem:
    problem = Problem.from_data(data, "mine")
    assert isinstance(problem, NodeProblem)
    return problem


def logits(seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 30, 2, generator=generator(seed))


def test_several_labels_are_measured_by_roc_auc() -> None:
    problem = problem_of(labels_data())
    assert (problem.metric, problem.out_features) == ("roc_auc", 2)


def test_the_loss_is_the_mean_over_known_answers() -> None:
    problem, out = problem_of(labels_data()), logits()
    for run, loss in enumerate(problem.loss(out, None, KEY).tolist()):
        terms = []
        for node in problem.train.tolist():
            for label, answer in enumerate(problem.y[node].tolist()):
                if not math.isnan(answer):
                    z = float(out[run, node, label])
                    terms.append(math.log1p(math.exp(-z if answer == 1 else z)))
        assert len(terms) < 12  # some are unknown
        assert loss == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_the_teacher_adds_the_sigmoid_cross_entropy_of_all_nodes() -> None:
    problem, out = problem_of(labels_data()), logits()
    targets = problem.soften(logits(1)).targets
    added = problem.loss(out, Soft(targets, 0.5), KEY) - problem.loss(out, None, KEY)
    p = out.sigmoid()
    by_hand = -(targets * p.log() + (1 - targets) * (1 - p).log()).mean(dim=(1, 2))
    torch.testing.assert_close(added, 0.5 * by_hand)


@pytest.mark.parametrize("runs", [1, 3])
def test_smoothing_moves_answers_along_edges_and_keeps_common_ones(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A star, whose hub symmetric normalisation alone would favour: labels 0 are everywhere the same, label 1 the
    hub's."""
    monkeypatch.setattr(NodeProblem, "_serves", lambda problem, smoothed, outputs: torch.ones(len(outputs)).bool())
    data = labels_data()
    nodes = torch.arange(len(data.x))
    data.edge_index = torch.stack([torch.zeros_like(nodes[1:]), nodes[1:]])
    problem, out = problem_of(data), torch.full((runs, len(nodes), data.y.shape[1]), -1.0)
    out[:, 0, 1] = 3.0
    smoothed = problem.soften(out, 0.5, smoothing=0.3).targets
    torch.testing.assert_close(smoothed[:, :, 0], (2.0 * out[:, :, 0]).sigmoid())
    assert bool((smoothed[:, 0, 1] < (2.0 * out[:, 0, 1]).sigmoid()).all())
    assert bool((smoothed[:, 1:, 1] > (2.0 * out[:, 1:, 1]).sigmoid()).all())


def test_the_metric_averages_labels_with_both_answers() -> None:
    data = labels_data()
    data.y[data.test_mask, 1] = 1.0  # one answer only
    problem, out = problem_of(data), logits()
    known = problem.test[~problem.y[problem.test, 0].isnan()]
    expected = roc_auc(out[:, known, 0], problem.y[known, 0] == 1)
    assert torch.equal(problem.measure(out, "test"), expected)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.float64, torch.int64])
def test_answers_may_be_of_any_type(kind: torch.dtype) -> None:
    data = tiny_data()
    data.y = torch.stack([data.y == 0, data.y == 1], dim=1).to(kind)
    problem = problem_of(data)
    assert problem.metric == "roc_auc"
    assert problem.y.dtype == torch.get_default_dtype()


def test_one_column_of_fractions_is_one_label_and_of_integers_classes() -> None:
    data = tiny_data()
    data.y = (data.y == 0).float().view(-1, 1)
    assert (problem_of(data).metric, problem_of(data).out_features) == ("roc_auc", 1)
    data.y = data.y.long()
    assert (problem_of(data).metric, problem_of(data).out_features) == ("accuracy", 2)


def changed(at: str, value: float) -> Any:
    data = labels_data()
    data.y[getattr(data, at)] = value
    return data


WRONG = {
    "other values": (changed("train_mask", 0.5), r"must hold 0, 1 or NaN for each of the 30 nodes"),
    "no training answer": (changed("train_mask", math.nan), r"y says nothing about the training nodes"),
    "one answer in validation": (changed("val_mask", 1.0), r"no label is both 0 and 1 among the validation nodes"),
    "no answer in test": (changed("test_mask", math.nan), r"no label is both 0 and 1 among the test nodes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_labels_that_cannot_be_learned_or_measured_are_refused(what: str) -> None:
    data, message = WRONG[what]
    with pytest.raises(DataError, match=f"mine: .*{message}"):
        problem_of(data)


@pytest.mark.parametrize("task", ["node", "inductive"])
def test_a_search_with_several_labels_reports_roc_auc(task: str) -> None:
    data = sparse_split_data()
    data.y = torch.stack([data.y == 0, data.y == 1], dim=1)
    result = aceglt.search(data, task=task, method="ugs", levels=1, seeds=2, epochs=3, hidden=6, device="cpu")
    assert result.results["metric"] == "roc_auc"
    assert all(0 <= v <= 1 for v in result.results["levels"][0]["test"])
