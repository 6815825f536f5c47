"""What the study says beside its searches: how close together scores lie, and how often teachers are right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aceglt import datasets
from aceglt.config import Scoring, resolve
from aceglt.files import write_atomic
from aceglt.methods import Ace
from aceglt.reproduction import Scale
from aceglt.reproduction.cells import Cell
from aceglt.reproduction.tables import csv_rows
from aceglt.searches.levels import Search, outputs
from aceglt.searches.state import State
from aceglt.searches.statistics import mean_std
from study.cells import ROOT, TABLE1
from study.tune import FOLDS, SEEDS, build_search, folded

_QUANTILES = {"lowest": 0.0, "1 %": 0.01, "median": 0.5, "99 %": 0.99, "highest": 1.0}
SCORED = [
    cell for cell in TABLE1.cells
    if (cell.backbone, cell.axis) == ("gcn", "model") and (cell.variant or cell.method) in ("ugs", "teacher")
]  # fmt: skip
TAUGHT = ("cora", "citeseer")


def write(folder: Path = ROOT, data_root: str | None = None) -> list[Path]:
    """Both tables; where they are."""
    made = {"score-spread.csv": score_quantiles(data_root), "teacher-validation.csv": teachers(data_root)}
    for name, text in made.items():
        write_atomic(folder / name, text.encode())
    return [folder / name for name in made]


def score_quantiles(data_root: str | None = None, cells: Sequence[Cell] = SCORED, seeds: int = 10) -> str:
    """Where the scores lie that a round of exchange would draw by, those of its best epoch on validation, if it were
    made of the dense pair: quantiles, as means over seeds."""
    rows: list[list[Any]] = []
    for cell in cells:
        config = cell.config(Scale(seeds=seeds)).replace(test=False)
        search = build_search(datasets.load(cell.dataset, data_root), config)
        level = search.level(search.train_dense(State()) if config.scoring.signal == "teacher" else State())
        scores = level.train_scores(level.masks, Ace.refine_epochs, "refine 1").scores
        assert scores is not None
        for side in ("weights", "edges"):
            ranked = getattr(scores, side).abs().sort(dim=1).values
            places = [round(share * (ranked.shape[1] - 1)) for share in _QUANTILES.values()]
            found = [f"{quantile:.5f}" for quantile in ranked[:, places].mean(dim=0).tolist()]
            rows.append([cell.dataset, cell.variant or "labels", side, seeds, *found])
    return csv_rows(("dataset", "scores", "side", "seeds", *_QUANTILES), rows)


def teachers(
    data_root: str | None = None,
    names: Sequence[str] = TAUGHT,
    folds: Sequence[int] = FOLDS,
    seeds: int = SEEDS,
    **settings: Any,
) -> str:
    """Share of a fold's validation nodes that the plain and the smoothed teacher are right on, as means over seeds."""
    smoothed = Scoring.teacher_smoothing
    rows: list[list[Any]] = []
    for dataset in names:
        data = datasets.load(dataset, data_root)
        config = resolve("paper", dataset=dataset, seeds=seeds, test=False, **settings)
        for fold in folds:
            right = _right(build_search(folded(data, fold), config), (0.0, smoothed))
            rows.append([dataset, fold, seeds, *(f"{100 * share:.2f}" for share in right)])
    return csv_rows(("dataset", "fold", "seeds", "plain", f"smoothed by {smoothed}"), rows)


def _right(search: Search, smoothings: Sequence[float]) -> list[float]:
    problem, masks = search.problem, search.full_masks()
    _, params = search.train(0, masks)
    made = outputs(problem, search.backbone, params, masks)
    soft = [problem.soften(made, smoothing=smoothing).targets for smoothing in smoothings]
    return [mean_std(problem.measure(each, "val").tolist())[0] for each in soft]
