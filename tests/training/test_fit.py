"""The training loop against a plain torch one, and what it must not touch."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from samples import dense_normalised, generator, random_masks, tiny_problem
from torch import Tensor

from aceglt.backbones import GCN
from aceglt.backbones.base import Dropout, Layout, Params, Weights
from aceglt.backends import Reference
from aceglt.config import Training
from aceglt.errors import TrainingError
from aceglt.numerics import rng
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.problems import NodeProblem
from aceglt.problems.base import Soft
from aceglt.searches.progress import TrainingProgress
from aceglt.training.fit import Fit, ScoreTraining, fit
from aceglt.training.scores import NOISE, initial_scores

HIDDEN = 8
TRAINING = Training(lr=0.05, weight_decay=0.03)
SCORING = ScoreTraining(lambda_edges=0.01, lambda_weights=0.02, decay=True, clamp=False, epoch="last")


@dataclass(frozen=True)
class Case:
    """Everything that a fit of some runs takes."""

    problem: NodeProblem
    backbone: GCN
    start: Params
    masks: Masks
    key: Tensor
    soft: Soft

    def fit(self, epochs: int = 6, taught: bool = False, **options: object) -> Fit:
        training = options.pop("training", TRAINING)
        soft = self.soft if taught else None
        return fit(
            self.problem, self.backbone, self.start, self.masks, epochs, training, self.key, soft=soft, **options
        )  # type: ignore[arg-type]

    def run(self, r: int) -> Case:
        one = slice(r, r + 1)
        return replace(self, start=self.start[one], masks=self.masks[one], key=self.key[one], soft=self.soft[one])


def make_case(seeds: tuple[int, ...] = (0, 1, 2), alive: float = 0.6) -> Case:
    problem = tiny_problem()
    backbone = GCN(problem.x.shape[1], problem.num_classes, HIDDEN)
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(int(alive * total.weights), int(alive * total.edges)), seeds)
    targets = torch.rand(len(seeds), problem.x.shape[0], problem.num_classes, generator=generator(5)).softmax(dim=-1)
    return Case(problem, backbone, backbone.init(seeds), masks, rng.keys(seeds, 1, "test"), Soft(targets, 0.7))


@dataclass(frozen=True)
class Epoch:
    """What the reference holds after an epoch."""

    weights: Tensor
    weight_scores: Tensor
    edge_scores: Tensor
    val: float


def reference(case: Case, epochs: int, scoring: ScoreTraining | None, taught: bool) -> list[Epoch]:
    """One run, trained with autograd through W·s, dense matrices and torch's own Adam."""
    p = case.problem
    alive_weights, alive_edges = case.masks.weights[0].double(), case.masks.edges[0].double()
    weights = (case.start.prunable[0] * alive_weights).requires_grad_()

    def noisy(salt: int, alive: Tensor) -> Tensor:
        return alive * (1 + NOISE * (2 * rng.uniform(rng.fold(case.key, salt), len(alive))[0] - 1))

    weight_scores = noisy(0, alive_weights).requires_grad_() if scoring else alive_weights
    edge_scores = noisy(1, alive_edges).requires_grad_() if scoring else alive_edges
    groups: list[dict[str, object]] = [{"params": [weights], "weight_decay": TRAINING.weight_decay}]
    if scoring:
        decay = TRAINING.weight_decay if scoring.decay else 0.0
        groups.append({"params": [weight_scores, edge_scores], "weight_decay": decay})
    adam = torch.optim.Adam(groups, lr=TRAINING.lr)

    def logits(keep: Tensor | None) -> Tensor:
        effective = weights * weight_scores * alive_weights
        first = effective[: p.x.shape[1] * HIDDEN].view(-1, HIDDEN)
        second = effective[p.x.shape[1] * HIDDEN :].view(HIDDEN, -1)
        adjacency = dense_normalised(p.graph, edge_scores * alive_edges)
        hidden = torch.relu(adjacency @ p.x @ first)
        return adjacency @ (hidden if keep is None else hidden * keep * 2) @ second

    history = []
    for epoch in range(epochs):
        drawn = rng.keep_mask(rng.fold(rng.fold(case.key, 2 + epoch), 0), p.x.shape[0] * HIDDEN, 0.5)
        out = logits(drawn.view(-1, HIDDEN))
        loss = F.cross_entropy(out[p.train], p.y[p.train])
        if taught:
            loss = loss + case.soft.beta * F.cross_entropy(out, case.soft.targets[0])
        adam.zero_grad()
        loss.backward()
        if scoring:
            weight_scores.grad += scoring.lambda_weights * weight_scores.detach().sign()
            edge_scores.grad += scoring.lambda_edges * edge_scores.detach().sign()
        adam.step()
        with torch.no_grad():
            if scoring and scoring.clamp:
                weight_scores.clamp_(0, 1)
                edge_scores.clamp_(0, 1)
            val = float((logits(None)[p.val].argmax(dim=1) == p.y[p.val]).double().mean())
            history.append(Epoch(weights.detach().clone(), weight_scores.clone(), edge_scores.clone(), val))
    return history


def first_maximum(history: list[Epoch]) -> int:
    vals = [epoch.val for epoch in history]
    return vals.index(max(vals)) + 1


def assert_close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b.detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("epochs", [1, 2, 5])
@pytest.mark.parametrize("taught", [False, True], ids=["labels", "teacher"])
@pytest.mark.parametrize("decay", [False, True], ids=["scores without decay", "scores with decay"])
@pytest.mark.parametrize("clamp", [False, True], ids=["free", "clamped"])
def test_score_training_agrees_with_plain_torch(epochs: int, taught: bool, decay: bool, clamp: bool) -> None:
    case, scoring = make_case((4,)), replace(SCORING, decay=decay, clamp=clamp)
    history = reference(case, epochs, scoring, taught)
    result = case.fit(epochs, taught, scoring=scoring)
    assert result.scores is not None
    assert_close(result.scores.weights[0], history[-1].weight_scores)
    assert_close(result.scores.edges[0], history[-1].edge_scores)
    assert int(result.epoch) == first_maximum(history)
    assert float(result.val) == max(epoch.val for epoch in history)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("taught", [False, True], ids=["labels", "teacher"])
def test_hard_training_agrees_with_plain_torch_and_keeps_the_best_epoch(taught: bool) -> None:
    case = make_case((0, 1, 2, 3))
    result = case.fit(12, taught)
    assert result.params is not None
    assert result.scores is None
    for r in range(4):
        history = reference(case.run(r), 12, None, taught)
        best = first_maximum(history)
        assert int(result.epoch[r]) == best
        assert float(result.val[r]) == history[best - 1].val
        assert_close(result.params.prunable[r], history[best - 1].weights)


@pytest.mark.usefixtures("double")
def test_the_best_epoch_is_the_first_of_equal_maxima() -> None:
    case = make_case(tuple(range(6)))
    result = case.fit(25)
    histories = [reference(case.run(r), 25, None, False) for r in range(6)]
    repeated = [sum(epoch.val == max(e.val for e in h) for epoch in h) > 1 for h in histories]
    assert any(repeated), "no run reaches its maximum twice: the test shows nothing"
    assert result.epoch.tolist() == [first_maximum(h) for h in histories]


@pytest.mark.usefixtures("double")
def test_scores_are_those_of_the_best_or_of_the_last_epoch() -> None:
    case = make_case((0, 1, 2, 3))
    best = case.fit(8, scoring=replace(SCORING, epoch="best"))
    last = case.fit(8, scoring=SCORING)
    assert best.scores is not None
    assert last.scores is not None
    assert best.params is None
    assert torch.equal(best.epoch, last.epoch)
    assert bool((best.epoch < 8).any())
    for r in range(4):
        history = reference(case.run(r), 8, SCORING, False)
        assert_close(best.scores.weights[r], history[first_maximum(history) - 1].weight_scores)
        assert_close(best.scores.edges[r], history[first_maximum(history) - 1].edge_scores)
        assert_close(last.scores.edges[r], history[-1].edge_scores)


def same(a: Fit, b: Fit) -> bool:
    pairs = [(a.val, b.val), (a.epoch, b.epoch)]
    for x, y in ((a.params, b.params), (a.scores, b.scores)):
        assert (x is None) == (y is None)
        if x is not None and y is not None:
            pairs += zip(vars(x).values(), vars(y).values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard", "scores"])
@pytest.mark.parametrize("taught", [False, True], ids=["labels", "teacher"])
def test_runs_trained_together_are_bitwise_the_same_as_alone(scoring: ScoreTraining | None, taught: bool) -> None:
    case = make_case()
    together = case.fit(8, taught, scoring=scoring)
    for r in range(3):
        alone = case.run(r).fit(8, taught, scoring=scoring)
        one = slice(r, r + 1)
        row = Fit(
            together.val[one],
            together.epoch[one],
            together.params[one] if together.params else None,
            together.scores[one] if together.scores else None,
        )
        assert same(row, alone)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard", "scores"])
def test_runs_that_share_kernels_agree_with_runs_one_by_one(scoring: ScoreTraining | None) -> None:
    case = make_case(tuple(range(5)))
    apart = case.fit(8, True, scoring=scoring)
    for at_once in (2, 5):
        shared = case.fit(8, True, scoring=scoring, runs_at_once=at_once)
        assert torch.equal(shared.epoch, apart.epoch)
        if scoring:
            assert shared.scores is not None
            assert apart.scores is not None
            assert_close(shared.scores.weights, apart.scores.weights)
            assert_close(shared.scores.edges, apart.scores.edges)
        else:
            assert shared.params is not None
            assert apart.params is not None
            assert_close(shared.params.prunable, apart.params.prunable)


def test_the_same_key_trains_the_same_and_another_key_differently() -> None:
    case = make_case()
    assert same(case.fit(), case.fit())
    other = replace(case, key=rng.keys((0, 1, 2), 2, "test"))
    assert not same(case.fit(), other.fit())


@pytest.mark.parametrize("taught", [False, True], ids=["labels", "teacher"])
def test_dead_weights_stay_exactly_zero_through_decay(taught: bool) -> None:
    case = make_case()
    params = case.fit(15, taught).params
    assert params is not None
    assert torch.equal(params.prunable != 0, case.masks.weights)


@pytest.mark.parametrize("clamp", [False, True], ids=["free", "clamped"])
@pytest.mark.parametrize("at_once", [1, 3])
def test_dead_scores_stay_exactly_zero_through_decay_and_l1(at_once: int, clamp: bool) -> None:
    case = make_case()
    scores = case.fit(15, True, scoring=replace(SCORING, clamp=clamp), runs_at_once=at_once).scores
    assert scores is not None
    assert int(scores.weights[~case.masks.weights].count_nonzero()) == 0
    assert int(scores.edges[~case.masks.edges].count_nonzero()) == 0
    assert int(scores.weights[case.masks.weights].count_nonzero()) > 0
    assert int(scores.edges[case.masks.edges].count_nonzero()) > 0


def test_clamped_scores_stay_between_zero_and_one_and_free_ones_do_not() -> None:
    case, strong = make_case(), Training(lr=0.3, weight_decay=0.0)
    clamped = case.fit(10, scoring=replace(SCORING, clamp=True), training=strong).scores
    free = case.fit(10, scoring=SCORING, training=strong).scores
    assert clamped is not None
    assert free is not None
    for values in (clamped.weights, clamped.edges):
        assert bool(((values >= 0) & (values <= 1)).all())
    assert float(free.weights.max()) > 1
    assert float(free.weights.min()) < 0


def test_without_decay_and_l1_a_score_without_gradient_stays_where_it_began() -> None:
    case = make_case((0,))
    p = case.problem
    lonely = replace(p, train=p.train[:1], y=p.y)
    still = replace(SCORING, lambda_edges=0.0, lambda_weights=0.0, decay=False)
    near = dense_normalised(p.graph, case.masks.edges[0].double())[p.train[0]] != 0
    reached = (dense_normalised(p.graph, case.masks.edges[0].double())[near] != 0).any(dim=0)
    outside = case.masks.edges[0] & ~reached[p.graph.edges[0]] & ~reached[p.graph.edges[1]]
    assert int(outside.sum()) > 0
    scores = replace(case, problem=lonely).fit(5, scoring=still).scores
    first = initial_scores(case.key, case.masks)
    decayed = replace(case, problem=lonely).fit(5, scoring=replace(still, decay=True)).scores
    assert scores is not None
    assert decayed is not None
    assert torch.equal(scores.edges[0][outside], first.edges[0][outside])
    assert bool((decayed.edges[0][outside] < first.edges[0][outside]).all())


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard", "scores"])
def test_what_is_passed_in_is_not_modified(scoring: ScoreTraining | None) -> None:
    case = make_case()
    p = case.problem
    held = (case.start.prunable, case.masks.weights, case.masks.edges, case.key, case.soft.targets, p.x, p.y)
    before = [tensor.clone() for tensor in held]
    case.fit(6, True, scoring=scoring)
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))
    assert not any(tensor.requires_grad for tensor in held)


def test_initial_scores_are_one_plus_small_noise_where_alive() -> None:
    case = make_case()
    scores = initial_scores(case.key, case.masks)
    for values, alive in ((scores.weights, case.masks.weights), (scores.edges, case.masks.edges)):
        assert torch.equal(values != 0, alive)
        assert float((values[alive] - 1).abs().max()) <= 1.01 * NOISE
        assert len(torch.unique(values[alive])) > 10
    assert not torch.equal(scores.edges[0][case.masks.edges[0]], scores.edges[1][case.masks.edges[1]])


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard", "scores"])
def test_features_with_nan_end_with_the_epoch_named(scoring: ScoreTraining | None) -> None:
    case = make_case()
    x = case.problem.x.clone()
    x[0, 0] = torch.nan
    broken = replace(case, problem=replace(case.problem, x=x))
    with pytest.raises(TrainingError, match=r"epoch 1 in .* run\(s\); try a lower learning rate"):
        broken.fit(3, scoring=scoring)


def test_a_huge_learning_rate_ends_with_the_epoch_named() -> None:
    with pytest.raises(TrainingError, match="NaN or infinite at epoch 2 "):
        make_case().fit(5, training=Training(lr=1e30, weight_decay=0.0))


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []
        self.best: list[float] = []

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self.seen.append((epoch, epochs, runs))
        self.best.append(best())


def test_the_observer_hears_of_every_epoch_and_changes_nothing() -> None:
    case, observer = make_case((0, 1)), Recorder()
    watched = case.fit(4, observer=observer)
    assert observer.seen == [(epoch, 4, 1) for _ in range(2) for epoch in (1, 2, 3, 4)]
    assert observer.best[3] <= float(watched.val[0])
    assert same(watched, case.fit(4))


def test_evaluation_changes_no_state() -> None:
    """Other validation nodes choose another epoch, but the scores of the last one are the same bits."""
    case = make_case()
    p = case.problem
    elsewhere = replace(case, problem=replace(p, val=p.test[:2], test=p.val))
    scores, others = case.fit(scoring=SCORING).scores, elsewhere.fit(scoring=SCORING).scores
    assert scores is not None
    assert others is not None
    assert torch.equal(scores.weights, others.weights)
    assert torch.equal(scores.edges, others.edges)


@pytest.mark.parametrize("scoring", [None, replace(SCORING, epoch="best")], ids=["hard", "scores"])
def test_test_labels_have_no_influence(scoring: ScoreTraining | None) -> None:
    case = make_case()
    p = case.problem
    y = p.y.clone()
    y[p.test] = (y[p.test] + 1) % p.num_classes
    assert same(case.fit(scoring=scoring), replace(case, problem=replace(p, y=y)).fit(scoring=scoring))


@pytest.mark.parametrize("side", ["weights", "edges"])
def test_a_part_without_any_alive_element_can_be_trained(side: str) -> None:
    """The pruned part may be empty on one side: with `fixed_graph` 0, say."""
    case = make_case()
    masks = replace(case.masks, **{side: torch.zeros_like(getattr(case.masks, side))})
    result = replace(case, masks=masks).fit(3, scoring=SCORING)
    assert isinstance(result.scores, Scores)
    assert int(getattr(result.scores, side).count_nonzero()) == 0


def test_training_learns() -> None:
    case = make_case(alive=1.0)
    assert float(case.fit(60, training=Training(lr=0.02, weight_decay=5e-4)).val.min()) > 0.6


class BiasedGCN(GCN):
    """A backbone with parameters that are never pruned."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.other = Layout((("bias", (sizes[1],)),))

    def init(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> Params:
        prunable = super().init(seeds, device).prunable
        return Params(prunable, torch.full((len(seeds), self.other.size), 0.25))

    def head(self, weights: Weights, graph: GraphBatch, state: Any, dropout: Dropout | None) -> Tensor:
        return super().head(weights, graph, state, dropout) + weights["bias"].unsqueeze(1)


@pytest.mark.parametrize("scoring", [None, SCORING], ids=["hard", "scores"])
def test_parameters_that_are_not_pruned_are_trained_too(scoring: ScoreTraining | None) -> None:
    """With the weights at 0 the outputs are the bias, so the loss has a gradient for it that is known by hand."""
    case = make_case()
    p, backbone = case.problem, BiasedGCN(case.problem.x.shape[1], case.problem.num_classes, HIDDEN)
    start = backbone.init((0, 1, 2))
    nothing = replace(case.masks, weights=torch.zeros_like(case.masks.weights))
    y = torch.zeros_like(p.y)
    biased = replace(case, backbone=backbone, start=start, masks=nothing, problem=replace(p, y=y))
    bias = biased.fit(1, training=Training(lr=0.05, weight_decay=0.0)).params
    assert bias is not None
    torch.testing.assert_close(bias.other, torch.tensor([[0.3, 0.2, 0.2]]).expand(3, 3))
    assert torch.equal(start.other, torch.full((3, 3), 0.25))
    whole = replace(case, backbone=backbone, start=start)
    together, alone = whole.fit(scoring=scoring), whole.run(1).fit(scoring=scoring)
    assert torch.equal(together.val[1:2], alone.val)
    assert torch.equal(start.other, torch.full((3, 3), 0.25))
    if together.params is not None:
        assert alone.params is not None
        assert torch.equal(together.params.other[1:2], alone.params.other)
        assert bool((together.params.other != 0.25).all())


def test_early_stopping_ends_each_run_where_it_has_waited_long_enough() -> None:
    """As alone, so in a batch: what other runs go on for changes nothing."""
    case, most, patience = make_case(), 20, 3
    hasty = replace(TRAINING, early_stopping=patience)
    by_length = torch.stack([case.fit(epochs).epoch for epochs in range(1, most + 1)])  # [epochs, S] best so far
    waited = torch.arange(1, most + 1).unsqueeze(1) - by_length > patience
    ends = torch.where(waited.any(dim=0), waited.int().argmax(dim=0), most - 1)
    expected = by_length.gather(0, ends.unsqueeze(0))[0]
    assert bool((expected < by_length[-1]).any())
    together = case.fit(most, training=hasty)
    assert together.epoch.tolist() == expected.tolist()
    for run in range(3):
        alone = case.run(run).fit(most, training=hasty)
        assert together.params is not None
        assert alone.params is not None
        assert torch.equal(alone.params.prunable[0], together.params.prunable[run])
    assert case.fit(most, training=hasty, backend=Reference()).epoch.tolist() == expected.tolist()


def test_early_stopping_counts_the_epochs_that_it_leaves_out_as_done_and_is_not_for_scores() -> None:
    case, hasty = make_case(), replace(TRAINING, early_stopping=1)
    progress = TrainingProgress(Console(file=io.StringIO(), width=100), 3 * 40)
    progress.on_phase(0, "dense")
    progress.on_training(3, 40)
    found = case.fit(40, training=hasty, observer=progress)
    assert int(found.epoch.max()) < 30
    (line,) = progress._console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert line == f"dense · best val {100 * float(found.val.mean()):.2f} · 0:00:00 left"
    scored = [case.fit(40, training=given, scoring=SCORING).scores for given in (TRAINING, hasty)]
    assert scored[0] is not None
    assert scored[1] is not None
    assert torch.equal(scored[0].weights, scored[1].weights)
