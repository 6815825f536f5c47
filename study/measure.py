"""What the study says beside its searches: how close published scores lie, how often teachers are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aceglt import datasets
from aceglt.config import Config, resolve
from aceglt.files import write_atomic
from aceglt.levels import Search, State
from aceglt.methods import Ace
from aceglt.problem import Problem
from aceglt.reproduction.layouts import SMALL
from aceglt.reproduction.tables import csv_rows
from aceglt.runner import build_backbone, build_method
from aceglt.stats import mean_std
from study.cells import ROOT
from study.tune import FOLDS, SEEDS, folded

_QUANTILES = {"lowest": 0.0, "1 %": 0.01, "median": 0.5, "99 %": 0.99, "highest": 1.0}
_TUNED = ("cora", "citeseer")


def write(folder: Path = ROOT, data_root: str | None = None) -> None:
    """score-spread.csv and teacher-validation.csv."""
    write_atomic(folder / "score-spread.csv", spread(data_root).encode())
    write_atomic(folder / "teacher-validation.csv", teachers(data_root).encode())


def spread(data_root: str | None = None, seeds: int = 10) -> str:
    """Where the scores of a GCN and its graph lie after the epochs of a round, as published, on the dense pair:
    quantiles, as means over seeds."""
    rows: list[list[Any]] = []
    for dataset in SMALL:
        search = _search(datasets.load(dataset, data_root), resolve("paper", dataset=dataset, seeds=seeds, test=False))
        level = search._level(State())
        scores = level.train_scores(level.masks, Ace.refine_epochs, "refine").scores
        assert scores is not None
        for side in ("weights", "edges"):
            ranked = getattr(scores, side).abs().sort(dim=1).values
            places = [round(share * (ranked.shape[1] - 1)) for share in _QUANTILES.values()]
            rows.append([dataset, side, seeds, *(round(v, 5) for v in ranked[:, places].mean(dim=0).tolist())])
    return csv_rows(("dataset", "side", "seeds", *_QUANTILES), rows)


def teachers(data_root: str | None = None, seeds: int = SEEDS) -> str:
    """Share of a fold's validation nodes that the plain and the smoothed teacher are right on, as means over seeds."""
    smoothed = Config().teacher_smoothing
    rows: list[list[Any]] = []
    for dataset in _TUNED:
        data = datasets.load(dataset, data_root)
        for fold in FOLDS:
            right = [_right(folded(data, fold), dataset, seeds, smoothing) for smoothing in (0.0, smoothed)]
            rows.append([dataset, fold, seeds, *(f"{100 * share:.2f}" for share in right)])
    return csv_rows(("dataset", "fold", "seeds", "plain", f"smoothed by {smoothed}"), rows)


def _right(data: Any, dataset: str, seeds: int, smoothing: float) -> float:
    config = resolve("paper", dataset=dataset, signal="teacher", teacher_smoothing=smoothing, seeds=seeds, test=False)
    search = _search(data, config)
    soft = search.train_dense(State()).soft
    assert soft is not None
    return mean_std(search.problem.measure(soft, "val").tolist())[0]


def _search(data: Any, config: Config) -> Search:
    problem = Problem.from_data(data, config.dataset)
    return Search(problem, build_backbone(config, problem), build_method(config), config)
