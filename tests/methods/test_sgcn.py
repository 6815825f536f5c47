"""SGCN: values of edges by ADMM, step by step by hand, with weights that stay as they were trained."""

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
from aceglt.errors import ConfigError
from aceglt.methods import Level, Sgcn
from aceglt.numerics.masks import Masks
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit, MakeElements


@pytest.fixture(scope="module")
def level() -> Level:
    problem = tiny_problem()
    config = resolve(
        method="sgcn", seeds=(3,), epochs=4, hidden=6, axis="joint", prune_graph=0.3, weight_decay=0.0, lr=0.1
    )
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Sgcn(), config)
    return search.level(search.train_dense(State()))


def test_values_follow_the_loss_and_the_multipliers(level: Level) -> None:
    """Without a gradient of the loss the kept edges stay at 1, and the first step of Adam takes the others down."""
    made: list[PlainElements] = []

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def kept(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            made.append(make(backbone, start, runs))
            return make(backbone, start, runs)

        return level.train_elements(kept, masks, epochs, phase)

    Sgcn(rho=0.5, interval=1).select(replace(level, train_elements=train))
    elements = made[0]
    weights = {name: part.clone() for name, part in elements.weights.items()}
    before, none = elements.edge_values.clone(), torch.zeros_like(elements.edge_values)
    elements.update({name: torch.ones_like(part) for name, part in weights.items()}, none)
    down = before - elements.edge_values
    torch.testing.assert_close(down[down > 0], torch.full_like(down[down > 0], 0.1), rtol=1e-3, atol=0)
    assert int((down == 0).sum()) == level.keep.edges
    assert all(torch.equal(part, weights[name]) for name, part in elements.weights.items())
    # U is now 0 at the kept edges and A elsewhere, so the others are pulled by A - 0 + A.
    elements.update({name: torch.ones_like(part) for name, part in weights.items()}, none)
    assert bool((elements.edge_values[down > 0] < 0.9).all())


def test_the_edges_of_lowest_value_and_the_weights_of_lowest_magnitude_go(level: Level) -> None:
    ended: list[Fit] = []

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        ended.append(level.train_elements(make, masks, epochs, phase))
        return ended[-1]

    selection = Sgcn(interval=2).select(replace(level, train_elements=train))
    trained = level.train(level.masks, level.epochs, "weights", by_signal=True).params
    assert trained is not None
    assert ended[0].scores is not None
    found = ((trained.prunable, selection.masks.weights), (ended[0].scores.edges, selection.masks.edges))
    for values, kept in found:
        assert float(values[~kept].abs().max()) <= float(values[kept].abs().min())
    assert selection.epochs == 2 * level.epochs


def test_the_label_says_what_becomes_of_weights() -> None:
    assert resolve(method="sgcn").label == "sgcn (labels, weights by magnitude)"


@pytest.mark.parametrize(("option", "value"), [("rho", 0.0), ("interval", 0)])
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"sgcn: {option} must be"):
        Sgcn(**{option: value})  # type: ignore[arg-type]
