"""Splits drawn by a seed: 20 per class, 500, 1000."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from samples import generator

from aceglt.config import Config
from aceglt.errors import ConfigError, DataError
from aceglt.problems.base import Problem
from aceglt.problems.node import random_split

Y = torch.arange(1700) % 4


def test_a_random_split_has_20_per_class_500_and_1000() -> None:
    masks = random_split(Y, 3, "mine")
    assert torch.bincount(Y[masks["train_mask"]]).tolist() == [20] * 4
    assert [int(mask.sum()) for mask in masks.values()] == [80, 500, 1000]
    assert int((masks["train_mask"].int() + masks["val_mask"].int() + masks["test_mask"].int()).max()) == 1


def test_the_seed_decides() -> None:
    first, again, other = (random_split(Y, seed, "mine") for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(not torch.equal(first[name], other[name]) for name in first)


def test_every_node_may_be_drawn_and_nodes_without_a_class_never_are() -> None:
    y = torch.where(torch.arange(1700) % 17 == 0, -1, Y)
    drawn = torch.zeros(1700)
    for seed in range(40):
        masks = random_split(y, seed, "mine")
        drawn += masks["train_mask"].int()
        assert not bool((masks["train_mask"] | masks["val_mask"] | masks["test_mask"])[y < 0].any())
    assert 0.7 < float((drawn[y >= 0] > 0).double().mean()) < 1  # 1 − (1 − 1/20)^40 = 0.87


WRONG = {
    "few of a class": (torch.cat([Y, torch.full((19,), 4)]), "20 nodes of each class, class 4 has 19"),
    "few nodes": (Y[:1579], "1500 nodes for validation and test besides 20 per class, found 1499"),
    "several labels": (torch.zeros(1700, 2), r"one integer class per node in y, found torch.float32 \[1700, 2\]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_too_small_graphs_and_several_labels_are_refused(what: str) -> None:
    y, message = WRONG[what]
    with pytest.raises(DataError, match=f"mine: .*{message}"):
        random_split(y, 0, "mine")


def graph(**changes: Any) -> Any:
    arcs = torch.randint(1700, (2, 4000), generator=generator(0))
    return SimpleNamespace(**{"x": torch.ones(1700, 3), "edge_index": arcs, "y": Y, **changes})


def test_a_problem_with_a_random_split_needs_no_masks() -> None:
    problem = Problem.from_data(graph(), "mine", split="random:7")
    masks = random_split(Y, 7, "mine")
    assert torch.equal(problem.train, masks["train_mask"].nonzero().squeeze(1))  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="needs a tensor `train_mask`"):
        Problem.from_data(graph(), "mine")
    with pytest.raises(DataError, match="a random split needs y"):
        Problem.from_data(graph(y=None), "mine", split="random:7")


@pytest.mark.parametrize("split", ["random", "random:", "random:x", "random:-1", "random:1.5", "mine"])
def test_other_splits_are_refused(split: str) -> None:
    with pytest.raises(ConfigError, match="split must be given or random:SEED"):
        Config(split=split)
