"""An exchange: equal numbers of the least of the retained part and the most of the pruned part."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import generator
from torch import Tensor

from aceglt.numerics import rng
from aceglt.pruning.exchange import DRAWS, Exchange, Limits, Sampling, Scored, exchange


def keys(seed: int = 0) -> list[Tensor]:
    return [rng.keys([seed], "exchange", draw) for draw in range(DRAWS)]


def scored(n: int, alive: int, seed: int = 0) -> Scored:
    g = generator(seed)
    mask = torch.randperm(n, generator=g) < alive
    importance = torch.rand(n, generator=g)
    return Scored(mask, importance * mask, importance * ~mask)


def test_the_least_of_the_retained_part_changes_places_with_the_most_of_the_pruned() -> None:
    mask = torch.tensor([True, True, True, False, False, False])
    values = torch.tensor([0.3, -0.1, 0.9, -0.8, 0.2, 0.5])
    found = exchange(Scored(mask, values * mask, values * ~mask), [(slice(None), 2)], keys(), Sampling())
    assert found.dropped.tolist() == [True, True, False, False, False, False]
    assert found.added.tolist() == [False, False, False, True, False, True]
    assert found.mask.tolist() == [False, False, True, True, False, True]
    assert found.size == 2


@settings(max_examples=80)
@given(
    st.integers(2, 40), st.data(),
    st.sampled_from([Sampling(), Sampling(0.5), Sampling(1.0, replacement=True)]),
)  # fmt: skip
def test_sparsity_stays_exact_in_every_part_whatever_is_drawn(n: int, data: st.DataObject, sampling: Sampling) -> None:
    alive, middle = data.draw(st.integers(0, n)), data.draw(st.integers(1, n - 1))
    start = scored(n, alive, data.draw(st.integers(0, 99)))
    parts = [slice(0, middle), slice(middle, n)]
    limits: Limits = []
    for part in parts:
        smaller = min(int(start.mask[part].sum()), int((~start.mask[part]).sum()))
        limits = [*limits, (part, data.draw(st.integers(0, smaller)))]
    found = exchange(start, limits, keys(), sampling)
    assert not bool((found.dropped & ~start.mask).any())
    assert not bool((found.added & start.mask).any())
    for part, limit in limits:
        assert int(found.mask[part].sum()) == int(start.mask[part].sum())
        assert int(found.dropped[part].sum()) <= limit
    assert found.size == int(found.dropped.sum()) == int(found.added.sum())


def test_an_exchange_leaves_what_it_is_given_alone_and_repeats_itself() -> None:
    start = scored(30, 12)
    before = start.mask.clone()
    one, two = (exchange(start, [(slice(None), 5)], keys(3), Sampling(1.0)) for _ in range(2))
    assert torch.equal(start.mask, before)
    assert torch.equal(one.mask, two.mask)
    assert not torch.equal(one.mask, exchange(start, [(slice(None), 5)], keys(4), Sampling(1.0)).mask)


def test_similarity_is_the_cosine_of_what_is_dropped_now_and_what_was_added_before() -> None:
    def made(dropped: list[int], added: list[int]) -> Exchange:
        at = torch.zeros(2, 10, dtype=torch.bool)
        at[0, dropped], at[1, added] = True, True
        return Exchange(scored(10, 5), at[0], at[1], len(dropped))

    last = made([0, 1, 2, 3], [5, 6, 7, 8])
    assert made([5, 6, 7, 8], [0, 1, 2, 3]).similarity(last) == pytest.approx(1.0)
    assert made([5, 0], [1, 2]).similarity(last) == pytest.approx(1 / 8**0.5)
    assert made([0, 1], [5, 6]).similarity(last) == 0.0
    assert made([], []).similarity(last) == 0.0
