"""Exchanges that were tried, on nodes that chose nothing: half of each fold's validation nodes choose epochs, rounds
and tickets, the other half measure. No label of a test node is known.

Ten steps to the sparsities of 20 levels, the default's scores; Planetoid's folds train by Table S2, other graphs by the
default on the split that comes with them (fold 0 and, with the halves in each other's place, 1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from aceglt import datasets
from aceglt.config import resolve
from aceglt.files import write_atomic
from aceglt.methods import Ace, Level, Method, Selection, Ugs
from aceglt.methods.ace import pruned_part
from aceglt.methods.base import best_ticket
from aceglt.numerics import rng
from aceglt.numerics.masks import SIDES, Masks, Scores
from aceglt.problems import build_problem
from aceglt.pruning.ranking import lowest, prune
from aceglt.reproduction.layouts import SMALL
from aceglt.reproduction.tables import csv_rows
from aceglt.searches.levels import Search, prune_iteratively
from aceglt.searches.results import summarise
from aceglt.searches.state import State
from aceglt.searches.statistics import mean_std
from aceglt.searches.stopping import enough
from aceglt.training.setup import build_backbone, pick_device
from study.methods import mean
from study.tune import folded, read

RECORD = Path("results/exchanges.csv")
_HEADS = ("dataset", "axis", "fold", "exchange", "seeds", "dense", "mean", *(f"step {i + 1}" for i in range(10)))


@dataclass(frozen=True)
class Confirmed:
    """An exchange that may take place: elements of the pruned part come back beside the retained ones, scores of both
    are trained in one network, and all compete again."""

    name: ClassVar[str] = "confirmed"
    batches: ClassVar[int] = 1

    share: float = 0.2
    """Of the smaller of the two parts, how many come back: those that matter most where the pruned part is trained, or
    random ones."""
    rounds: int = 1
    proposals: Literal["pruned part", "random"] = "pruned part"
    trained: bool = False
    """Whether the masks are kept whose ticket is best on validation, or the last."""

    def select(self, level: Level) -> Selection:
        cut = Ugs().select(level)
        candidates = [cut.masks]
        for t in range(self.rounds):
            wide = self._with_proposals(level, candidates[-1], t)
            scores = level.train_scores(wide, level.epochs, f"confirm {t}").scores
            assert scores is not None
            key = level.key(f"drop {t}")
            candidates.append(prune(wide, level.importance(scores), level.keep, key, level.quotas))
        masks = best_ticket(level, candidates)[0] if self.trained else candidates[-1]
        return Selection(masks, cut.scores, epochs=self.cost(level.epochs))

    def _with_proposals(self, level: Level, masks: Masks, t: int) -> Masks:
        key = level.key(f"propose {t}")
        if self.proposals == "random":
            drawn = level.key(f"source {t}")
            found = Scores(*(rng.uniform(rng.fold(drawn, i), masks.of(s).shape[1]) for i, s in enumerate(SIDES)))
        else:
            part = pruned_part(masks, [quota.part for quota in level.quotas], whole_graph=False)
            scores = level.train_scores(part, Ace.refine_epochs, f"refine {t}").scores
            assert scores is not None
            found = level.importance(scores)
        sides = (self._back(masks.of(s), found.of(s), rng.fold(key, salt)) for salt, s in enumerate(SIDES))
        return Masks(*sides)

    def _back(self, alive: Tensor, importance: Tensor, key: Tensor) -> Tensor:
        """[S, n] the alive ones, and so many of the others."""
        count = int(alive[0].sum())
        k = max(1, round(self.share * min(count, alive.shape[1] - count)))
        return alive | lowest(-importance, ~alive, min(k, alive.shape[1] - count), key)

    def cost(self, epochs: int) -> int:
        return epochs + self.rounds * (epochs + (Ace.refine_epochs if self.proposals == "pruned part" else 0))


@dataclass(frozen=True)
class Repeated:
    """No exchange: UGS by the mean scores of several trainings; or the best ticket of theirs and each one's."""

    name: ClassVar[str] = "repeated"
    batches: ClassVar[int] = 1

    times: int = 3
    trained: bool = False

    def select(self, level: Level) -> Selection:
        phases = ["score", *(f"score {i}" for i in range(1, self.times))]
        fits = [level.train_scores(level.masks, level.epochs, phase).scores for phase in phases]
        scores = [scores for scores in fits if scores is not None]
        cuts = [
            prune(level.masks, level.importance(each), level.keep, level.key("drop"), level.quotas)
            for each in (mean(scores), *scores)
        ]
        masks = best_ticket(level, cuts)[0] if self.trained else cuts[0]
        return Selection(masks, mean(scores), epochs=self.cost(level.epochs))

    def cost(self, epochs: int) -> int:
        return self.times * epochs


EXCHANGES: dict[str, Method] = {
    "none": Ugs(),
    "ace, 3 rounds of 2 %, best scored": Ace(rounds=3, exchange=0.02, keep="best"),
    "ace, 2 rounds of 2 %, best ticket": Ace(rounds=2, exchange=0.02, keep="trained"),
    "ace, 3 rounds of 5 %, best ticket": Ace(rounds=3, exchange=0.05, keep="trained"),
    "confirmed 20 %": Confirmed(),
    "confirmed 5 %, twice": Confirmed(share=0.05, rounds=2),
    "confirmed 20 % of random ones": Confirmed(proposals="random"),
    "confirmed 20 %, best ticket": Confirmed(trained=True),
    "confirmed 20 %, three times, best ticket": Confirmed(rounds=3, trained=True),
    "no exchange, mean of 3 scores": Repeated(),
    "no exchange, best ticket of 3 scores and their mean": Repeated(trained=True),
}


def halved(data: Any, dataset: str, fold: int) -> Any:
    """The data with half of a fold's validation nodes to choose by, and the other half in the place of the test set."""
    if dataset in SMALL:
        given, pool, seed = folded(data, fold), data.train_mask | data.val_mask, fold
    else:
        given, pool, seed = data, data.val_mask, 5
    nodes = pool.nonzero().squeeze(1)
    nodes = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))]
    nodes = nodes[given.val_mask[nodes]]
    if dataset not in SMALL and fold:
        nodes = nodes.flip(0)
    none, half = torch.zeros_like(given.val_mask), len(nodes) // 2
    return SimpleNamespace(
        x=given.x, edge_index=given.edge_index, y=given.y, train_mask=given.train_mask,
        val_mask=none.index_fill(0, nodes[:half], True), test_mask=none.index_fill(0, nodes[half:], True),
    )  # fmt: skip


def try_exchange(
    dataset: str,
    axis: str,
    fold: int,
    exchange: str,
    seeds: int = 5,
    device: str = "auto",
    data_root: str | None = None,
    **settings: Any,
) -> dict[str, str]:
    """One line of the record: what is measured on the nodes that chose nothing, in percent."""
    data = halved(datasets.load(dataset, data_root), dataset, fold)
    rates = resolve("paper", dataset=dataset).training if dataset in SMALL else resolve().training
    config = resolve(
        dataset="data", axis=axis, seeds=seeds, method="ugs",
        **{"levels": 10, "prune_model": 0.36, "prune_graph": 0.0975, "lr": rates.lr, "weight_decay": rates.weight_decay,
           **settings},
    )  # fmt: skip
    problem = build_problem(config, data, dataset).to(pick_device(device))
    search = Search(problem, build_backbone(config, problem), EXCHANGES[exchange], config)
    state, _ = deque(prune_iteratively(search, State(), partial(enough, search)), maxlen=1).pop()
    found = summarise(search, state, finished=True)
    steps = [100 * mean_std(level["test"])[0] for level in found["levels"]]
    numbers = [100 * mean_std(found["dense"]["test"])[0], mean_std(steps)[0], *steps]
    return dict(
        zip(_HEADS, [dataset, axis, str(fold), exchange, str(seeds), *(f"{n:.2f}" for n in numbers)], strict=False)
    )


def record(lines: Sequence[dict[str, str]], path: Path = RECORD) -> None:
    """Add lines to the record."""
    rows = [[line.get(head, "") for head in _HEADS] for line in (*read(path), *lines)]
    write_atomic(path, csv_rows(_HEADS, rows).encode())
