from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sparse_split_data, tiny_data
from scipy.stats import mannwhitneyu
from sklearn import metrics as sklearn

import aceglt
from aceglt.config import Config
from aceglt.errors import ConfigError, DataError
from aceglt.problems.base import Problem
from aceglt.problems.metrics import METRICS, roc_auc


def test_a_perfect_order_is_1_and_its_reverse_0() -> None:
    positive = torch.tensor([False, True, True])
    assert roc_auc(torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]), positive).tolist() == [1.0, 0.0]


def test_equal_scores_count_one_half() -> None:
    assert roc_auc(torch.ones(1, 4), torch.tensor([True, False, False, True])).tolist() == [0.5]


def test_without_both_classes_it_is_nan() -> None:
    assert roc_auc(torch.rand(2, 3), torch.ones(3, dtype=torch.bool)).isnan().all()
    assert roc_auc(torch.rand(2, 3), torch.zeros(3, dtype=torch.bool)).isnan().all()


@settings(max_examples=60)
@given(st.integers(2, 40), st.integers(1, 6), st.integers(0, 2**31))
def test_it_is_the_mann_whitney_statistic_of_each_run(n: int, values: int, seed: int) -> None:
    """`values` distinct scores, so that ties are common."""
    draws = np.random.default_rng(seed)
    scores = draws.integers(0, values, (3, n)).astype(np.float32)
    positive = draws.permutation(np.arange(n) < draws.integers(1, n))
    expected = [
        mannwhitneyu(run[positive], run[~positive]).statistic / (positive.sum() * (~positive).sum()) for run in scores
    ]
    found = roc_auc(torch.from_numpy(scores), torch.from_numpy(positive))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_unknown_answers_are_left_out() -> None:
    draws = np.random.default_rng(3)
    scores = torch.from_numpy(draws.integers(0, 5, (2, 3, 20)).astype(np.float32))
    positive, known = (torch.from_numpy(draws.random((3, 20)) < share) for share in (0.5, 0.6))
    together = roc_auc(scores, positive, known)
    for question in range(3):
        asked = known[question]
        alone = roc_auc(scores[:, question, asked], positive[question, asked])
        assert torch.equal(together[:, question], alone)


def macro_f1(truth: Any, predicted: Any) -> float:
    return float(sklearn.f1_score(truth, predicted, average="macro", zero_division=np.nan))


OF_CLASSES = {
    "accuracy": lambda y, outputs: sklearn.accuracy_score(y, outputs.argmax(axis=1)),
    "macro_f1": lambda y, outputs: macro_f1(y, outputs.argmax(axis=1)),
    "roc_auc": lambda y, outputs: sklearn.roc_auc_score(y, outputs[:, 1] - outputs[:, 0]),
    "average_precision": lambda y, outputs: sklearn.average_precision_score(y, outputs[:, 1] - outputs[:, 0]),
}


def whole_outputs(draws: np.random.Generator, *shape: int) -> Any:
    """Whole numbers from -2 to 2, so that ties are common."""
    return draws.integers(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25)
@given(n=st.integers(3, 40), seed=st.integers(0, 2**31))
def test_metrics_of_two_classes_are_scikit_learns_for_each_run(metric: str, n: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    outputs, y = whole_outputs(draws, 3, n, 2), draws.permutation(np.arange(n) < draws.integers(1, n)).astype(np.int64)
    found = METRICS[metric](torch.from_numpy(outputs), torch.from_numpy(y))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, [OF_CLASSES[metric](y, run) for run in outputs], atol=1e-12)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_metrics_of_several_classes_are_scikit_learns(metric: str) -> None:
    draws = np.random.default_rng(0)
    outputs, y = draws.random((4, 12, 9)).astype(np.float32), draws.integers(0, 7, 12)  # some never occur
    found = METRICS[metric](torch.from_numpy(outputs), torch.from_numpy(y))
    np.testing.assert_allclose(found, [OF_CLASSES[metric](y, run) for run in outputs], atol=1e-12)


OF_LABELS = {
    "accuracy": None,
    "macro_f1": lambda y, scores: sklearn.f1_score(y, scores > 0, zero_division=np.nan),
    "roc_auc": lambda y, scores: sklearn.roc_auc_score(y, scores) if 0 < y.sum() < len(y) else np.nan,
    "average_precision": lambda y, scores: sklearn.average_precision_score(y, scores) if y.any() else np.nan,
}


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_of_several_labels_are_means_over_those_they_are_defined_for(metric: str) -> None:
    draws = np.random.default_rng(5)
    outputs, y = whole_outputs(draws, 3, 15, 4), draws.integers(0, 2, (15, 4)).astype(np.float32)
    y[draws.random((15, 4)) < 0.3] = np.nan
    y[:, 3] = 0.0  # no positive
    known = ~np.isnan(y)
    found = METRICS[metric](torch.from_numpy(outputs), torch.from_numpy(y))
    for run, value in zip(outputs, found.tolist(), strict=True):
        if metric == "accuracy":
            expected = sklearn.accuracy_score(y[known], run[known] > 0)
        else:
            each = [OF_LABELS[metric](y[k, t], run[k, t]) for t, k in enumerate(known.T)]  # type: ignore[misc]
            expected = np.nanmean(each)
        assert value == pytest.approx(expected, abs=1e-12)


def test_a_metric_is_the_users_the_datas_or_the_usual_one() -> None:
    data = tiny_data()
    assert Problem.from_data(data).metric == "accuracy"
    data.metric = "macro_f1"
    assert Problem.from_data(data).metric == "macro_f1"
    assert Problem.from_data(data, metric="accuracy").metric == "accuracy"
    problem = Problem.from_data(data, task="inductive")
    assert (problem.metric, problem.measured("test").metric) == ("macro_f1", "macro_f1")


def test_a_metric_that_does_not_fit_the_data_is_refused() -> None:
    data = tiny_data()
    with pytest.raises(DataError, match=r"average_precision is for two classes or several labels, found \d+ classes"):
        Problem.from_data(data, metric="average_precision")
    data.metric = "hits@50"
    with pytest.raises(DataError, match="has the metric 'hits@50'; known are accuracy, roc_auc"):
        Problem.from_data(data)
    data.metric, data.y = "roc_auc", (~data.val_mask & ~data.train_mask).long()
    data.y[data.train_mask.nonzero()[0]] = 1
    with pytest.raises(DataError, match="all validation nodes are of one class; the metric roc_auc is not defined"):
        Problem.from_data(data)


def test_unknown_metrics_and_those_of_nodes_for_links_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'f1'; known are accuracy, roc_auc, macro_f1, average_prec"):
        Config(metric="f1")
    with pytest.raises(ConfigError, match="metric 'accuracy' is of nodes"):
        Config(task="link", metric="accuracy")


def test_a_search_selects_by_the_metric_that_it_is_given() -> None:
    data = sparse_split_data()
    data.y = data.y.clamp(max=1)
    result = aceglt.search(data, metric="average_precision", levels=1, seeds=1, epochs=3, hidden=4, method="random")
    assert result.results["metric"] == result.config.metric == "average_precision"


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("metric", METRICS)
def test_metrics_are_the_cpus_on_a_gpu_and_do_not_wait_for_it(metric: str) -> None:
    draws = np.random.default_rng(0)
    outputs, y = torch.from_numpy(whole_outputs(draws, 3, 500, 2)), torch.from_numpy(draws.integers(0, 2, 500))
    outputs_there, y_there = outputs.cuda(), y.cuda()
    try:
        torch.cuda.set_sync_debug_mode("error")
        found = METRICS[metric](outputs_there, y_there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(found.cpu(), METRICS[metric](outputs, y))
