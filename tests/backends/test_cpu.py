"""The compiled kernels give what plain torch gives, whole or divided between threads; without numba nothing is lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from samples import generator, random_graph, random_masks, tiny_problem
from torch import Tensor

from aceglt.backbones import build
from aceglt.backends.base import Scoring, Training
from aceglt.backends.cpu import calls as cpu
from aceglt.numerics import ops, rng
from aceglt.numerics.csr import product, to_csr
from aceglt.numerics.masks import Counts
from aceglt.training.fit import Fit, fit

pytest.importorskip("numba")

SCORING = Scoring(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="last")
KEY = rng.keys((3, 4), "fast")


@pytest.fixture(params=[1, 3], ids=["whole", "divided"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def both(monkeypatch: pytest.MonkeyPatch, compute: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What compiled kernels and plain torch give."""
    monkeypatch.setattr(cpu, "_LARGE", 0)
    compiled = compute()
    monkeypatch.setattr(cpu, "_LARGE", sys.maxsize)
    return compiled, compute()


@pytest.mark.parametrize(
    "draw",
    [
        lambda: rng.uniform(KEY, 101),
        lambda: rng.keep_mask(KEY, 103, 0.3),
        lambda: rng.keep_mask(KEY, 104, 0.6, torch.float32),
        lambda: rng.keep_rows(KEY, torch.tensor([5, 0, 9, 2]), 8, 0.5, torch.float64),
        lambda: rng.keep_rows(KEY, torch.tensor([5, 0, 9, 2]), 7, 0.5, torch.float32),
        lambda: rng.keep_rows(KEY, torch.tensor([5, 0]), 8, 0.5, torch.bfloat16),
        lambda: rng.keep_mask(KEY, 40, 1.0),
        lambda: rng.keep_mask(KEY, 0, 0.5),
    ],
)
def test_draws_are_the_same_bit_by_bit(
    draw: Callable[[], Tensor], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, plain = both(monkeypatch, draw)
    assert compiled.dtype == plain.dtype
    assert torch.equal(compiled, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_products_agree(dtype: torch.dtype, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(23, 31, generator=generator(1), dtype=dtype)
    x = x * (torch.rand(23, 31, generator=generator(2)) < 0.2) * (torch.arange(23) != 7).unsqueeze(1)
    dense = torch.rand(31, 9, generator=generator(3), dtype=dtype)
    compiled, plain = both(monkeypatch, lambda: product(to_csr(x), dense))
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(compiled, x @ dense)


def test_fetching_ahead_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_LARGE", 0)
    x, dense = torch.rand(40, 30, generator=generator(1)), torch.rand(30, 16, generator=generator(2))
    csr = to_csr(x * (x > 0.6))
    graph = random_graph(4, nodes=17, edges=40)
    batch = graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), self_loops=True)
    left, right = torch.rand(2, 17, 16, generator=generator(5))

    def products() -> Tensor:
        inner = ops._sddmm(batch, torch.ones(batch.num_arcs), left, right)
        return torch.cat([product(csr, dense).flatten(), inner])

    plain = products()
    monkeypatch.setattr(cpu, "_CACHE", 0)
    assert cpu._ahead(dense) > 0
    assert torch.equal(products(), plain)


def test_inner_products_at_arcs_agree(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(4, nodes=17, edges=40)
    batch = graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), self_loops=True)
    left, right = torch.rand(2, 17, 10, generator=generator(5))
    values = torch.ones(batch.num_arcs)
    compiled, plain = both(monkeypatch, lambda: ops._sddmm(batch, values, left, right))
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(compiled, (left[batch.row] * right[batch.col]).sum(dim=1))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("cache", [cpu._CACHE, 0], ids=["", "fetched ahead"])
def test_normalisation_agrees(
    directed: bool, weighted: bool, cache: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_CACHE", cache)
    graph = random_graph(6, nodes=17, edges=40, directed=directed)
    if weighted:
        graph = replace(graph, edge_weight=torch.rand(graph.num_edges, generator=generator(7)))
    alive = torch.rand(2, graph.num_edges, generator=generator(8)) < 0.8
    batch = graph.batch(alive, self_loops=True)
    wanted = torch.randn(batch.num_arcs, generator=generator(9))

    def values_and_gradient() -> Tensor:
        values = torch.randn(2, graph.num_edges, generator=generator(10)).requires_grad_()
        out = ops.normalise(batch, values)
        (grad,) = torch.autograd.grad(out @ wanted, values)
        return torch.cat([out, grad.flatten()]).detach()

    compiled, plain = both(monkeypatch, values_and_gradient)
    torch.testing.assert_close(compiled, plain)


def test_the_cut_between_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_LARGE", 0)
    x, dense = torch.rand(40, 30, generator=generator(1)), torch.rand(30, 16, generator=generator(2))
    one = product(to_csr(x), dense)
    torch.set_num_threads(3)
    three = product(to_csr(x), dense)
    torch.set_num_threads(1)
    assert torch.equal(one, three)


@pytest.mark.parametrize("lent", [1, 3])
@pytest.mark.parametrize("blocked", [False, True], ids=["", "in blocks"])
def test_rows_of_unequal_length_are_divided_and_blocked_without_changing_a_bit(
    lent: int, blocked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_LARGE", 0)
    x, dense = torch.rand(40, 30, generator=generator(1)), torch.rand(30, 16, generator=generator(2))
    csr = to_csr(x * (x > torch.arange(40).unsqueeze(1) / 50))  # from 30 entries to few
    plain = product(csr, dense)
    torch.testing.assert_close(plain, csr.to_dense() @ dense)
    monkeypatch.setattr(cpu, "_LENT", 0)
    monkeypatch.setattr(cpu, "_lent", lent)
    kernels, used = cpu.kernels(), []
    assert kernels is not None
    monkeypatch.setattr(kernels, "matmul_blocks", _noting(kernels.matmul_blocks, used))
    if blocked:
        monkeypatch.setattr(cpu, "_BLOCKED", 0)
        monkeypatch.setattr(cpu, "_BLOCK", 7 * dense[0].nbytes)
    assert torch.equal(product(csr, dense), plain)
    assert len(used) == (lent if blocked else 0)


def test_many_entries_are_cut_evenly() -> None:
    rowptr = np.linspace(0, 2**31 - 1, 1001).astype(np.int32)
    assert cpu._cuts(rowptr, 1000, 4) == [0, 250, 500, 750, 1000]
    assert cpu._cuts(np.zeros(4, np.int32), 3, 2) == [0, 0, 3]


def _noting(kernel: Callable[..., None], calls: list[tuple[int, int]]) -> Callable[..., None]:
    def noted(first: int, last: int, *rest: Any) -> None:
        calls.append((first, last))
        kernel(first, last, *rest)

    return noted


def test_an_error_in_a_helper_is_not_lost() -> None:
    started = Event()

    def kernel(first: int, last: int) -> None:
        if current_thread() is main_thread():
            assert started.wait(10)
            return
        started.set()
        raise ValueError("in a piece")

    cpu.lend(2)
    try:
        with pytest.raises(ValueError, match="in a piece"):
            cpu._divided(kernel, 100, size=cpu._LENT)
    finally:
        cpu.lend(1)


def test_a_thread_that_waits_takes_a_share() -> None:
    took, shared = set(), Event()

    def kernel(first: int, last: int) -> None:
        took.add(current_thread().name)
        if len(took) > 1:
            shared.set()
        assert shared.wait(10)  # no piece ends before two threads have one

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(cpu._divided, kernel, 100, size=cpu._LENT)
        assert cpu.wait(work) is None
    assert took == {main_thread().name, next(iter(took - {main_thread().name}))}
    assert not cpu._offers


@pytest.mark.parametrize("where", ["waiting", "working"])
def test_an_error_in_a_share_reaches_who_waits(where: str) -> None:
    begun = Event()

    def kernel(first: int, last: int) -> None:
        if (current_thread() is main_thread()) == (where == "waiting"):
            begun.set()
            raise ValueError("in a piece")
        assert begun.wait(10)

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="in a piece"):
        cpu.wait(pool.submit(cpu._divided, kernel, 100, size=cpu._LENT))
    assert not cpu._offers


def test_waiting_ends_with_what_is_waited_for() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert cpu.wait(pool.submit(lambda: time.sleep(0.05) or 3)) == 3
        assert cpu.wait(pool.submit(int, "4")) == 4
        with pytest.raises(ValueError, match="five"):
            cpu.wait(pool.submit(int, "five"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("positive", [False, True])
def test_products_in_packed_blocks_are_the_same_bit_by_bit(
    dtype: torch.dtype, positive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, used = cpu.kernels(), []
    assert kernels is not None
    monkeypatch.setattr(kernels, "matmul_packed", _noting(kernels.matmul_packed, used))
    x = torch.rand(40, 30, generator=generator(1), dtype=dtype)
    csr = to_csr(x * (x > torch.arange(40).unsqueeze(1) / 39))  # down to rows without entries
    dense = torch.randn(30, 96, generator=generator(2), dtype=dtype)
    outs = []
    for read in (10_000, 1):
        monkeypatch.setattr(cpu, "_READ", read)
        outs.append(dense.new_empty(40, 96))
        cpu.multiply(csr.crow_indices(), csr.col_indices(), csr.values(), dense, outs[-1], positive)
    assert used == [(0, 40)]
    assert torch.equal(*outs)
    expected = csr.to_dense() @ dense
    torch.testing.assert_close(outs[1], expected.relu() if positive else expected)


@pytest.mark.parametrize(("rows", "width"), [(30, 24), (30, 48), (4000, 32)])
def test_what_does_not_fit_is_not_packed(rows: int, width: int) -> None:
    assert cpu._packs(10**6, torch.empty(30, 32), 128)
    assert not cpu._packs(10**6, torch.empty(rows, width), 128)
    assert not cpu._packs(64 * 30 - 1, torch.empty(30, 32), 128)


@pytest.mark.usefixtures("double")
def test_sums_of_sparse_features_and_their_gradient(threads: int) -> None:
    left = torch.rand(20, 15, generator=generator(1)) * (torch.rand(20, 15, generator=generator(2)) < 0.3)
    x = torch.randn(15, 40, generator=generator(3)) * (torch.rand(15, 40, generator=generator(4)) < 0.1)
    x[4] = 0
    matrix, features = to_csr(left), to_csr(x)
    rowptr, col, values = matrix.crow_indices(), matrix.col_indices(), matrix.values().clone().requires_grad_()
    sums = cpu.Sums(rowptr, col, features)
    made = torch.sparse_csr_tensor(sums.rowptr, sums.col, sums.of(values), (20, 40)).to_dense()
    torch.testing.assert_close(made, left @ x)
    assert torch.equal(sums.col, to_csr(((left != 0).double() @ (x != 0).double()).bool().double()).col_indices())
    slope = torch.rand(len(sums.col), generator=generator(5))
    dense = torch.zeros(20, 40).index_put((row_of(sums.rowptr), sums.col.long()), slope)
    expected = torch.autograd.grad(
        (torch.zeros(20, 15).index_put((row_of(rowptr), col.long()), values) @ x * dense).sum(), values
    )[0]
    torch.testing.assert_close(sums.gradient(slope), expected)


def row_of(rowptr: Tensor) -> Tensor:
    return torch.arange(len(rowptr) - 1).repeat_interleave(rowptr.diff())


@pytest.mark.parametrize("outputs", [3, cpu._FEW + 1])
def test_a_layer_of_few_outputs(outputs: int, threads: int) -> None:
    h, weight = torch.randn(13, 20, generator=generator(1)), torch.randn(outputs, 20, generator=generator(2))
    torch.testing.assert_close(cpu.linear(h, weight), h @ weight.t())


def test_memory_is_kept_where_the_c_library_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def library(most: int) -> Any:
        def mallopt(what: int, size: int) -> int:
            calls.append((what, size))
            return what == -1 or size <= most

        return SimpleNamespace(mallopt=mallopt, malloc_trim=lambda pad: calls.append((0, pad)))

    new, old, first = 1 << 40, 1 << 25, (-3, 1 << 26)
    for c, expected in (
        (library(new), [first, (-1, 1 << 29), (0, 0)]),
        (library(old), [first, (-3, 1 << 25), (-1, 1 << 29), (0, 0)]),
        (library(0), [first, (-3, 1 << 25), (0, 0)]),
        (None, []),
    ):
        monkeypatch.setattr(cpu, "_GLIBC", c)
        calls.clear()
        cpu.keep_memory.__wrapped__()
        cpu.return_memory()
        assert calls == expected


def trained(name: str, scoring: Scoring | None) -> Fit:
    problem = tiny_problem()
    backbone = build(name, problem.x.shape[1], problem.out_features, 8)
    masks = random_masks(*[Counts(backbone.prunable.size, problem.graph.num_edges)] * 2)
    return fit(problem, backbone, backbone.init((0,)), masks, 5, Training(0.05, 0.01), KEY[:1], scoring=scoring)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "resgcn"])
def test_training_agrees(name: str, scoring: Scoring | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> Tensor:
        result = trained(name, scoring)
        part = result.scores.weights if result.scores is not None else result.params.prunable  # type: ignore[union-attr]
        return torch.cat([part, result.val.unsqueeze(0)], dim=1)

    compiled, plain = both(monkeypatch, outcome)
    torch.testing.assert_close(compiled, plain, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_is_torchs_and_the_same_for_any_number_of_threads(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five steps of weights and scores, by the gradient of their product and the scores' L1."""
    pytest.importorskip("numba")
    monkeypatch.setattr(cpu, "_LENT", 0)
    n, decays = 10_001, (0.01, 0.02, 0.003)
    g = torch.Generator().manual_seed(0)
    first, last, *grads = torch.randn(7, n, generator=g, dtype=dtype)

    def stepped(threads: int) -> Tensor:
        weight, score, product, moments = first.clone(), last.clone(), first * last, first.new_zeros(4, n)
        adam = cpu.Adam(0.1, weight)
        rules = adam.rule((decays[0], 0.0), decays[1:])
        monkeypatch.setattr(cpu, "_lent", threads)
        for grad in grads:
            adam.advance()
            adam.update_product(weight, score, product, grad, moments, rules)
        assert torch.equal(product, weight * score)
        return torch.stack([weight, score])

    weight, score = first.clone().requires_grad_(), last.clone().requires_grad_()
    groups = [{"params": [weight], "weight_decay": 0.01}, {"params": [score], "weight_decay": 0.02}]
    plain = torch.optim.Adam(groups, lr=0.1)
    for grad in grads:
        plain.zero_grad()
        ((weight * score) @ grad + decays[2] * score.abs().sum()).backward()
        plain.step()
    alone = stepped(1)
    torch.testing.assert_close(alone, torch.stack([weight, score]).detach())
    assert torch.equal(alone, stepped(3))


def test_without_numba_plain_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_LARGE", 0)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "aceglt.backends.cpu.kernels", raising=False)
    monkeypatch.delattr("aceglt.backends.cpu.kernels", raising=False)
    cpu.kernels.cache_clear()
    try:
        assert cpu.kernels() is None
        assert cpu.uniform(KEY, 100) is None
        assert rng.uniform(KEY, 100).shape == (2, 100)
    finally:
        cpu.kernels.cache_clear()
