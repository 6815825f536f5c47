"""Features from a sparse matrix are those from the same dense one, bit by bit, and no dense copy of them is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import generator
from torch import Tensor

from aceglt.numerics.csr import as_csr, dense_blocks, stored_bytes, take_columns, take_rows, transposed
from aceglt.numerics.features import Features

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": Tensor.to_sparse_coo,
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
}
Case = tuple[Tensor, Tensor, Tensor]


def matrix(density: float, nodes: int = 30, width: int = 12, seed: int = 0) -> Tensor:
    g = generator(seed)
    return torch.randn(nodes, width, generator=g) * (torch.rand(nodes, width, generator=g) < density)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A matrix of any density, some of its rows in any order, and some of its columns."""
    nodes, width, seed = draw(st.integers(1, 12)), draw(st.integers(1, 9)), draw(st.integers(0, 999))
    x = matrix(draw(st.sampled_from([0.0, 0.03, 0.1, 0.5, 1.0])), nodes, width, seed)
    rows = draw(st.lists(st.integers(0, nodes - 1), min_size=1, unique=True))
    columns = draw(st.lists(st.booleans(), min_size=width, max_size=width).filter(any))
    return x, torch.tensor(rows), torch.tensor(columns)


def assert_alike(one: Features, other: Features) -> None:
    """Products, gradients and what dropout draws are bitwise equal."""
    assert (one.shape, one.nnz, one.entries) == (other.shape, other.nnz, other.entries)
    weight = torch.randn(2, one.shape[1], 3, generator=generator(1))
    grad = torch.randn(2, one.shape[0], 3, generator=generator(2))
    keep = torch.rand(2, one.entries, generator=generator(3)) < 0.5
    assert torch.equal(one.product(weight), other.product(weight))
    assert torch.equal(one.gradient(grad), other.gradient(grad))
    left, right = one.dropped(keep, 2.0), other.dropped(keep, 2.0)
    assert torch.equal(left.product(weight), right.product(weight))
    assert torch.equal(left.gradient(grad), right.gradient(grad))


@settings(max_examples=60)
@given(cases(), st.sampled_from(sorted(LAYOUTS)))
def test_features_of_a_sparse_matrix_are_those_of_the_dense_one(case: Case, layout: str) -> None:
    x, rows, columns = case
    dense, sparse = Features(x), Features(LAYOUTS[layout](x))
    assert_alike(dense, sparse)
    assert_alike(dense.rows(rows), sparse.rows(rows))
    assert_alike(dense.part(rows), sparse.part(rows))
    for features in (dense, sparse):
        some = features.columns(columns)
        assert torch.equal(some.x.to_dense(), x[:, columns])
        assert_alike(some, dense.columns(columns))
    assert torch.equal(sparse.rows(rows).x.to_dense(), x[rows])


@settings(max_examples=60)
@given(cases())
def test_rows_columns_and_the_transpose_are_taken_from_csr(case: Case) -> None:
    x, rows, columns = case
    csr = as_csr(x)
    assert torch.equal(take_rows(csr, rows).to_dense(), x[rows])
    assert torch.equal(take_columns(csr, columns).to_dense(), x[:, columns])
    assert torch.equal(transposed(csr).to_dense(), x.t())
    assert torch.equal(torch.cat(list(dense_blocks(csr))), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_features_in_another_order_for_each_run_are_the_same(layout: str) -> None:
    x, order = matrix(0.05), torch.stack([torch.randperm(30, generator=generator(seed)) for seed in (4, 5)])
    dense, sparse = (Features(made).permuted(order) for made in (x, LAYOUTS[layout](x)))
    weight, grad = (torch.randn(2, size, 3, generator=generator(6)) for size in (12, 30))
    assert torch.equal(dense.product(weight), sparse.product(weight))
    assert torch.equal(dense.gradient(grad), sparse.gradient(grad))
    assert torch.equal(sparse.of_run(1).to_dense(), x[order[1]])
    again = torch.stack([torch.randperm(30, generator=generator(7))] * 2)
    assert torch.equal(sparse.permuted(again).of_run(0).to_dense(), x[order[0]][again[0]])
    kept = torch.arange(12) % 3 > 0
    assert torch.equal(sparse.columns(kept).product(weight[:, kept]), dense.columns(kept).product(weight[:, kept]))


def test_permuted_features_refuse_what_they_are_not_for() -> None:
    permuted = Features(matrix(0.05)).permuted(torch.arange(30).unsqueeze(0))
    with pytest.raises(NotImplementedError, match="dropout"):
        permuted.dropped(torch.ones(1, permuted.entries, dtype=torch.bool), 2.0)
    with pytest.raises(NotImplementedError, match="all nodes"):
        permuted.rows(torch.tensor([0]))


def test_rows_of_rows_draw_what_they_draw_among_all() -> None:
    features = Features(matrix(0.05).to_sparse_csr())
    keep = torch.rand(1, features.entries, generator=generator(8)) < 0.5
    first, second = torch.arange(29, -1, -2), torch.tensor([3, 0, 7])
    weight = torch.randn(1, 12, 3, generator=generator(9))
    twice, once = features.rows(first).rows(second), features.rows(first[second])
    assert torch.equal(twice.dropped(keep, 2.0).product(weight), once.dropped(keep, 2.0).product(weight))


def test_a_sparse_matrix_with_few_entries_is_never_dense() -> None:
    features = Features(matrix(0.03).to_sparse_coo())
    some, kept = features.rows(torch.arange(9)), features.columns(torch.arange(12) < 6)
    for made in (features, some, kept):
        made.gradient(torch.ones_like(made.product(torch.ones(1, made.shape[1], 3))))
        assert "dense" not in vars(made)
    assert {f.x.layout for f in (features, some, kept)} == {torch.sparse_csr}


def test_a_sparse_matrix_with_many_entries_is_multiplied_as_a_dense_one() -> None:
    x = matrix(0.6)
    features = Features(x.to_sparse_csr())
    assert features.csr is None
    assert features.dense is not None
    assert torch.equal(features.dense, x)


def test_every_kind_of_features_has_every_attribute() -> None:
    features = Features(matrix(0.03))
    kinds = [
        features.rows(torch.arange(5)),
        features.columns(torch.arange(12) < 6),
        features.permuted(torch.arange(30).unsqueeze(0)),
    ]
    public = [name for name in dir(features) if not name.startswith("_")]
    for kind in kinds:
        assert all(hasattr(kind, name) for name in public)


def test_csr_is_sorted_without_zeros_and_repeated_entries_add_up() -> None:
    index = torch.tensor([[2, 0, 2, 0, 1, 1], [1, 3, 1, 0, 2, 2]])
    values = torch.tensor([1.0, 2.0, 4.0, 0.0, 5.0, -5.0])
    rowptr, col = torch.tensor([0, 2, 4, 6]), torch.tensor([3, 0, 2, 2, 1, 1])
    unsorted = torch.sparse_csr_tensor(rowptr, col, values[[1, 3, 4, 5, 0, 2]], (3, 4))
    for x in (torch.sparse_coo_tensor(index, values, (3, 4)), unsorted):
        csr = as_csr(x)
        assert csr.crow_indices().tolist() == [0, 1, 1, 2]
        assert csr.col_indices().tolist() == [3, 1]
        assert csr.values().tolist() == [2.0, 5.0]
        assert csr.col_indices().dtype == torch.int32
        assert as_csr(csr) is csr


def test_bytes_are_those_of_what_is_stored() -> None:
    assert stored_bytes(torch.zeros(3, 5)) == 60
    assert stored_bytes(as_csr(torch.eye(4))) == 4 * (5 + 4 + 4)
