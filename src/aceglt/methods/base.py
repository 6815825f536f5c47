"""What a method is: a function from where a level starts to sparser masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks, Quota, Scores
from aceglt.problems.base import View
from aceglt.pruning.ranking import cut, prune
from aceglt.pruning.structure import Units
from aceglt.training.fit import Fit, MakeElements, Watch


class TrainScores(Protocol):
    """Trains scores beside the weights, from the initial weights."""

    def __call__(
        self, masks: Masks, epochs: int, phase: str, *, weights: bool = True, watch: Watch | None = None
    ) -> Fit:
        """Takes any number of batches of a level's runs, one after the other, as one.

        Without `weights`, weights have no scores: theirs are the weights themselves. `watch` may end a run's training.
        """


class TrainWeights(Protocol):
    """Trains weights from the initial ones, with hard masks."""

    def __call__(self, masks: Masks, epochs: int, phase: str, *, by_signal: bool = False) -> Fit:
        """On labels alone, as tickets are trained; `by_signal`, on what trains scores."""


TrainElements = Callable[[MakeElements, Masks, int, str], Fit]
"""Trains what a method makes, by a rule of its own, on what trains scores: (elements, masks, epochs, phase). The masks
must have all weights; the scores of the `Fit` are those of the elements."""


def _no_rules(elements: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
    raise NotImplementedError("this level does not train by other rules")


RETRAIN = "retrain"
"""The phase in which tickets are trained; the same masks end there with the same weights."""


def magnitudes(scores: Scores, masks: Masks) -> Scores:
    """Importance as published, whatever is alive."""
    return Scores(scores.weights.abs(), scores.edges.abs())


@dataclass(frozen=True)
class Level:
    """What a method is given: one level of iterative pruning, for a batch of runs."""

    number: int
    masks: Masks
    """Where the level starts."""
    keep: Counts
    """How many weights and edges must be alive in the selection."""
    seeds: Sequence[int]
    epochs: int
    """Epochs that scores are trained for."""
    train_scores: TrainScores
    train: TrainWeights
    quotas: Sequence[Quota] = ()
    """The fewest weights that each matrix keeps; none where all weights compete with each other."""
    rank: Callable[[Scores, Masks], Scores] = magnitudes
    """Importance of elements by their scores and by where a level starts."""
    ticket_epochs: int = 0
    """Epochs that tickets are trained for."""
    graph: Graph = field(default_factory=lambda: Graph(0, torch.zeros(2, 0, dtype=torch.int64)))
    """Whose edges the masks are about."""
    train_elements: TrainElements = _no_rules
    features: Features | None = None
    """Of the graph's nodes."""
    backbone: Backbone | None = None
    """Whose weights the masks are about."""
    units: Units | None = None
    """What goes as a whole in place of single weights; None where weights go one by one."""
    views: Sequence[View] = ()
    """The graphs that are validated and tested on, where these are others than the one that is trained on."""

    @property
    def parts(self) -> Sequence[slice]:
        """Of the elements in place of weights, those that are exchanged among themselves: of a matrix, of a layer."""
        return [quota.part for quota in self.quotas] if self.units is None else self.units.parts

    def elements(self, masks: Masks) -> Masks:
        """The elements that are alive: units in place of weights, where these go as a whole."""
        return masks if self.units is None else Masks(self.units.alive(masks.weights), masks.edges)

    def masks_of(self, elements: Masks) -> Masks:
        """The masks whose alive elements are these."""
        return elements if self.units is None else Masks(self.units.weights(elements.weights), elements.edges)

    def per_element(self, scores: Scores, alive: Masks | None = None) -> Scores:
        """Scores of elements: of a unit, the mean magnitude over its weights that are alive (by default those that the
        level starts with)."""
        if self.units is None:
            return scores
        return Scores(self.units.means(scores.weights, (alive or self.masks).weights), scores.edges)

    def cut(self, importance: Scores, key: Tensor, masks: Masks | None = None) -> Masks:
        """Masks without the least important elements, by default of those that the level starts with."""
        masks = masks or self.masks
        if self.units is None:
            return prune(masks, importance, self.keep, key, self.quotas)
        alive = self.units.alive(masks.weights)
        left = self.units.cut(alive, importance.weights, self.keep.weights, rng.fold(key, 0))
        edges = cut(importance.edges, masks.edges, self.keep.edges, rng.fold(key, 1))
        return Masks(self.units.weights(left), edges)

    def prune(self, scores: Scores, key: Tensor, masks: Masks | None = None) -> Masks:
        """The same by scores of weights and edges."""
        return self.cut(self.per_element(scores, masks), key, masks)

    def anew(self) -> Level:
        """The same level, starting from the dense pair."""
        return replace(self, masks=Masks.full(self.masks.runs, self.masks.total, self.masks.weights.device))

    @property
    def prunes_edges(self) -> bool:
        """Whether any edge of the whole graph goes."""
        return self.keep.edges < self.masks.total.edges

    def all_weights(self, edges: Tensor) -> Masks:
        """All weights, and as many of the alive edges as the level keeps, the most important [S, E]."""
        weights = self.anew().masks.weights
        keep = Counts(weights.shape[1], self.keep.edges)
        return prune(Masks(weights, self.masks.edges), Scores(weights.to(edges), edges), keep, self.key("drop"))

    def importance(self, scores: Scores) -> Scores:
        """What elements are ranked by when they are pruned."""
        return self.rank(scores, self.masks)

    def train_on(self, elements: MakeElements, masks: Masks, epochs: int, first: int, phase: str) -> Fit:
        """`train_elements` as one training, of whose epochs those after the `first` alone are judged on validation."""
        made: dict[int, PlainElements] = {}

        def begin(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            made[runs.start] = elements(backbone, start, runs)
            return made[runs.start]

        def go_on(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            made[runs.start].forget()
            return made[runs.start]

        if first:
            self.train_elements(begin, masks, first, f"{phase}, falling")
        return self.train_elements(go_on if first else elements, masks, epochs - first, phase)

    def train_ticket(self, masks: Masks) -> Fit:
        """Train masks as this level's tickets will be: if they are chosen, this is that training."""
        return self.train(masks, self.ticket_epochs, RETRAIN)

    def key(self, purpose: str, batches: int = 1) -> Tensor:
        """[batches · S] random keys for a purpose of this level; see `aceglt.numerics.rng`."""
        device = self.masks.weights.device
        return torch.cat([rng.keys(self.seeds, self.number, purpose, b, device=device) for b in range(batches)])


@dataclass(frozen=True)
class Selection:
    """What a method returns."""

    masks: Masks
    scores: Scores | None = None
    """The trained scores behind the level's cut, without any bonus, if the method has any."""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    """Plain numbers and lists over runs, for results.json."""
    epochs: int = 0
    """Training epochs that the selection cost per run, the most where runs differ."""
    scored: Masks | None = None
    """What had scores, if not what was alive as the level started."""
    handed_on: Masks | None = None
    """What the next level starts from, if not these masks."""
    trained: Fit | None = None
    """`Level.train_ticket` of the masks, where the method has trained them to choose."""


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass of hyper-parameters with a name and two functions.

    It may say in `batches` how many parts of every run it trains together at most, and in `trainings` how many tickets
    it trains to choose one; see `batches` and `level_epochs`. Its `check(backbone)` may refuse a backbone.
    """

    name: ClassVar[str]

    def select(self, level: Level) -> Selection:
        """Choose masks with exactly `level.keep` alive elements."""

    def cost(self, epochs: int) -> int:
        """Epochs that `select` will train per run and level at most, for estimates of the time left; `epochs` as the
        level's."""


def best_of(candidates: Sequence[tuple[Tensor, Masks]]) -> Masks:
    """For each run, the masks with the highest validation metric ([S] of each candidate; the earliest of equals)."""
    chosen = [candidates[c][1][run : run + 1] for run, c in enumerate(_best([val for val, _ in candidates]))]
    return Masks.cat(chosen)


def best_ticket(level: Level, candidates: Sequence[Masks]) -> tuple[Masks, Fit]:
    """Train candidates as tickets; for each run, that with the highest validation metric, the earliest of equals."""
    every, runs = level.train_ticket(Masks.cat(candidates)), level.masks.runs  # as many at once as there is room for
    fits = [every[c * runs : (c + 1) * runs] for c in range(len(candidates))]
    best = _best([fit.val for fit in fits])
    chosen = Masks.cat([candidates[c][run : run + 1] for run, c in enumerate(best)])
    return chosen, Fit.cat([fits[c][run : run + 1] for run, c in enumerate(best)])


def _best(metrics: Sequence[Tensor]) -> list[int]:
    """For each run, which of the candidates' metrics, [S] each, is the highest."""
    found: list[int] = torch.stack(list(metrics)).argmax(dim=0).tolist()
    return found


def batches(method: Method) -> int:
    """How many parts of every run a method trains together at most; of one that does not say, two, as ACE has."""
    return int(getattr(method, "batches", 2))


def level_epochs(method: Method, scoring: int, training: int) -> int:
    """Epochs per run of a level at most: the method's own, and those of tickets it trains, or of that it chose."""
    return method.cost(scoring) + max(1, int(getattr(method, "trainings", 0))) * training


def check(method: Method, backbone: Backbone) -> None:
    """Raise ConfigError where a method says, in `check(backbone)`, that it cannot prune this backbone."""
    if (refuse := getattr(method, "check", None)) is not None:
        refuse(backbone)


def require(method: Method, option: str, ok: bool, expected: str) -> None:
    """Refuse an option of a method that is not as expected."""
    if not ok:
        raise ConfigError(f"{method.name}: {option} must be {expected}, found {getattr(method, option)}")
