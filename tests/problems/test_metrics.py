from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from aceglt.problems.objectives import roc_auc


def test_a_perfect_order_is_1_and_its_reverse_0() -> None:
    positive = torch.tensor([False, True, True])
    assert roc_auc(torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]), positive).tolist() == [1.0, 0.0]


def test_equal_scores_count_one_half() -> None:
    assert roc_auc(torch.ones(1, 4), torch.tensor([True, False, False, True])).tolist() == [0.5]


def test_without_both_classes_it_is_nan() -> None:
    assert roc_auc(torch.rand(2, 3), torch.ones(3, dtype=torch.bool)).isnan().all()
    assert roc_auc(torch.rand(2, 3), torch.zeros(3, dtype=torch.bool)).isnan().all()


@settings(max_examples=60, deadline=None)
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
