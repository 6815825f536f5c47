"""Iterative pruning level by level (Algorithm 3), in memory: a state, and three stages that take it further.

Every stage is a function of the state and the seeds alone, so a search that is stopped between two stages, or in the
middle of one, continues from the last state to the same end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone, Params
from aceglt.backbones.narrow import narrowed
from aceglt.backends import Backend, choose
from aceglt.backends.base import ScoreTraining, Start
from aceglt.backends.reference import PlainElements
from aceglt.config import Config
from aceglt.errors import ConfigError, TrainingError
from aceglt.methods.base import RETRAIN, Level, Method, Selection, check
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import SIDES, Counts, Masks, count, share
from aceglt.problems.base import Problem, Soft, Split
from aceglt.problems.signals import Signal, build_signal
from aceglt.pruning.importance import Excerpt, fluctuation, importance, sample
from aceglt.pruning.ranking import Ranking
from aceglt.pruning.structure import Units, build_units
from aceglt.searches.observer import Observer, tell
from aceglt.searches.state import Outcome, Selected, State
from aceglt.training import processes
from aceglt.training.fit import Fit, MakeElements, Watch, fit
from aceglt.training.partitions import WHOLE, Outputs, Parts


def prune_iteratively(
    search: Search, state: State, enough: Callable[[State], bool]
) -> Iterator[tuple[State, Params | None]]:
    """Algorithm 3 from a state on: the state after each stage, with the trained weights where a level is finished."""
    if state.dense is None:
        state = search.train_dense(state)
        yield state, None
    while not enough(state):  # line 1
        if state.selected is None:
            state = search.select(state)  # line 2: refined masks M'
            if state.selected is None or state.selected.trained is None:  # else lines 3 and 4 take no time
                yield state, None
        state, params = search.retrain(state)  # lines 3 and 4: M becomes M', weights are rewound to W_init
        yield state, params


@dataclass
class Search:
    """The fixed parts of a search: what its stages are functions of besides the state."""

    problem: Problem
    backbone: Backbone
    method: Method
    config: Config
    observer: Observer | None = None
    runs_at_once: int | None = None
    parts: Parts = WHOLE
    signal: Signal = None  # type: ignore[assignment]
    """What trains the scores; unless given, what the configuration says."""
    ranking: Ranking = None  # type: ignore[assignment]
    """How elements are ranked when they are pruned; likewise."""
    units: Units | None = field(init=False)
    """What goes as a whole, where pruning is structured."""
    start: Params = field(init=False)
    """W0, fixed by the seeds."""
    backend: Backend = field(init=False)

    def __post_init__(self) -> None:
        check(self.method, self.backbone)
        self.signal = self.signal or build_signal(self.config, self.parts.exact)
        self.ranking = self.ranking or Ranking(self.config.pruning.balance, self.config.pruning.degree_bonus)
        self.units = build_units(self.config.pruning, self.backbone)
        self.start = self.backbone.init(self.config.seeds, self.problem.device)
        self.backend = choose(self.problem.device)

    def train_dense(self, state: State) -> State:
        """The dense baseline, and what it teaches."""
        masks = self.full_masks()
        outcome, params = self.train(0, masks)
        predict = partial(outputs, self.problem, self.backbone, params, masks, "train", self.parts, self.backend)
        softened = self.signal.targets(self.problem, predict)
        if softened is None:
            return replace(state, dense=outcome)
        changed = {name: runs.tolist() for name, runs in softened.changed.items()}
        return replace(state, dense=outcome, soft=softened.targets, taught=changed)

    def select(self, state: State) -> State:
        """Choose the next level's masks (line 2 of Algorithm 3)."""
        began = time.monotonic()
        level = self.level(state)
        selection = self.method.select(level)
        _check_selection(selection, level, self.method.name)
        seconds = time.monotonic() - began
        now = followed = changes = None
        if selection.scores is not None:
            now = importance(selection.scores, selection.scored or level.masks)
            followed = sample(now)
            changes = fluctuation(state.importance, followed) if state.importance is not None else None
        seen = self.excerpt.look(selection.masks.edges[0], None if now is None else now.edges[0])
        facts = (seconds, selection.epochs, selection.diagnostics, changes, seen)
        chosen = Selected(selection.masks, *facts, selection.handed_on, selection.trained)
        return replace(state, importance=followed, selected=chosen)

    def retrain(self, state: State) -> tuple[State, Params]:
        """Rewind to W0 and train the chosen masks in isolation, on labels alone, unless that was done to choose them.
        Returns the trained weights too. What a method says needs no training is judged as it is, its training beside
        it."""
        assert state.selected is not None
        level, chosen, masks = state.level + 1, state.selected, state.selected.masks
        if getattr(self.method, "untrained", False):
            retrained, _ = self.train(level, masks)
            readings = {"val": retrained.val, "test": retrained.test, "epoch": retrained.epoch}
            found = {**chosen.diagnostics, "retrained": readings}
            chosen = replace(chosen, diagnostics=found, trained=self._untrained(masks))
        outcome, params = self.train(level, masks, trained=chosen.trained)
        return state.with_level(chosen, outcome, self._structure(masks), self._unseen(masks)), params

    def _structure(self, masks: Masks) -> dict[str, Any] | None:
        """What is alive of each run, which may differ where units go as a whole."""
        if self.units is None:
            return None
        counts = masks.weights.sum(dim=1).tolist()
        edges = masks.alive.edges
        macs = []
        for run, weights in enumerate(counts):
            small = narrowed(self.backbone, masks.weights[run : run + 1])
            macs.append(self.macs(Counts(weights, edges), small.backbone if small else None))
        return {"weights": counts, "macs": macs, "units": self.units.widths(masks.weights)}

    def _untrained(self, masks: Masks) -> Fit:
        """The initial weights under masks."""
        params = Params(self.start.prunable * masks.weights, self.start.other)
        val = self._measured(params, masks, "val")
        return Fit(val, torch.zeros(len(val), dtype=torch.int64), params, None)

    def _measured(self, params: Params, masks: Masks, split: Split) -> Tensor:
        """[S] the metric of trained runs on a split's whole graph, however they were trained."""
        return self.problem.measure(
            outputs(self.problem, self.backbone, params, masks, split, backend=self.backend), split
        )

    def _unseen(self, masks: Masks) -> int | None:
        """How many of the test graph's edges that training does not see are alive; None where all are."""
        view = self.problem.view("test")
        return None if masks.unseen is None or view is None else int(masks.unseen[0, view.first :].sum())

    def level(self, state: State) -> Level:
        """The next level, as a method sees it."""
        c = self.config
        number = state.level + 1
        soft = Soft(state.soft, self.signal.beta) if state.soft is not None else None
        given = c.scoring
        rules = (given.lambda_edges, given.lambda_weights, given.decay_scores, given.clamp_scores, given.score_epoch)

        def train_scores(
            masks: Masks, epochs: int, phase: str, *, weights: bool = True, watch: Watch | None = None
        ) -> Fit:
            return self._fit(number, masks, epochs, phase, ScoreTraining(*rules, weights=weights), soft, watch)

        def train_elements(elements: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
            scoring = ScoreTraining(*rules, weights=False)
            return self._fit(number, masks, epochs, phase, scoring, soft, elements=elements)

        def train(masks: Masks, epochs: int, phase: str, *, by_signal: bool = False) -> Fit:
            return self._fit(number, masks, epochs, phase, soft=soft if by_signal else None)

        masks, keep = self.start_masks(state), self.keep(state)
        quotas = self.ranking.quotas(self.backbone.prunable, keep.weights) if self.units is None else ()
        rank = partial(self.ranking.importance, self.problem.graph)
        return Level(
            number, masks, keep, c.seeds, c.scoring_epochs, train_scores, train, quotas, rank, c.training.epochs,
            self.problem.graph, train_elements, self.problem.features, self.backbone, self.units,
            tuple(view for split in ("val", "test") if (view := self.problem.view(split)) is not None),
        )  # fmt: skip

    def start_masks(self, state: State) -> Masks:
        """Where the next level starts: the axis decides which of the last masks carry over."""
        full, axis = self.full_masks(), self.config.pruning.axis
        last = state.handed_on or state.masks or full
        return Masks(full.weights if axis == "graph" else last.weights, full.edges if axis == "model" else last.edges)

    def keep(self, state: State) -> Counts:
        """How many elements the next level keeps."""
        pruning, alive = self.config.pruning, self.start_masks(state).alive
        prune_model = pruning.fixed_model if pruning.axis == "graph" else pruning.prune_model
        prune_graph = pruning.fixed_graph if pruning.axis == "model" else pruning.prune_graph
        weights = alive.weights
        if self.units is not None:  # runs go below their targets by less than a unit; the next one's is counted from it
            weights = self.total.weights
            for _ in range(0 if pruning.axis == "graph" else state.level):
                weights -= share(prune_model, weights)
        return Counts(weights - share(prune_model, weights), alive.edges - share(prune_graph, alive.edges))

    def full_masks(self) -> Masks:
        return Masks.full(len(self.config.seeds), self.total, self.problem.device)

    @property
    def total(self) -> Counts:
        return Counts(self.backbone.prunable.size, self.problem.graph.num_edges)

    def train(
        self, level: int, masks: Masks, watch: Watch | None = None, trained: Fit | None = None
    ) -> tuple[Outcome, Params]:
        """Train masks in isolation from W0 on labels alone, unless `trained`; level 0 is the dense baseline."""
        began, phase = time.monotonic(), RETRAIN if level else "dense"
        result = trained or self._fit(level, masks, self.config.training.epochs, phase, watch=watch)
        assert result.params is not None
        val = result.val if self.parts.exact else self._measured(result.params, masks, "val")
        test = None
        if self.config.test:
            tell(self.observer, "on_test", level)
            test = self._measured(result.params, masks, "test").tolist()
            if not all(map(math.isfinite, test)):
                raise TrainingError(f"level {level}: {self.problem.metric} on test is {test}, which cannot be recorded")
        read = processes.agreed(val.tolist())  # which may end the search, in all of them alike
        return Outcome(read, test, result.epoch.tolist(), time.monotonic() - began), result.params

    def _fit(
        self,
        level: int,
        masks: Masks,
        epochs: int,
        phase: str,
        scoring: ScoreTraining | None = None,
        soft: Soft | None = None,
        watch: Watch | None = None,
        elements: MakeElements | None = None,
    ) -> Fit:
        tell(self.observer, "on_phase", level, phase)
        tell(self.observer, "on_training", masks.runs, epochs)
        batches = masks.runs // len(self.config.seeds)
        begun = self.rewound if level else self.start
        start = Params(begun.prunable.repeat(batches, 1), begun.other.repeat(batches, 1))
        taught = Soft(soft.targets.repeat(batches, 1, 1), soft.beta) if soft else None
        numbers = [0] * batches if phase == RETRAIN else range(batches)  # a ticket's training is the same beside others
        keys = [rng.keys(self.config.seeds, level, phase, b, device=self.problem.device) for b in numbers]
        try:
            return fit(
                self.problem,
                self.backbone,
                start,
                masks,
                epochs,
                self.config.training,
                torch.cat(keys),
                scoring=scoring,
                soft=taught,
                watch=watch,
                observer=self.observer,
                backend=self.backend,
                runs_at_once=self.runs_at_once,
                parts=self.parts,
                elements=elements,
            )
        except TrainingError as problem:
            raise TrainingError(f"level {level}, {phase}: {problem}") from None

    def macs(self, alive: Counts | None = None, backbone: Backbone | None = None, unseen: int | None = None) -> int:
        """Of inference as in testing: where its graph is not the training one, so many of the edges unseen in training
        live, unless given all. The backbone is the search's, unless it is a narrower one."""
        alive = alive or self.total
        graph = (self.problem.view("test") or self.problem).graph
        unseen = graph.num_edges - self.problem.graph.num_edges if unseen is None else unseen
        return inference_macs(backbone or self.backbone, graph, Counts(alive.weights, alive.edges + unseen))

    def alive_params(self, params: Params, masks: Masks) -> Params:
        """Without the weights that are dead, and the other parameters of dead units."""
        small = narrowed(self.backbone, masks.weights)
        params = params if small is None else small.all_params(small.params(params))
        return Params(params.prunable * masks.weights, params.other)

    def full_graph_sparsity(self, alive: Counts, unseen: int | None = None) -> float | None:
        """Share of dead edges among all of the test graph's; None if that is the training graph. `unseen` as in
        `macs`."""
        view = self.problem.view("test")
        if view is None:
            return None
        total = view.graph.num_edges
        dead_unseen = 0 if unseen is None else total - self.total.edges - unseen
        return (self.total.edges - alive.edges + dead_unseen) / total

    @cached_property
    def rewound(self) -> Params:
        """What levels start from: W0, or the dense model's weights after `rewind_epoch` epochs of its training."""
        training, made = self.config.training, dict[int, PlainElements]()

        def kept(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            made[runs.start] = PlainElements(backbone, start)
            return made[runs.start]

        if training.rewind_epoch:
            tell(self.observer, "on_phase", 0, "rewind")
            key = rng.keys(self.config.seeds, 0, "dense", 0, device=self.problem.device)  # the dense model's draws
            as_dense = replace(training, early_stopping=None)
            fit(
                self.problem, self.backbone, self.start, self.full_masks(), training.rewind_epoch, as_dense, key,
                backend=self.backend, runs_at_once=self.runs_at_once, parts=self.parts, elements=kept,
            )  # fmt: skip
        found = [made[first].params() for first in sorted(made)]
        return Params.cat(found) if found else self.start

    @cached_property
    def excerpt(self) -> Excerpt:
        return Excerpt.of(self.problem.graph)


@torch.no_grad()
def outputs(
    problem: Problem,
    backbone: Backbone,
    params: Params,
    masks: Masks,
    split: Split = "train",
    parts: Parts = WHOLE,
    backend: Backend | None = None,
) -> Tensor:
    """[S, N, C] of trained runs on a split's graph; run by run, so that the batch has no influence."""
    backend, view = backend or choose(problem.device), problem.view(split)
    place = view or problem
    alive = masks.edges if view is None else view.scatter(masks.edges, masks.unseen)
    made = []
    for run in range(masks.runs):
        edges, one = alive[run : run + 1], params[run : run + 1]
        network, features, using = backbone, place.features, backend
        small = narrowed(backbone, masks.weights[run : run + 1])
        if small is not None:
            network, one = small.backbone, small.params(one)
            if small.features is not None:
                features, using = features.columns(small.features), backend.afresh()
        given = Outputs(using, network, place.graph, features, edges, parts)
        made.append(given(network.weights(one), edges.to(params.prunable.dtype)))
    return torch.cat(made)


def inference_macs(backbone: Backbone, graph: Graph, alive: Counts) -> int:
    """Multiply-accumulates of one forward pass: Σ over layers of N·nnz(W) + nnz(A)·width (the paper's Table S8)."""
    arcs = alive.edges * graph.arcs_per_edge + (graph.num_nodes if backbone.self_loops else 0)
    return graph.num_nodes * alive.weights + arcs * sum(backbone.aggregation_widths)


def _check_selection(selection: Selection, level: Level, method: str) -> None:
    """A method must return exactly what was asked for, in every run; of units, whole ones with at most so many
    weights."""
    for side in SIDES:
        counts = [count(mask) for mask in selection.masks.of(side)]
        wanted, whole = getattr(level.keep, side), side == "weights" and level.units is not None
        if any(found > wanted if whole else found != wanted for found in counts):
            raise ConfigError(f"method '{method}' kept {counts} {side}, asked for {wanted}")
    chosen = selection.masks.weights
    if level.units is not None and not torch.equal(level.units.weights(level.units.alive(chosen)), chosen):
        raise ConfigError(f"method '{method}' chose single weights; use one that chooses units, or no structure")
    if selection.scores is not None and selection.scores.total != selection.masks.total:
        found, expected = selection.scores.total, selection.masks.total
        raise ConfigError(f"method '{method}' returned scores of {found}, the search has {expected}")
