"""Gumbel-max sampling: the draws follow the stated distribution."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from aceglt.numerics import rng
from aceglt.pruning import exchange as sampling

SCORES = torch.tensor([0.5, -1.0, 2.0, 0.1, 1.4, 0.0, 3.0])
CANDIDATES = torch.tensor([True, True, True, True, True, False, False])
DRAWS = 800


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    return torch.softmax(logits[CANDIDATES] / temperature, dim=0)


@pytest.mark.parametrize("sample", [sampling.categorical, sampling.top_k])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("sign", [1, -1], ids=["most important", "least important"])
def test_single_draws_follow_the_stated_distribution(sample: object, temperature: float, sign: int) -> None:
    logits = sign * sampling.log_importance(SCORES)
    keys = rng.keys(range(DRAWS), "single", str(temperature))
    drawn = torch.stack([sample(logits, CANDIDATES, 1, temperature, key[None]) for key in keys])  # type: ignore[operator]
    assert drawn.sum(dim=1).tolist() == [1] * DRAWS
    counts = drawn.sum(dim=0)
    assert counts[~CANDIDATES].tolist() == [0, 0]
    expected = DRAWS * probabilities(logits, temperature)
    assert stats.chisquare(counts[CANDIDATES].numpy(), expected.numpy()).pvalue > 0.01


def test_at_temperature_one_the_probability_is_proportional_to_the_score() -> None:
    logits = sampling.log_importance(SCORES)
    magnitude = SCORES.abs()[CANDIDATES].double()
    torch.testing.assert_close(probabilities(logits, 1.0), magnitude / magnitude.sum())
    torch.testing.assert_close(probabilities(-logits, 1.0), (1 / magnitude) / (1 / magnitude).sum())


def test_pairs_without_replacement_follow_successive_draws() -> None:
    logits = sampling.log_importance(SCORES)
    p = torch.zeros(len(SCORES), dtype=torch.float64)
    p[CANDIDATES] = probabilities(logits, 1.0)
    pairs = list(combinations(range(5), 2))
    drawn = [
        tuple(sampling.top_k(logits, CANDIDATES, 2, 1.0, key[None]).nonzero().squeeze(1).tolist())
        for key in rng.keys(range(DRAWS), "pairs")
    ]
    expected = [float(p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j])) * DRAWS for i, j in pairs]
    assert stats.chisquare([drawn.count(pair) for pair in pairs], expected).pvalue > 0.01


def test_many_draws_with_replacement_are_the_distinct_ones_of_independent_draws() -> None:
    logits = sampling.log_importance(SCORES)
    p, k = probabilities(logits, 1.0), 4
    drawn = torch.stack(
        [sampling.categorical(logits, CANDIDATES, k, 1.0, key[None]) for key in rng.keys(range(DRAWS), "distinct")]
    )
    assert int(drawn.sum(dim=1).max()) <= k
    included = 1 - (1 - p) ** k
    for count, share in zip(drawn[:, CANDIDATES].sum(dim=0).tolist(), included.tolist(), strict=True):
        assert stats.binomtest(count, DRAWS, share).pvalue > 0.005


def test_temperature_zero_is_plain_top_k() -> None:
    logits = sampling.log_importance(SCORES)
    for seed in range(20):
        chosen = sampling.top_k(logits, CANDIDATES, 2, 0.0, rng.keys([seed], "plain"))
        assert chosen.nonzero().squeeze(1).tolist() == [2, 4]


def test_temperature_zero_draws_ties_at_random() -> None:
    logits = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, -1.0])
    drawn = torch.stack(
        [
            sampling.top_k(logits, torch.ones(6, dtype=torch.bool), 2, 0.0, key[None])
            for key in rng.keys(range(DRAWS), "tie")
        ]
    )
    counts = drawn.sum(dim=0).tolist()
    assert (counts[0], counts[5]) == (DRAWS, 0)
    assert stats.chisquare(counts[1:5]).pvalue > 0.01


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(-2, 2), st.booleans()), min_size=1, max_size=20), st.floats(0, 5), st.data())
def test_top_k_takes_exactly_k_candidates(
    elements: list[tuple[float, bool]], temperature: float, data: st.DataObject
) -> None:
    scores, candidates = torch.tensor([s for s, _ in elements]), torch.tensor([c for _, c in elements])
    k = data.draw(st.integers(0, int(candidates.sum())))
    chosen = sampling.top_k(sampling.log_importance(scores), candidates, k, temperature, rng.keys([0], "k"))
    assert int(chosen.sum()) == k
    assert not bool((chosen & ~candidates).any())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(-2, 2), st.booleans()), min_size=1, max_size=20), st.integers(0, 30))
def test_categorical_takes_one_to_k_candidates(elements: list[tuple[float, bool]], k: int) -> None:
    scores, candidates = torch.tensor([s for s, _ in elements]), torch.tensor([c for _, c in elements])
    assume(bool(candidates.any()))
    chosen = sampling.categorical(sampling.log_importance(scores), candidates, k, 1.0, rng.keys([0], "k"))
    assert min(k, 1) <= int(chosen.sum()) <= k
    assert not bool((chosen & ~candidates).any())


@pytest.mark.parametrize("sample", [sampling.categorical, sampling.top_k])
def test_a_score_of_zero_is_not_drawn_as_important_while_others_are_left(sample: object) -> None:
    scores = torch.tensor([0.0, 1e-6, 0.0, 2e-6, 0.0])
    logits, everything = sampling.log_importance(scores), torch.ones(5, dtype=torch.bool)
    for key in rng.keys(range(200), "zero"):
        chosen = sample(logits, everything, 2, 1.0, key[None])  # type: ignore[operator]
        assert not bool(chosen[scores == 0].any())
    assert int(sampling.top_k(logits, everything, 4, 1.0, rng.keys([0], "zero")).sum()) == 4


def test_log_importance_is_finite_for_any_score() -> None:
    logits = sampling.log_importance(torch.tensor([0.0, -0.0, 1e-38, -2.0]))
    assert logits.dtype == torch.float64
    assert bool(torch.isfinite(logits).all())
    assert float(logits[3]) == pytest.approx(0.6931471805599453)


def test_trim_keeps_a_random_part_of_the_sample() -> None:
    sample = torch.tensor([True, False, True, True, False, True, True])
    trimmed = torch.stack([sampling.trim(sample, 5, 2, key[None]) for key in rng.keys(range(DRAWS), "trim")])
    assert trimmed.sum(dim=1).tolist() == [2] * DRAWS
    counts = trimmed.sum(dim=0)
    assert counts[~sample].tolist() == [0, 0]
    assert stats.chisquare(counts[sample].numpy()).pvalue > 0.01
    assert torch.equal(sampling.trim(sample, 5, 5, rng.keys([0], "trim")), sample)
