"""The quantities that stand in the paper's tables, each a number per seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from aceglt.reproduction.cells import Cell, Results
from aceglt.searches.statistics import TOLERANCE

Sample = dict[int, float]  # by seed
Measure = Callable[[Results, Cell, float], "Sequence[float | None] | None"]  # over the seeds of one search

NEAR = 0.05  # how far a level may be from a sparsity that a table names: the paper's "40 %" is 36 %
EXCERPTS = (0.1, 0.6)  # the sparsities of Figure S1


@dataclass(frozen=True)
class Quantity:
    """What one place of a table shows."""

    measure: str
    cells: tuple[Cell, ...]
    """Of several searches, each seed's highest value counts."""
    at: float = 0.0
    """The sparsity that the table names, if it names one."""

    def sample(self, found: Mapping[Cell, Results]) -> Sample | None:
        """By seed; None as long as a search that it needs is missing, or did not get that far."""
        samples: list[Sample] = []
        for cell in self.cells:
            values = MEASURES[self.measure](found[cell], cell, self.at) if cell in found else None
            if values is None:
                return None
            by_seed = zip(found[cell]["seeds"], values, strict=True)
            samples.append({seed: float(value) for seed, value in by_seed if value is not None})
        shared = [seed for seed in samples[0] if all(seed in sample for sample in samples)]
        return {seed: max(sample[seed] for sample in samples) for seed in shared} or None


def _near(results: Results, cell: Cell, at: float) -> Results:
    """The level whose sparsity is nearest to `at`; nothing if none is near."""
    levels = [level for level in results["levels"] if abs(level[cell.sparsity] - at) <= NEAR]
    return min(levels, key=lambda level: abs(level[cell.sparsity] - at), default={})


def _macs(results: Results, cell: Cell, at: float) -> Sequence[float]:
    """Inference MACs of each seed's sparsest winning ticket; those of dense where none wins."""
    won = results["highest_winning_per_seed"][cell.sparsity] if results["levels"] else [0.0] * len(results["seeds"])
    macs = {level[cell.sparsity]: level["macs"] for level in results["levels"]}
    return [macs[sparsity] if sparsity > TOLERANCE else results["dense"]["macs"] for sparsity in won]


def _fluctuation(side: str) -> Measure:
    """Mean absolute change of importance ranks at a sparsity, since the level before."""
    return lambda results, cell, at: (_near(results, cell, at).get("fluctuation") or {}).get(side)


def excerpt_levels(results: Results, cell: Cell) -> list[Results]:
    """The two levels that Figure S1 shows: nearest to 10 % and to 60 % of its sparsity, or what comes nearest."""
    levels = [level for level in results["levels"] if (level.get("excerpt") or {}).get("rank")]
    return [min(levels, key=lambda level: abs(level[cell.sparsity] - at)) for at in EXCERPTS] if levels else []


def _excerpt(measure: str) -> Measure:
    """Of the one seed that has an excerpt: its two sparsities, the edges scored at both, their mean change of rank."""

    def values(results: Results, cell: Cell, at: float) -> Sequence[float | None]:
        pair = excerpt_levels(results, cell)
        both = zip(*(level["excerpt"]["rank"] for level in pair), strict=True)
        changes = [abs(late - early) for early, late in both if early is not None and late is not None]
        known = dict(zip(("early", "late"), (level[cell.sparsity] for level in pair), strict=False))
        known |= {"count": len(changes), "change": fmean(changes) if changes else None}
        return [known.get(measure) if seed == results["excerpt"]["seed"] else None for seed in results["seeds"]]

    return values


def _highest(results: Results, cell: Cell, at: float) -> Sequence[float] | None:
    """The best test metric of any sparse level; chosen by test, as the paper does."""
    return [max(tests) for tests in zip(*(level["test"] for level in results["levels"]), strict=True)] or None


def _winner(results: Results, cell: Cell, at: float) -> Sequence[float] | None:
    """Sparsity of the sparsest level that keeps the seed's dense metric; 0 where none does."""
    return results["highest_winning_per_seed"][cell.sparsity] if results["levels"] else None


MEASURES: dict[str, Measure] = {
    "winner": _winner,
    "highest": _highest,
    "test": lambda results, cell, at: _near(results, cell, at).get("test"),
    "dense": lambda results, cell, at: results["dense"]["test"],
    "seconds": lambda results, cell, at: results["cost"]["seconds"],
    "macs": _macs,
    **{f"fluctuation of {side}": _fluctuation(side) for side in ("edges", "weights")},
    **{measure: _excerpt(measure) for measure in ("early", "late", "count", "change")},
}
