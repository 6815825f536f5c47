"""The level loop: sparsities, the teacher, when the test set is read, and continuing from a state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.backends.base import ScoreTraining
from aceglt.config import Config
from aceglt.errors import ConfigError
from aceglt.methods import Ace, Level, Method, Random, Selection, Ugs
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.problems import NodeProblem
from aceglt.problems.base import Problem, Soft, Softened
from aceglt.problems.signals import Labels, Teacher
from aceglt.pruning.ranking import Ranking
from aceglt.searches.levels import Search, inference_macs, prune_iteratively
from aceglt.searches.state import State
from aceglt.training.fit import fit
from aceglt.training.partitions import Parts


class Log:
    """Writes down everything an observer is told."""

    def __init__(self) -> None:
        self.phases: list[tuple[int, str]] = []
        self.tests: list[int] = []
        self.epochs = 0

    def on_phase(self, level: int, phase: str) -> None:
        self.phases.append((level, phase))

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self.epochs += runs

    def on_test(self, level: int) -> None:
        self.tests.append(level)


def make_search(method: Method | None = None, log: Log | None = None, **settings: Any) -> Search:
    problem = tiny_problem()
    config = Config(**{"seeds": (0, 1), "epochs": 4, "hidden": 6, **settings})
    backbone = GCN(problem.x.shape[1], problem.num_classes, config.backbone_options.hidden)
    return Search(problem, backbone, method or Random(), config, log)


def run(search: Search, levels: int, state: State | None = None) -> State:
    state = state or State()
    last = state.level + levels
    *_, (state, _) = prune_iteratively(search, state, lambda state: state.level >= last)
    return state


def pruned(count: int, share: float) -> int:
    """round(share · count) goes."""
    return count - round(share * count)


@pytest.mark.parametrize("axis", ["model", "graph", "joint"])
def test_sparsities_follow_the_axis(axis: str) -> None:
    search = make_search(axis=axis, prune_model=0.3, prune_graph=0.1, fixed_model=0.4, fixed_graph=0.25)
    total = search.total
    assert total == Counts(search.backbone.prunable.size, search.problem.graph.num_edges)
    state = run(search, 4)
    weights, edges = total.weights, total.edges
    for number, record in enumerate(state.records, start=1):
        weights = pruned(total.weights, 0.4) if axis == "graph" else pruned(weights, 0.3)
        edges = pruned(total.edges, 0.25) if axis == "model" else pruned(edges, 0.1)
        assert (record.level, record.alive) == (number, Counts(weights, edges))
    assert state.masks is not None
    assert state.masks.alive == state.records[-1].alive
    assert state.level == 4


def test_a_fixed_share_of_zero_leaves_that_side_whole() -> None:
    for method in (Random(), Ugs(), Ace(rounds=2, refine_epochs=2)):
        state = run(make_search(method, axis="model", fixed_graph=0.0), 2)
        assert state.masks is not None
        assert bool(state.masks.edges.all())


@pytest.mark.parametrize(("signal", "taught"), [("teacher", True), ("labels", False)])
def test_there_is_a_teacher_only_when_it_is_asked_for(signal: str, taught: bool) -> None:
    state = make_search(signal=signal).train_dense(State())
    assert (state.soft is not None) == taught
    if state.soft is not None:
        assert state.soft.shape == (2, 30, 3)
        torch.testing.assert_close(state.soft.sum(dim=-1), torch.ones(2, 30))


def test_the_teacher_is_the_dense_model_of_the_same_initial_weights() -> None:
    search = make_search(seeds=(5,), epochs=10, teacher_temperature=0.25, teacher_smoothing=0.0)
    dense = fit(
        search.problem,
        search.backbone,
        search.backbone.init((5,)),
        search.full_masks(),
        10,
        search.config.training,
        rng.keys((5,), 0, "dense", 0),
    )
    state = search.train_dense(State())
    assert dense.params is not None
    assert state.dense is not None
    assert state.soft is not None
    assert state.dense.val == dense.val.tolist()
    assert state.dense.epoch == dense.epoch.tolist()
    backend, features = search.backend, search.backend.features(search.problem.features)
    graph = search.problem.graph.batch(search.full_masks().edges, True, backend.kernels)
    ones, weights = torch.ones(1, search.total.edges), search.backbone.weights(dense.params)
    logits = backend.network(search.backbone).apply(weights, graph, ones, features)
    assert torch.equal(state.soft, (4.0 * logits).softmax(dim=-1))


def test_signal_and_ranking_are_those_of_the_configuration_unless_given() -> None:
    usual = make_search(beta=3.0, teacher_temperature=0.5, teacher_smoothing=0.2, balance=0.5, degree_bonus=0.7)
    assert usual.signal == Teacher(3.0, 0.5, 0.2)
    assert usual.ranking == Ranking(0.5, 0.7)
    assert replace(usual, parts=Parts(2), signal=None).signal == Teacher(3.0, 0.5, 0.0), "smoothing takes all nodes"
    assert make_search(signal="labels").signal == Labels()
    other = replace(usual, signal=Labels(), ranking=Ranking())
    assert other.train_dense(State()).soft is None
    assert other.level(State()).quotas == []


def test_a_level_ranks_edges_by_where_it_starts() -> None:
    search = make_search(axis="graph", degree_bonus=0.5, signal="labels")
    state, _ = search.retrain(search.select(search.train_dense(State())))
    level = search.level(state)
    assert not bool(level.masks.edges.all())
    scores = Scores(torch.ones(2, search.total.weights), torch.rand(2, search.total.edges))
    expected = Ranking(degree_bonus=0.5).importance(search.problem.graph, scores, level.masks)
    assert torch.equal(level.importance(scores).edges, expected.edges)
    assert not torch.equal(level.anew().importance(scores).edges, expected.edges)


def test_another_signal_teaches_in_the_place_of_the_dense_model() -> None:
    class Uniform(Teacher):
        def targets(self, problem: Problem, outputs: Callable[[], torch.Tensor]) -> Softened:
            return Softened(torch.full_like(outputs(), 1 / 3))

    search = replace(make_search(Ugs()), signal=Uniform(beta=5.0))
    state = search.train_dense(State())
    assert state.soft is not None
    assert bool((state.soft == 1 / 3).all())
    found = search.select(state).selected
    usual = make_search(Ugs(), beta=5.0)
    other = usual.select(usual.train_dense(State())).selected
    assert found is not None
    assert other is not None
    assert not torch.equal(found.masks.weights, other.masks.weights)


def test_of_a_one_shot_level_everything_has_an_importance() -> None:
    search = make_search(Ugs(one_shot=True), axis="graph", signal="labels", prune_graph=0.4)
    state = search.select(run(search, 1))
    assert state.importance is not None
    assert bool((state.importance.edges >= 0).all())
    usual = make_search(Ugs(), axis="graph", signal="labels", prune_graph=0.4)
    other = usual.select(run(usual, 1)).importance
    assert other is not None
    assert not bool((other.edges >= 0).all())


def test_a_method_may_train_weights_as_tickets_are_trained() -> None:
    """From the initial weights, with hard masks, on labels alone."""
    search = make_search(signal="teacher")
    level = search.level(search.train_dense(State()))
    masks = Random().select(level).masks
    found = level.train(masks, 4, "try")
    training = search.config.training
    key = rng.keys((0, 1), 1, "try", 0)
    expected = fit(search.problem, search.backbone, search.start, masks, 4, training, key)
    assert found.params is not None
    assert expected.params is not None
    assert found.scores is None
    assert torch.equal(found.params.prunable, expected.params.prunable)
    assert torch.equal(found.val, expected.val)


@pytest.mark.parametrize("signal", ["teacher", "labels"])
def test_scores_are_trained_from_the_initial_weights_with_the_settings_of_the_search(signal: str) -> None:
    """What a method gets from `train_scores` is what `fit` gives for two batches of the same runs."""
    seen: list[Any] = []

    class Asking:
        name = "asking"

        def select(self, level: Level) -> Selection:
            masks = Random().select(level).masks
            seen.append((level, masks, level.train_scores(Masks.cat([masks, masks.complement()]), 3, "both")))
            return Selection(masks)

        def cost(self, epochs: int) -> int:
            return 0

    search = make_search(
        Asking(), signal=signal, lambda_edges=0.1, lambda_weights=0.2, score_epoch="last", beta=0.3, score_epochs=2
    )
    state = search.train_dense(State())
    search.select(state)
    level, masks, found = seen[0]
    assert level.epochs == 2
    assert [q.part.stop - q.part.start for q in level.quotas] == [
        math.prod(s) for _, s in search.backbone.prunable.shapes
    ]
    assert level.quotas == Ranking(balance=0.75).quotas(search.backbone.prunable, level.keep.weights)
    assert tuple(level.seeds) == (0, 1)
    for batch, part in enumerate((masks, masks.complement())):
        alone = fit(
            search.problem,
            search.backbone,
            search.backbone.init((0, 1)),
            part,
            3,
            search.config.training,
            rng.keys((0, 1), 1, "both", batch),
            scoring=ScoreTraining(0.1, 0.2, decay=False, clamp=False, epoch="last"),
            soft=Soft(state.soft, 0.3) if state.soft is not None else None,
        )
        rows = slice(2 * batch, 2 * batch + 2)
        assert alone.scores is not None
        assert torch.equal(found.scores[rows].weights, alone.scores.weights)
        assert torch.equal(found.scores[rows].edges, alone.scores.edges)


def test_retraining_rewinds_to_the_initial_weights_and_uses_labels_alone() -> None:
    search = make_search(signal="teacher", epochs=6)
    start = search.start.prunable.clone()
    state = search.select(search.train_dense(State()))
    chosen = state.selected
    assert chosen is not None
    state, params = search.retrain(state)
    again = fit(
        search.problem,
        search.backbone,
        search.backbone.init((0, 1)),
        chosen.masks,
        6,
        search.config.training,
        rng.keys((0, 1), 1, "retrain", 0),
    )
    assert again.params is not None
    assert torch.equal(params.prunable, again.params.prunable)
    assert state.records[0].outcome.val == again.val.tolist()
    assert torch.equal(search.start.prunable, start)
    assert state.selected is None


def test_in_tuning_mode_the_test_set_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = NodeProblem.measure

    def guarded(self: NodeProblem, logits: torch.Tensor, split: Any) -> torch.Tensor:
        assert split != "test"
        return measure(self, logits, split)

    monkeypatch.setattr(NodeProblem, "measure", guarded)
    for method in (Random(), Ugs(), Ace(rounds=1, refine_epochs=2, keep="best")):
        log = Log()
        state = run(make_search(method, log, test=False), 2)
        assert log.tests == []
        assert state.dense is not None
        assert [o.test for o in (state.dense, *(r.outcome for r in state.records))] == [None] * 3


def test_the_test_set_is_read_once_per_retraining_and_each_time_said(monkeypatch: pytest.MonkeyPatch) -> None:
    measure, log, said = NodeProblem.measure, Log(), []

    def counted(self: NodeProblem, logits: torch.Tensor, split: Any) -> torch.Tensor:
        if split == "test":
            said.append(len(log.tests))
        return measure(self, logits, split)

    monkeypatch.setattr(NodeProblem, "measure", counted)
    state = run(make_search(Ace(rounds=1, refine_epochs=2), log), 2)
    assert log.tests == [0, 1, 2]
    assert said == [1, 2, 3], "the observer is told before each reading"
    assert all(r.outcome.test is not None and len(r.outcome.test) == 2 for r in state.records)


def test_test_is_measured_at_the_best_validation_epoch() -> None:
    search = make_search(epochs=12)
    state, params = search.retrain(search.select(search.train_dense(State())))
    assert state.masks is not None
    for seed in range(2):
        one = slice(seed, seed + 1)
        graph = search.problem.graph.batch(state.masks.edges[one], True)
        values = state.masks.edges[one].float()
        logits = search.backbone.apply(search.backbone.weights(params[one]), graph, values, search.problem.features)
        outcome = state.records[0].outcome
        assert outcome.val[seed] == float(search.problem.measure(logits, "val"))
        assert outcome.test is not None
        assert outcome.test[seed] == float(search.problem.measure(logits, "test"))


def test_test_labels_never_choose_anything() -> None:
    search = make_search(Ace(rounds=2, refine_epochs=2, keep="best"))
    y = search.problem.y.clone()
    y[search.problem.test] = (y[search.problem.test] + 1) % 3
    blind = replace(search, problem=replace(search.problem, y=y))
    a, b = run(search, 2), run(blind, 2)
    assert a.masks is not None
    assert b.masks is not None
    assert torch.equal(a.masks.weights, b.masks.weights)
    assert torch.equal(a.masks.edges, b.masks.edges)
    assert [r.outcome.val for r in a.records] == [r.outcome.val for r in b.records]


def test_a_new_search_continues_from_a_state_to_the_same_end() -> None:
    method = Ace(rounds=1, refine_epochs=2)
    whole = run(make_search(method), 3)
    half = make_search(method).select(run(make_search(method), 1))
    continued, _ = make_search(method).retrain(half)
    continued = run(make_search(method), 1, continued)
    assert whole.masks is not None
    assert continued.masks is not None
    assert torch.equal(continued.masks.weights, whole.masks.weights)
    assert torch.equal(continued.masks.edges, whole.masks.edges)
    for a, b in zip(whole.records, continued.records, strict=True):
        assert (a.outcome.val, a.outcome.test, a.alive) == (b.outcome.val, b.outcome.test, b.alive)


def test_a_choice_and_its_own_training_are_one_stage() -> None:
    for keep, stages in (("last", [(0, False), (0, True), (1, False)]), ("trained", [(0, False), (1, False)])):
        search = make_search(Ace(rounds=1, refine_epochs=2, keep=keep))
        reached = [state for state, _ in prune_iteratively(search, State(), lambda state: state.level >= 1)]
        assert [(state.level, state.selected is not None) for state in reached] == stages


def test_a_choice_that_was_saved_without_its_training_is_trained() -> None:
    search = make_search(Ace(rounds=1, refine_epochs=2, keep="trained"))
    chosen = search.select(search.train_dense(State()))
    assert chosen.selected is not None
    assert chosen.selected.trained is not None
    before = replace(chosen, selected=replace(chosen.selected, trained=None))  # as earlier versions wrote it
    first, again = (search.retrain(state)[0].records[0].outcome for state in (chosen, before))
    assert (first.val, first.test, first.epoch) == (again.val, again.test, again.epoch)


def test_stages_return_new_states() -> None:
    search, empty = make_search(), State()
    dense = search.train_dense(empty)
    selected = search.select(dense)
    search.retrain(selected)
    assert empty == State()
    assert dense.selected is None
    assert selected.records == ()


def test_the_observer_hears_of_phases_and_the_announced_cost_is_met() -> None:
    log, method = Log(), Ace(rounds=2, refine_epochs=3, keep="last")
    search = make_search(method, log)
    state = search.train_dense(State())
    dense = search.config.training.epochs
    per_level = method.cost(search.config.scoring_epochs) + dense
    assert log.phases == [(0, "dense")]
    assert log.epochs == 2 * dense
    run(search, 1, state)
    assert log.phases[1:] == [(1, "score"), (1, "refine 0"), (1, "refine 1"), (1, "retrain")]
    assert log.epochs == 2 * (dense + per_level)


def test_a_method_that_miscounts_is_found_out() -> None:
    class Greedy:
        name = "greedy"

        def select(self, level: Level) -> Selection:
            return Selection(level.masks)

        def cost(self, epochs: int) -> int:
            return 0

    search = make_search(Greedy())
    with pytest.raises(ConfigError, match=r"method 'greedy' kept \[90, 90\] weights, asked for 72"):
        search.select(search.train_dense(State()))


def test_a_method_whose_scores_are_not_of_every_element_is_found_out() -> None:
    class Partial(Random):
        def select(self, level: Level) -> Selection:
            few = torch.ones(level.masks.runs, 3)
            return replace(super().select(level), scores=Scores(few, few))

    search = make_search(Partial())
    with pytest.raises(ConfigError, match=r"returned scores of Counts\(weights=3, edges=3\)"):
        search.select(search.train_dense(State()))


@pytest.mark.parametrize(
    ("nodes", "features", "classes", "edges", "giga"),
    [(2708, 1433, 7, 5278, 2.003), (3327, 3703, 6, 4552, 6.325), (19717, 500, 3, 44324, 5.134)],
    ids=["cora", "citeseer", "pubmed"],
)
def test_dense_macs_are_those_of_the_paper(nodes: int, features: int, classes: int, edges: int, giga: float) -> None:
    graph, backbone = Graph(nodes, torch.zeros(2, edges, dtype=torch.int64)), GCN(features, classes, 512)
    macs = inference_macs(backbone, graph, Counts(backbone.prunable.size, edges))
    assert macs / 1e9 == pytest.approx(giga, abs=1e-3)


def test_macs_of_a_ticket_count_alive_weights_and_edges_and_all_self_loops() -> None:
    search = make_search()
    nodes, widths = 30, 6 + 3
    assert search.macs(Counts(10, 4)) == nodes * 10 + (2 * 4 + nodes) * widths
    assert search.macs() == nodes * search.total.weights + (2 * search.total.edges + nodes) * widths
