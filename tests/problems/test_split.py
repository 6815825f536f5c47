"""Splits: one of several, drawn by a seed as 20 per class, 500, 1000, or drawn by shares."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from samples import generator

from aceglt.config import Config
from aceglt.errors import ConfigError, DataError
from aceglt.problems.base import Problem
from aceglt.problems.splits import random_split, share_split

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
    with pytest.raises(DataError, match="a random split needs y"):
        Problem.from_data(graph(y=None), "mine", split="random:7")


@pytest.mark.parametrize(
    "split",
    ["random", "random:", "random:x", "random:-1", "random:1.5", "mine", "-1", "random:0:0.5", "random:0:0.5,0.5",
     "random:0:0,0.5", "random:0:1,0.5", "random:0:0.5,0.2,0.1"],
)  # fmt: skip
def test_other_splits_are_refused(split: str) -> None:
    with pytest.raises(ConfigError, match=r"split must be given, a number, random:SEED or random:SEED:0.6,0.2"):
        Config(split=split)


def parts_of(problem: Problem) -> list[list[int]]:
    return [problem.reads(split).tolist() for split in ("train", "val", "test")]  # type: ignore[union-attr]


def nodes_of(masks: dict[str, torch.Tensor]) -> list[list[int]]:
    return [mask.nonzero().squeeze(1).tolist() for mask in masks.values()]


def test_shares_are_of_the_labelled_nodes_and_leave_the_rest_for_test() -> None:
    y = torch.where(torch.arange(1700) % 17 == 0, -1, Y)
    parts = nodes_of(share_split(y, 0, 0.5, 0.3, "mine"))
    assert [len(part) for part in parts] == [800, 480, 320]
    assert sorted(chain(*parts)) == (y >= 0).nonzero().squeeze(1).tolist()
    assert parts == nodes_of(share_split(y, 0, 0.5, 0.3, "mine")) != nodes_of(share_split(y, 1, 0.5, 0.3, "mine"))


def test_every_class_has_a_training_node_however_rare_it_is() -> None:
    y = torch.where(torch.arange(1700) < 4, torch.arange(1700) + 2, 0)
    for seed in range(5):
        train = nodes_of(share_split(y, seed, 0.01, 0.2, "mine"))[0]
        assert len(train) == 17
        assert {0, 1, 2, 3} <= set(train)


def test_what_classes_are_called_does_not_matter_for_shares() -> None:
    """Nor does memory: a class of 2⁶² would take all there is."""
    called = torch.tensor([2**62, 5, 7, 2**40])[Y]
    assert nodes_of(share_split(called, 0, 0.5, 0.25, "mine")) == nodes_of(share_split(Y, 0, 0.5, 0.25, "mine"))


def test_shares_may_be_drawn_where_nodes_have_several_labels() -> None:
    y = torch.ones(10, 2)
    y[3] = torch.nan
    y[4, 0] = torch.nan
    parts = nodes_of(share_split(y, 0, 0.5, 0.25, "mine"))
    assert sorted(chain(*parts)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_shares_too_small_for_the_graph_are_refused() -> None:
    with pytest.raises(DataError, match=r"mine: shares 0.9 and 0.09 of 5 labelled nodes leave 4, 0, 1 for training"):
        share_split(torch.arange(5) % 2, 0, 0.9, 0.09, "mine")


def test_data_without_masks_are_split_at_random() -> None:
    given, drawn = (Problem.from_data(graph(), "mine", split=split) for split in ("given", "random:0:0.6,0.2"))
    assert parts_of(given) == parts_of(drawn) == nodes_of(share_split(Y, 0, 0.6, 0.2, "mine"))
    with pytest.raises(DataError, match="needs a tensor `test_mask`"):
        Problem.from_data(graph(train_mask=Y == 0, val_mask=Y == 1), "mine")


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool])
def test_data_without_masks_may_have_classes_of_any_integer_type(dtype: torch.dtype) -> None:
    found, same = (Problem.from_data(graph(y=y)) for y in ((Y % 2).to(dtype), Y % 2))
    assert found.reads("train").equal(same.reads("train"))  # type: ignore[union-attr, arg-type]


def test_data_without_masks_and_with_classes_that_are_no_integers_are_refused() -> None:
    with pytest.raises(DataError, match=r"one integer class per node in y, found torch.float32 \[1700\]"):
        Problem.from_data(graph(y=Y.float()))


def test_one_of_several_splits_is_picked_by_its_number() -> None:
    part = torch.arange(1700).unsqueeze(1) // 4 % 3
    masks = {"train_mask": part == torch.tensor([0, 1]), "val_mask": part == torch.tensor([1, 0]),
             "test_mask": part.squeeze(1) == 2}  # fmt: skip
    first, again, second = (
        parts_of(Problem.from_data(graph(**masks), "mine", split=split)) for split in ("given", "0", "1")
    )
    assert first == again == [(part.squeeze(1) == number).nonzero().squeeze(1).tolist() for number in (0, 1, 2)]
    assert second == [first[1], first[0], first[2]]
    with pytest.raises(DataError, match="mine: has 2 splits, numbered 0 to 1; found split 2"):
        Problem.from_data(graph(**masks), "mine", split="2")
    with pytest.raises(DataError, match="mine: has no split of its own; found split 0"):
        Problem.from_data(graph(), "mine", split="0")
    with pytest.raises(DataError, match="mine: has one split, number 0; found split 1"):
        Problem.from_data(graph(train_mask=Y == 0, val_mask=Y == 1, test_mask=Y == 2), "mine", split="1")
