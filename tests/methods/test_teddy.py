"""TEDDY: scores of edges on a tiny graph, known by hand, and weights by projected steps of Adam."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import torch
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.config import resolve
from aceglt.methods import Level, Teddy
from aceglt.methods.teddy import edge_scores
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.searches.levels import Search
from aceglt.searches.state import State
from aceglt.training.fit import Fit, MakeElements


def search_with(**settings: object) -> tuple[Search, Level]:
    problem = tiny_problem()
    config = resolve(method="teddy", seeds=(3,), epochs=4, hidden=6, axis="joint", prune_model=0.5, **settings)
    search = Search(problem, GCN(problem.x.shape[1], 3, 6), Teddy(), config)
    return search, search.level(search.train_dense(State()))


def test_scores_of_edges_are_those_of_the_paper() -> None:
    """A triangle 0, 1, 2 with a leaf 3 at node 0: degrees 3, 2, 2, 1."""
    graph = Graph.from_edge_index(torch.tensor([[0, 0, 1, 0], [1, 2, 2, 3]]), 4)
    g = [(2 / sqrt(2) + 1) / 3, (1 / sqrt(3) + 1 / sqrt(2)) / 2, (1 / sqrt(3) + 1 / sqrt(2)) / 2, 1 / sqrt(3)]
    d = [3, 2, 2, 1]
    expected = [g[u] * g[v] / (d[u] * d[v]) for u, v in graph.edges.t().tolist()]
    torch.testing.assert_close(edge_scores(graph), torch.tensor(expected, dtype=torch.float64))


def test_the_edges_of_lowest_score_go() -> None:
    _, level = search_with(prune_graph=0.3)
    kept, scores = Teddy().select(level).masks.edges[0], edge_scores(level.graph)
    assert float(scores[~kept].max()) <= float(scores[kept].min())


def test_isolated_nodes_have_no_part_in_scores() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 3)
    assert edge_scores(graph).tolist() == [1.0]


def test_every_step_keeps_the_largest_weights() -> None:
    """A step of Adam on all weights, without a projection, says which are the largest."""
    _, level = search_with(score_epoch="last", signal="labels", prune_graph=0.3)
    ended: list[Scores] = []

    def one_step(elements: MakeElements, masks: Masks, epochs: int, phase: str) -> Fit:
        fit = level.train_elements(elements, masks, 1, phase)
        free = level.train(masks, 1, phase).params
        assert fit.scores is not None
        assert free is not None
        ended.extend([fit.scores, Scores(free.prunable, fit.scores.edges)])
        return fit

    chosen = Teddy().select(replace(level, train_elements=one_step)).masks
    projected, free = (scores.weights[0] for scores in ended)
    kept = chosen.weights[0]
    assert torch.equal(projected, free * kept)
    assert int((projected != 0).sum()) == level.keep.weights
    assert float(free[~kept].abs().max()) <= float(free[kept].abs().min())
    assert torch.equal(ended[0].edges, chosen.edges.float())


def test_weights_are_chosen_anew_and_edges_never_come_back() -> None:
    _, level = search_with()
    dead = Masks(torch.zeros_like(level.masks.weights), level.masks.edges.clone())
    dead.edges[:, ::2] = False
    keep = Counts(level.keep.weights, int(dead.edges.sum()) - 2)
    chosen = Teddy().select(replace(level, masks=dead, keep=keep)).masks
    assert int(chosen.weights.sum()) == keep.weights
    assert not bool((chosen.edges & ~dead.edges).any())


def test_the_usual_signal_is_the_teacher_as_it_is() -> None:
    config = resolve(method="teddy")
    scoring = config.scoring
    assert (scoring.signal, scoring.teacher_temperature, scoring.teacher_smoothing) == ("teacher", 1.0, 0.0)
