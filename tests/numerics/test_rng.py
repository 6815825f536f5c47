"""Counter-based randomness: its distribution, and that it depends on nothing but the key."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from aceglt.numerics import rng

SPLITMIX_OF_SEED_0 = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC)


def test_the_hash_is_splitmix64() -> None:
    expected = [((word >> 12) + 0.5) * 2.0**-52 for word in SPLITMIX_OF_SEED_0]
    assert rng.uniform(torch.zeros(1, dtype=torch.int64), 4)[0].tolist() == expected


def test_uniform_is_uniform() -> None:
    draws = rng.uniform(rng.keys([0, 1, 2], "uniformity"), 20_000)
    assert bool(((draws > 0) & (draws < 1)).all())
    for run in draws:
        assert stats.kstest(run.numpy(), "uniform").pvalue > 0.01
        counts = torch.histc(run.float(), 50, 0.0, 1.0)
        assert stats.chisquare(counts.numpy()).pvalue > 0.01


def test_consecutive_draws_are_uncorrelated() -> None:
    draws = rng.uniform(rng.keys([0], "pairs"), 20_000)[0]
    cells = (draws * 8).long()
    table = torch.bincount(cells[0::2] * 8 + cells[1::2], minlength=64)
    assert stats.chisquare(table.numpy()).pvalue > 0.01


def test_neighbouring_seeds_and_epochs_give_uniform_first_draws() -> None:
    of_seeds = rng.uniform(rng.keys(range(5000), "first"), 1)[:, 0]
    key = rng.keys([0], "epochs")
    of_epochs = torch.cat([rng.uniform(rng.fold(key, epoch), 1)[0] for epoch in range(5000)])
    assert stats.kstest(of_seeds.numpy(), "uniform").pvalue > 0.01
    assert stats.kstest(of_epochs.numpy(), "uniform").pvalue > 0.01


def test_gumbel_is_gumbel() -> None:
    draws = rng.gumbel(rng.keys([3], "gumbel"), 20_000)[0]
    assert bool(torch.isfinite(draws).all())
    assert stats.kstest(draws.numpy(), "gumbel_r").pvalue > 0.01


@pytest.mark.parametrize("drop", [0.1, 0.5, 0.6, 0.9])
def test_keep_mask_keeps_with_the_stated_probability(drop: float) -> None:
    keep = rng.keep_mask(rng.keys([0, 1], "dropout"), 40_001, drop)
    assert keep.shape == (2, 40_001)
    for run in keep:
        assert stats.binomtest(int(run.sum()), len(run), 1 - drop).pvalue > 0.01


def test_keep_mask_treats_all_four_lanes_of_a_hash_alike() -> None:
    keep = rng.keep_mask(rng.keys([0], "lanes"), 40_000, 0.5)[0].view(-1, 4)
    patterns = (keep * torch.tensor([1, 2, 4, 8])).sum(dim=1)
    assert stats.chisquare(torch.bincount(patterns, minlength=16).numpy()).pvalue > 0.01


def test_keep_mask_without_dropout_keeps_all() -> None:
    assert bool(rng.keep_mask(rng.keys([0], "all"), 101, 0.0).all())


def test_a_run_draws_the_same_alone_as_in_a_batch() -> None:
    together = rng.keys([5, 0, 9], 3, "phase")
    for row, seed in enumerate([5, 0, 9]):
        alone = rng.keys([seed], 3, "phase")
        assert torch.equal(together[row : row + 1], alone)
        assert torch.equal(rng.fold(together, 7)[row : row + 1], rng.fold(alone, 7))
        for draw in (rng.uniform, rng.gumbel, lambda key, n: rng.keep_mask(key, n, 0.5)):
            assert torch.equal(draw(together, 103)[row : row + 1], draw(alone, 103))


def test_fewer_draws_are_a_prefix_of_more() -> None:
    key = rng.keys([1], "prefix")
    assert torch.equal(rng.uniform(key, 10), rng.uniform(key, 100)[:, :10])
    assert torch.equal(rng.keep_mask(key, 10, 0.5), rng.keep_mask(key, 100, 0.5)[:, :10])


def test_purposes_levels_and_seeds_give_different_streams() -> None:
    keys = torch.cat(
        [rng.keys(range(20), level, purpose) for level in range(5) for purpose in ("drop", "score", "dense")]
    )
    assert len(torch.unique(keys)) == 20 * 5 * 3
    draws = rng.uniform(keys, 4)
    assert len(torch.unique(draws)) == draws.numel()


def test_fold_gives_a_new_key_for_every_number() -> None:
    key = rng.keys([0, 1], "fold")
    folded = torch.cat([key, *(rng.fold(key, value) for value in range(2000))])
    assert len(torch.unique(folded)) == len(folded)


def test_fold_and_draws_leave_the_key_as_it_was() -> None:
    key = rng.keys([0], "kept")
    before = key.clone()
    rng.fold(key, 1)
    rng.uniform(key, 5)
    rng.keep_mask(key, 5, 0.5)
    assert torch.equal(key, before)


def test_streams_of_folded_keys_are_independent() -> None:
    key = rng.keys([0], "independent")
    a, b = rng.uniform(rng.fold(key, 0), 10_000)[0], rng.uniform(rng.fold(key, 1), 10_000)[0]
    assert stats.pearsonr(a.numpy(), b.numpy()).pvalue > 0.01


def test_single_elements_are_drawn_as_among_all() -> None:
    key, index = rng.keys([1, 2], "some"), torch.tensor([0, 5, 999, 3])
    assert torch.equal(rng.uniform_at(key, index), rng.uniform(key, 1000)[:, index])


@pytest.mark.parametrize("value", [0, 7, 2**40, torch.tensor(12)])
def test_folding_by_number_is_folding_by_tensor(value: int | Tensor) -> None:
    """On a CPU the interpreter mixes the numbers, on a GPU torch does."""
    key = rng.keys(range(50), "fold")
    by_tensor = rng._mix(key + (torch.as_tensor(value) + 1) * rng.FOLD)
    assert torch.equal(rng.fold(key, value), by_tensor)
