"""A graph with sparse features is searched as the same graph with dense ones, bit by bit, and takes little memory."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from search_samples import TINY, search, timeless
from ticket_samples import BACKBONES, random_ticket
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

import aceglt
from aceglt import SearchResult, datasets
from aceglt.backbones.portable import load as load_exported
from aceglt.config import Config
from aceglt.datasets import GraphData, save_npz
from aceglt.errors import ConfigError, DataError
from aceglt.problems import build_problem
from aceglt.problems.base import Problem
from aceglt.tickets import bench
from aceglt.tickets.bench import benchmark

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": Tensor.to_sparse_coo,
    "csr": Tensor.to_sparse_csr,
    "csc": Tensor.to_sparse_csc,
}
WORDNET = Path(os.environ.get("ACEGLT_DATA", "none")) / "graphs" / "wordnet.npz"


def words(density: float = 0.05, nodes: int = 48, features: int = 40) -> Data:
    """Two groups of nodes with mostly their own words; every edge in both directions."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % 2
    x = torch.rand(nodes, features, generator=g) + 0.5
    likely = torch.where((torch.arange(features) % 2)[None] == y[:, None], 1.8 * density, 0.2 * density)
    x = x * (torch.rand(nodes, features, generator=g) < likely)
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 2) % nodes])
    chords = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(7)])
    arcs = torch.cat([ring, chords], dim=1)
    part = torch.arange(nodes) // 2 % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    return Data(x=x, y=y, edge_index=torch.unique(torch.cat([arcs, arcs.flip(0)], dim=1), dim=1), **masks)


def sparse(data: Data, layout: str = "csr") -> Data:
    made = data.clone()
    made.x = LAYOUTS[layout](data.x)
    return made


def assert_same(one: aceglt.SearchResult, other: aceglt.SearchResult) -> None:
    """Masks, weights and metrics, bit by bit; graphs are named by where they come from."""
    assert timeless(one.results) | {"dataset": ""} == timeless(other.results) | {"dataset": ""}
    assert len(one.tickets) == len(other.tickets) > 0
    for a, b in zip(one.tickets, other.tickets, strict=True):
        assert torch.equal(a.masks.weights, b.masks.weights)
        assert torch.equal(a.masks.edges, b.masks.edges)
        assert torch.equal(a.trained.prunable, b.trained.prunable)
        assert torch.equal(a.trained.other, b.trained.other)


SEARCHES: dict[str, dict[str, Any]] = {
    "gcn": {},
    "gcn, teacher": {"signal": "teacher"},
    "gcn, few weights": {"prune_model": 0.95, "levels": 1, "balance": 0.0},
    "gin": {"backbone": "gin"},
    "gat": {"backbone": "gat"},
    "resgcn": {"backbone": "resgcn", "layers": 2},
    "inductive": {"task": "inductive"},
    "inductive gat": {"task": "inductive", "backbone": "gat"},
    "link": {"task": "link"},
    "infoclust": {"task": "link", "objective": "infoclust"},
    "ace": {"method": "ace", "method_options": {"rounds": 1, "refine_epochs": 2}, "levels": 1},
    "partitions": {"partitions": 3},
}


def each_case_and_layout() -> list[Any]:
    """All of them; quickly, each search with one layout by turns."""
    pairs = product(enumerate(SEARCHES), enumerate(LAYOUTS))
    return [
        pytest.param(case, layout, marks=pytest.mark.slow if (c + k) % 3 else ()) for (c, case), (k, layout) in pairs
    ]


@pytest.mark.parametrize(("case", "layout"), each_case_and_layout())
def test_a_search_on_sparse_features_is_that_on_dense_ones(case: str, layout: str) -> None:
    assert_same(search(sparse(words(), layout), tickets="all", **SEARCHES[case]), on_dense_features(case))


@cache
def on_dense_features(case: str) -> SearchResult:
    return search(words(), tickets="all", **SEARCHES[case])


def test_many_entries_are_searched_alike_too() -> None:
    data = words(density=0.5)
    assert_same(search(sparse(data), tickets="all"), search(data, tickets="all"))


def test_a_search_on_a_file_is_that_on_its_data(tmp_path: Path) -> None:
    data = words()
    names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
    save_npz(tmp_path / "words.npz", GraphData("words", *(getattr(data, name) for name in names)))
    loaded = datasets.load(str(tmp_path / "words.npz"))
    assert loaded.x.layout == torch.sparse_csr
    assert_same(search(loaded, tickets="all"), search(data, tickets="all"))


@pytest.mark.parametrize("task", ["node", "inductive", "link"])
def test_the_fingerprint_does_not_depend_on_how_features_are_stored(task: str) -> None:
    data = words()
    prints = {
        Problem.from_data(made, "words", task).fingerprint for made in (data, *(sparse(data, k) for k in LAYOUTS))
    }
    assert len(prints) == 1
    data.x[3, 3] += 1
    assert Problem.from_data(sparse(data), "words", task).fingerprint not in prints


def with_values(change: Callable[[Tensor], None]) -> Data:
    data = sparse(words())
    change(data.x.values())
    return data


WRONG: dict[str, tuple[Any, str]] = {
    "NaN": (lambda v: v[5:7].fill_(math.nan), r"x has NaN or infinite values at \d nodes, the first is node \d+$"),
    "infinite": (lambda v: v[:1].fill_(math.inf), r"at 1 nodes, the first is node \d+$"),
}


@pytest.mark.parametrize("case", WRONG)
def test_sparse_features_must_be_finite(case: str) -> None:
    change, message = WRONG[case]
    with pytest.raises(DataError, match=message):
        Problem.from_data(with_values(change))


def test_other_sparse_tensors_are_refused_in_one_line() -> None:
    data = words(nodes=48, features=40)
    hybrid = torch.sparse_coo_tensor(torch.arange(48).unsqueeze(0), data.x, (48, 40))
    outside = torch.sparse_csr_tensor(torch.arange(49), torch.full((48,), 40), torch.ones(48), (48, 40))
    falling = torch.sparse_csr_tensor(
        torch.arange(48, -1, -1), torch.zeros(48, dtype=torch.int64), torch.ones(48), (48, 40)
    )
    negative = torch.sparse_coo_tensor(torch.tensor([[0], [-1]]), torch.ones(1), (48, 40))
    blocks = data.x.to_sparse_bsr((2, 2))
    for x, message in (
        (hybrid, "in COO, CSR or CSC"),
        (blocks, "in COO, CSR or CSC"),
        (outside, "indices do not fit"),
        (falling, "indices do not fit"),
        (negative, "indices do not fit"),
    ):
        made = data.clone()
        made.x = x
        with pytest.raises(DataError, match=message) as caught:
            Problem.from_data(made)
        assert "\n" not in str(caught.value)


class Mixed(nn.Module):
    """Multiplies features before it passes messages, so that they may be sparse."""

    layouts: ClassVar[set[torch.layout]] = set()

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(in_features, 8), GCNConv(8, out_features)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.layouts.add(x.layout)
        out: Tensor = self.second(self.first(x).relu(), edge_index, edge_weight)
        return out


class Sage(nn.Module):
    """Gathers features along edges, which torch does not do with sparse ones."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.layer = SAGEConv(in_features, out_features)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.layer(x, edge_index)
        return out


@pytest.mark.parametrize("settings", [{}, {"task": "inductive"}, {"partitions": 3}])
def test_an_own_model_is_given_features_as_they_are(settings: dict[str, Any]) -> None:
    for data, layout in ((words(), torch.strided), (sparse(words()), torch.sparse_csr)):
        Mixed.layouts.clear()
        assert search(data, backbone=Mixed, **settings).results["levels"]
        assert Mixed.layouts == {layout}


def test_an_own_model_is_given_dense_features_of_a_file(tmp_path: Path) -> None:
    data = words()
    names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
    save_npz(tmp_path / "words.npz", GraphData("words", *(getattr(data, name) for name in names)))
    found = aceglt.search(backbone=Sage, dataset=str(tmp_path / "words.npz"), device="cpu", tickets="all", **TINY)
    assert_same(found, search(data, backbone=Sage, tickets="all"))


class Dropped(Mixed):
    """Fails on sparse features in training alone."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return super().forward(nn.functional.dropout(x, 0.5, self.training), edge_index, edge_weight)


@pytest.mark.parametrize("model", [Sage, Dropped])
def test_an_own_model_that_cannot_read_sparse_features_says_what_to_do(model: type[nn.Module]) -> None:
    assert search(words(), backbone=model).results["levels"]
    with pytest.raises(ConfigError, match=r"forward failed on sparse x \(a model that needs a dense one must be given"):
        search(sparse(words()), backbone=model)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_ticket_is_used_with_sparse_features(backbone: str, layout: str, tmp_path: Path) -> None:
    data = words()
    ticket, other = random_ticket(backbone, data=data), sparse(data, layout)
    pruned = ticket.apply(other)
    assert torch.equal(pruned.x.to_dense(), data.x)
    assert torch.equal(pruned.edge_index, ticket.apply(data).edge_index)
    torch.testing.assert_close(ticket.predict(other), ticket.predict(data))
    ticket.export(tmp_path / "out")
    model, edge_index = load_exported(tmp_path / "out" / "ticket.pt")
    torch.testing.assert_close(model(other.x, edge_index), model(data.x, edge_index))


def test_a_ticket_is_evaluated_with_sparse_features() -> None:
    data = words()
    ticket = search(data).best
    assert aceglt.evaluate(ticket, sparse(data), seeds=2, device="cpu") == aceglt.evaluate(
        ticket, data, seeds=2, device="cpu"
    )


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_ticket_is_measured_with_sparse_features(backbone: str) -> None:
    data = words()
    rows = benchmark(random_ticket(backbone, data=data), sparse(data), device="cpu", repeats=1).rows
    assert [row.variant for row in rows] == ["pyg", "dense", "ticket"]
    dense = benchmark(random_ticket(backbone, data=data), data, device="cpu", repeats=1)
    assert rows[0].memory_bytes == dense["pyg"].memory_bytes


def test_features_too_large_to_be_dense_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "free_memory", lambda device: 1000)
    with pytest.raises(ConfigError, match=r"bench compares with PyG's layers, which read a dense x: .* are free"):
        benchmark(random_ticket(data=words()), sparse(words()), device="cpu", repeats=1)


def test_a_problem_keeps_sparse_features_sparse() -> None:
    problem = build_problem(Config(dataset="data", task="inductive"), sparse(words(), "coo"))
    for split in ("train", "val", "test"):
        place = problem.measured(split)  # type: ignore[arg-type]
        assert place.x.layout == torch.sparse_csr
        place.features.product(torch.ones(1, place.x.shape[1], 2))
        assert "dense" not in vars(place.features)


MEASURE = """
import resource, sys
import torch, aceglt, aceglt.datasets
import aceglt.runner
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB
torch.set_num_threads(2)
before = peak()
data = aceglt.datasets.load(sys.argv[1])
loaded = peak()
aceglt.search(data, hidden=256, levels=1, seeds=1, method="ugs", epochs=2, device="cpu", tickets="none")
print(loaded - before, peak())
"""


@pytest.mark.slow
@pytest.mark.skipif(not WORDNET.exists(), reason="needs graphs/wordnet.npz under ACEGLT_DATA")
def test_wordnet_is_loaded_and_searched_in_little_memory() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, str(WORDNET)], capture_output=True, text=True, check=True)
    loading, search = map(float, done.stdout.split()[-2:])
    assert loading < 0.3
    assert search < 2.5
