"""The compiled kernels give what plain torch gives, whole or divided between threads; without numba nothing is lost."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event, current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from samples import generator, random_graph
from torch import Tensor

from aceglt.backbones.base import Dropout
from aceglt.backends import Cpu
from aceglt.backends.cpu import allocator
from aceglt.backends.cpu.kernels import Adam, CompiledKernels, Sums, compiled_module
from aceglt.backends.cpu.workers import Workers, cuts
from aceglt.numerics import ops, rng
from aceglt.numerics.csr import to_csr
from aceglt.numerics.kernels import PLAIN, Kernels

pytest.importorskip("numba")

KEY = rng.keys((3, 4), "fast")
COMPILED = CompiledKernels(worth=0)


@pytest.fixture(params=[1, 3], ids=["whole", "divided"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


class Noting(Workers):
    """Notes the pieces of each kernel, by its name."""

    def __init__(self, lent: int = 1) -> None:
        super().__init__(worth=0)
        self.lent = lent
        self.pieces: list[tuple[str, int, int]] = []

    def divide(self, kernel: Any, work: Any, *arguments: Any, size: int = 0, pieces: int = 4) -> None:
        def noted(first: int, last: int, *rest: Any) -> None:
            self.pieces.append((kernel.__name__, first, last))
            kernel(first, last, *rest)

        super().divide(noted, work, *arguments, size=size, pieces=pieces)

    def together(self, kernel: Any, *arguments: Any, size: int = 0) -> None:
        self.pieces.append((kernel.__name__, 0, 0))
        super().together(kernel, *arguments, size=size)


@pytest.mark.parametrize(
    "draw",
    [
        lambda by: by.uniform(KEY, 101),
        lambda by: by.keep_mask(KEY, 103, 0.3),
        lambda by: by.keep_mask(KEY, 104, 0.6, torch.float32),
        lambda by: by.keep_mask(KEY, 8, 0.5, torch.float64, torch.tensor([5, 0, 9, 2])),
        lambda by: by.keep_mask(KEY, 7, 0.5, torch.float32, torch.tensor([5, 0, 9, 2])),
        lambda by: by.keep_mask(KEY, 8, 0.5, torch.bfloat16, torch.tensor([5, 0])),
        lambda by: by.keep_mask(KEY, 40, 1.0),
        lambda by: by.keep_mask(KEY, 0, 0.5),
    ],
)
def test_draws_are_the_same_bit_by_bit(draw: Callable[[Kernels], Tensor], threads: int) -> None:
    compiled, plain = draw(COMPILED), draw(PLAIN)
    assert compiled.dtype == plain.dtype
    assert torch.equal(compiled, plain)


@pytest.mark.parametrize("rows", [None, torch.tensor([2, 0, 7])])
def test_dropping_is_scaling_what_is_kept(rows: Tensor | None) -> None:
    key, n = rng.keys((1,), "drop"), 5 if rows is None else len(rows)
    h = torch.rand(1, n, 12)
    kept = rng.keep_mask(key, 12, 0.3, h.dtype, torch.arange(n) if rows is None else rows)
    dropped = COMPILED.dropped(key, h, rows, 0.3, None, None)
    assert dropped is not None
    assert torch.equal(dropped, h * (kept * (1 / 0.7)))
    assert COMPILED.dropped(key, h[:, :, :10], rows, 0.3, None, None) is None  # rows do not begin with a hash
    again = COMPILED.dropped(key, h.requires_grad_(), rows, 0.3, None, None)
    assert again is not None
    grad = torch.rand(h.shape)
    assert torch.equal(torch.autograd.grad(again, h, grad)[0], grad * (kept * (1 / 0.7)))


@pytest.mark.parametrize("rows", [None, torch.tensor([2, 0, 7])])
def test_some_units_are_dropped_as_they_are_among_all(rows: Tensor | None) -> None:
    key, units = rng.keys((1,), "drop"), torch.arange(12) % 3 > 0
    h = torch.rand(1, 5 if rows is None else 3, 8)
    for some, whole in (({0: units}, None), ({}, 10)):
        plain, compiled = (Dropout(key, by, some)(h, rows, 0, 0.3, whole) for by in (PLAIN, COMPILED))
        assert torch.equal(compiled, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_products_agree(dtype: torch.dtype, threads: int) -> None:
    x = torch.rand(23, 31, generator=generator(1), dtype=dtype)
    x = x * (torch.rand(23, 31, generator=generator(2)) < 0.2) * (torch.arange(23) != 7).unsqueeze(1)
    dense = torch.rand(31, 9, generator=generator(3), dtype=dtype)
    compiled = COMPILED.product(to_csr(x), dense)
    torch.testing.assert_close(compiled, PLAIN.product(to_csr(x), dense))
    torch.testing.assert_close(compiled, x @ dense)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 7, 15, 16, 17, 33, 51, 64, 65, 127])
def test_a_column_of_a_product_is_the_same_whatever_columns_are_beside_it(dtype: torch.dtype, width: int) -> None:
    x = torch.randn(23, 31, generator=generator(1), dtype=dtype)
    csr = to_csr(x * (torch.rand(23, 31, generator=generator(2)) < 0.4))
    dense = torch.randn(31, 128, generator=generator(3), dtype=dtype)

    def product(dense: Tensor) -> Tensor:
        room = dense.new_full((23 * dense.shape[1] + 1,), 5.0)  # what follows the product stays as it is
        COMPILED.multiply(csr.crow_indices(), csr.col_indices(), csr.values(), dense, room[:-1].view(23, -1))
        assert room[-1] == 5.0
        return room[:-1].view(23, -1)

    assert torch.equal(product(dense[:, :width].contiguous()), product(dense)[:, :width])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(40, 150), (3, 64), (5, 1), (2, 0)])
def test_a_dense_matrix_becomes_the_same_csr(dtype: torch.dtype, shape: tuple[int, int], threads: int) -> None:
    dense = torch.randn(shape, generator=generator(0), dtype=dtype)
    dense[dense < 1] = 0
    dense[0, :2] = torch.tensor([-0.0, float("nan")], dtype=dtype)[: min(2, shape[1])]
    found, wanted = COMPILED.nonzeros(dense), to_csr(dense)
    assert found is not None
    for part in ("crow_indices", "col_indices", "values"):
        made, expected = getattr(found, part)(), getattr(wanted, part)()
        assert made.dtype == expected.dtype
        assert torch.equal(made.nan_to_num(), expected.nan_to_num())


def test_prefetching_changes_no_bit() -> None:
    x, dense = torch.rand(40, 30, generator=generator(1)), torch.rand(30, 16, generator=generator(2))
    csr = to_csr(x * (x > 0.6))
    graph = random_graph(4, nodes=17, edges=40)
    batch = graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), self_loops=True)
    left, right = torch.rand(2, 17, 16, generator=generator(5))
    prefetching = CompiledKernels(worth=0, cache=0)
    assert prefetching.prefetched(dense) > COMPILED.prefetched(dense) == 0
    assert torch.equal(prefetching.product(csr, dense), COMPILED.product(csr, dense))
    assert torch.equal(prefetching.inner(batch, left, right), COMPILED.inner(batch, left, right))


def test_inner_products_at_arcs_agree(threads: int) -> None:
    graph = random_graph(4, nodes=17, edges=40)
    batch = graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), self_loops=True)
    left, right = torch.rand(2, 17, 10, generator=generator(5))
    compiled = COMPILED.inner(batch, left, right)
    torch.testing.assert_close(compiled, PLAIN.inner(batch, left, right))
    torch.testing.assert_close(compiled, (left[batch.row] * right[batch.col]).sum(dim=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [1, 3, 15, 16])
def test_cross_entropy_to_soft_targets_agrees(classes: int, dtype: torch.dtype) -> None:
    outputs = (5 * torch.randn(2, 37, classes, generator=generator(1), dtype=dtype)).requires_grad_()
    targets = torch.randn(2, 37, classes, generator=generator(2), dtype=dtype).softmax(dim=2)
    of_runs = torch.tensor([1.0, 10.0], dtype=dtype)

    def loss_and_gradient(kernels: Kernels) -> tuple[Tensor, Tensor]:
        loss = kernels.soft_cross_entropy(outputs, targets)
        (grad,) = torch.autograd.grad(loss @ of_runs, outputs)
        return loss.detach(), grad

    for compiled, plain in zip(loss_and_gradient(COMPILED), loss_and_gradient(PLAIN), strict=True):
        torch.testing.assert_close(compiled, plain)
        assert compiled.is_contiguous()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("cache", [1 << 22, 0], ids=["", "prefetched"])
def test_normalisation_agrees(directed: bool, weighted: bool, cache: int, threads: int) -> None:
    graph = random_graph(6, nodes=17, edges=40, directed=directed)
    if weighted:
        graph = replace(graph, edge_weight=torch.rand(graph.num_edges, generator=generator(7)))
    alive = torch.rand(2, graph.num_edges, generator=generator(8)) < 0.8

    def values_and_gradient(kernels: Kernels) -> Tensor:
        batch = graph.batch(alive, self_loops=True, kernels=kernels)
        wanted = torch.randn(batch.num_arcs, generator=generator(9))
        values = torch.randn(2, graph.num_edges, generator=generator(10)).requires_grad_()
        out = ops.normalise(batch, values)
        (grad,) = torch.autograd.grad(out @ wanted, values)
        return torch.cat([out, grad.flatten()]).detach()

    compiled = values_and_gradient(CompiledKernels(worth=0, cache=cache))
    torch.testing.assert_close(compiled, values_and_gradient(PLAIN))


def test_the_number_of_torchs_threads_changes_no_bit(threads: int) -> None:
    x, dense = torch.rand(40, 30, generator=generator(1)), torch.rand(30, 16, generator=generator(2))
    divided = COMPILED.product(to_csr(x), dense)
    torch.set_num_threads(1)
    assert torch.equal(COMPILED.product(to_csr(x), dense), divided)


@pytest.mark.parametrize("lent", [1, 3])
@pytest.mark.parametrize("blocked", [False, True], ids=["", "in blocks"])
def test_rows_of_unequal_length_are_divided_and_blocked_without_changing_a_bit(lent: int, blocked: bool) -> None:
    x, dense = torch.rand(40, 30, generator=generator(1)), torch.rand(30, 16, generator=generator(2))
    csr = to_csr(x * (x > torch.arange(40).unsqueeze(1) / 50))  # from 30 entries to few
    plain = COMPILED.product(csr, dense)
    torch.testing.assert_close(plain, csr.to_dense() @ dense)
    workers, sizes = Noting(lent), {"blocked": 0, "block": 7 * dense[0].nbytes} if blocked else {}
    assert torch.equal(CompiledKernels(worth=0, reads=1000, workers=workers, **sizes).product(csr, dense), plain)
    in_blocks = [piece for piece in workers.pieces if piece[0] == "matmul_blocks"]
    assert len(in_blocks) == (lent if blocked else 0)
    assert len(workers.pieces) >= lent


def test_many_entries_are_cut_evenly() -> None:
    rowptr = np.linspace(0, 2**31 - 1, 1001).astype(np.int32)
    assert cuts(rowptr, 1000, 4) == [0, 250, 500, 750, 1000]
    assert cuts(np.zeros(4, np.int32), 3, 2) == [0, 0, 3]


@pytest.fixture
def workers() -> Workers:
    return Workers(worth=0)


def test_an_error_in_a_helper_is_not_lost(workers: Workers) -> None:
    started = Event()

    def kernel(first: int, last: int) -> None:
        if current_thread() is main_thread():
            assert started.wait(10)
            return
        started.set()
        raise ValueError("in a piece")

    workers.lent = 2
    with pytest.raises(ValueError, match="in a piece"):
        workers.divide(kernel, 100)


def test_a_thread_that_waits_takes_a_share(workers: Workers) -> None:
    took, shared = set(), Event()

    def kernel(first: int, last: int) -> None:
        took.add(current_thread().name)
        if len(took) > 1:
            shared.set()
        assert shared.wait(10)  # no piece ends before two threads have one

    with ThreadPoolExecutor(1) as pool:
        assert workers.wait(pool.submit(workers.divide, kernel, 100)) is None
    assert len(took) == 2
    assert main_thread().name in took
    assert not workers.offers


@pytest.mark.parametrize("where", ["waiting", "working"])
def test_an_error_in_a_share_reaches_who_waits(where: str, workers: Workers) -> None:
    begun = Event()

    def kernel(first: int, last: int) -> None:
        if (current_thread() is main_thread()) == (where == "waiting"):
            begun.set()
            raise ValueError("in a piece")
        assert begun.wait(10)

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="in a piece"):
        workers.wait(pool.submit(workers.divide, kernel, 100))
    assert not workers.offers


def test_waiting_ends_with_what_is_waited_for(workers: Workers) -> None:
    asked = Event()

    class Asked(Workers):
        """Says when it is waited for."""

        @property
        def offers(self) -> dict[int, Any]:
            asked.set()
            return {}

        @offers.setter
        def offers(self, offers: dict[int, Any]) -> None:
            """There are none."""

    with ThreadPoolExecutor(1) as pool:
        assert Asked().wait(pool.submit(lambda: asked.wait(10) and 3)) == 3  # ends while it is waited for
        done = pool.submit(int, "4")
        assert done.result() == 4
        assert workers.wait(done) == 4
        with pytest.raises(ValueError, match="five"):
            workers.wait(pool.submit(int, "five"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [384, 100, 32, 9])
def test_products_in_packed_blocks_are_the_same_bit_by_bit(dtype: torch.dtype, width: int) -> None:
    x = torch.rand(40, 30, generator=generator(1), dtype=dtype)
    csr = to_csr(x * (x > torch.arange(40).unsqueeze(1) / 39))  # down to rows without entries
    dense = torch.randn(30, width, generator=generator(2), dtype=dtype)
    outs, used = [], []
    for reads in (10_000, 1):
        workers = Noting()
        outs.append(dense.new_full((40, width), torch.nan))
        kernels = CompiledKernels(reads=reads, workers=workers)
        kernels.multiply(csr.crow_indices(), csr.col_indices(), csr.values(), dense, outs[-1])
        used.append({name for name, *_ in workers.pieces})
    assert used == [{"matmul"}, {"product"}]
    assert torch.equal(*outs)
    torch.testing.assert_close(outs[1], csr.to_dense() @ dense)


@pytest.mark.parametrize(
    ("rows", "width", "product"),
    [(4096, 64, True), (4097, 64, False), (8192, 32, True), (8193, 32, False), (4096, 200, True)],
)
def test_blocks_of_columns_are_packed_where_a_cores_cache_holds_them_and_they_are_read_often(
    monkeypatch: pytest.MonkeyPatch, rows: int, width: int, product: bool
) -> None:
    monkeypatch.setattr("aceglt.backends.cpu.kernels.core_cache", lambda: 1 << 20)
    for entries, packed in ((16 * rows, product), (16 * rows - 1, False)):
        workers = Noting()
        rowptr, col = torch.tensor([0, entries]).int(), torch.zeros(entries).int()
        dense, out = torch.ones(rows, width), torch.empty(1, width)
        CompiledKernels(reads=16, workers=workers).multiply(rowptr, col, torch.ones(entries), dense, out)
        assert {name for name, *_ in workers.pieces} == {"product" if packed else "matmul"}
        assert torch.equal(out, torch.full_like(out, entries))


@pytest.mark.parametrize(("wanted", "size", "ranks"), [(3, 1, 3), (9, 1, 4), (3, 0, 1), (1, 1, 1)])
def test_threads_that_work_together_are_as_many_as_there_are(wanted: int, size: int, ranks: int) -> None:
    workers, seen = Workers(worth=1, together_from=1, most=4), []
    workers.lent = wanted
    workers.together(lambda rank, of, gate: seen.append((rank, of)), size=size)
    assert sorted(seen) == [(rank, ranks) for rank in range(ranks)]


def test_kernels_side_by_side_have_all_threads_between_them() -> None:
    workers, seen = Workers(worth=1, together_from=1, most=4), []
    workers.lent, inside = 3, Barrier(3)

    def outer(rank: int, ranks: int, gate: Any) -> None:
        inside.wait(10)  # all have begun
        if rank == 0:
            workers.together(lambda rank, ranks, gate: seen.append(ranks), size=1)

    for _ in range(2):  # threads are given back
        workers.together(outer, size=1)
    assert seen == [2, 2, 2, 2]


@pytest.mark.parametrize("fails", [0, 2])
def test_nobody_waits_for_a_thread_that_failed(fails: int) -> None:
    from aceglt.backends.cpu.compiled_gcn import _meet

    workers, seen = Workers(worth=1, together_from=1, most=4), []
    workers.lent = 3

    def kernel(rank: int, ranks: int, gate: Any) -> None:
        if rank == fails:
            raise ValueError("no room")
        seen.append(_meet(gate, ranks, 0))

    with pytest.raises(ValueError, match="no room"):
        workers.together(kernel, size=1)
    assert seen == [1, 1]


def test_an_interruption_ends_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    from aceglt.backends.cpu.compiled_gcn import _meet

    workers, begun = Workers(worth=1, together_from=1, most=4), []
    workers.lent = 3

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *given: Any, **more: Any) -> Any:
            if begun:
                raise KeyboardInterrupt
            begun.append(super().submit(*given, **more))
            return begun[0]

    def kernel(rank: int, ranks: int, gate: Any) -> None:
        _meet(gate, ranks, 0)

    with Interrupted(4) as pool, monkeypatch.context() as patch:
        patch.setitem(vars(workers), "_team", pool)
        with pytest.raises(KeyboardInterrupt):
            workers.together(kernel, size=1)
        assert begun[0].done()
    seen: list[int] = []
    workers.together(lambda rank, ranks, gate: seen.append(ranks), size=1)
    assert seen == [3, 3, 3]  # all threads were given back


@pytest.mark.usefixtures("double")
def test_sums_of_sparse_features_and_their_gradient(threads: int) -> None:
    left = torch.rand(20, 15, generator=generator(1)) * (torch.rand(20, 15, generator=generator(2)) < 0.3)
    x = torch.randn(15, 40, generator=generator(3)) * (torch.rand(15, 40, generator=generator(4)) < 0.1)
    x[4] = 0
    matrix, features = to_csr(left), to_csr(x)
    rowptr, col, values = matrix.crow_indices(), matrix.col_indices(), matrix.values().clone().requires_grad_()
    sums = Sums(COMPILED, rowptr, col, features)
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


@pytest.mark.parametrize("outputs", [3, 40], ids=["few", "many"])
def test_a_narrow_layer(outputs: int, threads: int) -> None:
    h, weight = torch.randn(13, 20, generator=generator(1)), torch.randn(outputs, 20, generator=generator(2))
    torch.testing.assert_close(COMPILED.outputs(h, weight), h @ weight.t())
    for large in (h.double(), h.double().repeat(400, 20)):  # which is worth a kernel
        few = weight[:3].t().double().repeat(large.shape[1] // 20, 1)
        torch.testing.assert_close(CompiledKernels().few_columns(large, few), large @ few)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 64, 200])
def test_a_product_with_a_sparse_weight(rows: int, dtype: torch.dtype, threads: int) -> None:
    x, weight = (torch.randn(shape, generator=generator(1), dtype=dtype) for shape in ((rows, 20), (20, 30)))
    weight *= torch.rand(20, 30, generator=generator(2)) < 0.2
    made = COMPILED.by_sparse(x, to_csr(weight.t().contiguous()))
    torch.testing.assert_close(made, x @ weight)
    assert PLAIN.by_sparse(x, to_csr(weight.t().contiguous())) is None


@pytest.mark.usefixtures("double")
def test_the_order_of_a_narrow_product_changes_neither_it_nor_its_gradients() -> None:
    h, weight = (torch.randn(shape, generator=generator(1)).requires_grad_() for shape in ((2, 6, 5), (2, 5, 2)))
    torch.testing.assert_close(COMPILED.linear(h, weight), h @ weight)
    assert torch.autograd.gradcheck(COMPILED.linear, (h, weight))


def test_memory_is_kept_where_the_c_library_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def library(most: int) -> Any:
        def mallopt(what: int, size: int) -> int:
            calls.append((what, size))
            return what != -3 or size <= most

        return SimpleNamespace(mallopt=mallopt, malloc_trim=lambda pad: calls.append((0, pad)))

    new, old, first = 1 << 40, 1 << 25, (-3, 1 << 26)
    for c, expected in (
        (library(new), [first, (-1, 1 << 29), (-8, 1), (0, 0)]),
        (library(old), [first, (-3, 1 << 25), (-1, 1 << 29), (-8, 1), (0, 0)]),
        (library(0), [first, (-3, 1 << 25), (0, 0)]),
        (None, []),
    ):
        monkeypatch.setattr(allocator, "glibc", lambda c=c: c)
        calls.clear()
        allocator.keep_memory.__wrapped__()  # which is done once per process
        allocator.return_memory()
        assert calls == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_is_torchs_and_the_same_for_any_number_of_threads(dtype: torch.dtype) -> None:
    """Five steps of weights and scores, by the gradient of their product and the scores' L1."""
    n, decays = 10_001, (0.01, 0.02, 0.003)
    first, last, *grads = torch.randn(7, n, generator=generator(0), dtype=dtype)

    def stepped(threads: int) -> Tensor:
        weight, score, product, moments = first.clone(), last.clone(), first * last, first.new_zeros(4, n)
        workers = Noting(threads)
        adam = Adam(CompiledKernels(workers=workers), 0.1, weight)
        rules = adam.rules((decays[0], 0.0), decays[1:])
        step = adam.stepping(weight, moments, rules, product, scores=score)
        for grad in grads:
            adam.advance()
            step(grad)
        assert torch.equal(product, weight * score)
        assert len(workers.pieces) >= threads * len(grads)
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


def test_a_damaged_cache_of_compiled_kernels_is_said_and_changes_no_bit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> Tensor:
        """By kernels that are loaded anew."""
        monkeypatch.delitem(sys.modules, "aceglt.backends.cpu.compiled", raising=False)
        made = importlib.import_module("aceglt.backends.cpu.compiled")
        out = torch.empty(9, dtype=torch.float64)
        made.uniform(0, 9, np.uint64(7), out.numpy())
        return out

    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    whole = drawn()
    assert not caplog.records
    for damage in (b"", b"damaged"):
        for path in tmp_path.rglob("*.nbi"):
            path.write_bytes(damage)
        assert torch.equal(drawn(), whole)
        assert "numba's cache cannot be used" in caplog.text
        caplog.clear()
        assert torch.equal(drawn(), whole)  # it has been mended
        assert not caplog.records


def test_without_numba_plain_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "aceglt.backends.cpu.compiled", raising=False)
    monkeypatch.delattr("aceglt.backends.cpu.compiled", raising=False)
    compiled_module.cache_clear()
    try:
        assert compiled_module() is None
        kernels = Cpu(CompiledKernels(worth=0)).kernels
        assert not kernels.computes(torch.empty(0), 100)
        assert torch.equal(kernels.uniform(KEY, 100), rng.uniform(KEY, 100))
    finally:
        compiled_module.cache_clear()
