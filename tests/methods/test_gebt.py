"""GEBT: masks drawn while a dense model trains, taken once they settle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from samples import tiny_problem
from torch import Tensor

from aceglt.backbones import GCN
from aceglt.config import Config, Training
from aceglt.errors import ConfigError
from aceglt.methods import Gebt, Level
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.pruning.ranking import prune
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit, ScoreTraining, Watch, fit

KEEP = Counts(6, 6)


def level_of(traces: Sequence[Sequence[Tensor]], together: bool = False) -> tuple[Level, list[int]]:
    """A level whose training shows each run the given weights and edge values [10], epoch by epoch."""
    masks = Masks.full(len(traces), Counts(10, 10))
    ended: list[int] = []

    def train(masks: Masks, epochs: int, phase: str, *, weights: bool = True, watch: Watch | None = None) -> Fit:
        assert not weights
        assert watch is not None
        groups = [slice(0, len(traces))] if together else [slice(i, i + 1) for i in range(len(traces))]
        for group in groups:
            for epoch in range(1, epochs + 1):
                values = torch.stack([trace[min(epoch, len(trace)) - 1] for trace in traces[group]])
                if watch(group, epoch, Scores(values, values)):
                    break
            ended.append(epoch)
        return Fit(torch.zeros(len(traces)), torch.zeros(len(traces)), None, None)

    return Level(2, masks, KEEP, list(range(len(traces))), 200, train, train), ended


def rolling(epochs: int) -> list[Tensor]:
    """Values whose order changes at every epoch, then no more."""
    return [torch.arange(10.0).roll(epoch) for epoch in range(epochs)]


def test_a_run_stops_when_the_last_masks_no_longer_change() -> None:
    level, ended = level_of([rolling(20)])
    selection = Gebt().select(level)
    assert ended == [23]  # the window's three masks and this one are those of epoch 20
    assert selection.diagnostics == {"gebt": {"epoch": [23], "distance": [0.0], "settled": [True]}}
    assert selection.epochs == 23
    expected = torch.arange(10.0).roll(19) >= 4
    assert torch.equal(selection.masks.weights[0], expected)
    assert torch.equal(selection.masks.edges[0], expected)


def test_no_run_stops_before_epoch_5() -> None:
    level, ended = level_of([rolling(1)])
    assert Gebt().select(level).diagnostics["gebt"]["epoch"] == ended == [5]


def test_without_convergence_the_last_masks_are_taken_and_flagged() -> None:
    level, ended = level_of([rolling(200)])
    selection = Gebt(max_epochs=30).select(level)
    assert ended == [30]
    assert selection.diagnostics["gebt"]["settled"] == [False]
    assert torch.equal(selection.masks.weights[0], torch.arange(10.0).roll(29) >= 4)


def test_runs_of_a_batch_stop_each_by_itself() -> None:
    traces = [rolling(1), rolling(20)]
    apart, ended = level_of(traces)
    batched, ended_together = level_of(traces, together=True)
    a, b = Gebt().select(apart), Gebt().select(batched)
    assert (ended, ended_together) == ([5, 23], [23])
    assert torch.equal(a.masks.weights, b.masks.weights)
    assert torch.equal(a.masks.edges, b.masks.edges)
    assert a.diagnostics == b.diagnostics


def test_the_distance_is_the_mean_of_the_sides_in_units_of_their_first() -> None:
    """One swap at epoch 7, 2 of 10 elements, against the rolls of the first full window, epochs 1 to 4."""
    swapped = torch.arange(10.0).roll(3)
    swapped[[int((swapped == 3).nonzero()), int((swapped == 4).nonzero())]] = torch.tensor([4.0, 3.0])
    trace = [*rolling(4), *[torch.arange(10.0).roll(3)] * 2, swapped]
    level, _ = level_of([trace])
    distance = Gebt(threshold=0.01, max_epochs=7).select(level).diagnostics["gebt"]["distance"][0]
    first = max(int(((torch.arange(10.0).roll(3) >= 4) != (torch.arange(10.0).roll(r) >= 4)).sum()) for r in range(3))
    assert distance == pytest.approx(2 / first)


def test_ties_keep_their_order_when_other_values_change() -> None:
    full, key = Masks.full(1, Counts(50, 50)), rng.keys([3], "ties")
    ones = torch.ones(1, 50)
    low = ones.clone()
    low[0, 7] = 0.5
    before = prune(full, Scores(ones, ones), Counts(30, 30), key)
    after = prune(full, Scores(low, low), Counts(30, 30), key)
    for side in ("weights", "edges"):
        changed = getattr(before, side) != getattr(after, side)
        assert int(changed.sum()) in (0, 2)


def test_each_level_starts_from_the_dense_pair() -> None:
    level, _ = level_of([rolling(3)])
    none = torch.zeros(1, 10, dtype=torch.bool)
    none[0, :6] = True
    pruned = Level(level.number, Masks(none, none), KEEP, level.seeds, level.epochs, level.train_scores, level.train)
    assert torch.equal(Gebt().select(pruned).masks.weights, Gebt().select(level).masks.weights)


def test_weights_without_scores_train_as_they_do_alone_and_are_their_own_scores() -> None:
    problem = tiny_problem()
    backbone = GCN(problem.x.shape[1], 3, 6)
    start, masks = backbone.init([4]), Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    seen: list[Scores] = []

    def watch(runs: slice, epoch: int, scores: Scores) -> bool:
        seen.append(Scores(scores.weights.clone(), scores.edges.clone()))
        return epoch == 3

    scoring = ScoreTraining(1e-4, 1e-4, True, False, "last", weights=False)
    result = fit(
        problem,
        backbone,
        start,
        masks,
        9,
        Training(lr=0.01, weight_decay=5e-4),
        rng.keys([4], "x"),
        scoring=scoring,
        watch=watch,
    )
    assert len(seen) == 3
    assert result.scores is not None
    assert torch.equal(result.scores.weights, seen[-1].weights)
    assert torch.equal(result.scores.edges, seen[-1].edges)
    step = (seen[0].weights - start.prunable).abs()
    assert float(step.max()) <= 0.0101  # one step of Adam on the weights themselves
    assert float(step.median()) > 0.005


def test_a_search_counts_the_epochs_that_were_trained() -> None:
    problem = tiny_problem()
    config = Config(method="gebt", seeds=(1, 2), epochs=2, hidden=6)
    method = Gebt(max_epochs=12)
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), method, config)
    state = search.select(search.train_dense(State()))
    assert state.selected is not None
    assert state.selected.epochs == max(state.selected.diagnostics["gebt"]["epoch"]) <= 12


@pytest.mark.parametrize(("option", "value"), [("max_epochs", 0), ("window", 0), ("min_epochs", 3), ("threshold", 0.0)])
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"gebt: {option} must be"):
        Gebt(**{option: value})  # type: ignore[arg-type]
