"""Figure 1 as the paper defines it: how the importance ranks of the winning ticket's elements at every level differ
from their ranks at its own level. Beside it, how far ranks follow the noise that scores start from."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from aceglt import datasets
from aceglt.files import write_atomic
from aceglt.methods import Level, Selection, Ugs
from aceglt.numerics.masks import Masks, Scores
from aceglt.pruning.importance import ranks
from aceglt.report.static import encoded
from aceglt.reproduction import Cell, Scale, exhibit
from aceglt.reproduction.tables import csv_rows
from aceglt.searches.levels import prune_iteratively
from aceglt.searches.results import summarise
from aceglt.searches.state import State
from aceglt.searches.statistics import mean_std
from aceglt.searches.stopping import enough
from study.tune import build_search

RECORD = Path("results/winning-ranks.csv")
PLOT = Path("docs/science/study/winning-ranks.svg")
NOISE = 0.5
"""Rank correlation with the initial noise above which ranks say more about it than about importance."""
_SIDES = {"graph": "edges", "model": "weights"}
_QUANTILES = (0.1, 0.9)
_HEADS = (
    "dataset", "axis", "winner", "level", "sparsity", "low", "high", "change", "noise", "noise of winner",
)  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """UGS that keeps what it scored at every level."""

    name: ClassVar[str] = "ugs"
    batches: ClassVar[int] = 1

    levels: list[tuple[Scores, Masks, dict[str, Any]]] = field(default_factory=list)

    def select(self, level: Level) -> Selection:
        selection = Ugs().select(level)
        assert selection.scores is not None
        self.levels.append((selection.scores, selection.masks, dict(selection.diagnostics)))
        return selection

    def cost(self, epochs: int) -> int:
        return Ugs().cost(epochs)


def write(device: str = "auto", data_root: str | None = None, seeds: int = 10, record: Path = RECORD) -> None:
    """Search the cells of Figure 1 and write what is found."""
    rows = [row for cell in exhibit("figure1").cells for row in follow(cell, Scale(seeds=seeds), device, data_root)]
    write_atomic(record, csv_rows(_HEADS, rows).encode())


def follow(cell: Cell, scale: Scale, device: str, data_root: str | None) -> list[Sequence[Any]]:
    """A row per level: shares of the winner's elements whose rank there differs by less, means over runs."""
    search = build_search(datasets.load(cell.dataset, data_root), cell.config(scale), device)
    recorded = Recorded()
    search = replace(search, method=recorded)
    state, _ = deque(prune_iteratively(search, State(), partial(enough, search)), maxlen=1).pop()
    results = summarise(search, state, finished=True)
    won = results["highest_winning"]["strict"]
    last = won["level"] if won else len(recorded.levels)
    side = _SIDES[cell.axis]
    scores, masks, _ = recorded.levels[last - 1]
    noises = [mean_std(facts[side]["noise_correlation"])[0] for _, _, facts in recorded.levels]
    rows: list[Sequence[Any]] = []
    for number, (found, _, _) in enumerate(recorded.levels[:last], start=1):
        changes = [
            rank_changes(found.of(side)[run], scores.of(side)[run], masks.of(side)[run]) for run in range(masks.runs)
        ]
        low, high = (mean_std([float(c.quantile(q)) for c in changes])[0] for q in _QUANTILES)
        change = mean_std([float(c.abs().mean()) for c in changes])[0]
        sparsity = results["levels"][number - 1][cell.sparsity]
        numbers = (sparsity, low, high, change, noises[number - 1], noises[last - 1])
        winner = f"level {last}" if won else "none; the last level"
        rows.append((cell.dataset, cell.axis, winner, number, *(f"{value:.4f}" for value in numbers)))
    return rows


def rank_changes(then: Tensor, now: Tensor, alive: Tensor) -> Tensor:
    """Signed changes of rank of the alive elements, ranked among themselves; of at most a million."""
    index = alive.nonzero().squeeze(1)
    index = index[:: max(1, len(index) // 1_000_000)]
    return (ranks(then[index].abs()) - ranks(now[index].abs())).float()


def draw(record: Path = RECORD, path: Path = PLOT) -> None:
    """A panel per dataset and axis: the band that holds 80 % of the changes, hatched where ranks are noise."""
    from matplotlib.figure import Figure

    lines = [
        {**line, "place": f"{line['dataset']}, {_SIDES[line['axis']]}"}
        for line in csv.DictReader(StringIO(record.read_text()))
    ]
    places = list(dict.fromkeys(line["place"] for line in lines))
    figure = Figure(figsize=(3.2 * len(places), 2.8), layout="constrained")
    for panel, place in zip(figure.subplots(1, len(places), sharey=True, squeeze=False)[0], places, strict=True):
        mine = [line for line in lines if line["place"] == place]
        x = [100 * float(line["sparsity"]) for line in mine]
        low, high = ([float(line[name]) for line in mine] for name in ("low", "high"))
        panel.fill_between(x, low, high, color="#4477aa", alpha=0.35, lw=0, label="80 % of the changes")
        noisy = [float(line["noise"]) > NOISE or float(line["noise of winner"]) > NOISE for line in mine]
        panel.fill_between(
            x, -1, 1, where=noisy, facecolor="none", edgecolor="#bbbbbb", hatch="//", lw=0, label="ranks are noise"
        )
        for edge in (-0.55, 0.55):  # 80 % of the differences of two uniform draws
            panel.axhline(edge, color="black", ls=":", lw=1, label="ranks drawn anew" if edge > 0 else None)
        panel.set(title=place, xlabel="sparsity (%)", ylim=(-1, 1))
    figure.axes[0].set_ylabel("change of rank")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    write_atomic(path, encoded(figure, "svg"))
