"""A problem refuses what cannot be trained on, and its loss and metric are what they say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from samples import generator, tiny_data, tiny_problem
from torch_geometric.data import Data

from aceglt.errors import DataError
from aceglt.numerics import rng
from aceglt.problems.base import Problem, Soft

NODES = 30
KEY = rng.keys([0, 1], "loss")


def changed(**parts: Any) -> Any:
    data = tiny_data()
    for name, value in parts.items():
        setattr(data, name, value)
    return data


def with_value(tensor: torch.Tensor, index: Any, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


GOOD = tiny_data()
NOBODY = torch.zeros(NODES, dtype=torch.bool)

WRONG = {
    "NaN features": (
        {"x": with_value(GOOD.x, (7, 2), math.nan)},
        r"x has NaN or infinite values at 1 nodes, the first is node 7",
    ),
    "infinite features": ({"x": with_value(GOOD.x, slice(3, 5), math.inf)}, r"at 2 nodes, the first is node 3"),
    "overflow": ({"x": GOOD.x.double() * 1e300}, r"NaN or infinite"),
    "no features": ({"x": None}, r"needs a tensor `x`, found nothing"),
    "features of another kind": ({"x": [[1.0]]}, r"needs a tensor `x`, found list"),
    "one-dimensional features": ({"x": torch.ones(NODES)}, r"x must be \[nodes, features\].* found shape \[30\]"),
    "no node": ({"x": torch.ones(0, 4)}, r"not empty, found shape \[0, 4\]"),
    "edge above the range": (
        {"edge_index": with_value(GOOD.edge_index, (1, 4), NODES)},
        r"edge_index names node 30, but x has nodes 0 to 29",
    ),
    "edge below the range": ({"edge_index": with_value(GOOD.edge_index, (0, 1), -1)}, r"names node -1"),
    "edges as fractions": (
        {"edge_index": GOOD.edge_index.float()},
        r"edge_index must be integers of shape \[2, edges\], found torch.float32",
    ),
    "edges on their side": ({"edge_index": GOOD.edge_index.t()}, r"found torch.int64 of shape \[\d+, 2\]"),
    "no edges": ({"edge_index": None}, r"needs a tensor `edge_index`, found nothing"),
    "empty graph": (
        {"edge_index": torch.zeros(2, 0, dtype=torch.int64)},
        r"no edge between two different nodes; there is nothing to prune",
    ),
    "only self-loops": ({"edge_index": torch.tensor([[1, 2], [1, 2]])}, r"no edge between two different nodes"),
    "labels as fractions": ({"y": GOOD.y.float()}, r"y must hold one integer class for each of the 30 nodes"),
    "too few labels": ({"y": GOOD.y[:-1]}, r"y must hold one integer class .* found torch.int64 of shape \[29\]"),
    "several labels": ({"y": GOOD.y.view(-1, 1).repeat(1, 2)}, r"of shape \[30, 2\]"),
    "one class": ({"y": torch.zeros_like(GOOD.y)}, r"y has 1 class; classification needs two or more"),
    "negative class": ({"y": with_value(GOOD.y, 0, -1)}, r"y has a negative class at a node of the split"),
    "class without training node": (
        {"y": with_value(GOOD.y, NODES - 1, 4)},
        r"no training node has class 3, 4 \(classes 0 to 4\)",
    ),
    "no training mask": ({"train_mask": None}, r"needs a tensor `train_mask`, found nothing"),
    "no training node": ({"train_mask": NOBODY}, r"train_mask marks no training node"),
    "no validation node": ({"val_mask": NOBODY}, r"val_mask marks no validation node"),
    "no test node": ({"test_mask": NOBODY}, r"test_mask marks no test node"),
    "mask of indices": (
        {"train_mask": torch.tensor([0, 1, 2])},
        r"train_mask must hold one boolean for each of the 30 nodes .a mask, not indices., found torch.int64 of",
    ),
    "no split": ({"val_mask": NOBODY[:, None].repeat(1, 0)}, r"has no split: val_mask is empty"),
    "different numbers of splits": (
        {"val_mask": NOBODY[:, None].repeat(1, 10), "test_mask": NOBODY[:, None].repeat(1, 2)},
        r"test_mask has 2 splits, another mask has 10",
    ),
    "overlap": (
        {"val_mask": GOOD.val_mask | (torch.arange(NODES) < 2)},
        r"train_mask and val_mask share 2 nodes; they must be disjoint",
    ),
    "test overlap": ({"test_mask": GOOD.test_mask | GOOD.val_mask}, r"val_mask and test_mask share 12 nodes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_unusable_data_is_refused_with_one_line_that_names_it(what: str) -> None:
    parts, message = WRONG[what]
    with pytest.raises(DataError, match=message) as error:
        Problem.from_data(changed(**parts), "mine")
    assert str(error.value).startswith("mine: ")
    assert "\n" not in str(error.value)


def test_a_pyg_data_becomes_a_problem() -> None:
    data = Data(**vars(tiny_data()))
    problem = Problem.from_data(data)
    assert problem.num_classes == 3
    assert problem.name == "data"
    assert problem.train.tolist() == list(range(6))
    assert problem.val.tolist() == list(range(6, 18))
    assert problem.test.tolist() == list(range(18, 30))
    assert torch.equal(problem.graph.edges, data.edge_index)
    assert torch.equal(problem.x, data.x)
    assert (problem.task, problem.metric, problem.out_features) == ("node", "accuracy", 3)


def test_both_directions_are_one_edge_unless_the_problem_is_directed() -> None:
    both = torch.cat([GOOD.edge_index, GOOD.edge_index.flip(0)], dim=1)
    undirected = Problem.from_data(changed(edge_index=both))
    assert undirected.graph.num_edges == GOOD.edge_index.shape[1]
    assert Problem.from_data(changed(edge_index=both), directed=True).graph.num_edges == both.shape[1]


def test_labels_may_be_a_column_and_nodes_outside_the_split_unlabelled() -> None:
    last = torch.arange(NODES) == NODES - 1
    data = changed(y=with_value(GOOD.y, last, -1).view(-1, 1), test_mask=GOOD.test_mask & ~last)
    problem = Problem.from_data(data)
    assert problem.num_classes == 3
    assert NODES - 1 not in problem.test.tolist()


def test_whole_numbers_as_features_become_real() -> None:
    problem = Problem.from_data(changed(x=(GOOD.x > 0).int()))
    assert problem.x.dtype == torch.get_default_dtype()


def test_loss_is_the_mean_cross_entropy_of_the_training_nodes() -> None:
    problem = tiny_problem()
    logits = torch.randn(2, NODES, 3, generator=generator(1), dtype=torch.float64)
    for run, loss in enumerate(problem.loss(logits, None, KEY).tolist()):
        by_hand = 0.0
        for node in problem.train.tolist():
            row = logits[run, node].tolist()
            by_hand += math.log(sum(math.exp(v) for v in row)) - row[int(problem.y[node])]
        assert loss == pytest.approx(by_hand / len(problem.train))


def test_a_temperature_below_1_makes_the_teacher_surer() -> None:
    logits = torch.tensor([0.0, math.log(3.0), 0.0]).expand(1, NODES, 3)
    assert tiny_problem().soften(logits).targets[0, 0].tolist() == pytest.approx([0.2, 0.6, 0.2])
    assert tiny_problem().soften(logits, 0.5).targets[0, 0].tolist() == pytest.approx([1 / 11, 9 / 11, 1 / 11])


@pytest.mark.parametrize(("metric", "sharpens"), [("roc_auc", False), ("accuracy", True)])
def test_a_teacher_is_not_sharpened_where_that_loses_the_order_that_the_metric_reads(
    metric: str, sharpens: bool
) -> None:
    """All nodes are said to be of class 1, and the more surely, the more they are."""
    y = (torch.arange(40) % 2).long()
    data = Data(x=torch.ones(40, 4), edge_index=torch.stack([torch.arange(39), torch.arange(1, 40)]), y=y)
    nodes = torch.arange(40)
    data.train_mask, data.val_mask, data.test_mask = nodes < 4, (nodes >= 4) & (nodes < 36), nodes >= 36
    problem = Problem.from_data(data, metric=metric)
    logits = torch.stack([torch.zeros(40), 3.0 + y], dim=1).unsqueeze(0)
    plain, sharp = problem.soften(logits).targets, (logits / 0.03).softmax(dim=-1)
    assert torch.equal(problem.soften(logits, 0.03).targets, sharp if sharpens else plain)
    assert bool((sharp[0, :, 1] == 1.0).all()), "sharpened, they tie"


def test_smoothing_is_ten_steps_of_personalised_page_rank() -> None:
    problem = tiny_problem()
    logits = torch.rand(2, NODES, 3, generator=generator(4), dtype=torch.float64)
    logits += 2 * torch.nn.functional.one_hot(problem.y, 3)  # which so little smoothing does not turn over
    source, target = problem.graph.edges
    adjacency = torch.eye(NODES, dtype=torch.float64)
    adjacency[source, target] = adjacency[target, source] = 1.0
    root = adjacency.sum(dim=1).rsqrt()
    adjacency = root.unsqueeze(1) * adjacency * root
    own, whole = logits.softmax(dim=-1), torch.ones(NODES, 1, dtype=torch.float64)
    spread = own
    for _ in range(10):
        spread = 0.75 * own + 0.25 * (adjacency @ spread)
        whole = 0.75 + 0.25 * (adjacency @ whole)
    spread = spread / whole
    for temperature in (1.0, 0.1):
        sharp = spread ** (1 / temperature)
        torch.testing.assert_close(
            problem.soften(logits, temperature, smoothing=0.25).targets, sharp / sharp.sum(dim=-1, keepdim=True)
        )


def test_smoothing_does_not_depend_on_the_other_runs() -> None:
    logits = torch.randn(5, NODES, 3, generator=generator(6))
    together, alone = (tiny_problem().soften(some, 0.1, 0.5).targets for some in (logits, logits[:1]))
    assert torch.equal(together[:1], alone)


def test_a_run_whose_validation_nodes_smoothing_loses_keeps_its_teacher() -> None:
    """Nodes 0 and 1 are of one class and have edges to eight of the other, which are all joined: they are outvoted."""
    y = (torch.arange(10) < 2).long()
    edge_index = torch.combinations(torch.arange(10)).t()
    nodes = torch.arange(10)
    train, val, test = (nodes == 0) | (nodes == 3), nodes == 1, nodes > 7
    problem = Problem.from_data(
        Data(x=torch.ones(10, 4), edge_index=edge_index, y=y, train_mask=train, val_mask=val, test_mask=test)
    )
    right = torch.nn.functional.one_hot(y, 2).double()
    blind = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(10, 2) + 0.1 * right  # loses nothing
    smoothed = problem.soften(torch.stack([right, blind]), smoothing=0.9).targets
    assert torch.equal(smoothed[0], right.softmax(dim=-1))
    assert not torch.equal(smoothed[1], blind.softmax(dim=-1))


def test_the_teacher_adds_beta_times_the_cross_entropy_of_all_nodes() -> None:
    problem = tiny_problem()
    logits = torch.randn(2, NODES, 3, generator=generator(2), dtype=torch.float64)
    targets = problem.soften(torch.randn(2, NODES, 3, generator=generator(3), dtype=torch.float64)).targets
    torch.testing.assert_close(targets.sum(dim=-1), torch.ones(2, NODES, dtype=torch.float64))
    added = (problem.loss(logits, Soft(targets, 0.5), KEY) - problem.loss(logits, None, KEY)).tolist()
    for run in range(2):
        by_hand = 0.0
        for node in range(NODES):
            row = logits[run, node].tolist()
            norm = math.log(sum(math.exp(v) for v in row))
            by_hand += sum(t * (norm - v) for t, v in zip(targets[run, node].tolist(), row, strict=True))
        assert added[run] == pytest.approx(0.5 * by_hand / NODES)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_measure_is_the_share_of_right_predictions_on_the_split(split: Any) -> None:
    problem = tiny_problem()
    nodes = getattr(problem, split).tolist()
    logits = torch.nn.functional.one_hot(problem.y, 3).double().repeat(2, 1, 1)
    wrong = nodes[: len(nodes) // 3]
    logits[1, wrong] = logits[1, wrong].roll(1, dims=-1)
    right, some = problem.measure(logits, split).tolist()
    assert right == 1.0
    assert some == pytest.approx(1 - len(wrong) / len(nodes))


def test_moving_to_a_device_keeps_the_problem() -> None:
    problem = tiny_problem()
    moved = problem.to("cpu")
    assert moved.fingerprint == problem.fingerprint
    assert moved.device == torch.device("cpu")


@pytest.mark.parametrize("part", ["x", "y", "train_mask", "test_mask", "edge_index"])
def test_the_fingerprint_depends_on_every_part(part: str) -> None:
    other = getattr(GOOD, part).clone()
    other[..., -1] = {"x": 7.0, "y": 0, "train_mask": True, "test_mask": False, "edge_index": 0}[part]
    if part == "edge_index":
        other[:, -1] = torch.tensor([0, 1]) if [0, 1] not in other.t().tolist() else torch.tensor([0, 2])
    extra = {"test_mask": GOOD.test_mask & ~other} if part == "train_mask" else {}
    changed_problem = Problem.from_data(changed(**{part: other}, **extra))
    assert changed_problem.fingerprint != Problem.from_data(tiny_data()).fingerprint
    assert Problem.from_data(tiny_data()).fingerprint == tiny_problem().fingerprint
