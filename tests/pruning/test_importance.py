"""Importance of elements, its change between levels, and the edges that are followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from search_samples import search

from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks, Scores
from aceglt.pruning.importance import Excerpt, fluctuation, importance, ranks


def _scores(*values: float) -> Scores:
    return Scores(torch.tensor([values]), torch.tensor([values]))


def _alive(*values: bool) -> Masks:
    return Masks(torch.tensor([values]), torch.tensor([values]))


@given(st.lists(st.integers(-3, 3), min_size=1))
def test_ranks_are_mean_places_of_equals(values: list[int]) -> None:
    expected = rankdata(values) / len(values)
    assert ranks(torch.tensor(values, dtype=torch.float32)).tolist() == pytest.approx(expected.tolist())


def test_importance_is_the_magnitude_and_nothing_for_the_dead() -> None:
    found = importance(_scores(-2.0, 0.0, 1.0), _alive(True, True, False)).edges[0]
    assert found[:2].tolist() == [2.0, 0.0]
    assert found[2].isnan()


def test_the_same_order_does_not_fluctuate_whatever_was_pruned_between() -> None:
    before = importance(_scores(1.0, 2.0, 3.0, 4.0), _alive(True, True, True, True))
    now = importance(_scores(0.0, 0.1, 0.7, 9.0), _alive(False, True, True, True))
    assert fluctuation(before, now) == {"weights": [0.0], "edges": [0.0]}


def test_fluctuation_is_the_mean_change_of_ranks_among_those_alive_at_both() -> None:
    before = importance(_scores(1.0, 2.0, 3.0, 4.0, 5.0), _alive(True, True, True, True, False))
    now = importance(_scores(4.0, 3.0, 2.0, 1.0, 6.0), _alive(True, True, True, True, True))
    assert fluctuation(before, now)["edges"] == pytest.approx([(3 + 1 + 1 + 3) / 4 / 4])


def test_unrelated_orders_fluctuate_by_a_third() -> None:
    a, b = (rng.uniform(rng.keys([0, 1], name), 20_000) for name in ("a", "b"))
    for values in fluctuation(Scores(a, a), Scores(b, b)).values():
        assert values == pytest.approx([1 / 3, 1 / 3], abs=0.01)


def test_many_elements_are_sampled_without_changing_what_is_said() -> None:
    a, noise = (rng.uniform(rng.keys([0], name), 300_000) for name in ("a", "noise"))
    b = a + 0.2 * noise
    whole = float((ranks(b[0]) - ranks(a[0])).abs().mean())
    assert fluctuation(Scores(a, a), Scores(b, b))["edges"] == pytest.approx([whole], rel=0.02)
    assert fluctuation(Scores(a, a), Scores(2 * a, 2 * a))["edges"] == [0.0]


def test_nothing_alive_at_both_levels_has_no_fluctuation() -> None:
    before = importance(_scores(1.0, 2.0), _alive(True, False))
    now = importance(_scores(1.0, 2.0), _alive(False, True))
    assert fluctuation(before, now) == {"weights": [None], "edges": [None]}


# The followed edges


def _graph(nodes: int, arcs: list[tuple[int, int]]) -> Graph:
    return Graph.from_edge_index(torch.tensor(arcs, dtype=torch.long).reshape(-1, 2).t(), nodes)


def test_an_excerpt_is_connected_and_small() -> None:
    star_of_chains = [(0, i) for i in range(1, 9)] + [(i, i + 8) for i in range(1, 90)]
    graph = _graph(99, star_of_chains)
    ends = Excerpt.of(graph).ends(graph)
    reached = {0}
    for _ in ends:
        reached |= {node for edge in ends if reached & set(edge) for node in edge}
    assert reached == {node for edge in ends for node in edge}
    assert len(reached) == 24
    assert {(0, i) for i in range(1, 9)} <= {(a, b) for a, b in ends}


def test_an_excerpt_of_a_small_graph_is_its_component() -> None:
    graph = _graph(6, [(0, 1), (1, 2), (0, 2), (4, 5)])
    assert Excerpt.of(graph).ends(graph) == [[0, 1], [0, 2], [1, 2]]


def test_a_graph_without_edges_has_an_empty_excerpt() -> None:
    assert Excerpt.of(_graph(3, [])).ends(_graph(3, [])) == []


def test_an_excerpt_shows_importance_and_rank_of_its_edges_among_all() -> None:
    seen = Excerpt(torch.tensor([1, 2])).look(
        torch.tensor([True, True, False, True]), torch.tensor([5.0, 2.0, torch.nan, 1.0])
    )
    assert seen == {"alive": [True, False], "importance": [2.0, None], "rank": [pytest.approx(2 / 3), None]}


# In a search


@pytest.mark.parametrize("method", ["ugs", "ace"])
def test_a_search_records_fluctuation_from_the_second_level_on(method: str) -> None:
    options = {"method_options": {"rounds": 1, "refine_epochs": 1}} if method == "ace" else {}
    first, *later = search(method=method, levels=3, **options).results["levels"]
    assert first["fluctuation"] is None
    for level in later:
        assert set(level["fluctuation"]) == {"weights", "edges"}
        assert all(len(values) == 2 and all(0 <= v <= 0.5 for v in values) for values in level["fluctuation"].values())
        assert any(value > 0 for value in level["fluctuation"]["weights"])


@pytest.mark.parametrize("method", ["random", "gebt"])
def test_a_method_without_scores_has_no_fluctuation(method: str) -> None:
    for level in search(method=method).results["levels"]:
        assert level["fluctuation"] is None
        assert level["excerpt"]["importance"] is None
        assert len(level["excerpt"]["alive"]) > 0


def test_the_excerpt_of_a_search_agrees_with_its_tickets(tmp_path: Path) -> None:
    result = search(axis="graph", tickets="all", out=tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    for level, ticket in zip(results["levels"], [t for t in result.tickets if t.seed == 0], strict=True):
        pairs = ticket.graph.edges.t().tolist()
        alive = [bool(ticket.masks.edges[0, pairs.index(edge)]) for edge in results["excerpt"]["edges"]]
        assert level["excerpt"]["alive"] == alive
    assert all(value is not None for value in results["levels"][0]["excerpt"]["rank"])


def test_a_continued_search_fluctuates_as_one_in_a_single_go(tmp_path: Path) -> None:
    search(out=tmp_path / "run", levels=2)
    continued = search(out=tmp_path / "run", levels=3).results["levels"]
    assert [lv["fluctuation"] for lv in continued] == [lv["fluctuation"] for lv in search(levels=3).results["levels"]]
    assert continued[2]["fluctuation"] is not None
