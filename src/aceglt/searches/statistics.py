"""When a ticket wins, and by how much: criteria, significance and summaries over seeds (design, section 5).

Readings are plain lists of fractions, one per seed, in the same order everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

CRITERIA = ("paper", "strict", "significant")
SIGNIFICANCE = 0.05
MIN_SEEDS = 5  # fewer pairs say too little for a t-test to count as evidence
TOLERANCE = 1e-12  # far below one node of any test set, far above the noise of summation

LevelEntry = Mapping[str, Any]  # one entry of "levels" in results.json
Alternative = Literal["two-sided", "less", "greater"]


@dataclass(frozen=True)
class Readings:
    """Validation and test readings of one level (or of dense) over seeds; no `test` when it was not read."""

    val: list[float]
    test: list[float] | None

    def __post_init__(self) -> None:
        if not self.val:
            raise ValueError("readings need at least one seed")
        if self.test is not None and len(self.test) != len(self.val):
            raise ValueError(f"{len(self.val)} validation readings but {len(self.test)} test readings")


def metric_in_words(name: str) -> str:
    """A metric of results.json as it is written in text."""
    words = {"roc_auc": "ROC-AUC", "macro_f1": "macro-F1", "average_precision": "average precision"}
    return words.get(name, name.replace("hits@", "Hits@"))


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (n - 1); the deviation of one value is 0."""
    if not values:
        raise ValueError("the mean of no values is undefined")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, 0.0
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def paired_t_test(a: Sequence[float], b: Sequence[float], alternative: Alternative = "two-sided") -> float | None:
    """The p-value of a paired t-test of `a` against `b` over seeds; `None` for fewer than two pairs.

    `less` asks whether `a` is worse than `b`, `greater` whether it is better. Means that are equal but for noise are
    equal, whatever the noise; other differences that do not vary decide the test by their sign alone.
    """
    if len(a) != len(b):
        raise ValueError(f"a paired test needs as many readings on both sides, not {len(a)} and {len(b)}")
    if len(a) < 2:
        return None
    from scipy.special import stdtr  # here: importing this module stays cheap

    freedom, (mean, std) = len(a) - 1, mean_std([x - y for x, y in zip(a, b, strict=True)])
    if _no_lower(a, b) and _no_lower(b, a):
        t = 0.0
    else:
        t = mean / (std / math.sqrt(len(a))) if std > TOLERANCE else math.copysign(math.inf, mean)
    if alternative == "two-sided":
        return float(2 * stdtr(freedom, -abs(t)))
    return float(stdtr(freedom, t if alternative == "less" else -t))


def _no_lower(a: Sequence[float], b: Sequence[float]) -> bool:
    """On the mean, but for noise."""
    return mean_std(a)[0] >= mean_std(b)[0] - TOLERANCE


def winning(dense: Readings, level: Readings) -> dict[str, bool | None]:
    """Whether `level` wins against `dense` under each criterion; `None` is undetermined.

    `paper`: mean test no lower than dense's. `strict`: mean validation no lower than dense's. `significant`:
    a one-sided paired t-test does not find test worse at p < 0.05. Without test readings only `strict` is
    decided; below five seeds `significant` is not; readings that are not finite decide nothing.
    """
    return {
        "paper": _wins(level.test, dense.test),
        "strict": _wins(level.val, dense.val),
        "significant": _wins(level.test, dense.test, by_t_test=True),
    }


def _wins(level: list[float] | None, dense: list[float] | None, by_t_test: bool = False) -> bool | None:
    if level is None or dense is None or not all(map(math.isfinite, [*level, *dense])):
        return None
    if not by_t_test:
        return _no_lower(level, dense)
    p = paired_t_test(level, dense, "less") if len(level) >= MIN_SEEDS else None
    return None if p is None else p >= SIGNIFICANCE


def highest_winning(levels: Sequence[LevelEntry]) -> dict[str, dict[str, Any] | None]:
    """Per criterion the sparsest winning level, whether or not levels before it fail; `None` where none wins.

    `levels` are entries of results.json that carry `level`, both sparsities and `winning`.
    """
    winners = {criterion: sparsest_winner(levels, criterion) for criterion in CRITERIA}
    keys = ("level", "model_sparsity", "graph_sparsity")
    return {name: None if level is None else {key: level[key] for key in keys} for name, level in winners.items()}


def highest_winning_per_seed(dense: Readings, levels: Sequence[LevelEntry]) -> dict[str, list[float]] | None:
    """Per seed the sparsities of the sparsest level whose test is no lower than that seed's dense test.

    A seed in which no level wins counts as 0, as in the paper's tables. `None` when test was not read.
    """
    if dense.test is None or any(level["test"] is None for level in levels):
        return None
    best = [
        _sparsest([level for level in levels if level["test"][seed] >= reading - TOLERANCE])
        for seed, reading in enumerate(dense.test)
    ]
    keys = ("model_sparsity", "graph_sparsity")
    return {key: [0.0 if level is None else float(level[key]) for level in best] for key in keys}


def best_level(results: Mapping[str, Any]) -> LevelEntry | None:
    """The strict winner among the levels of a results.json, whose ticket is `.best`; `None` if none wins."""
    return sparsest_winner(results["levels"], "strict")


def sparsest_winner(levels: Sequence[LevelEntry], criterion: str) -> LevelEntry | None:
    """The sparsest of the levels that win under a criterion; `None` if none does."""
    return _sparsest([level for level in levels if level["winning"].get(criterion)])


def undetermined(levels: Sequence[LevelEntry], criterion: str) -> bool:
    """Whether no level is known to win under a criterion, but one may: not every verdict is known."""
    verdicts = {level.get("winning", {}).get(criterion) for level in levels}
    return None in verdicts and True not in verdicts


def enough_patience(levels: Sequence[LevelEntry]) -> int | None:
    """The smallest `patience` with which a search of these levels, in their order, would have ended sooner with the
    same `strict` winner; `None` if none would, or no level wins."""
    wins = [bool(level["winning"].get("strict")) for level in levels]
    if True not in wins:
        return None
    last = len(wins) - wins[::-1].index(True)
    streaks = (len(list(streak)) for won, streak in groupby(wins[:last]) if not won)
    patience = 1 + max(streaks, default=0)
    return patience if last + patience < len(wins) else None


def unfinished(epochs: int, best: Sequence[int], preset: str) -> str | None:
    """What to say of a dense model whose best epochs, one per seed, are mostly among the last ones (5 %)."""
    late = sum(epochs - epoch < max(1, epochs // 20) for epoch in best)
    if 2 * late <= len(best):
        return None
    advice = "more --epochs" if preset == "tuned" else "more --epochs, or --preset tuned"
    return (
        "dense is not finished; its tickets may win for that reason: its best epoch is among the last of "
        f"{epochs} with {late} of {len(best)} seeds ({advice})"
    )


def _sparsest(levels: Sequence[LevelEntry]) -> LevelEntry | None:
    """Sparsity grows with the level's number on every axis."""
    return max(levels, key=lambda level: int(level["level"]), default=None)


def holm(p: Sequence[float]) -> list[float]:
    """p-values of several tests, corrected by Holm's method: with those below α, the chance that any is wrong is α."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    corrected, highest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = highest
    return corrected


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the highest; those that are equal share the mean of their places."""
    higher = [sum(other > one + TOLERANCE for other in values) for one in values]
    equal = [sum(abs(other - one) <= TOLERANCE for other in values) for one in values]
    return [above + (1 + tied) / 2 for above, tied in zip(higher, equal, strict=True)]


@dataclass(frozen=True)
class RankTest:
    """Mean ranks of methods over blocks (graphs, or seeds), and what tells them apart."""

    means: list[float]
    """Per method; 1 is the best that can be."""
    blocks: int
    p: float
    """Friedman's test, corrected for ties: how likely ranks as unequal as these are if no method is better."""
    difference: float
    """Nemenyi's critical difference at 5 %: mean ranks that are further apart differ."""

    @property
    def cliques(self) -> list[list[int]]:
        """The largest sets of methods that are not told apart, best first, by their indices."""
        order = sorted(range(len(self.means)), key=lambda i: self.means[i])
        groups: list[list[int]] = []
        for start, first in enumerate(order):
            near = [i for i in order[start:] if self.means[i] - self.means[first] <= self.difference]
            if len(near) > 1 and not any(set(near) <= set(group) for group in groups):
                groups.append(near)
        return groups


def rank_test(blocks: Sequence[Sequence[float]]) -> RankTest | None:
    """Compare methods over blocks, each with one value per method, higher being better; `None` without two of both."""
    count, methods = len(blocks), len(blocks[0]) if blocks else 0
    if count < 2 or methods < 2:
        return None
    from scipy.special import chdtrc
    from scipy.stats import studentized_range

    placed = [ranks(block) for block in blocks]
    means = [math.fsum(row[i] for row in placed) / count for i in range(methods)]
    spread = math.fsum(rank * rank for row in placed for rank in row) / count - methods * (methods + 1) ** 2 / 4
    between = count * math.fsum((mean - (methods + 1) / 2) ** 2 for mean in means)
    p = float(chdtrc(methods - 1, (methods - 1) * between / spread)) if spread > TOLERANCE else 1.0
    quantile = float(studentized_range.ppf(1 - SIGNIFICANCE, methods, math.inf)) / math.sqrt(2)
    return RankTest(means, count, p, quantile * math.sqrt(methods * (methods + 1) / (6 * count)))
