"""CGP: its schedule, known by hand, and dead features, whose weights are all dead."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import GCN, ResGCN
from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config import Config, resolve
from aceglt.errors import ConfigError
from aceglt.methods import Cgp, Level
from aceglt.methods.cgp import dead_features, fallen
from aceglt.numerics.masks import Masks
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit, MakeElements

FEATURES, UNITS, CLASSES = 12, 6, 3


def level_of(method: Cgp, **settings: object) -> Level:
    problem = tiny_problem()
    given = {"seeds": (3, 8), "epochs": 12, "hidden": UNITS, "axis": "joint", "prune_model": 0.5, "prune_graph": 0.3}
    config = resolve(method="cgp", **{**given, **settings})
    search = Search(problem, GCN(FEATURES, CLASSES, UNITS), method, config)
    return search.level(search.train_dense(State()))


def test_the_schedule_is_cubic() -> None:
    assert [fallen(at) for at in (0.0, 0.5, 1.0, 2.0)] == [0.0, 0.875, 1.0, 1.0]


def test_elements_fall_by_the_schedule_in_the_first_half_and_stay_then() -> None:
    """Of six steps, every second prunes; a third of the way 1 - (2/3)³ = 19/27 of what goes has gone."""
    method = Cgp(interval=2, features=0.0)
    level, alive = level_of(method), list[list[int]]()

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def counted(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            elements, counts = make(backbone, start, runs), []
            for _ in range(6 if phase.endswith("falling") else 0):
                grads = {n: torch.randn_like(p) for n, p in elements.weights.items()}
                elements.update(grads, torch.zeros_like(elements.edge_values))
                counts.append(int(elements.scores().weights[0].sum()))
            alive.append(counts)
            return make(backbone, start, runs)

        return level.train_elements(counted if phase.endswith("falling") else make, masks, epochs, phase)

    method.select(replace(level, train_elements=train))
    total, keep = level.masks.total.weights, level.keep.weights
    expected = [total - round(gone * (total - keep)) for gone in (19 / 27, 26 / 27, 1)]
    assert alive[0] == [total, expected[0], expected[0], expected[1], expected[1], expected[2]]


def test_features_go_with_all_weights_that_read_them_and_counts_stay_exact() -> None:
    method = Cgp(interval=2, features=1.0)
    level = level_of(method)
    selection = method.select(level)
    assert selection.masks.alive == level.keep
    least = int((1 - level.keep.weights / level.masks.total.weights) * FEATURES)
    read = selection.masks.weights[:, : FEATURES * UNITS].view(-1, FEATURES, UNITS).any(dim=2)
    dead = (~read).sum(dim=1).tolist()
    assert selection.diagnostics["cgp"]["dead_features"] == dead
    assert min(dead) >= least > 0


def test_a_dead_feature_is_one_that_no_weight_reads() -> None:
    backbone = GCN(FEATURES, CLASSES, UNITS, skip="linear")
    weights = torch.zeros(1, backbone.prunable.size, dtype=torch.bool)
    parts = backbone.prunable.split(weights)
    parts["layer0.weight"][0, 2, 1] = True
    parts["layer0.skip"][0, 5, 0] = True
    parts["layer1.weight"][0, 0, 0] = True  # reads a hidden unit
    found = dead_features(backbone, Masks(weights, torch.ones(1, 1, dtype=torch.bool)))
    assert found == {"dead_features": [FEATURES - 2]}


def test_a_dead_feature_may_come_back_by_its_gradient() -> None:
    """The first step raises the values of all features but one, which goes; the second has a gradient of it alone."""
    method = Cgp(interval=1, features=1.0, regrow=0.5)
    level, alive = level_of(method, seeds=(3,), weight_decay=0.0), list[bool]()

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def stepped(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            elements = make(backbone, start, runs)
            for others in (True, False):
                grads = {n: torch.zeros_like(p) for n, p in elements.weights.items()}
                chosen = (torch.arange(FEATURES) != 4) if others else torch.arange(FEATURES) == 4
                grads["layer0.weight"][:, chosen] = -elements.weights["layer0.weight"][:, chosen].sign()
                elements.update(grads, torch.zeros_like(elements.edge_values))
                kept = elements.scores().weights[0, : FEATURES * UNITS].view(FEATURES, UNITS)
                alive.append(bool(kept[4].any()))
            return make(backbone, start, runs)

        return level.train_elements(stepped, masks, epochs, phase)

    method.select(replace(level, train_elements=train))
    assert alive[:2] == [False, True]


def test_values_of_edges_stay_at_one_where_no_edge_goes() -> None:
    method, seen = Cgp(), list[tuple[torch.Tensor, torch.Tensor]]()
    level = level_of(method, axis="model", fixed_graph=0.0)

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def kept(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            elements = make(backbone, start, runs)
            seen.append((elements.edge_values.clone(), elements.edge_values))
            return elements

        return level.train_elements(kept, masks, epochs, phase)

    method.select(replace(level, train_elements=train))
    assert all(torch.equal(first, last) for first, last in seen)


def test_a_backbone_that_does_not_say_what_reads_features_is_refused_before_anything_is_trained() -> None:
    problem = tiny_problem()
    config = Config(method="cgp", backbone="resgcn", seeds=(0,), epochs=2)
    with pytest.raises(ConfigError, match=r"cgp: resgcn does not say .* use -m features=0"):
        Search(problem, ResGCN(FEATURES, CLASSES, 6, layers=3), Cgp(), config)
