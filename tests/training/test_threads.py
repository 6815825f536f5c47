"""Groups of runs in threads: the same results, one voice to the observer, and an end to all with the first error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, Lock, current_thread
from typing import Any

import pytest
import torch
from samples import random_masks, tiny_problem

from aceglt.backbones import build
from aceglt.backends import Cpu
from aceglt.backends.base import Observer, ScoreTraining
from aceglt.backends.cpu.elements import Thresholds
from aceglt.backends.cpu.workers import Spare, Workers, side_by_side, under_way
from aceglt.config import Training
from aceglt.errors import TrainingError
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts
from aceglt.training.fit import Fit, fit

SCORING = ScoreTraining(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="best")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Listener:
    """Counts epochs and threads; raises at the n-th call."""

    def __init__(self, after: int | None = None) -> None:
        self.epochs: list[int] = []
        self.threads: set[str] = set()
        self._after = after

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self.epochs.append(epoch)
        self.threads.add(current_thread().name)
        if len(self.epochs) == self._after:
            raise KeyboardInterrupt


def trained(
    name: str = "gcn", scoring: ScoreTraining | None = None, epochs: int = 4, runs: int = 3, **options: Any
) -> Fit:
    problem, seeds = tiny_problem(), range(runs)
    layers = {"layers": 3} if name == "resgcn" else {}
    backbone = build(name, problem.x.shape[1], problem.out_features, 8, **layers)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(total.weights // 2, total.edges - 3), seeds)
    start, key = backbone.init(seeds), rng.keys(seeds, "parallel")
    lr = options.pop("lr", 0.05)
    return fit(
        problem, backbone, start, masks, epochs, Training(lr=lr, weight_decay=0.01), key, scoring=scoring, **options
    )


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["weights", "scores"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "resgcn"])
def test_runs_side_by_side_are_bitwise_as_one_after_the_other(
    name: str, scoring: ScoreTraining | None, two_threads: None
) -> None:
    together = trained(name, scoring)
    torch.set_num_threads(1)
    one_by_one = trained(name, scoring)
    assert together.val.tolist() == one_by_one.val.tolist()
    assert together.epoch.tolist() == one_by_one.epoch.tolist()
    for part in ("params", "scores"):
        ours, theirs = getattr(together, part), getattr(one_by_one, part)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert all(torch.equal(value, getattr(theirs, field)) for field, value in vars(ours).items())


def test_the_observer_hears_of_all_epochs_and_threads_are_given_back(two_threads: None) -> None:
    listener = Listener()
    trained(observer=listener)
    assert sorted(listener.epochs) == sorted([1, 2, 3, 4] * 3)
    assert current_thread().name not in listener.threads
    assert torch.get_num_threads() == 2


def test_a_thread_that_begins_meanwhile_has_as_many_threads_as_ever(two_threads: None) -> None:
    """Another search there would otherwise split its sums differently, for good."""
    seen: list[tuple[int, int]] = []

    class Asks(Listener):
        def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
            with ThreadPoolExecutor(1) as elsewhere:
                seen.append((torch.get_num_threads(), elsewhere.submit(torch.get_num_threads).result()))

    trained(observer=Asks())
    assert set(seen) == {(1, 2)}


def test_an_interruption_ends_all_groups_at_once(two_threads: None) -> None:
    listener = Listener(after=5)
    with pytest.raises(KeyboardInterrupt):
        trained(epochs=10_000, observer=listener)
    assert len(listener.epochs) == 5
    assert torch.get_num_threads() == 2


def test_a_training_that_is_left_over_takes_turns_with_the_others() -> None:
    running, started, most, lock = set[int](), set[int](), 0, Lock()
    others: list[int] = []  # how many had started when each ended

    def train(group: int, turns: Observer) -> int:
        nonlocal most
        for epoch in range(1, 1_000_000):
            with lock:
                running.add(group)
                started.add(group)
                most, all_there = max(most, len(running)), len(started) == 3
                running.discard(group)
            turns.on_epoch(epoch, 1_000_000, 1, float)
            if all_there:
                break
        others.append(len(started))
        return group

    assert side_by_side(train, [0, 1, 2], None, threads=2, more=1) == [0, 1, 2]
    assert others == [3, 3, 3]
    assert most <= 2


def test_an_error_ends_trainings_that_wait_for_their_turn() -> None:
    ended: list[int] = []

    def train(group: int, turns: Observer) -> None:
        for epoch in range(1, 1_000_000):
            if epoch == 40 and group == 1:
                raise TrainingError("it diverged")
            turns.on_epoch(epoch, 1_000_000, 1, float)
        ended.append(group)

    with pytest.raises(TrainingError, match="it diverged"):
        side_by_side(train, [0, 1, 2], None, threads=2, more=1)
    assert ended == []


@pytest.mark.parametrize(
    ("groups", "threads", "together"), [(1, 2, 1), (2, 2, 2), (3, 2, 3), (9, 2, 3), (10, 2, 2), (9, 4, 5), (10, 4, 4)]
)
def test_as_many_are_under_way_as_leave_no_thread_without_work(groups: int, threads: int, together: int) -> None:
    assert under_way(groups, threads) == together


def test_a_run_that_diverges_ends_the_others_with_its_error(two_threads: None) -> None:
    with pytest.raises(TrainingError, match="NaN or infinite"):
        trained(lr=1e38)


def test_large_problems_share_the_threads_of_each_operation(two_threads: None) -> None:
    listener = Listener()
    trained(observer=listener, backend=Cpu(thresholds=Thresholds(small=10)))
    assert listener.threads == {current_thread().name}
    assert listener.epochs == [1, 2, 3, 4] * 3


@pytest.fixture
def workers() -> Workers:
    return Workers()


def test_spare_threads_are_there_while_every_training_may_have_one(workers: Workers) -> None:
    with closing(Spare(2, workers)) as spare, spare.training():
        with spare.training():
            assert spare.submit(lambda: 1) is None
        beside = spare.submit(lambda: 1)
        assert beside is not None
        assert beside() == 1


def test_work_beside_a_training_has_a_core_of_its_own_until_it_ends(workers: Workers) -> None:
    begun, end = Event(), Event()

    def work() -> bool:
        begun.set()
        return end.wait(10)

    with closing(Spare(2, workers)) as spare, spare.training():
        assert workers.lent == 2
        beside = spare.submit(work)
        assert beside is not None
        assert begun.wait(10)
        assert workers.lent == 1
        end.set()
        assert beside()
        assert workers.lent == 2
        failing = spare.submit(lambda: int("one"))
        assert failing is not None
        with pytest.raises(ValueError, match="one"):
            failing()
        assert workers.lent == 2


def test_kernels_have_the_cores_that_trainings_leave(workers: Workers) -> None:
    lent = []
    with closing(Spare(4, workers)) as spare, spare.training():
        lent.append(workers.lent)
        with spare.training():
            lent.append(workers.lent)
            with spare.training():
                lent.append(workers.lent)
        lent.append(workers.lent)
    assert [*lent, workers.lent] == [4, 2, 1, 4, 1]


@pytest.mark.usefixtures("two_threads")  # which sets the number back
def test_a_large_kernel_is_one_piece_where_no_thread_can_take_a_share(workers: Workers) -> None:
    pieces: list[tuple[int, int]] = []
    torch.set_num_threads(1)
    with closing(Spare(2, workers)) as spare, spare.training(), spare.training():
        workers.divide(lambda *piece: pieces.append(piece), 100, size=workers.worth)
    assert pieces == [(0, 100)]
