"""Equal tuning: the paper's methods get twelve settings each, on validation nodes of folds 0 and 1 alone.

Five steps to the sparsities of 20 levels on both axes of Cora and CiteSeer, GCN, trained by Table S2; the signal stays
the labels. The setting with the highest mean over these eight places is a method's tuned one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from aceglt import datasets
from aceglt.config import resolve
from aceglt.files import write_atomic
from aceglt.reproduction.tables import csv_rows
from aceglt.searches.statistics import mean_std
from study.tune import Line, folded, read, readings, search_fold

RECORD = Path("results/tuning-equal.csv")
STEPS, SEEDS = 5, 5
PLACES = tuple(product(("cora", "citeseer"), ("model", "graph"), (0, 1)))
"""Dataset, axis, fold."""
_LENGTHS: dict[str, Any] = {"prune_model": 1 - 0.8**4, "prune_graph": 1 - 0.95**4}  # of four levels together
_NUMBERS = ("dense", "mean", *(f"step {i + 1}" for i in range(STEPS)))
_HEADS = ("method", "settings", "dataset", "axis", "fold", "seeds", *_NUMBERS)

_TABLE_S2 = ("lr", "weight_decay", "lambda_edges", "lambda_weights")

Settings = Mapping[str, Any]
_PENALTIES: tuple[tuple[str, Settings], ...] = (
    ("λ of Table S2", {}),
    ("λ 1e-4", {"lambda_edges": 1e-4, "lambda_weights": 1e-4}),
    ("λ 0, no decay", {"lambda_edges": 0.0, "lambda_weights": 0.0, "decay_scores": False}),
)


def _balanced(*shares: float) -> tuple[tuple[str, Settings], ...]:
    return tuple((f"balance {share:g}", {"balance": share}) for share in shares)


def _options(name: str, *values: Any) -> tuple[tuple[str, Settings], ...]:
    return tuple((f"{name} {value:g}", {"method_options": {name: value}}) for value in values)


_BONUSES: tuple[tuple[str, Settings], ...] = (("", {}), ("degree bonus 2", {"degree_bonus": 2.0}))
_DRAWS: tuple[tuple[str, Settings], ...] = (
    ("", {}),
    ("best of 3 draws", {"method": "study.methods:RandomDraws", "method_options": {"draws": 3}}),
)
_GRIDS: Mapping[str, tuple[str, Sequence[Sequence[tuple[str, Settings]]]]] = {
    "random": ("random", (_balanced(0, 0.25, 0.5, 0.75, 0.9, 1), _DRAWS)),
    "ugs": ("ugs", (_PENALTIES, _balanced(0, 0.75), _BONUSES)),
    "gebt": ("gebt", (_PENALTIES[::2], _balanced(0, 0.75, 1), _options("threshold", 0.1, 0.02))),
    "ace": ("ace", (_PENALTIES[::2], _balanced(0, 0.75, 1), _options("exchange", 0.02, 0.05))),
}


def grid(method: str) -> dict[str, dict[str, Any]]:
    """A method's twelve settings by name; the first is the published one, but for ACE, whose 5 % is the top-K
    reading's."""
    name, parts = _GRIDS[method]
    found = {}
    for chosen in product(*parts):
        settings: dict[str, Any] = {"method": name, "method_options": {"reading": "topk"} if name == "ace" else {}}
        for _, more in chosen:
            options = {**settings["method_options"], **more.get("method_options", {})}
            settings |= {**more, "method_options": options}
        found[", ".join(title for title, _ in chosen if title)] = settings
    return found


TUNED_METHODS = tuple(_GRIDS)


def tasks(lines: Sequence[Line], device: str, data_root: str | None) -> list[dict[str, Any]]:
    """What the record lacks."""
    done = {tuple(line[head] for head in _HEADS[:5]) for line in lines}
    wanted = [
        dict(zip(_HEADS[:5], (method, name, dataset, axis, str(fold)), strict=True))
        for method in ("ace", "gebt", "ugs", "random")  # the longest first
        for name in grid(method)
        for dataset, axis, fold in PLACES
    ]
    place = {"device": device, "data_root": data_root}
    return [{**task, **place} for task in wanted if tuple(task.values()) not in done]


def search(task: Mapping[str, Any]) -> Line:
    """A line of the record."""
    dataset = task["dataset"]
    published = resolve("paper", dataset=dataset).to_dict()
    fixed = {"axis": task["axis"], "levels": STEPS, "seeds": SEEDS, **_LENGTHS}
    settings = {**{name: published[name] for name in _TABLE_S2}, **grid(task["method"])[task["settings"]]}
    data = folded(datasets.load(dataset, task["data_root"]), int(task["fold"]))
    result = search_fold(data, device=task["device"], **fixed, **settings)
    return {**{head: task[head] for head in _HEADS[:5]}, "seeds": str(SEEDS), **readings(result)}


def write(lines: Sequence[Line], record: Path = RECORD) -> None:
    order = {(m, name): i for m in TUNED_METHODS for i, name in enumerate(grid(m))}
    ordered = sorted(
        lines,
        key=lambda line: (TUNED_METHODS.index(line["method"]), order[line["method"], line["settings"]], *places(line)),
    )
    write_atomic(record, csv_rows(_HEADS, [[line[head] for head in _HEADS] for line in ordered]).encode())


def places(line: Line) -> tuple[str, str, str]:
    return line["dataset"], line["axis"], line["fold"]


def means(lines: Sequence[Line], method: str) -> dict[str, dict[tuple[str, str], float]]:
    """By setting, the mean over folds on each dataset and axis; settings that lack one are left out."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for name in grid(method):
        mine = [line for line in lines if (line["method"], line["settings"]) == (method, name)]
        if len(mine) == len(PLACES):
            found[name] = {
                place: mean_std([float(line["mean"]) for line in mine if places(line)[:2] == place])[0]
                for place in dict.fromkeys(places(line)[:2] for line in mine)
            }
    return found


def tuned(method: str, lines: Sequence[Line] | None = None) -> str | None:
    """The name of the setting with the highest mean over all places, where all twelve were searched."""
    found = means(read(RECORD) if lines is None else lines, method)
    if len(found) < len(grid(method)):
        return None
    return max(found, key=lambda name: mean_std(list(found[name].values()))[0])
