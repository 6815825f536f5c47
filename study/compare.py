"""Methods against each other on one dataset, backbone and axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aceglt.reproduction.layouts import PAPER_AXES, PAPER_BACKBONES, SMALL
from aceglt.reproduction.runs import merge
from aceglt.searches.statistics import SIGNIFICANCE, holm, mean_std, paired_t_test
from study.cells import COMPARED, GRAPHS, PAIRED, SPLITS, Results

FROM = {"model": 0.30, "graph": 0.10}
"""By axis: the sparsity above which methods are compared."""
DEFAULT = "default"
"""What `aceglt search` does, by the last part of a cell's name."""


@dataclass(frozen=True)
class Group:
    """The searches on one dataset, backbone and axis, by method, over the same seeds."""

    dataset: str
    backbone: str
    axis: str
    results: Mapping[str, Results]

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.backbone}/{self.axis}"

    @property
    def compared(self) -> list[int]:
        """Indices of the levels that are compared."""
        levels = next(iter(self.results.values()))["levels"]
        return [i for i, level in enumerate(levels) if level[f"{self.axis}_sparsity"] > FROM[self.axis]]

    def tests(self, method: str, level: int) -> list[float]:
        tests: list[float] = self.results[method]["levels"][level]["test"]
        return tests

    def means(self, method: str) -> list[float]:
        """Per seed, the test metric averaged over the levels that are compared."""
        columns = zip(*(self.tests(method, level) for level in self.compared), strict=True)
        return [mean_std(column)[0] for column in columns]

    @property
    def best(self) -> str:
        """The method with the highest mean."""
        return max(self.results, key=lambda method: mean_std(self.means(method))[0])

    def below(self) -> list[str]:
        """Where the default is significantly below another method: one-sided, paired over seeds, Holm over all levels
        and methods that are compared."""
        cases = [(m, level) for m in self.results if m != DEFAULT for level in self.compared]
        p = [paired_t_test(self.tests(DEFAULT, level), self.tests(m, level), "less") for m, level in cases]
        corrected = holm([1.0 if value is None else value for value in p])
        found = zip(cases, corrected, strict=True)
        return [f"{m} at level {level + 1}" for (m, level), value in found if value < SIGNIFICANCE]

    def star(self, method: str) -> bool:
        """Whether a method's mean is significantly above UGS's: two-sided, paired over seeds."""
        mine, ugs = self.means(method), self.means("ugs")
        p = paired_t_test(mine, ugs)
        return p is not None and p < SIGNIFICANCE and mean_std(mine)[0] > mean_std(ugs)[0]


def pooled(results: Sequence[Results], splits: int = len(SPLITS.scales)) -> list[Results]:
    """The searches of a cell on all splits as one, with a split in the place of a seed: the mean over its seeds, which
    are not independent of each other. Cells that lack a split are left out."""
    cells: dict[str, list[Results]] = {}
    for result in results:
        split = int(result["config"]["split"].rpartition(":")[2])
        cells.setdefault(result["cell"], []).append(_averaged(result, split))
    return [merge(searches) for searches in cells.values() if len(searches) == splits]


def _averaged(result: Results, seed: int) -> Results:
    """A search as if of one seed, with the means over its seeds."""

    def averaged(part: Results) -> Results:
        means = {name: [mean_std(part[name])[0]] for name in ("val", "test", "epoch")}
        return {**part, **means}

    levels = [averaged(level) for level in result["levels"]]
    return {**result, "seeds": [seed], "dense": averaged(result["dense"]), "levels": levels}


def groups(results: Sequence[Results]) -> list[Group]:
    """By dataset, backbone and axis, in the order of Table 1; on the seeds that all methods have."""
    named: dict[tuple[str, str, str], dict[str, Results]] = {}
    for result in results:
        named.setdefault((result["dataset"], result["backbone"], result["axis"]), {})[method_of(result)] = result
    ranks = ((*SMALL, *GRAPHS), PAPER_BACKBONES, tuple(PAPER_AXES))
    order = sorted(named, key=lambda key: [rank.index(part) for rank, part in zip(ranks, key, strict=True)])
    return [Group(*key, _same_seeds({m: named[key][m] for m in COMPARED if m in named[key]})) for key in order]


def method_of(result: Results) -> str:
    """By the last part of its cell's name, and which was tuned."""
    *_, method, last = result["cell"].split("/")
    return f"{method}/{last}" if last == "tuned" else last


def _same_seeds(results: dict[str, Results]) -> dict[str, Results]:
    shared = set.intersection(*(set(result["seeds"]) for result in results.values()))
    return {method: merge([result], seeds=shared) for method, result in results.items()}


@dataclass(frozen=True)
class Pair:
    """The default and the same scores without exchange on one dataset, backbone and axis."""

    group: Group
    p: float
    """Of a paired t-test over seeds, two-sided."""
    p_holm: float
    """Corrected over all pairs."""

    @property
    def means(self) -> tuple[float, float]:
        """Without and with exchange."""
        without, default = (mean_std(self.group.means(method))[0] for method in PAIRED)
        return without, default

    @property
    def gain(self) -> float:
        without, default = self.means
        return default - without


def paired(found: Sequence[Group]) -> list[Pair]:
    """Those of the groups that have both."""
    both = [group for group in found if set(PAIRED) <= set(group.results)]
    p = [paired_t_test(group.means(PAIRED[0]), group.means(PAIRED[1])) for group in both]
    tested = [1.0 if value is None else value for value in p]
    return [Pair(*each) for each in zip(both, tested, holm(tested), strict=True)]
