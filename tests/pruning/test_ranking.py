"""Rankings, and choices by them: exact counts, the lowest really are the lowest, ties are random and seeded."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import generator, random_graph
from scipy import stats
from torch import Tensor

from aceglt.backbones.base import Layout
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks, Quota, Scores
from aceglt.pruning.ranking import Ranking, lowest, prune


def test_a_plain_ranking_is_by_magnitude_and_all_weights_compete() -> None:
    graph, scores = random_graph(), Scores(torch.tensor([[-2.0, 1.0]]), torch.randn(1, random_graph().num_edges))
    found = Ranking().importance(graph, scores, Masks.full(1, scores.total))
    assert torch.equal(found.weights, torch.tensor([[2.0, 1.0]]))
    assert torch.equal(found.edges, scores.edges.abs())
    assert Ranking().quotas(Layout((("w", (3, 4)),)), 6) == []


def test_the_degree_bonus_is_what_an_edge_weighs_in_symmetric_normalisation() -> None:
    graph = random_graph()
    alive = torch.rand(2, graph.num_edges, generator=generator(1)) < 0.6
    scores = Scores(torch.ones(2, 1), torch.randn(2, graph.num_edges, generator=generator(2)))
    ranking = Ranking(degree_bonus=0.5)
    found = ranking.importance(graph, scores, Masks(torch.ones(2, 1, dtype=torch.bool), alive))
    for run in range(2):
        edges = graph.edges[:, alive[run]]
        degree = torch.bincount(edges.flatten(), minlength=graph.num_nodes) + 1
        expected = (
            scores.edges[run, alive[run]].abs() + ranking.bonus(graph) / (degree[edges[0]] * degree[edges[1]]).sqrt()
        )
        torch.testing.assert_close(found.edges[run, alive[run]], expected)


def test_the_degree_bonus_grows_where_nodes_have_more_than_five_neighbours() -> None:
    ring = torch.arange(40)
    for degree, factor in ((2, 1.0), (4, 1.0), (6, 1.44), (10, 4.0), (30, 36.0)):
        arcs = [torch.stack([ring, (ring + step) % 40]) for step in range(1, degree // 2 + 1)]
        graph = Graph.from_edge_index(torch.cat(arcs, dim=1), 40)  # each node has so many neighbours
        scores = Scores(torch.ones(1, 1), torch.full((1, graph.num_edges), 3.0))
        found = Ranking(degree_bonus=2.0).importance(graph, scores, Masks.full(1, scores.total)).edges
        torch.testing.assert_close(found, torch.full_like(found, 3.0 + 2.0 * factor / (degree + 1)))


@st.composite
def choices(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    """Values [S, n] with many ties, candidates of the same number in each run, and how many to choose."""
    runs, n = draw(st.integers(1, 3)), draw(st.integers(1, 15))
    count = draw(st.integers(0, n))
    orders = [draw(st.permutations(range(n))) for _ in range(runs)]
    candidates = torch.tensor([[position < count for position in order] for order in orders])
    values = draw(st.lists(st.integers(-2, 2), min_size=runs * n, max_size=runs * n))
    return torch.tensor(values, dtype=torch.float32).view(runs, n), candidates, draw(st.integers(0, count))


@settings(max_examples=150)
@given(choices(), st.integers(0, 100))
def test_lowest_takes_exactly_k_candidates_none_above_one_left(case: tuple[Tensor, Tensor, int], seed: int) -> None:
    values, candidates, k = case
    chosen = lowest(values, candidates, k, rng.keys(range(seed, seed + len(values)), "lowest"))
    assert chosen.sum(dim=1).tolist() == [k] * len(values)
    assert not bool((chosen & ~candidates).any())
    for value, taken, candidate in zip(values, chosen, candidates, strict=True):
        left = candidate & ~taken
        if taken.any() and left.any():
            assert float(value[taken].max()) <= float(value[left].min())


@settings(max_examples=80)
@given(choices(), st.integers(0, 100))
def test_lowest_is_a_function_of_the_key_and_not_of_the_batch(case: tuple[Tensor, Tensor, int], seed: int) -> None:
    values, candidates, k = case
    key = rng.keys(range(seed, seed + len(values)), "lowest")
    together = lowest(values, candidates, k, key)
    assert torch.equal(together, lowest(values, candidates, k, key))
    for run in range(len(values)):
        one = slice(run, run + 1)
        assert torch.equal(lowest(values[one], candidates[one], k, key[one]), together[one])


@pytest.mark.parametrize("dead", [0, 1, 7], ids=lambda column: f"column {column} of 8 is dead")
def test_lowest_of_many_is_that_of_a_sort_whichever_column_is_dead(dead: int) -> None:
    values = torch.rand(1, 1 << 17, generator=generator(0))
    candidates = torch.arange(1 << 17).view(1, -1) % 8 != dead
    chosen = lowest(values, candidates, 1000, rng.keys([0], "x"))
    assert torch.equal(values[chosen].sort().values, values[candidates].sort().values[:1000])


def test_lowest_refuses_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="asked for 3 of 2 candidates"):
        lowest(torch.zeros(1, 4), torch.tensor([[True, True, False, False]]), 3, rng.keys([0], "many"))


def test_ties_are_broken_at_random_each_tied_element_equally_often() -> None:
    values = torch.tensor([0.0, *[1.0] * 10, 2.0]).expand(4000, 12)
    chosen = lowest(values, torch.ones(4000, 12, dtype=torch.bool), 4, rng.keys(range(4000), "ties"))
    counts = chosen.sum(dim=0)
    assert int(counts[0]) == 4000
    assert int(counts[-1]) == 0
    assert int(counts[1:-1].sum()) == 3 * 4000
    # Drawn without replacement the counts vary less than independent ones by (n − k)/(n − 1).
    expected = 3 * 4000 / 10
    statistic = float(((counts[1:-1] - expected) ** 2 / expected).sum()) / (1 - 3 / 10) * 9 / 10
    assert 0.01 < stats.chi2.sf(statistic, 9) < 0.99


def masks_and_scores(runs: int, weights: int, edges: int, value: float) -> tuple[Masks, Scores]:
    masks = Masks.full(runs, Counts(weights, edges))
    return masks, Scores(torch.full((runs, weights), value), torch.full((runs, edges), value))


@settings(max_examples=80)
@given(st.integers(1, 3), st.integers(1, 30), st.integers(1, 30), st.data())
def test_pruning_is_exact_with_all_equal_scores(runs: int, weights: int, edges: int, data: st.DataObject) -> None:
    masks, scores = masks_and_scores(runs, weights, edges, 1.0)
    for _ in range(2):
        alive = masks.alive
        keep = Counts(data.draw(st.integers(0, alive.weights)), data.draw(st.integers(0, alive.edges)))
        pruned = prune(masks, scores, keep, rng.keys(range(runs), "prune"))
        assert pruned.weights.sum(dim=1).tolist() == [keep.weights] * runs
        assert pruned.edges.sum(dim=1).tolist() == [keep.edges] * runs
        assert not bool((pruned.weights & ~masks.weights).any())
        assert not bool((pruned.edges & ~masks.edges).any())
        masks = pruned


def test_pruning_goes_by_magnitude_on_each_side_by_itself() -> None:
    masks = Masks.full(1, Counts(5, 4))
    scores = Scores(torch.tensor([[-3.0, 0.1, -0.2, 2.0, 1.0]]), torch.tensor([[0.01, -0.02, -5.0, 4.0]]))
    pruned = prune(masks, scores, Counts(3, 3), rng.keys([0], "prune"))
    assert pruned.weights.tolist() == [[True, False, False, True, True]]
    assert pruned.edges.tolist() == [[False, True, True, True]]


def test_pruning_never_counts_dead_elements_whose_score_is_zero() -> None:
    masks = Masks(torch.tensor([[False, False, True, True, True]]), torch.tensor([[True]]))
    scores = Scores(torch.tensor([[0.0, 0.0, 3.0, 1.0, 2.0]]), torch.ones(1, 1))
    pruned = prune(masks, scores, Counts(2, 1), rng.keys([0], "prune"))
    assert pruned.weights.tolist() == [[False, False, True, False, True]]


def test_pruning_draws_ties_by_the_key() -> None:
    masks, scores = masks_and_scores(2, 40, 40, 1.0)

    def pruned(*seeds: int) -> Masks:
        return prune(masks, scores, Counts(20, 20), rng.keys(seeds, "prune"))

    first = pruned(0, 1)
    assert torch.equal(first.weights, pruned(0, 1).weights)
    assert not torch.equal(first.weights, pruned(2, 3).weights)
    assert not torch.equal(first.edges, pruned(2, 3).edges)
    assert not torch.equal(first.weights[0], first.weights[1])
    assert not torch.equal(first.weights, first.edges)


def test_pruning_by_quotas_ranks_each_part_by_itself() -> None:
    masks = Masks.full(1, Counts(6, 1))
    scores = Scores(torch.tensor([[1.0, -9.0, 2.0, 0.3, -0.1, 0.2]]), torch.ones(1, 1))
    quotas = [Quota(slice(0, 3), 1), Quota(slice(3, 6), 2)]
    pruned = prune(masks, scores, Counts(3, 1), rng.keys([0], "prune"), quotas)
    assert pruned.weights.tolist() == [[False, True, False, True, False, True]]


def test_what_quotas_leave_goes_to_the_best_of_all_others() -> None:
    """Both runs keep the best of each half; of the rest the best two, wherever they are."""
    masks = Masks.full(2, Counts(6, 1))
    scores = Scores(torch.tensor([[9.0, -8, 7, 0.3, 0.1, 0.2], [0.3, 0.1, 0.2, 9, 8, 7]]), torch.ones(2, 1))
    quotas = [Quota(slice(0, 3), 1), Quota(slice(3, 6), 1)]
    pruned = prune(masks, scores, Counts(4, 1), rng.keys([0, 1], "prune"), quotas)
    assert pruned.weights.int().tolist() == [[1, 1, 1, 1, 0, 0], [1, 0, 0, 1, 1, 1]]
    later = prune(pruned, scores, Counts(3, 1), rng.keys([0, 1], "prune"), quotas)  # halves are not as full in both
    assert later.weights.int().tolist() == [[1, 1, 0, 1, 0, 0], [1, 0, 0, 1, 1, 0]]


def test_ties_are_broken_fairly_between_and_within_quotas() -> None:
    """Two matrices of equal scores keep about as much, and not at the same places."""
    n, key = 2000, rng.keys([0], "prune")
    masks, equal = Masks.full(1, Counts(2 * n, 1)), Scores(torch.ones(1, 2 * n), torch.ones(1, 1))
    for kept in (0, 600, 800):
        quotas = [Quota(slice(0, n), kept), Quota(slice(n, 2 * n), kept)]
        first, second = prune(masks, equal, Counts(1600, 1), key, quotas).weights[0].split(n)
        assert abs(int(first.sum()) - 800) < 100
        assert abs(int((first & second).sum()) - 320) < 80  # 0.4 · 0.4 · 2000 by chance


def test_pruning_needs_as_many_alive_in_every_run_and_enough_for_quotas() -> None:
    key = rng.keys([0, 1], "prune")
    edges, scores = torch.ones(2, 1, dtype=torch.bool), Scores(torch.ones(2, 4), torch.ones(2, 1))
    uneven = Masks(torch.tensor([[True, True, False, False], [True, False, False, False]]), edges)
    with pytest.raises(ValueError, match=r"asked to keep 1 of \[1, 2\] alive elements"):
        prune(uneven, scores, Counts(1, 1), key)
    with pytest.raises(ValueError, match="asked for 1 of 0 candidates"):
        prune(uneven, scores, Counts(1, 1), key, [Quota(slice(2, 4), 1)])


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]))
def test_all_runs_at_once_choose_what_each_chooses_alone(runs: int, n: int, seed: int, dtype: torch.dtype) -> None:
    g = generator(seed)
    values = torch.randint(-3, 4, (runs, n), generator=g).to(dtype) * 0.7  # many ties, both signs, zeros
    candidates = torch.rand(runs, n, generator=g) < 0.7
    k = int(torch.randint(0, int(candidates.sum(dim=1).min()) + 1, (1,), generator=g))
    key = rng.keys(range(runs), seed)
    assert torch.equal(
        lowest(values, candidates, k, key, together=True), lowest(values, candidates, k, key, together=False)
    )


def test_all_runs_at_once_need_enough_candidates() -> None:
    values, candidates = torch.ones(2, 3), torch.tensor([[True, True, True], [True, False, False]])
    with pytest.raises(ValueError, match="asked for 2 of 1 candidates"):
        lowest(values, candidates, 2, rng.keys([0, 1], "x"), together=True)


def test_pruning_refuses_to_keep_fewer_than_none() -> None:
    masks, scores = masks_and_scores(1, 4, 4, 1.0)
    with pytest.raises(ValueError, match="asked for 5 of 4 candidates"):
        prune(masks, scores, Counts(-1, 4), rng.keys([0], "prune"))
