"""The options of each method; a new one is a class here and a row of the table. `aceglt.methods` adds what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from aceglt.config.checks import POSITIVE, SHARE, SHARE_OR_NONE, at_least, check_type, count, from_to, must_be
from aceglt.config.fields import Group, setting, settings_of
from aceglt.config.groups import PUBLISHED
from aceglt.errors import ConfigError


@dataclass(frozen=True)
class MethodOptions(Group):
    """The hyper-parameters of a method."""

    name: ClassVar[str]
    scored: ClassVar[bool] = True
    """Whether it trains scores, by the labels or with a teacher."""
    usual: ClassVar[Mapping[str, Any]] = {}
    """Defaults of any settings that are others with this method."""
    sets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """By the value of the option `reading`, where a method has one, the options that it stands for."""
    untrained: ClassVar[bool] = False
    """Whether what it finds are subnetworks of the initial weights, which need no training."""
    by_units: ClassVar[bool] = False
    """Whether it can choose whole units in place of single weights."""
    otherwise: ClassVar[str] = ""
    """How the side is chosen that the method itself does not choose, for labels."""

    def __init_subclass__(cls) -> None:
        cls.title = f"{cls.name}: "


@dataclass(frozen=True)
class RandomOptions(MethodOptions):
    name: ClassVar[str] = "random"
    by_units: ClassVar[bool] = True
    scored: ClassVar[bool] = False
    usual: ClassVar[Mapping[str, Any]] = {"signal": "labels"}


@dataclass(frozen=True)
class UgsOptions(MethodOptions):
    name: ClassVar[str] = "ugs"
    by_units: ClassVar[bool] = True

    one_shot: bool = setting(False, "Cut every level from the dense pair, by scores that were trained on all of it.")


@dataclass(frozen=True)
class GebtOptions(MethodOptions):
    name: ClassVar[str] = "gebt"
    by_units: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED  # early birds are drawn as their authors do

    max_epochs: int = setting(100, "Epochs after which the last masks are taken, settled or not.", count())
    min_epochs: int = setting(5, "Masks are not taken before this epoch.", count())
    window: int = setting(3, "How many of the last epochs' masks an epoch's are compared with.", count(1, 1000))
    threshold: float = setting(0.1, "The distance under which masks have settled.", POSITIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        must_be(f"above the window, {self.window}", lambda epochs: epochs > self.window)(
            "gebt: min_epochs", self.min_epochs
        )


READINGS: Mapping[str, Mapping[str, Any]] = {
    "literal": {"rounds": 6, "exchange": 0.05, "temperature": 1.0, "replacement": True, "keep": "last"},
    "topk": {"rounds": 6, "exchange": 0.05, "keep": "last"},
    "code": {
        "rounds": 6, "exchange": 0.002, "refine_epochs": 20, "keep": "best", "pruned_graph": "full", "hand_on": False,
    },
}  # fmt: skip
"""What the paper's text and code allow to read of its exchange. It prints neither T, K nor the threshold."""


@dataclass(frozen=True)
class AceOptions(MethodOptions):
    name: ClassVar[str] = "ace"
    by_units: ClassVar[bool] = True
    sets: ClassVar[Mapping[str, Mapping[str, Any]]] = READINGS

    reading: Literal["default", "literal", "topk", "code"] = setting(
        "default", "A set of options: the default's, or one of three readings of the paper; others given override it."
    )
    rounds: int = setting(2, "T: rounds of refinement per level; the authors' code has 6.")
    refine_epochs: int = setting(
        30,
        "Epochs that the retained and the pruned part are each trained per round, at most those of a level's scores.",
        count(),
    )
    exchange: float = setting(
        0.02, "K as a share of the smaller of the two parts.", must_be("in (0, 1]", lambda share: 0 < share <= 1)
    )
    temperature: float = setting(0.0, "Scale of the Gumbel noise; 0 is plain top-K.", at_least(0))
    replacement: bool = setting(
        False, "Draw with replacement and remove duplicates, as Equation 4 can be read (needs temperature > 0)."
    )
    threshold: float = setting(
        0.6,
        "Similarity of this round's retained sample to the last round's pruned one above which a round repeats itself.",
        must_be("in [0, 1]", lambda value: 0 <= value <= 1),
    )
    adaptive_k: bool = setting(True, "Halve K when a round repeats itself.")
    resample: bool = setting(True, "Go back one round and draw anew when a round repeats itself.")
    keep: Literal["last", "best", "trained"] = setting(
        "trained",
        "Which masks of a level are kept: the last; the best on validation while scores were trained; or the best on "
        "validation once trained as tickets, the unrefined ones included.",
    )
    pruned_graph: Literal["pruned", "full"] = setting(
        "pruned", "Which edges the pruned weights are trained with: the pruned ones, or all."
    )
    hand_on: bool = setting(True, "Whether the next level starts from the refined masks.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds == 0:
            raise ConfigError("ace: rounds must be 1 or more, found 0; that is ugs; use method ugs")
        count()("ace: rounds", self.rounds)
        stands_for = self.sets.get(self.reading, {})
        if stands_for and all(getattr(self, name) == getattr(AceOptions, name) for name in stands_for):
            raise ConfigError(
                f"ace: reading '{self.reading}' is a name for {', '.join(stands_for)}, which have their defaults here; "
                f"use method 'ace' with method_options {{'reading': '{self.reading}'}}"
            )
        if self.replacement and self.temperature == 0:
            raise ConfigError("ace: replacement draws need a temperature above 0 (the reading literal has 1)")


@dataclass(frozen=True)
class MagnitudeOptions(MethodOptions):
    name: ClassVar[str] = "magnitude"
    by_units: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED
    otherwise: ClassVar[str] = "edges at random"


@dataclass(frozen=True)
class DsparOptions(MethodOptions):
    name: ClassVar[str] = "dspar"
    by_units: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED
    otherwise: ClassVar[str] = "weights by magnitude"


@dataclass(frozen=True)
class NeighboursOptions(MethodOptions):
    name: ClassVar[str] = "neighbours"
    by_units: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED
    otherwise: ClassVar[str] = "weights by magnitude"


@dataclass(frozen=True)
class TeddyOptions(MethodOptions):
    name: ClassVar[str] = "teddy"
    usual: ClassVar[Mapping[str, Any]] = {**PUBLISHED, "signal": "teacher", "teacher_temperature": 1.0}


@dataclass(frozen=True)
class UgtsOptions(MethodOptions):
    name: ClassVar[str] = "ugts"
    untrained: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Any]] = {**PUBLISHED, "decay_scores": False}
    otherwise: ClassVar[str] = "edges at random"


@dataclass(frozen=True)
class FastgltOptions(MethodOptions):
    name: ClassVar[str] = "fastglt"
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED

    pretrain_epochs: int = setting(30, "Epochs that the dense pair is trained before it is cut.", count())
    interval: int = setting(3, "Δ: steps from one exchange of elements to the next.", count(2))
    share: float = setting(
        0.3, "α: share of the alive elements that the first exchange replaces; it falls to 0.", SHARE
    )


@dataclass(frozen=True)
class SgcnOptions(MethodOptions):
    name: ClassVar[str] = "sgcn"
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED
    otherwise: ClassVar[str] = "weights by magnitude"

    rho: float = setting(0.01, "ρ: how strongly values of edges are pulled towards the sparse ones.", POSITIVE)
    interval: int = setting(10, "Steps from one update of the multipliers to the next.", count())


@dataclass(frozen=True)
class AdagltOptions(MethodOptions):
    name: ClassVar[str] = "adaglt"
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED

    push_weights: float = setting(1e-3, "η_θ: how strongly thresholds of weights are pushed up.", POSITIVE)
    push_edges: float = setting(5e-5, "η_g: how strongly thresholds of edges are pushed up.", POSITIVE)


@dataclass(frozen=True)
class CgpOptions(MethodOptions):
    name: ClassVar[str] = "cgp"
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED

    interval: int = setting(10, "Steps from one pruning to the next.", count())
    regrow: float = setting(
        0.2, "Share of the alive elements that the first pruning replaces by others; it falls to 0.", SHARE_OR_NONE
    )
    features: float = setting(
        0.5, "Share of the input features that goes, as a share of that of the weights; 0 prunes none.", from_to(0, 1)
    )


@dataclass(frozen=True)
class IcpgOptions(MethodOptions):
    name: ClassVar[str] = "icpg"
    usual: ClassVar[Mapping[str, Any]] = PUBLISHED


METHOD_OPTIONS: dict[str, type[MethodOptions]] = {
    kind.name: kind
    for kind in (
        RandomOptions, UgsOptions, GebtOptions, AceOptions, MagnitudeOptions, DsparOptions, NeighboursOptions,
        TeddyOptions, UgtsOptions, FastgltOptions, SgcnOptions, AdagltOptions, CgpOptions,
        IcpgOptions,
    )
}  # fmt: skip


def complete(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a method, those that are not given at their defaults; of the user's own, those that are given.

    Raises ConfigError where one is unknown or makes no sense.
    """
    for name, value in given.items():
        check_type("a method option's name", name, str)
        check_type(f"method option {name}", value, str | int | float | bool | None)
    kind = METHOD_OPTIONS.get(method)
    if kind is None:
        return dict(given)
    check_names(method, given, list(settings_of(kind)))
    return asdict(kind(**{**kind.sets.get(str(given.get("reading")), {}), **given}))


def label(method: str, signal: str, options: Mapping[str, Any], structure: str | None = None) -> str:
    """What ran, as reports, tables and files call it: `ace (teacher, 2 rounds)`, `magnitude (labels, edges at random)`,
    `random (units)`; one's own by its class."""
    kind = METHOD_OPTIONS.get(method)
    if kind is None:
        return method.rpartition(":")[2]
    rounds, reading = options.get("rounds"), options.get("reading", "default")
    told = ([signal] if kind.scored else []) + ([] if reading == "default" else [reading])
    told += [] if rounds is None else [f"{rounds} round{'' if rounds == 1 else 's'}"]
    told += [kind.otherwise] if kind.otherwise else []
    told += [] if structure is None else [structure.replace(",", " and ")]
    return f"{method} ({', '.join(told)})" if told else method


def check_names(method: str, given: Mapping[str, Any], known: list[str]) -> None:
    """Refuse options that a method does not have."""
    for name in given:
        if name not in known:
            options = f"its options are {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"method {method} has no option '{name}'; {options}")
