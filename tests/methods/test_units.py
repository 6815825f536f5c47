"""Every method that can choose whole units does, with the counts, the seeds and the files of any search."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from contract import EPOCHS, METHOD_ROWS, SEEDS, equal
from samples import tiny_problem

from aceglt.backbones import GCN, Params
from aceglt.config import METHOD_OPTIONS, Config
from aceglt.numerics.masks import Masks
from aceglt.runs import checkpoint
from aceglt.searches.levels import Search
from aceglt.searches.state import State, joined
from aceglt.searches.stopping import enough, reason_to_stop

METHODS = [name for name, kind in METHOD_OPTIONS.items() if kind.by_units]
LEVELS = 2
OPTIONS = {"layers": 3, "norm": "layer", "skip": "linear", "bias": True}


def search_of(method: str, seeds: tuple[int, ...] = SEEDS, **settings: object) -> Search:
    problem = tiny_problem()
    config = Config(seeds=seeds, epochs=EPOCHS, **{"structure": "units,features", "hidden": 6, **settings})  # type: ignore[arg-type]
    backbone = GCN(problem.x.shape[1], problem.out_features, 6, **OPTIONS).with_whole_units()
    return Search(problem, backbone, METHOD_ROWS[method].make(), config)


@cache
def found(method: str, seeds: tuple[int, ...] = SEEDS) -> tuple[Search, list[State], Params]:
    search = search_of(method, seeds)
    states, params = [search.train_dense(State())], None
    for _ in range(LEVELS):
        states.append(search.select(states[-1]))
        state, params = search.retrain(states[-1])
        states.append(state)
    assert params is not None
    return search, states, params


def masks_of(state: State) -> Masks:
    assert state.masks is not None
    return state.masks


def test_these_methods_choose_units() -> None:
    assert {"random", "ugs", "ace", "gebt", "magnitude"} <= set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_whole_units_go_until_few_enough_weights_are_alive(method: str) -> None:
    search, states, params = found(method)
    assert search.units is not None
    total = target = search.total.weights
    for state in states[2::2]:
        target -= round(0.2 * target)
        record, masks = state.records[-1], masks_of(state)
        assert record.structure is not None
        counts = masks.weights.sum(dim=1).tolist()
        assert record.structure["weights"] == counts
        assert all(count <= target for count in counts)
        assert torch.equal(search.units.weights(search.units.alive(masks.weights)), masks.weights)
        assert record.sparsity(search.total)[0] == pytest.approx(1 - sum(counts) / len(counts) / total, abs=1 / total)
        assert all(macs < search.macs() for macs in record.structure["macs"])
    assert not bool(params.prunable[~masks_of(states[-1]).weights].any())


@pytest.mark.parametrize("method", ["ugs", "random", "ace"])
def test_the_target_is_passed_by_less_than_a_unit(method: str) -> None:
    search, states, _ = found(method)
    assert search.units is not None
    keep = search.keep(states[0]).weights
    masks = masks_of(states[2])
    for run, count in enumerate(masks.weights.sum(dim=1).tolist()):
        alive = search.units.alive(masks.weights[run : run + 1])
        dead = (~alive[0]).nonzero().squeeze(1)
        more = [alive.clone().index_fill_(1, unit, True) for unit in dead]  # one unit back
        assert max(int(search.units.weights(units).sum()) for units in more) > keep >= count


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_ends_alone_as_in_a_batch(method: str) -> None:
    _, together, params = found(method)
    _, alone, own = found(method, SEEDS[1:])
    assert equal(masks_of(together[-1])[1:2], masks_of(alone[-1]))
    assert torch.equal(params.prunable[1:], own.prunable)
    assert torch.equal(params.other[1:], own.other)
    outcomes = [[record.outcome.val for record in states[-1].records] for states in (together, alone)]
    assert [val[1:] for val in outcomes[0]] == outcomes[1]


def test_biases_and_norms_of_dead_units_are_gone() -> None:
    search, states, params = found("ugs")
    named, alive = search.backbone.weights(params), search.backbone.prunable.split(masks_of(states[-1]).weights)
    for number in range(2):
        dead = ~alive[f"layer{number}.weight"].any(dim=1)
        assert bool(dead.any())
        for name in (f"layer{number}.bias", f"norm{number}.scale", f"norm{number}.shift"):
            assert not bool(named[name][:, 0][dead].any())
        assert bool(named[f"norm{number}.scale"][:, 0][~dead].all())


@pytest.mark.parametrize("method", ["ugs", "ace"])
def test_a_search_continues_from_a_file_to_the_same_end(method: str, tmp_path: Path) -> None:
    _, states, params = found(method)
    checkpoint.save(tmp_path / "state", states[-2])
    search = search_of(method)
    state, again = search.retrain(checkpoint.load(tmp_path / "state", search.total, len(SEEDS)))
    assert torch.equal(again.prunable, params.prunable)
    assert state.records[-1].structure == states[-1].records[-1].structure
    checkpoint.save(tmp_path / "end", state)
    assert equal(masks_of(checkpoint.load(tmp_path / "end", search.total, len(SEEDS))), masks_of(states[-1]))


def test_seeds_of_two_searches_are_joined() -> None:
    both, (first, second) = found("ugs")[1][-1], ([found("ugs", (seed,))[1][-1] for seed in SEEDS])
    made = joined(first, second, [0, 1])
    assert equal(masks_of(made), masks_of(both))
    for a, b in zip(made.records, both.records, strict=True):
        assert (a.alive, a.structure) == (b.alive, b.structure)


def test_ace_exchanges_units_of_a_layer() -> None:
    search, states, _ = found("ace")
    assert search.units is not None
    exchanged = states[-1].records[-1].diagnostics["ace"]["weights"]["exchanged"]
    assert all(sum(rounds) > 0 for rounds in exchanged)
    before, after = (search.units.widths(masks_of(s).weights) for s in (states[2], states[4]))
    assert all(a <= b for layer in before for a, b in zip(after[layer], before[layer], strict=True))


def test_a_search_ends_where_layers_may_not_get_narrower() -> None:
    search = search_of("random", floors={"features": 1, "layer0": 0.8})
    state = search.train_dense(State())
    while not enough(search, state):
        state = search.retrain(search.select(state))[0]
    assert "the units that each layer keeps have" in str(reason_to_stop(search, state))
    assert search.units is not None
    assert search.units.widths(masks_of(state).weights)["layer0"] >= [5, 5]
