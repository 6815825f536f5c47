"""Loading by name or path."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import aceglt
from aceglt import datasets
from aceglt.datasets import KNOWN, GraphData, available, info, load, name_of, read, save_npz
from aceglt.errors import DataError
from aceglt.problems.base import Problem


@pytest.mark.parametrize("name", ["citeseer", "CiteSeer", "CITESEER"])
def test_names_are_case_insensitive(name: str) -> None:
    assert load(name).name == "citeseer"


@pytest.mark.parametrize("name", ["citeseer", "cora", "pubmed"])
def test_what_is_known_of_a_dataset_is_true(name: str, raw_root: Path) -> None:
    data, known = load(name, raw_root), KNOWN[name]
    assert data.x.shape == (known.nodes, known.features)
    assert data.edge_index.shape == (2, 2 * known.edges)
    assert int(data.y.max()) + 1 == known.classes


@pytest.mark.parametrize(
    "name", ["amazon-computers", "amazon-photo", "coauthor-cs", "minesweeper", "tolokers", "squirrel-filtered"]
)
def test_what_is_known_of_a_dataset_is_true_of_its_file(name: str, raw_root: Path) -> None:
    if not (raw_root / "graphs" / f"{name}.npz").exists():
        pytest.skip("needs the graph's file")
    data, info = read(name, raw_root), KNOWN[name]
    assert isinstance(data, GraphData)
    problem = Problem.from_data(data)
    assert problem.x.shape == (info.nodes, info.features)
    assert (problem.graph.num_edges, problem.out_features) == (info.edges, info.classes)
    assert problem.metric == info.metric


def test_the_environment_variable_names_a_root(raw_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACEGLT_DATA", str(raw_root))
    assert load("cora").name == "cora"
    assert [name for name, present, _ in available() if present][:3] == ["citeseer", "cora", "pubmed"]


def test_what_is_loaded_is_pygs_data(tmp_path: Path, small: GraphData) -> None:
    save_npz(tmp_path / "sparse.npz", replace(small, x=small.x * torch.tensor([1.0, 0.0, 0.0])))
    data = load(str(tmp_path / "sparse.npz"))
    assert isinstance(data, Data)
    assert data.validate()
    assert (data.num_nodes, data.num_edges, data.name) == (4, 3, "sparse")
    assert data.x.layout == torch.sparse_csr
    assert data.dense().x.equal(data.x.to_dense())
    assert data.edge_subgraph(torch.tensor([True, False, True])).edge_index.tolist() == [[0, 2], [1, 3]]


def test_a_data_of_pygs_is_saved(tmp_path: Path, small: GraphData) -> None:
    parts = {"x": small.x, "edge_index": small.edge_index, "y": small.y.unsqueeze(1)}
    masks = {"train_mask": torch.eye(4, dtype=torch.bool)[:, :2], "val_mask": torch.eye(4, dtype=torch.bool)[:, 1:3]}
    weights = {"edge_weight": torch.rand(3, 1), "edge_attr": torch.rand(3)}
    data = Data(**parts, **masks, test_mask=torch.eye(4, dtype=torch.bool)[:, 2:], **weights, metric="macro_f1")
    save_npz(tmp_path / "g.npz", data)
    found = read(str(tmp_path / "g.npz"))
    assert isinstance(found, GraphData)
    assert found.x.equal(small.x)
    assert found.y.equal(small.y)
    assert all(getattr(found, name).equal(mask) for name, mask in masks.items())
    assert found.edge_weight is not None
    assert found.edge_weight.equal(weights["edge_weight"].squeeze(1))
    assert found.metric == "macro_f1"
    with pytest.raises(DataError, match="array y: found no such array"):
        save_npz(tmp_path / "other.npz", Data(x=small.x, edge_index=small.edge_index))
    assert not (tmp_path / "other.npz").exists()


def test_a_name_is_looked_for_among_the_users_graphs_first(
    tmp_path: Path, small: GraphData, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graphs").mkdir()
    for name in ("mine", "citeseer", "tolokers"):
        save_npz(tmp_path / "graphs" / f"{name}.npz", small)
    for name in ("mine", "MINE", "citeseer", "tolokers"):
        assert load(name, tmp_path).x.equal(small.x)
    monkeypatch.setenv("ACEGLT_DATA", str(tmp_path))
    assert load("mine").name == "mine"
    listed = available()
    assert ("tolokers", True, str(tmp_path / "graphs" / "tolokers.npz")) in listed
    assert listed[-1] == ("mine", True, str(tmp_path / "graphs" / "mine.npz"))


def test_the_size_of_a_file_among_the_graphs_is_known(tmp_path: Path, small: GraphData) -> None:
    (tmp_path / "graphs").mkdir()
    save_npz(tmp_path / "graphs" / "mine.npz", replace(small, metric="macro_f1"))
    (tmp_path / "graphs" / "damaged.npz").write_bytes(b"no archive")
    found = info("mine", tmp_path)
    pairs = {tuple(sorted(pair)) for pair in small.edge_index.t().tolist() if pair[0] != pair[1]}
    assert found is not None
    assert (found.nodes, found.features, found.edges) == (*small.x.shape, len(pairs))
    assert (found.classes, found.metric) == (int(small.y.max()) + 1, "macro_f1")
    assert info("cora", tmp_path) is KNOWN["cora"]
    assert info("damaged", tmp_path) is None
    assert info("missing", tmp_path) is None


def test_a_known_dataset_has_its_metric_unless_its_file_names_one(tmp_path: Path, small: GraphData) -> None:
    (tmp_path / "graphs").mkdir()
    save_npz(tmp_path / "graphs" / "tolokers.npz", small)
    save_npz(tmp_path / "graphs" / "minesweeper.npz", replace(small, metric="accuracy"))
    assert [read(name, tmp_path).metric for name in ("tolokers", "minesweeper")] == ["roc_auc", "accuracy"]


def test_an_npz_path_is_loaded_under_its_stem(tmp_path: Path, small: GraphData) -> None:
    save_npz(tmp_path / "My graph.npz", small)
    assert load(str(tmp_path / "My graph.npz")).name == "My graph"


def test_an_existing_path_needs_no_suffix(tmp_path: Path, small: GraphData) -> None:
    save_npz(tmp_path / "graph", small)
    assert load(str(tmp_path / "graph")).x.equal(small.x)


def test_a_folder_of_the_same_name_does_not_hide_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "citeseer").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("citeseer").name == "citeseer"


def test_an_unknown_name_gets_the_closest_one_or_the_list() -> None:
    with pytest.raises(DataError, match=r"'Sitesear'; did you mean citeseer\?"):
        load("Sitesear")
    with pytest.raises(
        DataError, match=r"known are citeseer, cora, pubmed, .*synthetic-collab, or the path of an \.npz file$"
    ):
        load("zzz")


def test_available_says_what_is_there_and_where_the_rest_would_go(tmp_path: Path) -> None:
    listed = {name: (present, where) for name, present, where in available()}
    assert list(listed) == list(KNOWN)
    cache = tmp_path / "cache/aceglt"
    assert listed["citeseer"] == (True, "embedded")
    assert listed["pubmed"] == (False, str(cache / "planetoid/PubMed/raw"))
    assert listed["ogbn-proteins"] == (False, str(cache / "ogb/ogbn_proteins"))
    assert listed["tolokers"] == (False, str(cache / "pyg/tolokers/raw"))
    assert listed["synthetic-collab"] == (True, "generated")


def test_public_names_exist() -> None:
    assert all(hasattr(datasets, name) for name in datasets.__all__)


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b", "x" * 5000 + ".npz", "a\0b.npz"])
def test_odd_names_are_data_errors(name: str) -> None:
    with pytest.raises(DataError):
        load(name)


def test_loaded_data_knows_its_name_as_long_as_it_is_unchanged() -> None:
    def loaded() -> Any:
        return load("synthetic-arxiv:0.002")

    data = loaded()
    assert [name_of(each) for each in (data, copy.copy(data), data.to("cpu"))] == ["synthetic-arxiv:0.002"] * 3
    data.x = data.x * 2
    assert name_of(data) is None
    written, longer, shorter = loaded(), loaded(), loaded()
    written.x[0] = 1.0
    longer.edge_weight = torch.ones(longer.num_edges)
    del shorter.test_mask
    assert [name_of(each) for each in (written, longer, shorter, Data(source="a file"))] == [None] * 4
    torch.save(loaded(), io.BytesIO())


def test_data_may_be_loaded_in_inference_mode() -> None:
    with torch.inference_mode():
        data = load("synthetic-arxiv:0.002")
    assert name_of(data) is None  # whether such tensors have been written to, nobody knows


def test_a_ticket_of_loaded_data_finds_its_graph_by_itself() -> None:
    data = load("synthetic-arxiv:0.002")
    ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2, hidden=4, device="cpu").tickets[0]
    assert ticket.config.dataset == "synthetic-arxiv:0.002"
    assert torch.equal(ticket.predict(ticket.load_data()), ticket.predict(data))
