"""How many weights each matrix keeps when pruning is balanced."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from aceglt.backbones.base import Layout
from aceglt.pruning.ranking import Ranking, balanced

Shapes = list[tuple[int, ...]]
shapes = st.lists(st.lists(st.integers(1, 9), max_size=3).map(tuple), min_size=1, max_size=5)


def layout(sizes: Shapes) -> Layout:
    return Layout(tuple((f"w{i}", shape) for i, shape in enumerate(sizes)))


def test_matrices_keep_in_proportion_to_their_sides_and_small_ones_all() -> None:
    """GCN on Cora: sides 1945 and 519, of which the second matrix can use 3584 weights at most."""
    cora = layout([(1433, 512), (512, 7)])
    assert [q.keep for q in balanced(cora, 2464)] == [1945, 519]
    assert [q.keep for q in balanced(cora, 24640)] == [24640 - 3584, 3584]
    assert [q.part for q in balanced(cora, 10)] == [slice(0, 733696), slice(733696, 737280)]


@settings(max_examples=200)
@given(shapes, st.data())
def test_quotas_add_up_fit_and_never_grow_when_less_is_kept(sizes: Shapes, data: st.DataObject) -> None:
    total = sum(map(math.prod, sizes))
    more = data.draw(st.integers(0, total))
    less = data.draw(st.integers(0, more))
    before, after = balanced(layout(sizes), more), balanced(layout(sizes), less)
    assert (sum(q.keep for q in before), sum(q.keep for q in after)) == (more, less)
    for shape, first, second in zip(sizes, before, after, strict=True):
        assert 0 <= second.keep <= first.keep <= math.prod(shape) == first.part.stop - first.part.start


@settings(max_examples=100)
@given(shapes, st.data())
def test_no_matrix_that_is_not_full_is_more_than_one_weight_from_its_share(sizes: Shapes, data: st.DataObject) -> None:
    keep = data.draw(st.integers(0, sum(map(math.prod, sizes))))
    quotas = balanced(layout(sizes), keep)
    sides = [max(1, sum(shape)) for shape in sizes]
    rates = [q.keep / side for q, side in zip(quotas, sides, strict=True) if q.keep < q.part.stop - q.part.start]
    widths = [1 / side for side in sides]
    assert not rates or max(rates) - min(rates) <= max(widths) + 1e-9


def test_nothing_to_prune_has_no_quotas() -> None:
    assert balanced(Layout(()), 0) == []


def test_a_balance_reserves_that_share_of_the_quotas_rounded_up() -> None:
    cora = layout([(1433, 512), (512, 7)])
    assert Ranking(balance=0.0).quotas(cora, 2464) == []
    assert [q.keep for q in Ranking(balance=0.5).quotas(cora, 2464)] == [973, 260]
    assert Ranking(balance=1.0).quotas(cora, 2464) == balanced(cora, 2464)


@settings(max_examples=100)
@given(shapes, st.floats(0.01, 1), st.data())
def test_reserved_weights_fit_and_never_grow_when_less_is_kept(
    sizes: Shapes, balance: float, data: st.DataObject
) -> None:
    more = data.draw(st.integers(0, sum(map(math.prod, sizes))))
    less = data.draw(st.integers(0, more))
    before, after = (Ranking(balance=balance).quotas(layout(sizes), keep) for keep in (more, less))
    assert sum(q.keep for q in before) <= more
    assert all(second.keep <= first.keep for first, second in zip(before, after, strict=True))
