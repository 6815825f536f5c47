"""The criteria of design section 5, against scipy and against values computed by hand."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from aceglt.searches.statistics import (
    RankTest,
    Readings,
    best_level,
    enough_patience,
    highest_winning,
    highest_winning_per_seed,
    holm,
    mean_std,
    paired_t_test,
    rank_test,
    ranks,
    undetermined,
    unfinished,
    winning,
)

DENSE = Readings(val=[0.70, 0.72, 0.71, 0.69, 0.73], test=[0.71, 0.70, 0.72, 0.71, 0.70])
fractions = st.integers(0, 1000).map(lambda n: n / 1000)
pairs = st.lists(st.tuples(fractions, fractions), min_size=2, max_size=12)


def level(number: int, test: list[float] | None = None, **won: bool | None) -> dict[str, Any]:
    return {
        "level": number,
        "model_sparsity": 1 - 0.8**number,
        "graph_sparsity": 0.05,
        "test": test,
        "winning": {"paper": False, "strict": False, "significant": None, **won},
    }


def shifted(by: float) -> Readings:
    assert DENSE.test is not None
    return Readings([v + by for v in DENSE.val], [t + by for t in DENSE.test])


def test_mean_and_sample_deviation_by_hand() -> None:
    assert mean_std([0.5]) == (0.5, 0.0)
    assert mean_std([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    with pytest.raises(ValueError, match="no values"):
        mean_std([])


@given(st.lists(fractions, min_size=2, max_size=20))
def test_mean_std_agrees_with_the_standard_library(values: list[float]) -> None:
    mean, std = mean_std(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-12)
    assert std == pytest.approx(statistics.stdev(values), abs=1e-12)


def test_t_test_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, std 1, t = 2·√3 with 2 degrees of freedom, p = 1 - t/√(t² + 2).
    t = 2 * math.sqrt(3)
    p = 1 - t / math.sqrt(t * t + 2)
    assert paired_t_test([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx(p)
    assert paired_t_test([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], "less") == pytest.approx(1 - p / 2)
    assert paired_t_test([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], "less") == pytest.approx(p / 2)


@given(pairs, st.sampled_from(["two-sided", "less", "greater"]))
def test_t_test_agrees_with_scipy(values: list[tuple[float, float]], alternative: Any) -> None:
    a, b = [x for x, _ in values], [y for _, y in values]
    differences = [x - y for x, y in values]
    if statistics.stdev(differences) < 1e-6 or 0 < abs(statistics.fmean(differences)) < 1e-11:
        return  # scipy warns and answers NaN, or takes noise for a difference; see the tests of both
    expected = scipy_stats.ttest_rel(a, b, alternative=alternative).pvalue
    assert paired_t_test(a, b, alternative) == pytest.approx(expected, abs=1e-9)


def test_constant_differences_are_decided_by_their_sign() -> None:
    dense = [0.1, 0.2, 0.3]
    assert paired_t_test(dense, dense) == 1.0
    assert paired_t_test(dense, dense, "less") == 0.5
    assert paired_t_test([0.0, 0.1, 0.2], dense, "less") == 0.0  # 0.3 - 0.2 and 0.1 - 0.0 differ in the last bit
    assert paired_t_test([0.2, 0.3, 0.4], dense, "less") == 1.0
    assert paired_t_test([0.2, 0.3, 0.4], dense) == 0.0


def test_t_test_needs_two_pairs_of_equal_length() -> None:
    assert paired_t_test([0.5], [0.4]) is None
    with pytest.raises(ValueError, match="2 and 1"):
        paired_t_test([0.5, 0.6], [0.4])


def test_a_level_equal_to_dense_wins_every_criterion() -> None:
    assert winning(DENSE, DENSE) == {"paper": True, "strict": True, "significant": True}


def test_a_level_lower_on_every_seed_loses_every_criterion() -> None:
    assert winning(DENSE, shifted(-0.01)) == {"paper": False, "strict": False, "significant": False}


def test_validation_alone_decides_strict_and_test_alone_decides_paper() -> None:
    assert DENSE.test is not None
    verdict = winning(DENSE, Readings([v + 0.01 for v in DENSE.val], [t - 0.01 for t in DENSE.test]))
    assert verdict == {"paper": False, "strict": True, "significant": False}


def test_lower_within_noise_is_not_found_worse() -> None:
    level = Readings(DENSE.val, [0.73, 0.67, 0.74, 0.68, 0.71])
    assert winning(DENSE, level) == {"paper": False, "strict": True, "significant": True}


def test_significant_is_undetermined_below_five_seeds() -> None:
    four = Readings(DENSE.val[:4], [0.7] * 4)
    assert winning(four, four) == {"paper": True, "strict": True, "significant": None}


def test_without_test_readings_only_strict_is_decided() -> None:
    silent = Readings(DENSE.val, None)
    assert winning(silent, silent) == {"paper": None, "strict": True, "significant": None}


def test_readings_that_are_not_finite_decide_nothing() -> None:
    broken = Readings([math.nan] * 5, [math.nan] * 5)
    assert winning(DENSE, broken) == {"paper": None, "strict": None, "significant": None}


def test_the_order_of_summation_does_not_decide() -> None:
    dense, level = [0.1, 0.2, 0.3], [0.3, 0.3, 0.0]
    assert reduce(add, level) < reduce(add, dense)  # by one bit; `sum` makes up for that from Python 3.12 on
    assert winning(Readings(dense, dense), Readings(level, level))["paper"] is True


@example([(3e-12, 0.0)] * 6 + [(0.0, 0.0)] * 14)  # means and spread are both noise
@given(pairs.filter(lambda p: len(p) >= 5))
def test_a_level_that_wins_on_the_mean_is_never_found_worse(values: list[tuple[float, float]]) -> None:
    dense, level = [x for x, _ in values], [y for _, y in values]
    verdict = winning(Readings(dense, dense), Readings(level, level))
    assert verdict["paper"] == verdict["strict"]
    assert not verdict["paper"] or verdict["significant"]


def test_readings_are_checked() -> None:
    with pytest.raises(ValueError, match="at least one seed"):
        Readings([], [])
    with pytest.raises(ValueError, match="2 validation readings but 1 test"):
        Readings([0.1, 0.2], [0.1])


def test_highest_winning_skips_failures_between() -> None:
    levels = [level(1, paper=True, strict=True), level(2), level(3, paper=True), level(4)]
    found = highest_winning(levels)
    assert found["paper"] == {"level": 3, "model_sparsity": 1 - 0.8**3, "graph_sparsity": 0.05}
    assert found["strict"] == {"level": 1, "model_sparsity": 1 - 0.8, "graph_sparsity": 0.05}
    assert found["significant"] is None
    assert highest_winning([]) == {"paper": None, "strict": None, "significant": None}


def test_best_level_is_the_strict_winner() -> None:
    levels = [level(1, strict=True), level(2, strict=True), level(3, paper=True)]
    assert best_level({"levels": levels}) is levels[1]
    assert best_level({"levels": levels[2:]}) is None


def test_highest_winning_per_seed_counts_none_as_zero() -> None:
    dense = Readings([0.5, 0.5, 0.5], [0.6, 0.7, 0.8])
    levels = [level(1, [0.6, 0.7, 0.7]), level(2, [0.5, 0.6, 0.7]), level(3, [0.7, 0.6, 0.7])]
    assert highest_winning_per_seed(dense, levels) == {
        "model_sparsity": [1 - 0.8**3, 1 - 0.8, 0.0],
        "graph_sparsity": [0.05, 0.05, 0.0],
    }


def test_highest_winning_per_seed_without_levels_or_without_test() -> None:
    assert highest_winning_per_seed(Readings([0.5], [0.5]), []) == {"model_sparsity": [0.0], "graph_sparsity": [0.0]}
    assert highest_winning_per_seed(Readings([0.5], None), [level(1, None)]) is None


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [([], False), ([False], False), ([None], True), ([False, None], True), ([None, True], False)],
)
def test_undetermined_is_where_no_level_wins_but_one_may(verdicts: list[bool | None], expected: bool) -> None:
    assert undetermined([{"winning": {"paper": verdict}} for verdict in verdicts], "paper") is expected


def test_importing_is_cheap() -> None:
    code = "import sys, aceglt; before = set(sys.modules); import aceglt.searches.statistics; "
    code += "print(*{'torch', 'scipy', 'numpy'} & (set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("epochs", "best", "late"),
    [
        (200, [191, 200, 50], True),
        (200, [190, 190, 200], False),
        (200, [200, 10], False),
        (5, [5], True),
        (5, [4], False),
    ],
)
def test_a_dense_model_is_not_finished_where_most_best_epochs_are_among_the_last(
    epochs: int, best: list[int], late: bool
) -> None:
    for preset, advice in {"default": "(more --epochs, or --preset tuned)", "tuned": "(more --epochs)"}.items():
        said = unfinished(epochs, best, preset)
        assert (said is not None) is late
        if said is not None:
            assert said.startswith("dense is not finished; its tickets may win for that reason: ")
            assert said.endswith(advice)


def test_holm_by_hand() -> None:
    """Steps of 3, 2 and 1 tests; a corrected value is never below an earlier one, and never above 1."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_no_correction_and_bonferroni(p: list[float]) -> None:
    corrected = holm(p)
    assert all(a <= c <= 1.0 for a, c in zip(p, corrected, strict=True))
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [corrected[i] for i in order] == sorted(corrected)
    assert corrected[order[0]] == min(1.0, len(p) * p[order[0]])


def test_ranks_share_the_places_of_ties() -> None:
    assert ranks([0.3, 0.9, 0.3, 0.1]) == [2.5, 1, 2.5, 4]
    assert ranks([0.5, 0.5, 0.5]) == [2, 2, 2]


def test_ranks_over_blocks_by_hand() -> None:
    """Ranks 1 2 3, 1 2 3, 2 1 3, 1 3 2: χ² = 4 · (0.75² + 0.75²) = 4.5 with two degrees of freedom, so p = exp(-2.25);
    Nemenyi's quantile for three methods is 2.343."""
    found = rank_test([[0.9, 0.8, 0.7], [0.6, 0.5, 0.1], [0.8, 0.9, 0.7], [0.9, 0.2, 0.3]])
    assert found is not None
    assert found.means == [1.25, 2.0, 2.75]
    assert found.p == pytest.approx(math.exp(-2.25))
    assert found.difference == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 4)), abs=1e-3)


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_the_critical_difference_has_the_published_quantiles(methods: int, quantile: float) -> None:
    found = rank_test([list(range(methods))] * 14)
    assert found is not None
    assert found.difference == pytest.approx(quantile * math.sqrt(methods * (methods + 1) / (6 * 14)), abs=2e-3)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=2, max_size=12))
def test_friedmans_test_is_scipys(blocks: list[tuple[int, ...]]) -> None:
    found = rank_test(blocks)
    assert found is not None
    assert [ranks(block) for block in blocks] == [list(scipy_stats.rankdata([-v for v in block])) for block in blocks]
    if any(len(set(block)) > 1 for block in blocks):
        assert found.p == pytest.approx(scipy_stats.friedmanchisquare(*zip(*blocks, strict=True)).pvalue, abs=1e-9)
    else:
        assert found.p == 1.0


def test_methods_that_are_not_told_apart_are_grouped_and_the_groups_overlap() -> None:
    found = RankTest([1.0, 3.5, 2.2, 6.0], blocks=10, p=0.01, difference=1.5)
    assert found.cliques == [[0, 2], [2, 1]]
    assert rank_test([[0.1, 0.2]]) is None
    assert rank_test([]) is None


@pytest.mark.parametrize(
    ("verdicts", "patience"),
    [
        ("wwlll", 1),
        ("wlwlll", 2),  # with 1 it would have ended before the last winner
        ("wllwlll", None),  # 3 is as many as there were
        ("wllwllll", 3),
        ("llwlllll", 3),
        ("www", None),
        ("wl", None),  # it takes a losing level to end
        ("lll", None),
        ("", None),
    ],
)
def test_the_smallest_patience_is_the_one_that_ends_soonest_with_the_same_winner(
    verdicts: str, patience: int | None
) -> None:
    levels = [{"winning": {"strict": verdict == "w"}} for verdict in verdicts]
    assert enough_patience(levels) == patience

    def searched(given: int) -> int:
        """How many levels a search with this patience has."""
        ends = (n for n in range(1, len(verdicts) + 1) if verdicts[:n].endswith("l" * given))
        return next(ends, len(verdicts))

    sooner = [n for n in range(1, 9) if "w" in verdicts[searched(n) :] or searched(n) == len(verdicts)]
    wanted = next((n for n in range(1, 9) if n not in sooner), None)
    assert patience == (wanted if "w" in verdicts else None)
