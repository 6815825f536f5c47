"""The configuration of a search: groups of settings, and their flat form in keywords, JSON and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from aceglt.config.checks import OWN_FUNCTION, one_of, suggest
from aceglt.config.fields import Group, check_value, score_setting, setting, settings_of, train_setting, type_hints
from aceglt.config.groups import (
    BACKBONE_OPTIONS,
    METRICS,
    TASK_OPTIONS,
    BackboneOptions,
    Pruning,
    Scoring,
    Stopping,
    TaskOptions,
    Training,
)
from aceglt.config.methods import METHOD_OPTIONS, MethodOptions, complete, label
from aceglt.config.own import is_own
from aceglt.config.presets import PRESETS
from aceglt.errors import ConfigError
from aceglt.files.schema import shortened

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aceglt.config.keywords import Settings

MAX_SEEDS = 1000


def _check_seeds(name: str, seeds: tuple[int, ...]) -> None:
    if not seeds:
        raise ConfigError(f"{name} must name at least one seed")
    if len(seeds) > MAX_SEEDS:
        raise ConfigError(f"{name} must be {MAX_SEEDS} or fewer, found {len(seeds)}")
    found = shortened(", ".join(map(str, seeds))).strip("'")
    if any(seed < 0 for seed in seeds):
        raise ConfigError(f"{name} must be whole numbers from 0, found {found}")
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"{name} must differ from each other, found {found}")


@dataclass(frozen=True, init=False)
class Config(Group):
    """Everything that determines the result of a search. It is made of keywords without groups: `Config(lr=0.1)`.

    Examples:
        >>> aceglt.Config(lr=0.1).replace(method="ugs").label
        'ugs (teacher)'
    """

    dataset: str = setting(
        "citeseer", "citeseer (embedded), cora, amazon-photo … (aceglt datasets lists them), or a .npz file.",
        shown=True,
    )  # fmt: skip
    backbone: str = setting(
        "gcn", f"The graph neural network: {', '.join(BACKBONE_OPTIONS)}, or your own as module:Class.",
        one_of(*BACKBONE_OPTIONS, or_own=True), shown=True, keyword="Any",
    )  # fmt: skip
    method: str = setting(
        "ace", f"How masks are chosen: {', '.join(METHOD_OPTIONS)}, or your own as module:Class.",
        one_of(*METHOD_OPTIONS, or_own=True), shown=True, keyword="Any",
    )  # fmt: skip
    method_options: Mapping[str, Any] = score_setting(
        None, "An option of the method as NAME=VALUE, e.g. rounds=6 (repeatable; docs/concepts/methods.md lists them).",
        options=["--method-option", "-m"],
    )  # fmt: skip
    """All hyper-parameters of the method."""
    task: str = setting(
        "node", "The task: node (transductive) or inductive node classification, or link (link prediction).",
        one_of(*TASK_OPTIONS), shown=True,
    )  # fmt: skip
    directed: bool = setting(
        False, "Prune the two directions of an edge apart from each other.", options=["--directed"]
    )
    preset: str = setting(
        "default",
        "default, tuned (a strong dense model), paper (its Table S2), ugs (its authors' settings) or quick; options "
        "override it.",
        one_of(*PRESETS), shown=True,
    )  # fmt: skip
    seeds: tuple[int, ...] = setting(
        (0, 1, 2), "How many seeds [default: 3], or which: 0,4,7 or 5-9.", _check_seeds, keyword="int | Sequence[int]"
    )
    test: bool = setting(True, "Tuning mode: never read the test set.", options=["--no-test"])
    loss: str | None = train_setting(
        None, "Your own training loss as module:function.", OWN_FUNCTION, keyword="str | Callable[..., Any]"
    )
    metric: str | None = train_setting(
        None,
        f"Metric of nodes: {', '.join(METRICS)}, or your own as module:function [default: the dataset's].",
        one_of(*METRICS, or_own=True),
        keyword="str | Callable[..., Any]",
    )

    stopping: Stopping = field(default_factory=Stopping)
    training: Training = field(default_factory=Training)
    scoring: Scoring = field(default_factory=Scoring)
    pruning: Pruning = field(default_factory=Pruning)
    backbone_options: BackboneOptions = field(default_factory=BackboneOptions)
    task_options: TaskOptions = field(default_factory=TaskOptions)

    def __init__(self, *, preset: str = "default", **settings: Unpack[Settings]) -> None:
        values: dict[str, Any] = {"preset": preset, "method_options": {}, **settings}
        check_known(values)
        values |= as_stored(values)
        for name, part in settings_of(Config).items():
            object.__setattr__(self, name, values.get(name, part.default))
        super().__post_init__()
        _check_options(self.backbone, self.task, values)
        kinds = {
            **GROUPS,
            "backbone_options": BACKBONE_OPTIONS.get(self.backbone, BackboneOptions),
            "task_options": TASK_OPTIONS[self.task],
        }
        for name, kind in kinds.items():
            mine = {part: values[part] for part in settings_of(kind) if part in values}
            if name == "backbone_options":  # None is what `flat` has for one that the backbone does not have
                mine = {part: value for part, value in mine.items() if value is not None}
            object.__setattr__(self, name, kind(**mine))
        object.__setattr__(self, "method_options", complete(self.method, self.method_options))
        self._check_together()

    def _check_together(self) -> None:
        if self.pruning.prunable is not None and not is_own(self.backbone):
            raise ConfigError(f"prunable is for a backbone of your own; {self.backbone} is built in")
        if self.pruning.structure is not None:
            self._check_structure()
        for name, idle in (("target_model", "graph"), ("target_graph", "model")):
            if getattr(self.stopping, name) is not None and self.pruning.axis == idle:
                raise ConfigError(f"{name} never changes on the {idle} axis; use axis 'joint' or the other target")
        if self.training.rewind_epoch > self.training.epochs:
            raise ConfigError(
                f"rewind_epoch must be at most epochs, {self.training.epochs}, found {self.training.rewind_epoch}"
            )
        if self.training.rewind_epoch and METHOD_OPTIONS.get(self.method, MethodOptions).untrained:
            raise ConfigError(f"{self.method} leaves weights at their initial values; rewind_epoch must be 0")
        self.task_options.check(self.scoring.signal, self.loss, self.metric, self.training.partition_by)

    def _check_structure(self) -> None:
        if is_own(self.backbone):
            raise ConfigError(
                f"structure is for the built-in backbones {', '.join(BACKBONE_OPTIONS)}; what the units of "
                f"{self.backbone} are is not known"
            )
        kind = METHOD_OPTIONS.get(self.method)
        if kind is not None and not kind.by_units:
            others = [name for name, other in METHOD_OPTIONS.items() if other.by_units]
            raise ConfigError(f"method {self.method} chooses single weights; structure is for {', '.join(others)}")

    @property
    def scoring_epochs(self) -> int:
        """How long a level's scores are trained."""
        given = self.scoring.score_epochs
        return self.training.epochs if given is None else min(given, self.training.epochs)

    @property
    def label(self) -> str:
        """What runs: the method, what trains its scores, and its rounds."""
        return label(self.method, self.scoring.signal, self.method_options, self.pruning.structure)

    def flat(self) -> dict[str, Any]:
        """All settings without their groups; None for options that the backbone or the task does not have."""
        values = self._values()
        return {name: values.get(name) for name in SETTINGS}

    def _values(self) -> dict[str, Any]:
        parts = (self, *(getattr(self, name) for name in GROUPS), self.backbone_options, self.task_options)
        return {name: getattr(part, name) for part in parts for name in settings_of(type(part))}

    def to_dict(self) -> dict[str, Any]:
        """`flat` in plain values, for JSON."""
        plain = {name: list(value) for name, value in self.flat().items() if isinstance(value, tuple)}
        return {**self.flat(), **plain, "method_options": dict(self.method_options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Read what `to_dict` wrote; unknown names and wrong types are refused."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"a configuration must be a JSON object, found {shortened(values)}")
        return cls(**values)

    def replace(self, **changes: Unpack[Settings]) -> Config:
        """The same configuration but for these settings; another method starts from its defaults, and so does another
        backbone, but for its hidden units."""
        kept = self._values()
        if changes.get("backbone", self.backbone) != self.backbone:
            gone = settings_of(type(self.backbone_options)).keys() - settings_of(BackboneOptions).keys()
            kept = {name: value for name, value in kept.items() if name not in gone}
        if changes.get("method", self.method) != self.method:
            kept["method_options"] = {}
        return Config.from_dict({**kept, **changes})

    def identity(self) -> dict[str, Any]:
        """What may not change when a run is continued."""
        return {name: value for name, value in self.to_dict().items() if name not in STEERING}


GROUPS: dict[str, type[Group]] = {
    "stopping": Stopping, "training": Training, "scoring": Scoring, "pruning": Pruning,
}  # fmt: skip
STEERING = tuple(settings_of(Stopping))
"""Settings that say when to stop; a run may be continued with other values of them."""
SCORING = (*settings_of(Scoring), "balance", "degree_bonus")
"""Settings that say how scores are trained and used; the presets `paper` and `ugs` have their own."""

_KINDS: tuple[type[Group], ...] = (Config, *GROUPS.values(), *BACKBONE_OPTIONS.values(), *TASK_OPTIONS.values())
SETTINGS: dict[str, Any] = {}
"""Every setting's field, by its name; of those that several groups have, the first group's."""
for _kind in _KINDS:
    SETTINGS |= {name: part for name, part in settings_of(_kind).items() if name not in SETTINGS}
BY_LAYER = ("ignored", "floors", "ratios")
"""Settings that say something of layers, whose value may be given as one text, or by layer."""
TUPLES = ("seeds", "prunable", *BY_LAYER)
"""Settings whose value is itself a list."""


@cache
def hints() -> dict[str, Any]:
    """Every setting's type, by its name."""
    return {name: type_hints(kind)[name] for kind in _KINDS for name in settings_of(kind)}


def check_known(values: Mapping[str, Any], beside: Sequence[str] = ()) -> None:
    """Refuse names that no setting has; what may be given `beside` settings is suggested too."""
    for name in values:
        if name not in SETTINGS:
            raise ConfigError(f"unknown setting '{name}'{suggest(name, [*SETTINGS, *beside])}")


def as_stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of settings whose value is a list, as tuples, and the number of a split as text; what is none of that is
    left for the check of types."""
    given = {name: values.get(name) for name in TUPLES}
    for name in BY_LAYER:
        if isinstance(value := given[name], str | Mapping):
            given[name] = (
                [value] if isinstance(value, str) else [f"{layer}={number}" for layer, number in value.items()]
            )
    split = {"split": str(values["split"])} if type(values.get("split")) is int else {}
    lists = {n: tuple(v) for n, v in given.items() if isinstance(v, Iterable) and not isinstance(v, str | Mapping)}
    return {**lists, **split}


def _check_options(backbone: str, task: str, values: Mapping[str, Any]) -> None:
    """Refuse options of another backbone or task than the chosen ones."""
    for name, value in values.items():
        others = [known for known, kind in BACKBONE_OPTIONS.items() if name in settings_of(kind)]
        asked = value is not None and value is not False
        if asked and others and backbone not in others and name not in settings_of(BackboneOptions):
            check_value(name, value, hints()[name], SETTINGS[name])
            raise ConfigError(f"{name} is for the backbone {' or '.join(others)}; {backbone} does not have it")
        others = [known for known, kind in TASK_OPTIONS.items() if name in settings_of(kind)]
        if others and task not in others and value not in (None, SETTINGS[name].default):
            raise ConfigError(f"{name} '{value}' is for task {' or '.join(others)}, not {task}")
