"""Masks: counts, complements, shares."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aceglt.numerics.masks import Counts, Masks, share

bits = st.lists(st.booleans(), min_size=1, max_size=20).map(lambda b: torch.tensor([b]))


@given(bits, bits)
def test_complement_of_complement_is_identity(weights: Tensor, edges: Tensor) -> None:
    masks = Masks(weights, edges)
    other = masks.complement()
    assert torch.equal(other.complement().weights, weights)
    assert torch.equal(other.complement().edges, edges)
    assert not bool((other.weights & weights).any())
    assert bool((other.edges | edges).all())
    assert masks.alive.weights + other.alive.weights == masks.total.weights


def test_counts_and_sparsity_of_masks() -> None:
    masks = Masks(torch.tensor([[True, False, False, False]]), torch.tensor([[True, True, True, True, False]]))
    assert masks.total == Counts(4, 5)
    assert masks.alive == Counts(1, 4)
    assert masks.sparsity == pytest.approx((0.75, 0.2))
    assert Masks.full(2, Counts(3, 0)).sparsity == (0.0, 0.0)


def test_cat_and_slices_are_inverse() -> None:
    a, b = Masks.full(2, Counts(3, 4)), Masks.full(1, Counts(3, 4)).complement()
    both = Masks.cat([a, b])
    assert both.runs == 3
    assert torch.equal(both[:2].weights, a.weights)
    assert torch.equal(both[2:].edges, b.edges)


@given(st.sampled_from([1, 5, 10, 20, 25, 50]), st.integers(0, 1_000_000))
def test_share_is_the_nearest_whole_number_halves_up(percent: int, count: int) -> None:
    exact = Fraction(percent, 100) * count
    assert share(percent / 100, count) == (exact + Fraction(1, 2)).__floor__()


def test_share_of_nothing_is_nothing() -> None:
    assert share(0.2, 0) == 0
    assert share(0.0, 100) == 0
