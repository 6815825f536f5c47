"""Adversarial complementary erasing with hand-made scores: exactly the expected elements are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from aceglt.errors import ConfigError
from aceglt.methods import Ace, Level, Selection
from aceglt.numerics.masks import Counts, Masks, Quota, Scores
from aceglt.training.fit import Fit

WEIGHTS, EDGES = 20, 12
KEEP = Counts(10, 6)
FIRST = set(range(10))  # what the cut before the refinement keeps of the weights


@dataclass(frozen=True)
class Round:
    """Which retained elements matter least and which pruned ones most, most extreme first."""

    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()


@dataclass
class FakeTraining:
    """Plays `Level.train_scores`: the cut keeps the first elements, the rounds follow a script for each side."""

    weights: list[list[Round]]  # of each run
    edges: list[list[Round]]
    val: Mapping[str, list[float]] = field(default_factory=dict)
    calls: dict[str, Masks] = field(default_factory=dict)
    epochs: int = 0

    @property
    def runs(self) -> int:
        return len(self.weights)

    def __call__(self, masks: Masks, epochs: int, phase: str) -> Fit:
        self.calls[phase] = masks
        self.epochs += epochs * masks.runs // self.runs
        val = torch.tensor(self.val.get(phase, [0.0] * self.runs), dtype=torch.float64)
        val = val.repeat(masks.runs // self.runs)
        val[self.runs :] = 1.0  # how well the pruned part does must not matter
        return Fit(val, torch.ones(masks.runs), None, self._scores(masks, phase))

    def _scores(self, masks: Masks, phase: str) -> Scores:
        if phase == "score":
            return Scores(*(1.0 - 0.01 * torch.arange(n).repeat(self.runs, 1) for n in (WEIGHTS, EDGES)))
        number = int(phase.removeprefix("refine "))
        return Scores(self._side(masks.weights, self.weights, number), self._side(masks.edges, self.edges, number))

    def _side(self, alive: Tensor, script: list[list[Round]], number: int) -> Tensor:
        rows = []
        for row, mask in enumerate(alive):
            rounds = script[row % self.runs]
            now = rounds[number] if number < len(rounds) else Round()
            score = torch.where(mask, 1.0 + 0.001 * torch.arange(len(mask)), torch.tensor(0.0))
            retained = row < self.runs
            for rank, element in enumerate(now.low if retained else now.high):
                assert mask[element], f"the script of {number} names {element}, which is not in this part"
                score[element] = 0.1 * (rank + 1) if retained else 10.0 - rank
            rows.append(score)
        return torch.stack(rows) * (-1) ** torch.arange(alive.shape[1])  # signs must not matter


def last_kept(**options: Any) -> Ace:
    """ACE that keeps the last round's masks, so that what a round does is seen."""
    return Ace(**{"exchange": 0.05, "keep": "last", **options})


def select(training: FakeTraining, ace: Ace, start: Masks | None = None) -> Selection:
    start = start or Masks.full(training.runs, Counts(WEIGHTS, EDGES))
    return ace.select(Level(1, start, KEEP, tuple(range(training.runs)), 200, training, training))


def test_weights_are_exchanged_within_their_matrix() -> None:
    quotas = [Quota(slice(0, 14), 6), Quota(slice(14, 20), 4)]
    training = FakeTraining([[Round(low=(5, 14, 4), high=(13, 19, 12))]], [[]])
    level = Level(1, Masks.full(1, Counts(WEIGHTS, EDGES)), KEEP, (0,), 200, training, training, quotas)
    selection = last_kept(rounds=1, exchange=0.5).select(level)
    assert alive(training.calls["refine 0"].weights[0]) == {*range(6), 14, 15, 16, 17}
    # three of each in the first matrix, one in the second
    assert alive(selection.masks.weights[0]) == {1, 2, 3, 11, 12, 13, 15, 16, 17, 19}
    assert selection.diagnostics["ace"]["weights"]["exchanged"] == [(4,)]


def test_a_matrix_that_has_lost_nothing_belongs_to_both_parts() -> None:
    """Or the pruned part would have no output layer; what it holds is not exchanged."""
    quotas = [Quota(slice(0, 14), 4), Quota(slice(14, 20), 6)]
    training = FakeTraining([[Round(low=(0, 14), high=(13, 14))]], [[]])
    level = Level(1, Masks.full(1, Counts(WEIGHTS, EDGES)), KEEP, (0,), 200, training, training, quotas)
    selection = last_kept(rounds=1, exchange=0.25).select(level)
    retained, pruned = training.calls["refine 0"].weights
    assert alive(retained) == {0, 1, 2, 3, *range(14, 20)}
    assert alive(pruned) == set(range(4, 20))
    assert alive(selection.masks.weights[0]) == {1, 2, 3, 13, *range(14, 20)}


def alive(mask: Tensor) -> set[int]:
    return set(mask.nonzero().squeeze(1).tolist())


STILL = [Round((4, 5), (6, 7)), Round((0, 1), (8, 9)), Round((2, 3), (10, 11))]  # edges that never repeat themselves
OSCILLATING = [Round((6, 7, 8, 9), (10, 11, 12, 13)), Round((10, 11, 12, 13), (6, 7, 8, 9))]


def test_the_least_of_the_retained_and_the_most_of_the_pruned_part_are_exchanged() -> None:
    training = FakeTraining([[Round((9, 3, 5, 7), (19, 12, 15, 10))]], [[Round((5, 0), (6, 11))]])
    selection = select(training, last_kept(rounds=1, exchange=0.4))
    assert alive(selection.masks.weights[0]) == (FIRST - {9, 3, 5, 7}) | {19, 12, 15, 10}
    assert alive(selection.masks.edges[0]) == {1, 2, 3, 4, 6, 11}
    for side, count in (("weights", 4), ("edges", 2)):
        found = selection.diagnostics["ace"][side]
        assert found == {"similarity": [(0.0,)], "exchanged": [(count,)], "halved": [0], "resampled": [0]}


def test_k_is_a_share_of_the_smaller_part_and_at_least_one() -> None:
    script = Round(tuple(range(6)), tuple(range(10, 16)))
    for exchange, count in ((0.05, 1), (0.1, 1), (0.25, 3), (0.6, 6)):
        training = FakeTraining([[script]], [[]])
        selection = select(training, last_kept(rounds=1, exchange=exchange))
        assert alive(selection.masks.weights[0]) == (FIRST - set(range(count))) | set(range(10, 10 + count))


def test_both_parts_are_trained_and_the_pruned_part_is_of_the_full_graph_and_model() -> None:
    training = FakeTraining([[]], [[]])
    start = Masks(torch.ones(1, WEIGHTS, dtype=torch.bool), torch.arange(EDGES)[None] < 8)
    select(training, last_kept(rounds=1), start)
    assert list(training.calls) == ["score", "refine 0"]
    both = training.calls["refine 0"]
    assert both.runs == 2
    assert alive(both.weights[0]) == FIRST
    assert alive(both.edges[0]) == set(range(6))
    assert alive(both.weights[1]) == set(range(10, 20))
    assert alive(both.edges[1]) == set(range(6, 12)), "edges that were dead before the level are candidates too"


def test_a_round_trains_what_the_last_one_exchanged() -> None:
    training = FakeTraining([[Round((1,), (11,)), Round((2,), (12,)), Round((3,), (13,))]], [STILL])
    selection = select(training, last_kept(rounds=3, exchange=0.1))
    assert alive(training.calls["refine 1"].weights[0]) == (FIRST - {1}) | {11}
    assert alive(training.calls["refine 2"].weights[0]) == (FIRST - {1, 2}) | {11, 12}
    assert alive(selection.masks.weights[0]) == (FIRST - {1, 2, 3}) | {11, 12, 13}


@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 1.0, "replacement": True}])
def test_counts_stay_exact_whatever_is_drawn(rounds: int, options: dict[str, Any]) -> None:
    for exchange in (0.05, 0.5, 1.0):
        training = FakeTraining([[]] * 3, [[]] * 3)
        masks = select(training, last_kept(rounds=rounds, exchange=exchange, **options)).masks
        assert masks.weights.sum(dim=1).tolist() == [KEEP.weights] * 3
        assert masks.edges.sum(dim=1).tolist() == [KEEP.edges] * 3


@dataclass(frozen=True)
class Expected:
    weights: set[int]
    similarity: tuple[float, ...]
    exchanged: tuple[int, ...]
    halved: int
    resampled: int


@pytest.mark.parametrize(
    ("adaptive_k", "resample", "expected"),
    [
        # All four come and go again.
        (False, False, Expected(FIRST, (0.0, 1.0), (4, 4), 0, 0)),
        # They still do, but the rounds after this one exchange two.
        (True, False, Expected(FIRST, (0.0, 1.0), (4, 4), 1, 0)),
        # Round 0 is drawn once more; at temperature 0 the same four.
        (False, True, Expected((FIRST - {6, 7, 8, 9}) | {10, 11, 12, 13}, (0.0, 1.0), (4, 4), 0, 1)),
        # Round 0 is drawn once more with half of K: the most extreme two.
        (True, True, Expected((FIRST - {6, 7}) | {10, 11}, (0.0, 1.0), (4, 2), 1, 1)),
    ],
)
def test_a_round_that_undoes_the_last_one(adaptive_k: bool, resample: bool, expected: Expected) -> None:
    training = FakeTraining([OSCILLATING], [STILL])
    ace = last_kept(rounds=2, exchange=0.4, adaptive_k=adaptive_k, resample=resample)
    selection = select(training, ace)
    found = selection.diagnostics["ace"]["weights"]
    assert alive(selection.masks.weights[0]) == expected.weights
    assert found["similarity"] == [pytest.approx(expected.similarity)]
    assert found["exchanged"] == [expected.exchanged]
    assert (found["halved"], found["resampled"]) == ([expected.halved], [expected.resampled])
    # The edges have their own K and similarity, and never repeated themselves.
    still = selection.diagnostics["ace"]["edges"]
    assert still == {"similarity": [(0.0, 0.0)], "exchanged": [(2, 2)], "halved": [0], "resampled": [0]}
    assert alive(selection.masks.edges[0]) == {2, 3, 6, 7, 8, 9}


def test_k_stays_halved_for_the_rest_of_the_level() -> None:
    script = [*OSCILLATING, Round((0, 1, 2, 3), (14, 15, 16, 17)), Round((4, 5), (18, 19))]
    ace = last_kept(rounds=4, exchange=0.4, resample=False)
    selection = select(FakeTraining([script], [[]]), ace)
    assert selection.diagnostics["ace"]["weights"]["exchanged"] == [(4, 4, 2, 2)]
    assert alive(selection.masks.weights[0]) == (FIRST - {0, 1, 4, 5}) | {14, 15, 18, 19}


def test_a_redrawn_round_may_be_undone_again_from_the_same_scores() -> None:
    script = [*OSCILLATING, Round((10, 11), (6, 7))]
    training = FakeTraining([script], [[]])
    selection = select(training, last_kept(rounds=3, exchange=0.4))
    assert alive(training.calls["refine 2"].weights[0]) == (FIRST - {6, 7}) | {10, 11}
    found = selection.diagnostics["ace"]["weights"]
    assert found["exchanged"] == [(4, 2, 1)]
    assert (found["halved"], found["resampled"]) == ([2], [2])
    assert alive(selection.masks.weights[0]) == (FIRST - {6}) | {10}


def test_the_similarity_must_exceed_the_threshold() -> None:
    half = [Round((6, 7, 8, 9), (10, 11, 12, 13)), Round((10, 11, 0, 1), (14, 15, 16, 17))]
    for threshold, fired in ((0.5, 0), (0.49, 1)):
        selection = select(FakeTraining([half], [[]]), last_kept(rounds=2, exchange=0.4, threshold=threshold))
        found = selection.diagnostics["ace"]["weights"]
        assert found["similarity"] == [pytest.approx((0.0, 0.5))]
        assert (found["halved"], found["resampled"]) == ([fired], [fired])


def test_runs_repeat_themselves_each_for_itself() -> None:
    calm = [Round((6, 7, 8, 9), (10, 11, 12, 13)), Round((0, 1, 2, 3), (14, 15, 16, 17))]
    selection = select(FakeTraining([OSCILLATING, calm], [[], []]), last_kept(rounds=2, exchange=0.4))
    assert selection.diagnostics["ace"]["weights"]["resampled"] == [1, 0]
    assert alive(selection.masks.weights[0]) == (FIRST - {6, 7}) | {10, 11}
    assert alive(selection.masks.weights[1]) == {4, 5, *range(10, 18)}


def test_a_redraw_takes_fresh_noise() -> None:
    """Equal scores at temperature 1: what comes in is random; then exactly that is what matters least."""
    before: list[set[int]] = []

    def train_scores(masks: Masks, epochs: int, phase: str) -> Fit:
        weights = masks.weights.float()
        if phase == "refine 1":
            came = masks.weights[:1] & (torch.arange(WEIGHTS) >= 10)
            before.append(alive(came[0]))
            weights[:1][came] = 1e-20
        if phase == "score":
            weights = 1.0 - 0.01 * torch.arange(WEIGHTS).repeat(1, 1)
        scores = Scores(weights, masks.edges.float())
        return Fit(torch.zeros(masks.runs), torch.ones(masks.runs), None, scores)

    level = Level(1, Masks.full(1, Counts(WEIGHTS, EDGES)), Counts(10, EDGES), (0,), 5, train_scores, train_scores)
    ace = last_kept(rounds=2, exchange=0.4, temperature=1.0, adaptive_k=False)
    selection = ace.select(level)
    assert selection.diagnostics["ace"]["weights"]["similarity"] == [(0.0, pytest.approx(1.0))]
    assert selection.diagnostics["ace"]["weights"]["resampled"] == [1]
    redrawn = alive(selection.masks.weights[0]) - FIRST
    assert len(redrawn) == len(before[0]) == 4
    assert redrawn != before[0]


def test_keep_best_takes_the_round_with_the_best_validation_of_the_retained_part() -> None:
    script = [Round((1,), (11,)), Round((2,), (12,)), Round((3,), (13,))]
    val = {"refine 0": [0.5, 0.9], "refine 1": [0.7, 0.6], "refine 2": [0.7, 0.6], "refine 3": [0.6, 0.6]}
    training = FakeTraining([script, script], [STILL, STILL], val)
    masks = select(training, last_kept(rounds=3, exchange=0.1, keep="best")).masks
    assert alive(masks.weights[0]) == (FIRST - {1}) | {11}, "the first of equal rounds, after one exchange"
    assert alive(masks.weights[1]) == FIRST
    assert training.calls["refine 3"].runs == 2, "the final masks are trained too, without their pruned part"


def test_keep_best_may_take_the_last_round() -> None:
    script = [Round((1,), (11,)), Round((2,), (12,))]
    training = FakeTraining([script], [[]], {"refine 2": [0.3]})
    selection = select(training, last_kept(rounds=2, exchange=0.1, keep="best"))
    assert alive(selection.masks.weights[0]) == (FIRST - {1, 2}) | {11, 12}


@dataclass
class Tickets:
    """Plays `Level.train`: how good a ticket is depends on how many of the first weights it still has."""

    best: Callable[[int], float]
    seen: list[tuple[int, int, str]] = field(default_factory=list)

    def __call__(self, masks: Masks, epochs: int, phase: str) -> Fit:
        self.seen.append((masks.runs, epochs, phase))
        val = [self.best(len(FIRST & alive(mask))) for mask in masks.weights]
        return Fit(torch.tensor(val, dtype=torch.float64), torch.arange(masks.runs) % 2, None, None)


@pytest.mark.parametrize(("wanted", "chosen"), [(10, 10), (9, 9), (8, 8)])
def test_keep_trained_takes_the_masks_whose_ticket_is_best_the_unrefined_ones_included(
    wanted: int, chosen: int
) -> None:
    training = FakeTraining([[Round((0,), (19,)), Round((1,), (18,))]] * 2, [STILL] * 2)
    tickets = Tickets(lambda kept: 1.0 - abs(kept - wanted))
    ace = Ace(rounds=2, exchange=0.1, keep="trained")
    start = Masks.full(2, Counts(WEIGHTS, EDGES))
    selection = ace.select(Level(1, start, KEEP, (0, 1), 200, training, tickets, ticket_epochs=7))
    assert [len(FIRST & alive(mask)) for mask in selection.masks.weights] == [chosen] * 2
    assert tickets.seen == [(2 * ace.trainings, 7, "retrain")], "all candidates are trained side by side"
    assert selection.trained is not None
    assert selection.trained.val.tolist() == [1.0, 1.0]
    assert selection.trained.epoch.tolist() == [0, 1]  # each run has its own


def test_unless_handed_on_the_refined_masks_are_not_where_the_next_level_starts() -> None:
    training = FakeTraining([[Round((0,), (19,))]], [[]])
    selection = select(training, last_kept(rounds=1, exchange=0.1, hand_on=False))
    assert selection.handed_on is not None
    assert alive(selection.handed_on.weights[0]) == FIRST != alive(selection.masks.weights[0])
    assert select(training, last_kept(rounds=1, exchange=0.1)).handed_on is None


def test_pruned_weights_may_be_judged_on_the_full_graph() -> None:
    training = FakeTraining([[Round((0,), (19,))]], [[]])
    select(training, last_kept(rounds=1, exchange=0.1, pruned_graph="full"))
    retained, pruned = training.calls["refine 0"].edges
    assert alive(retained) == set(range(6))
    assert alive(pruned) == set(range(EDGES))
    assert alive(training.calls["refine 0"].weights[1]) == set(range(10, 20))


@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_cost_is_what_was_trained(keep: Any, rounds: int) -> None:
    training, ace = FakeTraining([[], []], [[], []]), last_kept(rounds=rounds, refine_epochs=7, keep=keep)
    selection = select(training, ace)
    assert selection.epochs == ace.cost(200) == training.epochs


def test_a_round_trains_no_longer_than_the_scores_of_the_level() -> None:
    training, ace = FakeTraining([[]], [[]]), last_kept(rounds=1, refine_epochs=1000)
    assert select(training, ace).epochs == ace.cost(200) == training.epochs == 3 * 200


def test_paper_sampling_removes_duplicates_and_trims_to_equal_counts() -> None:
    ace = last_kept(rounds=1, exchange=1.0, temperature=1.0, replacement=True)
    selection = select(FakeTraining([[]] * 20, [[]] * 20), ace)
    exchanged = [rounds[0] for rounds in selection.diagnostics["ace"]["weights"]["exchanged"]]
    assert all(0 < count < 10 for count in exchanged), "ten draws of ten elements repeat some"
    assert len(set(exchanged)) > 1
    came = (selection.masks.weights & (torch.arange(WEIGHTS) >= 10)).sum(dim=1).tolist()
    assert came == exchanged
    assert selection.masks.weights.sum(dim=1).tolist() == [10] * 20


def test_paper_sampling_prefers_what_matters() -> None:
    script = Round((9,), (15,))

    def came_and_went(mask: Tensor) -> tuple[bool, bool]:
        return bool(mask[15]), not bool(mask[9])

    ace = last_kept(rounds=1, exchange=0.3, temperature=1.0, replacement=True)
    masks = select(FakeTraining([[script]] * 100, [[]] * 100), ace).masks.weights
    came, went = zip(*(came_and_went(mask) for mask in masks), strict=True)
    others = masks[:, [10, 11, 12, 13, 14, 16, 17, 18, 19]].float().mean()
    assert sum(came) / 100 > 2 * float(others)
    assert sum(went) / 100 > 2 * float((~masks[:, :9]).float().mean())


def test_a_side_with_nothing_pruned_exchanges_nothing() -> None:
    def train_scores(masks: Masks, epochs: int, phase: str) -> Fit:
        scores = Scores(masks.weights.float(), masks.edges.float())
        return Fit(torch.zeros(masks.runs), torch.ones(masks.runs), None, scores)

    level = Level(1, Masks.full(1, Counts(WEIGHTS, EDGES)), Counts(10, EDGES), (0,), 5, train_scores, train_scores)
    for options in ({}, {"temperature": 1.0, "replacement": True}):
        selection = last_kept(rounds=2, **options).select(level)
        assert selection.masks.alive == Counts(10, EDGES)
        assert selection.diagnostics["ace"]["edges"]["exchanged"] == [(0, 0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": -1}, "ace: rounds must be 1 or more, found -1"),
        ({"rounds": 0}, "that is ugs; use method ugs"),
        ({"refine_epochs": 0}, "ace: refine_epochs must be 1 or more, found 0"),
        ({"exchange": 0.0}, r"ace: exchange must be in \(0, 1\], found 0.0"),
        ({"exchange": 1.1}, r"ace: exchange must be in \(0, 1\], found 1.1"),
        ({"temperature": -0.5}, "ace: temperature must be 0 or more, found -0.5"),
        ({"threshold": 1.5}, r"ace: threshold must be in \[0, 1\], found 1.5"),
        ({"keep": "first"}, "ace: unknown keep 'first'; known are last, best, trained"),
        ({"replacement": True}, "ace: replacement draws need a temperature above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Ace(**options)


def test_the_defaults_are_those_of_the_study() -> None:
    ace = Ace()
    assert (ace.rounds, ace.refine_epochs, ace.exchange, ace.threshold) == (2, 30, 0.02, 0.6)
    assert (ace.temperature, ace.replacement, ace.keep) == (0.0, False, "trained")
    assert ace.adaptive_k
    assert ace.resample


def test_a_level_key_depends_on_seed_level_purpose_and_batch() -> None:
    never: Callable[..., Fit] = FakeTraining([[]], [[]])
    masks = Masks.full(2, Counts(2, 2))
    one, two = (Level(n, masks, KEEP, (0, 1), 5, never, never) for n in (1, 2))
    keys = torch.cat([one.key("a", 2), one.key("b"), two.key("a")])
    assert len(torch.unique(keys)) == len(keys) == 8
    assert torch.equal(one.key("a", 2)[:2], one.key("a"))
