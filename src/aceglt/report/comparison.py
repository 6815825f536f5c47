"""Methods against each other on the same graphs, seeds and levels, and what of their differences chance explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from aceglt.errors import RunError
from aceglt.report.view import RunView, distinct_names, seconds_of, setting_in_words, short_names, short_settings
from aceglt.searches.statistics import (
    CRITERIA,
    MIN_SEEDS,
    SIGNIFICANCE,
    RankTest,
    holm,
    mean_std,
    paired_t_test,
    rank_test,
    ranks,
    undetermined,
)
from aceglt.searches.wording import UNKNOWN, byte_count, duration, plus_minus

BEST, LIKE_BEST = " ↑", " ≈"
"""Behind the highest mean of a setting, and behind those that are not significantly below it."""
_ENOUGH = 5  # settings whose ranks say something by themselves
_APART = 0.01  # of weights, edges or the metric: levels and dense baselines that differ by more are not the same


@dataclass(frozen=True)
class Pair:
    """Two methods of a setting: how far apart they are, and the p-value of a two-sided paired t-test over seeds."""

    difference: float
    p: float | None
    p_holm: float
    """The same by Holm's method, for all pairs of the setting."""


@dataclass(frozen=True)
class Contest:
    """The runs of one setting by what ran, on the seeds and levels that all of them have."""

    runs: Mapping[str, RunView]
    seeds: Sequence[int]
    levels: Sequence[int]

    @property
    def first(self) -> RunView:
        return next(iter(self.runs.values()))

    @property
    def name(self) -> str:
        return setting_in_words(self.first)

    @property
    def reading(self) -> str:
        """Test, unless a run did not read it."""
        return "test" if all(run.dense.get("test") for run in self.runs.values()) else "val"

    @cached_property
    def scores(self) -> dict[str, list[float]]:
        """Of each method and shared seed, the mean over the shared levels."""
        found = {}
        for name, run in self.runs.items():
            levels = [level[self.reading] for level in run.levels if level["level"] in self.levels]
            places = [run.results["seeds"].index(seed) for seed in self.seeds]
            found[name] = [mean_std([level[i] for level in levels])[0] for i in places]
        return found

    def dense(self) -> list[float]:
        """Of each shared seed, dense."""
        places = [self.first.results["seeds"].index(seed) for seed in self.seeds]
        return [self.first.dense[self.reading][i] for i in places]

    @cached_property
    def means(self) -> dict[str, float]:
        return {name: mean_std(scores)[0] for name, scores in self.scores.items()}

    @cached_property
    def best(self) -> str:
        return max(self.means, key=lambda name: self.means[name])

    @cached_property
    def pairs(self) -> dict[tuple[str, str], Pair]:
        """Every two methods."""
        both = list(combinations(self.runs, 2))
        enough = len(self.seeds) >= MIN_SEEDS
        p = [paired_t_test(self.scores[a], self.scores[b]) if enough else None for a, b in both]
        corrected = holm([1.0 if value is None else value for value in p])
        return {
            (a, b): Pair(self.means[a] - self.means[b], value, after)
            for (a, b), value, after in zip(both, p, corrected, strict=True)
        }

    def told_apart(self, a: str, b: str) -> bool:
        """Whether the test finds a difference between two methods."""
        return a != b and (self.pairs.get((a, b)) or self.pairs[b, a]).p_holm < SIGNIFICANCE


@dataclass(frozen=True)
class Comparison:
    """Methods by settings."""

    contests: Sequence[Contest]
    names: Sequence[str]
    """What ran; lowest mean rank first."""
    ranked: Sequence[str]
    """Those of which mean ranks are compared, in the order of `test.means`."""
    test: RankTest | None
    by_seed: bool
    """Whether ranks are of seeds, since there are few settings, and not of settings."""
    notes: Sequence[str] = ()

    @property
    def mean_ranks(self) -> dict[str, float]:
        return dict(zip(self.ranked, self.test.means, strict=True)) if self.test else {}

    def columns(self) -> list[str]:
        """The settings, as short as they are told apart."""
        return short_settings([contest.first for contest in self.contests])

    def means_rows(self) -> list[list[str]]:
        """Methods × settings: mean ± standard deviation over seeds of the mean over levels; dense first."""
        rows = [["Method", *self.columns(), "Mean rank"]]
        rows.append(["dense", *(plus_minus(contest.dense()) for contest in self.contests), UNKNOWN])
        for name in self.names:
            rank = self.mean_ranks.get(name)
            cells = [_mean(contest, name) for contest in self.contests]
            rows.append([name, *cells, UNKNOWN if rank is None else f"{rank:.2f}"])
        return rows

    def pair_rows(self) -> list[list[str]]:
        """In how many settings the method of a row is significantly above / below that of a column."""
        rows = [["", *self.names]]
        for a in self.names:
            row = [a]
            for b in self.names:
                both = [contest for contest in self.contests if a in contest.runs and b in contest.runs]
                apart = [contest for contest in both if contest.told_apart(a, b)]
                above = sum(contest.means[a] > contest.means[b] for contest in apart)
                row.append(f"{above} / {len(apart) - above}" if both and a != b else UNKNOWN)
            rows.append(row)
        return rows

    def winner_rows(self, criterion: str) -> list[list[str]]:
        """Methods × settings: the highest sparsity that wins under a criterion, weights / edges on the joint axis."""
        rows = [["Method", *self.columns()]]
        for name in self.names:
            rows.append([name, *(_winner(contest.runs.get(name), criterion) for contest in self.contests)])
        return rows

    def cost_rows(self) -> list[list[str]]:
        """Of each method, per level and seed: epochs; per level: seconds; and the most memory that a run took."""
        head = ["Method", "Epochs choosing", "Epochs retraining", "Seconds a level", "Peak memory", "Settings"]
        rows = [head]
        for name in self.names:
            runs = [contest.runs[name] for contest in self.contests if name in contest.runs]
            found = [_costs(run) for run in runs]
            means = [_mean_of([cost[part] for cost in found]) for part in ("select", "retrain", "seconds")]
            peaks = [memory for cost in found if (memory := cost["memory"])]
            rows.append(
                [
                    name,
                    *(UNKNOWN if mean is None else f"{mean:,.0f}" for mean in means[:2]),
                    duration(means[2]),
                    byte_count(int(max(peaks))) if peaks else UNKNOWN,
                    str(len(runs)),
                ]
            )
        return rows

    def records(self) -> list[dict[str, Any]]:
        """A row for each method and setting, in numbers."""
        return [record for contest in self.contests for record in _records(contest)]

    def pair_records(self) -> list[dict[str, Any]]:
        """A row for each pair of methods and setting."""
        return [
            {
                **_place(contest),
                "method": a,
                "other": b,
                **asdict(pair),
                "p_holm": None if pair.p is None else pair.p_holm,
            }
            for contest in self.contests
            for (a, b), pair in contest.pairs.items()
        ]


def compare_runs(views: Sequence[RunView]) -> Comparison:
    """Put runs beside each other; RunError where there is nothing to compare.

    Where runs of a setting differ in seeds or levels, those count that all of them have. Ranks are of settings, or,
    where there are few, of the seeds of each; a method that is missing from half of the settings has none, and a
    setting that lacks another method gives none.
    """
    groups: dict[Any, list[RunView]] = {}
    for view in distinct_names(views):
        if view.levels:
            groups.setdefault(view.setting, []).append(view)
    notes: list[str] = []
    contests = [contest for group in groups.values() if (contest := _contest(group, notes)) is not None]
    names = list(dict.fromkeys(name for contest in contests for name in contest.runs))
    if len(names) < 2:
        raise RunError("there is nothing to compare: it takes two methods with levels on the same seeds of a setting")
    there = {name: sum(name in contest.runs for contest in contests) for name in names}
    ranked = [name for name in names if 2 * there[name] > len(contests)]
    whole = [contest for contest in contests if all(name in contest.runs for name in ranked)]
    rest = [contest.name for contest in contests if contest not in whole]
    notes += [f"{name} has no rank: half of the settings lack it" for name in names if name not in ranked]
    notes += [f"{name} is left out of the ranks: it lacks a method" for name in rest]
    if few := [contest for contest in contests if len(contest.seeds) < MIN_SEEDS]:
        where = "" if len(few) == len(contests) else f"in {len(few)} of {len(contests)} settings "
        notes.append(f"{where}no methods are told apart, and none is marked ≈: a test takes {MIN_SEEDS} seeds")
    by_seed = len(whole) < _ENOUGH
    blocks = [
        block
        for contest in whole
        for block in (
            zip(*(contest.scores[name] for name in ranked), strict=True)
            if by_seed
            else [[contest.means[name] for name in ranked]]
        )
    ]
    test = rank_test([list(block) for block in blocks])
    order = dict(zip(ranked, test.means, strict=True)) if test else {}
    height = {name: sum(contest.means.get(name, 0.0) for contest in contests) for name in names}
    names.sort(key=lambda name: (order.get(name, len(names) + 1.0), -height[name]))
    return Comparison(contests, names, ranked, test, by_seed, notes)


def _contest(group: Sequence[RunView], notes: list[str]) -> Contest | None:
    where = setting_in_words(group[0])
    seeds = [set(run.results["seeds"]) for run in group]
    levels = [{int(level["level"]) for level in run.levels} for run in group]
    shared, common = set.intersection(*seeds), set.intersection(*levels)
    if not shared or not common:
        notes.append(f"{where}: the runs share no {'seed' if not shared else 'level'}")
        return None
    if any(found != shared for found in seeds):
        notes.append(f"{where}: compared on the {len(shared)} seeds that all runs have")
    if any(found != common for found in levels):
        notes.append(f"{where}: compared on the {len(common)} levels that all runs have")
    dense = [mean_std(run.dense[run.readings[0]])[0] for run in group]
    if max(dense) - min(dense) > _APART:
        ends = f"from {100 * min(dense):.2f} to {100 * max(dense):.2f} %"
        notes.append(f"{where}: the runs do not share a dense baseline, which is {ends}")
    if _apart(group, common):
        notes.append(f"{where}: levels of the same number differ in sparsity")
    runs = {name: replace(run, name=name, series=name) for name, run in zip(short_names(group), group, strict=True)}
    return Contest(runs, sorted(shared), sorted(common))


def _apart(group: Sequence[RunView], levels: set[int]) -> bool:
    for side in group[0].varies:
        found: dict[int, list[float]] = {}
        for run in group:
            for level in run.levels:
                found.setdefault(int(level["level"]), []).append(level[side])
        if any(max(found[level]) - min(found[level]) > _APART for level in levels):
            return True
    return False


def _mean(contest: Contest, name: str) -> str:
    if name not in contest.runs:
        return UNKNOWN
    near = len(contest.seeds) >= MIN_SEEDS and not contest.told_apart(name, contest.best)
    return plus_minus(contest.scores[name]) + (BEST if name == contest.best else LIKE_BEST if near else "")


def _winner(run: RunView | None, criterion: str) -> str:
    if run is None:
        return UNKNOWN
    found = (run.results.get("highest_winning") or {}).get(criterion)
    if found:
        return " / ".join(f"{100 * found[side]:.1f} %" for side in run.varies)
    return "undetermined" if undetermined(run.levels, criterion) else "none"


def _costs(run: RunView) -> dict[str, float | None]:
    """Per level."""
    epochs = [level.get("epochs") or {} for level in run.levels]
    seconds = [sum(of.values()) for level in run.levels if (of := seconds_of(level))]
    return {
        **{phase: _mean_of([of.get(phase) for of in epochs]) for phase in ("select", "retrain")},
        "seconds": _mean_of(seconds),
        "memory": run.environment.get("peak_memory"),
    }


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean_std(known)[0] if known else None


def _place(contest: Contest) -> dict[str, str]:
    return dict(zip(("dataset", "backbone", "task", "metric", "axis"), contest.first.setting, strict=True))


def _records(contest: Contest) -> Iterator[dict[str, Any]]:
    dense, dense_std = mean_std(contest.dense())
    placed = dict(zip(contest.runs, ranks(list(contest.means.values())), strict=True))
    for name, run in contest.runs.items():
        mean, std = mean_std(contest.scores[name])
        pair = contest.pairs.get((name, contest.best)) or contest.pairs.get((contest.best, name))
        won: dict[str, Any] = {}
        for criterion in CRITERIA:
            found = (run.results.get("highest_winning") or {}).get(criterion) or {}
            won |= {f"{criterion}_{side}": found.get(side) for side in ("level", "model_sparsity", "graph_sparsity")}
        costs = _costs(run)
        yield {
            **_place(contest), "method": name, "reading": contest.reading, "seeds": len(contest.seeds),
            "levels": len(contest.levels), "mean": mean, "std": std, "dense": dense, "dense_std": dense_std,
            "rank": placed[name], "below_best": contest.means[contest.best] - mean,
            "p_holm": None if pair is None or pair.p is None else pair.p_holm,
            "epochs_select": costs["select"], "epochs_retrain": costs["retrain"], "seconds_level": costs["seconds"],
            "peak_memory": costs["memory"], **won,
        }  # fmt: skip
