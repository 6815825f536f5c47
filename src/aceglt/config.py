"""The settings of a search: one frozen dataclass, its presets and its JSON form. Cheap to import."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from aceglt.errors import ConfigError

AXES = ("model", "graph", "joint")
SIGNALS = ("teacher", "labels")
TASKS = ("node", "inductive")
BACKBONES = ("gcn", "gin", "gat")
METHODS = ("random", "ugs", "gebt", "ace")
PRESETS = ("default", "paper", "ugs", "quick")
MAX_SEEDS = 1000

STEERING = ("levels", "target_model", "target_graph", "patience")
"""Fields that say when to stop; a run may be continued with other values of them."""


@dataclass(frozen=True)
class Config:
    """Everything that determines the result of a search."""

    dataset: str = "citeseer"
    backbone: str = "gcn"
    method: str = "ace"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters of the method that differ from its defaults."""
    axis: str = "model"
    task: str = "node"
    directed: bool = False
    """Whether the two directions of an edge are two edges."""
    split: str = "given"
    """The masks that come with the data, or "random:SEED": 20 nodes per class, 500 and 1000."""
    signal: str = "teacher"
    """What trains the scores: `labels`, or `teacher` for the dense model's soft predictions beside them."""
    preset: str = "default"
    seeds: tuple[int, ...] = (0, 1, 2)
    levels: int = 10
    epochs: int = 200
    hidden: int = 512
    lr: float = 0.01
    weight_decay: float = 5e-4
    lambda_edges: float = 1e-4
    lambda_weights: float = 1e-4
    beta: float = 10.0
    """Weight of the teacher's signal."""
    decay_scores: bool = True
    clamp_scores: bool = False
    score_epoch: str = "best"
    prune_model: float = 0.2
    """Share of the alive weights that goes per level."""
    prune_graph: float = 0.05
    """Share of the alive edges that goes per level."""
    fixed_model: float = 0.2
    """Share of all weights that goes at every level of the graph axis."""
    fixed_graph: float = 0.05
    """Share of all edges that goes at every level of the model axis."""
    target_model: float | None = None
    target_graph: float | None = None
    patience: int | None = None
    test: bool = True
    """Whether the test set is ever read; off for tuning."""

    def __post_init__(self) -> None:
        _one_of("axis", self.axis, AXES)
        _check("split", self.split, _is_split(self.split), "given or random:SEED")
        _one_of("task", self.task, TASKS)
        _one_of("signal", self.signal, SIGNALS)
        _one_of("preset", self.preset, PRESETS)
        _one_of("score_epoch", self.score_epoch, ("best", "last"))
        _one_of("backbone", self.backbone, BACKBONES)
        _one_of("method", self.method, METHODS)
        _check_seeds(self.seeds)
        _check("levels", self.levels, self.levels >= 0, "0 or more")
        _check("epochs", self.epochs, self.epochs >= 1, "1 or more")
        _check("hidden", self.hidden, self.hidden >= 1, "1 or more")
        _check("lr", self.lr, 0 < self.lr < float("inf"), "above 0")
        for name in ("weight_decay", "lambda_edges", "lambda_weights", "beta"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) < float("inf"), "0 or more")
        for name in ("prune_model", "prune_graph"):
            _check(name, getattr(self, name), 0 < getattr(self, name) < 1, "between 0 and 1")
        for name in ("fixed_model", "fixed_graph"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) < 1, "0 or more and below 1")
        self._check_stops()

    def _check_stops(self) -> None:
        for name, idle in (("target_model", "graph"), ("target_graph", "model")):
            target = getattr(self, name)
            if target is None:
                continue
            _check(name, target, 0 < target < 1, "between 0 and 1")
            if self.axis == idle:
                raise ConfigError(f"{name} never changes on the {idle} axis; use axis 'joint' or the other target")
        if self.patience is not None:
            _check("patience", self.patience, self.patience >= 1, "1 or more")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "seeds": list(self.seeds), "method_options": dict(self.method_options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Read what `to_dict` wrote; unknown names and wrong types are refused."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"a configuration must be a JSON object, found {values!r}")
        _known(values)
        hints = get_type_hints(cls)
        for name, value in values.items():
            check_type(name, value, hints[name])
        return cls(**{**values, "seeds": tuple(values.get("seeds", cls.seeds))})

    def identity(self) -> dict[str, Any]:
        """What may not change when a run is continued."""
        return {name: value for name, value in self.to_dict().items() if name not in STEERING}


def resolve(preset: str = "default", **choices: Any) -> Config:
    """The configuration of a preset for the chosen dataset and backbone, with explicit choices on top of it.

    Choices that are None count as not made. `seeds` may be a number: that many seeds from 0.
    """
    _one_of("preset", preset, PRESETS)
    made = {name: value for name, value in choices.items() if value is not None}
    _known(made)
    if isinstance(made.get("seeds"), int):
        _check("seeds", made["seeds"], made["seeds"] >= 1, "1 or more")
        _check("seeds", made["seeds"], made["seeds"] <= MAX_SEEDS, f"{MAX_SEEDS} or fewer")
        made["seeds"] = tuple(range(made["seeds"]))
    elif "seeds" in made:
        made["seeds"] = tuple(made["seeds"])
    dataset, backbone = made.get("dataset", Config.dataset), made.get("backbone", Config.backbone)
    method = made.get("method", Config.method)
    settings = _preset(preset, dataset, backbone, method)
    options = {**settings.pop("method_options", {}), **made.pop("method_options", {})}
    if "levels" not in made and ("target_model" in made or "target_graph" in made):
        settings["levels"] = _levels_to_target({**settings, **made})
    return Config(**{**settings, **made, "preset": preset, "method_options": options})


def _levels_to_target(settings: Mapping[str, Any]) -> int:
    """Levels after which a target is reached; one more than the formula, since counts are rounded."""
    needed = [1]
    for side in ("model", "graph"):
        target, prune = settings.get(f"target_{side}"), settings.get(f"prune_{side}", getattr(Config, f"prune_{side}"))
        if target is not None and 0 < target < 1 and 0 < prune < 1:
            needed.append(math.ceil(math.log1p(-target) / math.log1p(-prune)) + 1)
    return max(needed)


# Table S2 of the paper (node classification): learning rate, decay, λ1 (edges), λ2 (weights).
_PAPER = {
    "cora": (6e-2, 6e-5, 2e-3, 2e-3),
    "citeseer": (1e-2, 5e-4, 1e-6, 1e-4),
    "pubmed": (1e-2, 5e-4, 1e-2, 1e-2),
}

# The settings that the UGS authors published: learning rate and decay per dataset, λ1 and λ2 per backbone too.
_UGS_TRAINING = {"cora": (8e-3, 8e-5), "citeseer": (1e-2, 5e-4), "pubmed": (1e-2, 5e-4)}
_UGS_LAMBDAS = {
    ("gcn", "cora"): (1e-2, 1e-2),
    ("gcn", "citeseer"): (1e-2, 1e-2),
    ("gcn", "pubmed"): (1e-6, 1e-3),
    ("gin", "cora"): (1e-3, 1e-3),
    ("gin", "citeseer"): (1e-5, 1e-5),
    ("gin", "pubmed"): (1e-5, 1e-5),
    ("gat", "cora"): (1e-3, 1e-3),
    ("gat", "citeseer"): (1e-7, 1e-3),
    ("gat", "pubmed"): (1e-2, 1e-2),
}
_NAMES = ("lr", "weight_decay", "lambda_edges", "lambda_weights")


_GAT_RATE = 0.005  # 0.01 costs a GAT two points of validation accuracy on CiteSeer


def _preset(preset: str, dataset: str, backbone: str, method: str) -> dict[str, Any]:
    """What a preset changes; on a dataset that its source does not name, the training settings stay the defaults."""
    dataset = dataset.lower()
    if preset == "paper":
        options = {"temperature": 1.0, "replacement": True} if method == "ace" else {}
        training = dict(zip(_NAMES, _PAPER.get(dataset, ()), strict=False))
        return {"signal": "labels", "levels": 20, "method_options": options, **training}
    if preset == "ugs":
        values = (*_UGS_TRAINING.get(dataset, ()), *_UGS_LAMBDAS.get((backbone, dataset), ()))
        return {"signal": "labels", "levels": 20, **dict(zip(_NAMES, values, strict=False))}
    training = {"lr": _GAT_RATE} if backbone == "gat" else {}
    if preset == "quick":
        options = {"rounds": 2, "refine_epochs": 20} if method == "ace" else {}
        return {"levels": 5, "epochs": 100, "method_options": options, **training}
    return training


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines "name: old → new" for what differs."""
    names = sorted({*old, *new})
    return [f"{name}: {old.get(name)} → {new.get(name)}" for name in names if old.get(name) != new.get(name)]


def _known(values: Mapping[str, Any]) -> None:
    names = [f.name for f in fields(Config)]
    for name in values:
        if name not in names:
            raise ConfigError(f"unknown setting '{name}'{_suggest(name, names)}")


def _suggest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(known)}"


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"unknown {name} '{value}'; known are {', '.join(known)}")


def _check(name: str, value: Any, ok: bool, expected: str) -> None:
    if not ok:
        raise ConfigError(f"{name} must be {expected}, found {value}")


def _is_split(split: str) -> bool:
    return split == "given" or (split.startswith("random:") and split.removeprefix("random:").isdecimal())


def _check_seeds(seeds: tuple[int, ...]) -> None:
    if not seeds:
        raise ConfigError("seeds must name at least one seed")
    if any(not isinstance(s, int) or isinstance(s, bool) or s < 0 for s in seeds):
        raise ConfigError(f"seeds must be whole numbers from 0, found {', '.join(map(str, seeds))}")
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds must differ from each other, found {', '.join(map(str, seeds))}")


def check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of a field's type; numbers may be whole where fractions are meant."""
    kinds: set[Any] = {
        get_origin(part) or part for part in (get_args(hint) if isinstance(hint, UnionType) else (hint,))
    }
    if Literal in kinds:
        _one_of(name, value, get_args(hint))
        return
    if float in kinds:
        kinds.add(int)
    if tuple in kinds:
        kinds.add(list)
    if not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and bool not in kinds):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise ConfigError(f"{name} must be {words.get(hint, getattr(hint, '__name__', hint))}, found {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, found {value}")
