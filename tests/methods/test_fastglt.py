"""FastGLT: what an exchange drops and grows, known by hand, and how it goes on in a training."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config import resolve
from aceglt.errors import ConfigError
from aceglt.methods import Fastglt, Level
from aceglt.methods.fastglt import degree_term, exchanged
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit, MakeElements


def level_of(**settings: object) -> Level:
    problem = tiny_problem()
    given = {"seeds": (3,), "epochs": 8, "hidden": 6, "axis": "joint", "prune_model": 0.5, "prune_graph": 0.3}
    config = resolve(method="fastglt", **{**given, **settings})
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Fastglt(), config)
    return search.level(search.train_dense(State()))


def test_the_smallest_alive_change_places_with_those_of_the_highest_growth() -> None:
    alive = torch.tensor([[True, True, True, False, False, False]])
    magnitude = torch.tensor([[0.3, 0.1, 0.2, 0.0, 0.0, 0.0]])
    growth = torch.tensor([[9.0, 0.5, 0.2, 0.1, 0.7, 0.4]])
    key = rng.keys([0], "x")
    assert exchanged(alive, magnitude, growth, 1, key).tolist() == [[True, False, True, False, True, False]]
    # Both that are dropped may grow again, and one does.
    assert exchanged(alive, magnitude, growth, 2, key).tolist() == [[True, True, False, False, True, False]]


def test_the_degree_term_is_that_of_the_alive_edges() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 0, 1, 3], [1, 2, 2, 4]]), 5)
    alive = torch.tensor([[True, True, False, False]])  # degrees 2, 1, 1 and, without any, 0.9
    expected = torch.tensor([[2**-1.5, 2**-1.5, 1.0, 0.81**-1.5]])
    torch.testing.assert_close(degree_term(graph, alive), expected)


def test_an_exchange_replaces_the_share_of_its_step_and_counts_stay_exact() -> None:
    """Of 8 steps the third and the sixth exchange; shares are those of a cosine that falls from α to 0."""
    level, seen = level_of(), list[Masks]()

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def stepped(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            elements = make(backbone, start, runs)
            for step in range(9):
                now = elements.scores()
                seen.append(Masks(now.weights > 0, now.edges > 0))
                values = elements.scores().edges
                assert bool((elements.edge_values[values == 0] == 0).all())
                grads = {
                    n: torch.randn(p.shape, generator=torch.Generator().manual_seed(step))
                    for n, p in elements.weights.items()
                }
                elements.update(grads, torch.zeros_like(elements.edge_values))
            return make(backbone, start, runs)

        return level.train_elements(stepped, masks, epochs, phase)

    Fastglt(share=0.5, pretrain_epochs=2).select(replace(level, train_elements=train))
    keep = level.keep
    assert all((masks.alive.weights, masks.alive.edges) == (keep.weights, keep.edges) for masks in seen)
    gone = [int((before.weights & ~after.weights).sum()) for before, after in pairwise(seen)]
    assert [step for step, count in enumerate(gone, 1) if count] == [3, 6]
    shares = [0.25 * (1 + math.cos(math.pi * step / 8)) for step in (3, 6)]
    assert gone[2] <= int(shares[0] * keep.weights)
    assert gone[5] <= int(shares[1] * keep.weights)


def test_a_search_ends_with_masks_of_an_epoch_and_says_what_grew() -> None:
    level = level_of()
    selection = Fastglt(pretrain_epochs=2).select(level)
    assert (selection.masks.alive.weights, selection.masks.alive.edges) == (level.keep.weights, level.keep.edges)
    assert set(selection.diagnostics["fastglt"]["grown"]) == {"weights", "edges"}
    assert selection.epochs == 10


def test_values_of_edges_stay_at_one_where_no_edge_goes() -> None:
    level, seen = level_of(axis="model", fixed_graph=0.0), list[PlainElements]()

    def train(make: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        def kept(backbone: Backbone, start: Start, runs: slice) -> PlainElements:
            seen.append(make(backbone, start, runs))
            return seen[-1]

        return level.train_elements(kept, masks, epochs, phase)

    Fastglt(pretrain_epochs=2).select(replace(level, train_elements=train))
    assert all(bool((elements.edge_values == 1).all()) for elements in seen)


@pytest.mark.parametrize(("option", "value"), [("pretrain_epochs", 0), ("interval", 1), ("share", 1.0)])
def test_options_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"fastglt: {option} must be"):
        Fastglt(**{option: value})  # type: ignore[arg-type]
