"""Searches for tuning: validation accuracy alone, in ten steps to the sparsities of 20 levels, trained by Table S2.

Fold 0 is the split that comes with the data. The others draw 20 training nodes per class anew among the nodes that
split trains and validates on, and validate on the rest: what is chosen suits more than one draw, and no fold knows the
label of a test node.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from aceglt import datasets
from aceglt.config import SETTINGS, Config, resolve
from aceglt.config.own import NOTHING, Own, is_own, load
from aceglt.errors import ConfigError
from aceglt.files import short_digest, write_atomic
from aceglt.methods import Ace
from aceglt.methods.build import build_method
from aceglt.problems import build_problem
from aceglt.problems.splits import PER_CLASS
from aceglt.reproduction.layouts import DEFAULT_SCORES
from aceglt.reproduction.tables import csv_rows
from aceglt.searches.levels import Search, prune_iteratively
from aceglt.searches.results import summarise
from aceglt.searches.state import State
from aceglt.searches.statistics import mean_std
from aceglt.searches.stopping import enough
from aceglt.training.setup import build_backbone, pick_device
from study.prototypes import PROTOTYPES

RECORD = Path("results/tuning-folds.csv")
STEPS = 10
FOLDS, SEEDS = (0, 1, 2, 3), 5
_LENGTHS: dict[str, Any] = {"prune_model": 0.36, "prune_graph": 0.0975}  # of two levels together
_NUMBERS = ("dense", "mean", *(f"step {i + 1}" for i in range(STEPS)))
_HEADS = ("dataset", "axis", "fold", "settings", "seeds", "config", "device", *_NUMBERS)
Line = dict[str, str]
_OPTIONS = {f.name for f in fields(Ace)}
_SETTINGS = set(SETTINGS)
_EXCHANGE = {"exchange": 0.05, "keep": "last", "temperature": 0.0, "replacement": False}  # unless it is assigned
_NOT_TUNED = {"test", "preset", "dataset", "task", "split"}


def build_search(data: Any, config: Config, device: str = "cpu") -> Search:
    """A search in memory, as the library composes it."""
    problem = build_problem(config, data, config.dataset).to(pick_device(device))
    own = Own(method=load(config.method, "method")) if is_own(config.method) else NOTHING
    return Search(problem, build_backbone(config, problem), build_method(config, own), config)


def search_fold(data: Any, prototype: str = "none", device: str = "auto", **settings: Any) -> dict[str, Any]:
    """What results.json would have of a search that never reads the test set."""
    config = resolve("paper", dataset="data", test=False, **settings)
    search = PROTOTYPES[prototype](build_search(data, config, device))
    state, _ = deque(prune_iteratively(search, State(), partial(enough, search)), maxlen=1).pop()
    return summarise(search, state, finished=True)


def tune(
    dataset: str,
    axis: str,
    folds: Sequence[int] = FOLDS,
    assignments: Sequence[str] = (),
    seeds: int = SEEDS,
    record: Path = RECORD,
    device: str = "auto",
    data_root: str | None = None,
    search: Callable[..., dict[str, Any]] = search_fold,
    default: Mapping[str, Any] = DEFAULT_SCORES,
) -> list[Line]:
    """Search with settings "name=value" in the place of the default's, fold by fold, and add the lines to the record.

    Lines that are there already are not searched again.
    """
    lines = read(record)
    chosen = _chosen(dataset, axis, assignments, seeds, default)
    place = {
        "dataset": dataset, "axis": axis, "settings": " ".join(assignments), "seeds": str(seeds),
        "config": short_digest(json.dumps(chosen, sort_keys=True)),
    }  # fmt: skip
    asked = [{**place, "fold": str(fold)} for fold in dict.fromkeys(folds)]
    missing = [line for line in asked if not any(line.items() <= old.items() for old in lines)]
    data = datasets.load(dataset, data_root) if missing else None
    for line in missing:
        result = search(folded(data, int(line["fold"])), device=device, **chosen)
        lines.append({**line, "device": device, **readings(result)})
        write_atomic(record, csv_rows(_HEADS, [[old.get(head, "") for head in _HEADS] for old in lines]).encode())
    return [old for old in lines if any(line.items() <= old.items() for line in asked)]


def readings(result: Mapping[str, Any]) -> Line:
    """Validation metrics in percent: dense, the mean over the steps, and each step."""
    steps = [mean_std(level["val"])[0] for level in result["levels"]]
    numbers = {"dense": mean_std(result["dense"]["val"])[0], "mean": mean_std(steps)[0]}
    numbers |= {f"step {i + 1}": step for i, step in enumerate(steps)}
    return {name: f"{100 * number:.2f}" for name, number in numbers.items()}


def read(record: Path = RECORD) -> list[Line]:
    """The record's lines."""
    if not record.exists():
        return []
    with record.open(newline="") as file:
        return list(csv.DictReader(file))


def means(lines: Sequence[Line], folds: Sequence[int] = FOLDS, seeds: int = SEEDS) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table: by settings, the mean over the folds, with so many seeds, on each dataset and axis
    where all are there."""
    lines = [line for line in lines if int(line["fold"]) in folds and int(line["seeds"]) == seeds]
    places = list(dict.fromkeys((line["dataset"], line["axis"]) for line in lines))

    def mean(number: str, settings: str, place: tuple[str, str]) -> str:
        found = [line for line in lines if (line["dataset"], line["axis"], line["settings"]) == (*place, settings)]
        return f"{mean_std([float(line[number]) for line in found])[0]:.2f}" if len(found) == len(folds) else "…"

    names = list(dict.fromkeys(line["settings"] for line in lines))
    rows = [("dense", "dense", names[0])] if names else []
    rows += [(f"`{name}`" if name else "**default**", "mean", name) for name in names]
    return ["", *(" ".join(place) for place in places)], [
        [title, *(mean(number, name, place) for place in places)] for title, number, name in rows
    ]


def settings(assignments: Sequence[str], default: Mapping[str, Any] = DEFAULT_SCORES) -> dict[str, Any]:
    """The default, with other values for what is assigned; "rounds=3" and the like are of the method."""
    made: dict[str, Any] = {**default}
    options: dict[str, Any] = {}
    for assignment in assignments:
        name, _, text = assignment.partition("=")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        (options if name in _OPTIONS else made)[name] = value
    made.setdefault("method", "ace" if options else "ugs")
    if made["method"] == "ace":
        return {**made, "method_options": {**_EXCHANGE, **options}}
    if options:
        raise ConfigError(f"{', '.join(sorted(options))} is for the method ace; found method {made['method']}")
    return {**made, "method_options": {}}


def _chosen(
    dataset: str, axis: str, assignments: Sequence[str], seeds: int, default: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a search beside the preset's."""
    trained = resolve("paper", dataset=dataset)
    fixed = {
        **_LENGTHS, "axis": axis, "seeds": seeds, "levels": STEPS, "lr": trained.training.lr,
        "weight_decay": trained.training.weight_decay,
    }  # fmt: skip
    changed = settings(assignments, default)
    if taken := sorted(fixed.keys() & changed.keys()):
        raise ConfigError(f"{', '.join(taken)} is the same in all searches for tuning")
    if unknown := sorted(changed.keys() - {*_SETTINGS, "prototype"} | changed.keys() & _NOT_TUNED):
        raise ConfigError(f"{', '.join(unknown)} is no setting to tune; fields of Config and options of ace are")
    prototype = changed.get("prototype", "none")
    if str(prototype) not in PROTOTYPES:
        raise ConfigError(f"no prototype '{prototype}'; there are {', '.join(PROTOTYPES)}")
    if prototype != "none" and (changed["method"] not in ("ugs", "ace") or changed["signal"] != "teacher"):
        raise ConfigError(f"prototype '{prototype}' needs method=ugs or ace and signal=teacher")
    return {**fixed, **changed}


def folded(data: Any, fold: int) -> Any:
    """The data with this fold's training and validation nodes."""
    if fold == 0:
        return data
    pool = (data.train_mask | data.val_mask).nonzero().squeeze(1)
    pool = pool[torch.randperm(len(pool), generator=torch.Generator().manual_seed(fold))]
    train = torch.zeros_like(data.train_mask)
    for label in range(int(data.y.max()) + 1):
        train[pool[data.y[pool] == label][:PER_CLASS]] = True
    return SimpleNamespace(
        x=data.x, edge_index=data.edge_index, y=data.y, train_mask=train, val_mask=_others(pool, train),
        test_mask=data.test_mask,
    )  # fmt: skip


def _others(pool: Tensor, train: Tensor) -> Tensor:
    return torch.zeros_like(train).index_fill(0, pool, True) & ~train
