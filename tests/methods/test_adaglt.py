"""AdaGLT: what passes thresholds, and how thresholds and weights move, from autograd and by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config import resolve
from aceglt.methods import Adaglt, Level
from aceglt.methods.adaglt import SPREAD, explained, furthest, slope
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit, MakeElements


def level_of(**settings: object) -> Level:
    problem = tiny_problem()
    given = {"seeds": (3,), "epochs": 8, "hidden": 6, "axis": "joint", "prune_model": 0.5, "prune_graph": 0.3}
    config = resolve(method="adaglt", **{**given, **settings})
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Adaglt(), config)
    return search.level(search.train_dense(State()))


def test_the_slope_of_a_step_is_the_long_tailed_one() -> None:
    margin = torch.tensor([-2.0, -1.0, -0.5, -0.25, 0.0, 0.1, 0.4, 0.9, 1.5])
    expected = torch.tensor([0.0, 0.4, 0.4, 1.0, 2.0, 1.6, 0.4, 0.4, 0.0])
    torch.testing.assert_close(slope(margin), expected)


def test_an_edge_is_explained_by_the_features_of_its_ends_in_both_orders() -> None:
    """By a multilayer perceptron on both features side by side, as torch has it."""
    graph = Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]), 3)
    x, (a, b, out) = torch.eye(3), (torch.randn(1, *shape) for shape in ((3, 5), (3, 5), (5, 1)))
    both = torch.cat([a[0], b[0]])
    said = []
    for u, v in graph.edges.t().tolist():
        orders = [torch.relu(torch.cat([x[i], x[j]]) @ both) @ out[0] for i, j in ((u, v), (v, u))]
        said.append(sum(orders))
    expected = torch.stack(said).flatten()  # type: ignore[arg-type]
    expected = SPREAD * (expected - expected.mean()) / expected.std(correction=0)
    torch.testing.assert_close(explained(Features(x), graph, a, b, out)[0], expected)


def test_those_stay_that_are_furthest_above_their_thresholds_or_least_below() -> None:
    level = level_of(seeds=(0,))
    level = Level(1, level.masks, Counts(2, 1), (0,), 1, level.train_scores, level.train)
    margins = Scores(torch.tensor([[-0.5, 0.1, -0.2, -0.9]]), torch.tensor([[-3.0, -2.0]]))
    kept = furthest(Masks.full(1, Counts(4, 2)), margins, level, level.key("drop"))
    assert kept.weights.tolist() == [[False, True, True, False]]
    assert kept.edges.tolist() == [[False, True]]


def test_thresholds_of_units_rise_under_the_push_and_kill_their_weights_until_the_level_is_reached() -> None:
    """Without a gradient of the loss, Adam moves every threshold by its rate, until half of the weights are dead."""
    level, counts = level_of(lr=0.02, weight_decay=0.0), list[tuple[int, int]]()

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def stepped(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            elements = make(backbone, start, runs)
            first = torch.cat([part.flatten() for part in elements.weights.values()]).abs()
            for step in range(4):
                acting = torch.cat([part.flatten() for part in elements.effective().values()]) != 0
                counts.append((int(acting.sum()), int((first > 0.02 * step).sum())))
                grads = {name: torch.zeros_like(part) for name, part in elements.weights.items()}
                elements.update(grads, torch.zeros_like(elements.edge_values))
            return make(backbone, start, runs)

        return level.train_elements(stepped, masks, epochs, phase)

    Adaglt().select(replace(level, train_elements=train))
    acting, expected = zip(*counts[:4], strict=True)
    assert acting == expected
    assert acting[0] > acting[-1] >= level.keep.weights


def test_gradients_are_those_of_soft_masks_straight_through() -> None:
    """Of a loss that is linear in what acts, by autograd through |W| - t with the slope in place of the step's."""
    level, seen = level_of(weight_decay=0.0), list[tuple[torch.Tensor, torch.Tensor]]()

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def checked(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            elements = make(backbone, start, runs)
            weight = elements.weights["layer0.weight"].clone().requires_grad_()
            margin = weight.abs()
            straight = (margin > 0).float() + (margin - margin.detach()) * slope(margin.detach())
            loss_grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
            (weight * straight * loss_grad).sum().backward()
            grads = {name: torch.zeros_like(part) for name, part in elements.weights.items()}
            elements.update({**grads, "layer0.weight": loss_grad}, torch.zeros_like(elements.edge_values))
            found = elements.weights["layer0.weight"].grad
            assert found is not None
            assert weight.grad is not None
            seen.append((found, weight.grad))
            return make(backbone, start, runs)

        return level.train_elements(checked, masks, epochs, phase)

    Adaglt().select(replace(level, train_elements=train))
    torch.testing.assert_close(*seen[0])


@pytest.mark.parametrize("side", ["weights", "edges"])
def test_a_side_of_which_nothing_goes_stays_whole(side: str) -> None:
    axis = {"weights": ("graph", {"fixed_model": 0.0}), "edges": ("model", {"fixed_graph": 0.0})}[side]
    chosen = Adaglt().select(level_of(axis=axis[0], **axis[1])).masks
    assert bool(chosen.of(side).all())
