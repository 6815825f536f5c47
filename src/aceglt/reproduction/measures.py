"""The quantities that stand in the paper's tables, each a number per seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from aceglt.reproduction.cells import Cell
from aceglt.reproduction.merge import Results
from aceglt.searches.statistics import TOLERANCE

Sample = dict[int, float]  # by seed
Measure = Callable[[Sequence[Results], Cell, "float | None"], "Sample | None"]

NEAR = 0.05  # how far a level may be from a sparsity that a table names: the paper's "40 %" is 36 %
EXCERPTS = (0.1, 0.6)  # the sparsities of Figure S1


@dataclass(frozen=True)
class Quantity:
    """What one place of a table shows."""

    measure: str
    cells: tuple[Cell, ...]
    at: float | None = None
    """The sparsity that the table names."""

    def sample(self, found: Mapping[Cell, Results]) -> Sample | None:
        """By seed; None as long as a search that it needs is missing, or did not get that far."""
        if any(cell not in found for cell in self.cells):
            return None
        return MEASURES[self.measure]([found[cell] for cell in self.cells], self.cells[0], self.at)


def near(results: Results, cell: Cell, at: float) -> Results | None:
    """The level whose sparsity is nearest to `at`; None if none is near."""
    levels: list[Results] = results["levels"]
    level = min(levels, key=lambda entry: abs(entry[cell.sparsity] - at), default=None)
    return level if level is not None and abs(level[cell.sparsity] - at) <= NEAR else None


def _winner(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    """Sparsity of the sparsest level that keeps the seed's dense metric; 0 where none does."""
    results = runs[0]
    return _by_seed(results, results["highest_winning_per_seed"][cell.sparsity]) if results["levels"] else None


def _highest(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    """The best test metric of any sparse level, over both axes; the level is chosen by test, as the paper does."""
    if any(not results["levels"] for results in runs):
        return None
    best = [
        _by_seed(results, [max(column) for column in zip(*(e["test"] for e in results["levels"]), strict=True)])
        for results in runs
    ]
    shared = [seed for seed in best[0] if all(seed in sample for sample in best)]
    return {seed: max(sample[seed] for sample in best) for seed in shared} or None


def _test(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    """The test metric at a sparsity."""
    assert at is not None
    level = near(runs[0], cell, at)
    return None if level is None else _by_seed(runs[0], level["test"])


def _dense(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    return _by_seed(runs[0], runs[0]["dense"]["test"])


def _seconds(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    return _by_seed(runs[0], runs[0]["cost"]["seconds"])


def _macs(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    """Inference MACs of each seed's sparsest winning ticket; those of dense where none wins."""
    results = runs[0]
    won = results["highest_winning_per_seed"][cell.sparsity] if results["levels"] else [0.0] * len(results["seeds"])
    macs = {level[cell.sparsity]: level["macs"] for level in results["levels"]}
    dense = results["dense"]["macs"]
    return _by_seed(results, [macs[sparsity] if sparsity > TOLERANCE else dense for sparsity in won])


def _fluctuation(side: str) -> Measure:
    """Mean absolute change of importance ranks at a sparsity, since the level before."""

    def measure(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
        assert at is not None
        level = near(runs[0], cell, at)
        if not level or not level.get("fluctuation"):
            return None
        return _by_seed(runs[0], level["fluctuation"][side]) or None

    return measure


def excerpt_levels(results: Results, cell: Cell) -> list[Results]:
    """The two levels that Figure S1 shows: nearest to 10 % and to 60 % of its sparsity, or what comes nearest."""
    levels = [level for level in results["levels"] if (level.get("excerpt") or {}).get("rank")]
    return [min(levels, key=lambda level: abs(level[cell.sparsity] - at)) for at in EXCERPTS] if levels else []


def _excerpt_sparsity(number: int) -> Measure:
    def measure(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
        pair = excerpt_levels(runs[0], cell)
        return {runs[0]["excerpt"]["seed"]: pair[number][cell.sparsity]} if pair else None

    return measure


def _excerpt_ranks(runs: Sequence[Results], cell: Cell) -> list[tuple[float, float]]:
    """Of the edges that were scored at both levels."""
    pair = excerpt_levels(runs[0], cell)
    both = zip(*(level["excerpt"]["rank"] for level in pair), strict=True) if pair else ()
    return [(early, late) for early, late in both if early is not None and late is not None]


def _excerpt_edges(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    return {runs[0]["excerpt"]["seed"]: float(len(_excerpt_ranks(runs, cell)))}


def _excerpt_change(runs: Sequence[Results], cell: Cell, at: float | None) -> Sample | None:
    ranks = _excerpt_ranks(runs, cell)
    return {runs[0]["excerpt"]["seed"]: fmean(abs(late - early) for early, late in ranks)} if ranks else None


def _by_seed(results: Results, values: Sequence[float | None]) -> Sample:
    return {seed: float(value) for seed, value in zip(results["seeds"], values, strict=True) if value is not None}


MEASURES: dict[str, Measure] = {
    "winner": _winner,
    "highest": _highest,
    "test": _test,
    "dense": _dense,
    "seconds": _seconds,
    "macs": _macs,
    "fluctuation of edges": _fluctuation("edges"),
    "fluctuation of weights": _fluctuation("weights"),
    "early": _excerpt_sparsity(0),
    "late": _excerpt_sparsity(1),
    "count": _excerpt_edges,
    "change": _excerpt_change,
}
