"""The settings of a search: one frozen dataclass, its presets and its JSON form. Cheap to import."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from aceglt.config.own import is_own
from aceglt.errors import ConfigError, printable
from aceglt.files.schema import shortened

AXES = ("model", "graph", "joint")
SIGNALS = ("teacher", "labels")
TASKS = ("node", "inductive", "link")
OBJECTIVES = ("bce", "infoclust")
EDGE_SPLITS = ("random", "connected")
BACKBONES = ("gcn", "gin", "gat", "resgcn")
PRECISIONS = ("float32", "bfloat16")
PARTITIONS_BY = ("random", "clusters")
METHODS = ("random", "ugs", "gebt", "ace")
PRESETS = ("default", "paper", "ugs", "quick")
MAX_SEEDS = 1000
MAX_WIDTH = 1 << 20
"""Of a layer; more is a slip of the hand, and would only be found out when memory ends."""
MAX_LAYERS = 1000

TUPLES = ("seeds", "prunable")
"""Fields whose value is itself a list."""

SCORING = (
    "signal", "beta", "teacher_temperature", "teacher_smoothing", "lambda_edges", "lambda_weights", "decay_scores",
    "clamp_scores", "score_epoch", "score_epochs", "balance", "degree_bonus",
)  # fmt: skip
"""Fields that say how scores are trained and used; the presets `paper` and `ugs` have their own."""

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
    objective: str = "bce"
    """What link prediction trains: `bce`, cross-entropy against sampled non-edges, or `infoclust`."""
    embedding: int = 64
    """Width of the embeddings of link prediction."""
    edge_split: str = "random"
    """Which edges link prediction holds out: `random` ones, or such that the training graph stays `connected`."""
    preset: str = "default"
    seeds: tuple[int, ...] = (0, 1, 2)
    levels: int = 10
    epochs: int = 200
    hidden: int = 512
    layers: int | None = None
    """How many GENConv layers resgcn has, 28 unless given; the other backbones have two."""
    precision: str = "float32"
    """What the backbone computes in: `float32` or `bfloat16`; weights and Adam's state stay in float32."""
    checkpoint_blocks: bool = False
    """Whether resgcn keeps one tensor per layer and computes the rest again in the gradient: memory for time."""
    partitions: int = 1
    """Into how many parts the nodes are cut, for training and evaluation, where a graph is too large for one."""
    partition_by: str = "random"
    """How: `random` nodes anew at every epoch, or `clusters` (METIS)."""
    parts_per_step: int = 1
    """Over how many parts the gradient of one step is averaged; several processes share them."""
    deterministic: bool = False
    """Whether torch is held to algorithms that give the same bits in every run on the same machine."""
    lr: float = 0.01
    weight_decay: float = 5e-4
    lambda_edges: float = 0.0
    """λ1: L1 on edge scores."""
    lambda_weights: float = 0.0
    """λ2: L1 on weight scores."""
    beta: float = 10.0
    """Weight of the teacher's signal."""
    teacher_temperature: float = 0.03
    """What the teacher's outputs are divided by before they become probabilities; below 1 it is surer than it was."""
    teacher_smoothing: float = 0.9
    """How much of what a node is taught comes from its neighbours: the teacher's probabilities are spread along edges,
    as personalised PageRank does, going on with this chance at every step. Where that loses the training nodes, and
    with partitions, the teacher stays as it is. For tasks on nodes."""
    decay_scores: bool = False
    """Whether weight decay touches scores."""
    clamp_scores: bool = False
    """Whether scores are kept in [0, 1]."""
    score_epoch: str = "best"
    """Whose scores decide: those of the epoch that is best on validation, or of the last one (`last`)."""
    score_epochs: int | None = 60
    """How long a level's scores are trained, at most `epochs`; None, as presets have it, is as long."""
    balance: float = 0.75
    """How much of the weights is divided among matrices, in proportion to the sums of their sides, so that no layer
    dies out; for the rest all weights compete. At 0 they do for everything, at 1 each matrix ranks by itself."""
    degree_bonus: float = 2.0
    """How much the importance of an edge gains, over the root of the product of its ends' degrees (themselves counted),
    when `ugs` and `ace` prune: the last edges of a node stay longer."""
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
    loss: str | None = None
    """The user's own training loss; None is the task's."""
    metric: str | None = None
    """The user's own metric; None is the task's."""
    prunable: tuple[str, ...] | None = None
    """Patterns of the names of what is pruned in the user's own model; None is every linear map's weight matrix."""

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            check_type(name, getattr(self, name), hint)
        _check_options(self.method_options)
        _one_of("axis", self.axis, AXES)
        _check("split", self.split, _is_split(self.split), "given or random:SEED")
        _one_of("task", self.task, TASKS)
        _one_of("signal", self.signal, SIGNALS)
        _one_of("objective", self.objective, OBJECTIVES)
        _one_of("edge_split", self.edge_split, EDGE_SPLITS)
        _one_of("preset", self.preset, PRESETS)
        _one_of("score_epoch", self.score_epoch, ("best", "last"))
        _one_of_or_own("backbone", self.backbone, BACKBONES)
        _one_of_or_own("method", self.method, METHODS)
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("partition_by", self.partition_by, PARTITIONS_BY)
        for name in ("loss", "metric"):
            value = getattr(self, name)
            _check(name, value, value is None or is_own(value), "module:function")
        if self.prunable is not None and not is_own(self.backbone):
            raise ConfigError(f"prunable is for a backbone of your own; {self.backbone} is built in")
        _check_seeds(self.seeds)
        _check("levels", self.levels, self.levels >= 0, "0 or more")
        _check("epochs", self.epochs, self.epochs >= 1, "1 or more")
        _check("hidden", self.hidden, 1 <= self.hidden <= MAX_WIDTH, f"from 1 to {MAX_WIDTH}")
        layers = self.layers if self.layers is not None else 1
        _check("layers", self.layers, 1 <= layers <= MAX_LAYERS, f"from 1 to {MAX_LAYERS}")
        _check("partitions", self.partitions, self.partitions >= 1, "1 or more")
        _check("parts_per_step", self.parts_per_step, self.parts_per_step >= 1, "1 or more")
        for name in ("layers", "checkpoint_blocks"):
            if getattr(self, name) and self.backbone != "resgcn":
                raise ConfigError(f"{name} is for the backbone resgcn; {self.backbone} does not have it")
        for name in ("lr", "teacher_temperature"):
            _check(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        _check("score_epochs", self.score_epochs, self.scoring_epochs >= 1, "1 or more")
        _check("embedding", self.embedding, 1 <= self.embedding <= MAX_WIDTH, f"from 1 to {MAX_WIDTH}")
        for name in ("weight_decay", "lambda_edges", "lambda_weights", "beta", "degree_bonus"):
            _check(name, getattr(self, name), getattr(self, name) >= 0, "0 or more")
        _check("balance", self.balance, 0 <= self.balance <= 1, "from 0 to 1")
        smoothing = self.teacher_smoothing
        _check("teacher_smoothing", smoothing, 0 <= smoothing < 1, "0 or more and below 1")
        for name in ("prune_model", "prune_graph"):
            _check(name, getattr(self, name), 0 < getattr(self, name) < 1, "between 0 and 1")
        for name in ("fixed_model", "fixed_graph"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) < 1, "0 or more and below 1")
        self._check_stops()
        self._check_task()

    def _check_task(self) -> None:
        if self.task == "link" and self.split != "given":
            raise ConfigError(f"split '{self.split}' is of nodes; task link splits edges, see edge_split")
        for name in ("objective", "edge_split", "embedding"):
            if self.task != "link" and getattr(self, name) != getattr(Config, name):
                raise ConfigError(f"{name} '{getattr(self, name)}' is for task link, not {self.task}")
        if self.objective == "infoclust" and self.signal == "teacher":
            raise ConfigError("signal 'teacher' has nothing to teach with objective 'infoclust'; use signal 'labels'")
        if self.objective == "infoclust" and self.loss is not None:
            raise ConfigError("objective 'infoclust' has a loss of its own; use objective 'bce' with yours")

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

    @property
    def scoring_epochs(self) -> int:
        """How long a level's scores are trained."""
        return self.epochs if self.score_epochs is None else min(self.score_epochs, self.epochs)

    @property
    def reads_edge_features(self) -> bool:
        """Whether the backbone reads features of edges where the graph has them."""
        return self.backbone == "resgcn"

    @property
    def backbone_options(self) -> dict[str, Any]:
        """What the backbone is built with besides its sizes."""
        if self.backbone != "resgcn":
            return {}
        return {"layers": self.layers or 28, "checkpoint_blocks": self.checkpoint_blocks}

    @property
    def task_options(self) -> dict[str, Any]:
        """What the task's problem is built with besides the data."""
        if self.task != "link":
            return {"split": self.split}
        return {
            "objective": self.objective,
            "embedding": self.embedding,
            "connected": self.edge_split == "connected",
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        lists = {name: list(value) for name in TUPLES if (value := getattr(self, name)) is not None}
        return {**asdict(self), **lists, "method_options": dict(self.method_options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Read what `to_dict` wrote; unknown names and wrong types are refused."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"a configuration must be a JSON object, found {shortened(values)}")
        _known(values)
        return cls(**{**values, **_tuples(values)})

    def identity(self) -> dict[str, Any]:
        """What may not change when a run is continued."""
        return {name: value for name, value in self.to_dict().items() if name not in STEERING}

    def stops(self) -> dict[str, Any]:
        """When to stop."""
        return {name: getattr(self, name) for name in STEERING}


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
    made |= _tuples(made)
    for name, value in made.items():
        check_type(name, value, _hints()[name])
    dataset, backbone = made.get("dataset", Config.dataset), made.get("backbone", Config.backbone)
    method, task = made.get("method", Config.method), made.get("task", Config.task)
    if task == "link" and made.get("teacher_smoothing"):
        raise ConfigError(f"teacher_smoothing {made['teacher_smoothing']} is for tasks on nodes, not link")
    settings = _preset(preset, dataset, backbone, method, task)
    task_defaults = _task_defaults(task, made.get("objective", settings.get("objective")))
    settings = {**_BACKBONE_DEFAULTS.get(backbone, {}), **task_defaults, **_METHOD_DEFAULTS.get(method, {}), **settings}
    options = {**settings.pop("method_options", {}), **made.pop("method_options", {})}
    if "levels" not in made and ("target_model" in made or "target_graph" in made):
        settings["levels"] = _levels_to_target({**settings, **made})
    return Config(**{**settings, **made, "preset": preset, "method_options": options})


def _tuples(values: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    given = {name: values.get(name) for name in TUPLES}
    return {name: tuple(v) for name, v in given.items() if isinstance(v, Iterable) and not isinstance(v, str | Mapping)}


def _levels_to_target(settings: Mapping[str, Any]) -> int:
    """Levels after which a target is reached; one more than the formula, since counts are rounded."""
    needed = [1]
    for side in ("model", "graph"):
        target, prune = settings.get(f"target_{side}"), settings.get(f"prune_{side}", getattr(Config, f"prune_{side}"))
        if target is not None and 0 < target < 1 and 0 < prune < 1:
            needed.append(math.ceil(math.log1p(-target) / math.log1p(-prune)) + 1)
    return max(needed)


# How UGS and the paper score and prune; λ where they do not name the dataset. They have no teacher.
_PUBLISHED: dict[str, Any] = {
    "signal": "labels", "teacher_temperature": 0.5, "teacher_smoothing": 0.0, "lambda_edges": 1e-4,
    "lambda_weights": 1e-4, "decay_scores": True, "score_epochs": None, "balance": 0.0, "degree_bonus": 0.0,
}  # fmt: skip

_ROUNDS = {"rounds": 6}  # of ace

# What chooses masks without trained scores is taught by labels alone; early birds are drawn as their authors do.
_METHOD_DEFAULTS: dict[str, dict[str, Any]] = {"random": {"signal": "labels"}, "gebt": _PUBLISHED}
_BACKBONE_DEFAULTS = {"resgcn": {"hidden": 128}}

# Table S2 of the paper: learning rate, decay, λ1 (edges), λ2 (weights).
_PAPER = {
    ("node", "cora"): (6e-2, 6e-5, 2e-3, 2e-3),
    ("node", "citeseer"): (1e-2, 5e-4, 1e-6, 1e-4),
    ("node", "pubmed"): (1e-2, 5e-4, 1e-2, 1e-2),
    ("link", "cora"): (3e-4, 0.0, 1e-4, 1e-4),
    ("link", "citeseer"): (3e-4, 0.0, 2e-3, 2e-3),
    ("link", "pubmed"): (3e-4, 0.0, 1e-5, 1e-3),
    ("node", "ogbn-arxiv"): (1e-2, 0.0, 1e-6, 2e-5),
    ("node", "ogbn-proteins"): (1e-2, 0.0, 1e-1, 1e-2),
    ("link", "ogbl-collab"): (1e-2, 0.0, 1e-6, 1e-5),
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

# Link prediction as the UGS authors have it, whom the paper follows. ogbl-collab comes with its held-out edges and is
# trained with cross-entropy.
_UGS_LINK = {"objective": "infoclust", "edge_split": "connected"}

_GAT_RATE = 0.005  # 0.01 costs a GAT two points of validation accuracy on CiteSeer


def _task_defaults(task: str, objective: str | None) -> dict[str, Any]:
    """Where a task's defaults are others, chosen on validation: weight decay keeps embeddings from growing, and what
    scores gain in node classification they lose in link prediction."""
    if task != "link":
        return {}
    if objective == "infoclust":
        return {**_PUBLISHED, "weight_decay": 0.0, "lr": 1e-3, "embedding": 16}
    return {**_PUBLISHED, "weight_decay": 0.0, "signal": "teacher", "teacher_temperature": 1.0}


def _preset(preset: str, dataset: str, backbone: str, method: str, task: str) -> dict[str, Any]:
    """What a preset changes; on a dataset that its source does not name, the training settings stay the defaults."""
    dataset = dataset.lower()
    if preset == "paper":
        options: dict[str, Any] = {**_ROUNDS, "temperature": 1.0, "replacement": True} if method == "ace" else {}
        training = dict(zip(_NAMES, _PAPER.get(("link" if task == "link" else "node", dataset), ()), strict=False))
        link = _UGS_LINK if task == "link" and dataset != "ogbl-collab" else {}
        return {**_PUBLISHED, "levels": 20, "method_options": options, **training, **link}
    options = _ROUNDS if method == "ace" else {}
    if preset == "ugs" and task == "link":
        link = {} if dataset == "ogbl-collab" else _UGS_LINK
        return {**_PUBLISHED, "levels": 20, "method_options": options, **link}
    if preset == "ugs":
        values = (*_UGS_TRAINING.get(dataset, ()), *_UGS_LAMBDAS.get((backbone, dataset), ()))
        return {**_PUBLISHED, "levels": 20, "method_options": options, **dict(zip(_NAMES, values, strict=False))}
    length = {"levels": 5, "epochs": 100} if preset == "quick" else {}
    if task == "link":
        return {"method_options": options, **length}
    return {**length, "lr": _GAT_RATE} if backbone == "gat" else length


def as_call(settings: Mapping[str, Any], *data: str) -> str:
    """The search with these settings, as one writes it in Python."""
    given = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
    return f"aceglt.search({', '.join([*data, *given])})"


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the method beside the other fields."""
    return {**{k: v for k, v in settings.items() if k != "method_options"}, **(settings.get("method_options") or {})}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines "name: old → new" for what differs."""
    names = sorted({*old, *new})
    return [f"{name}: {old.get(name)} → {new.get(name)}" for name in names if old.get(name) != new.get(name)]


def _known(values: Mapping[str, Any]) -> None:
    names = [f.name for f in fields(Config)]
    for name in values:
        if name not in names:
            raise ConfigError(f"unknown setting '{name}'{suggest(name, names)}")


def suggest(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(known)}"


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"unknown {name} '{value}'; known are {', '.join(known)}")


def _one_of_or_own(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known and not is_own(value):
        raise ConfigError(f"unknown {name} '{value}'; known are {', '.join(known)}, and your own as module:attribute")


def _check(name: str, value: Any, ok: bool, expected: str) -> None:
    if not ok:
        raise ConfigError(f"{name} must be {expected}, found {value}")


def _is_split(split: str) -> bool:
    return split == "given" or re.fullmatch(r"random:[0-9]{1,18}", split) is not None


def _check_seeds(seeds: tuple[int, ...]) -> None:
    if not seeds:
        raise ConfigError("seeds must name at least one seed")
    if len(seeds) > MAX_SEEDS:
        raise ConfigError(f"seeds must be {MAX_SEEDS} or fewer, found {len(seeds)}")
    found = shortened(", ".join(map(str, seeds))).strip("'")
    if any(seed < 0 for seed in seeds):
        raise ConfigError(f"seeds must be whole numbers from 0, found {found}")
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds must differ from each other, found {found}")


def _check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        check_type("a method option's name", name, str)
        check_type(f"method option {name}", value, str | int | float | bool | None)


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Config)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of a field's type; numbers may be whole where fractions are meant."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds: set[Any] = {get_origin(part) or part for part in parts}
    if Literal in kinds:
        _one_of(name, value, get_args(hint))
        return
    if float in kinds:
        kinds.add(int)
    if tuple in kinds:
        kinds.add(list)
    if not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and bool not in kinds):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise ConfigError(
            f"{name} must be {words.get(hint, getattr(hint, '__name__', hint))}, found {shortened(value)}"
        )
    if isinstance(value, tuple | list):
        for part in value:
            check_type(name, part, next(get_args(p)[0] for p in parts if get_origin(p) is tuple))
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, found {value}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{name} must be below 2^63, found {shortened(value)}")
    if isinstance(value, str) and printable(value) != value:
        raise ConfigError(f"{name} must be text without control characters, found {shortened(value)}")
