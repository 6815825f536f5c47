"""UGTs: weights stay at their initial values, and scores that are trained straight through say which act."""

from __future__ import annotations

from dataclasses import replace

import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.backbones.base import Backbone, Params
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config import resolve
from aceglt.methods import Level, Ugts
from aceglt.methods.ugts import highest
from aceglt.numerics.masks import Counts, Masks
from aceglt.searches.levels import Search, outputs
from aceglt.searches.state import State
from aceglt.training.fit import Fit, MakeElements


def search_with(epochs: int = 6, **settings: object) -> tuple[Search, Level]:
    problem = tiny_problem()
    config = resolve(method="ugts", seeds=(3, 8), epochs=epochs, hidden=6, axis="joint", prune_model=0.5, **settings)
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Ugts(), config)
    return search, search.level(search.train_dense(State()))


def test_the_highest_scores_act_whatever_their_magnitude() -> None:
    _, level = search_with()
    scores = torch.tensor([[-3.0, 0.5, -0.1, 2.0]])
    small = replace(level, keep=Counts(2, 1))
    kept = highest(Masks.full(1, Counts(4, 1)), scores, 2, small, level.key("drop")[:1])
    assert kept.weights.tolist() == [[False, True, False, True]]


def test_a_level_reports_the_initial_weights_under_the_masks_and_their_training_beside_them() -> None:
    search, _ = search_with()
    state, params = search.retrain(search.select(search.train_dense(State())))
    masks, record = state.masks, state.records[-1]
    assert masks is not None
    masked = Params(search.start.prunable * masks.weights, search.start.other)
    assert torch.equal(params.prunable, masked.prunable)
    for split, found in (("val", record.outcome.val), ("test", record.outcome.test)):
        made = outputs(search.problem, search.backbone, masked, masks, split)  # type: ignore[arg-type]
        assert found == search.problem.measure(made, split).tolist()  # type: ignore[arg-type]
    trained, _ = search.train(1, masks)
    beside = record.diagnostics["retrained"]
    assert (beside["val"], beside["test"], beside["epoch"]) == (trained.val, trained.test, trained.epoch)
    assert record.outcome.epoch == [0, 0]


def test_scores_move_by_the_gradient_times_the_weight_and_fewer_weights_act_at_every_step() -> None:
    search, level = search_with(lr=0.1)
    acting: list[list[int]] = []

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def counted(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            elements = make(backbone, start, runs)
            counts = []
            for _ in range(epochs):
                counts.append(int(sum((part != 0).sum() for part in elements.effective().values())))
                before = {name: part.clone() for name, part in elements.weight_scores.items()}
                elements.update({name: torch.ones_like(part) for name, part in elements.weights.items()}, None)
                for name, score in elements.weight_scores.items():
                    step = -0.1 * elements.weights[name].sign()  # Adam's, for a gradient that stays the same
                    torch.testing.assert_close(score - before[name], step, rtol=1e-3, atol=1e-5)
            acting.append([*counts, int(sum((part != 0).sum() for part in elements.effective().values()))])
            assert torch.equal(
                elements.weights["layer0.weight"], backbone.prunable.split(start.params.prunable)["layer0.weight"]
            )
            return make(backbone, start, runs)

        return level.train_elements(counted, masks, epochs, phase)

    Ugts().select(replace(level, train_elements=train))
    total, keep = search.total.weights, level.keep.weights
    third = [total - round(part / 3 * (total - keep)) for part in range(4)]
    assert acting == [third, third, [keep] * 4, [keep] * 4]


def test_one_epoch_is_enough() -> None:
    _, level = search_with(epochs=1)
    assert Ugts().select(level).epochs == 1


def test_the_published_settings_are_usual() -> None:
    config = resolve(method="ugts")
    assert (config.scoring.signal, config.scoring.decay_scores) == ("labels", False)
    assert resolve(method="ugts").label == "ugts (labels, edges at random)"
