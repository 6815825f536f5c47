"""OGB's own files, written small, through our reader; ogb's reader and evaluators say what is right."""

from __future__ import annotations

import builtins
import gzip
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ogb_samples
import pytest
import torch
from torch_geometric.data import Data

import aceglt
from aceglt.datasets import GraphData, LinkData, available, read
from aceglt.datasets.ogb import RELEASES
from aceglt.errors import DataError
from aceglt.numerics.graph import Graph
from aceglt.problems.base import Problem

ogb_reader = pytest.importorskip("ogb.io.read_graph_raw")

WRITERS = {"ogbn-arxiv": ogb_samples.arxiv, "ogbn-proteins": ogb_samples.proteins, "ogbl-collab": ogb_samples.collab}


def as_ogb_reads(folder: Path, **options: Any) -> dict[str, Any]:
    graph: dict[str, Any] = ogb_reader.read_csv_graph_raw(str(folder / "raw"), **options)[0]
    return graph


def as_ogb_measures(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    from ogb.linkproppred import Evaluator as LinkEvaluator  # here: scikit-learn takes seconds to import
    from ogb.nodeproppred import Evaluator as NodeEvaluator

    kind = LinkEvaluator if name.startswith("ogbl") else NodeEvaluator
    measured: dict[str, Any] = kind(name).eval(answer)
    return measured


def test_arxiv_is_what_ogb_reads(tmp_path: Path) -> None:
    folder = ogb_samples.arxiv(tmp_path)
    data = read("ogbn-arxiv", tmp_path)
    expected = as_ogb_reads(folder)
    assert isinstance(data, GraphData)
    assert np.array_equal(data.edge_index, expected["edge_index"])
    assert np.array_equal(data.x, expected["node_feat"])
    assert data.x.dtype == torch.float32
    assert data.y.tolist() == [node % 2 for node in range(ogb_samples.NODES)]
    assert data.edge_attr is None
    assert data.train_mask.nonzero().flatten().tolist() == list(range(20))
    assert data.val_mask.nonzero().flatten().tolist() == list(range(20, 30))
    assert data.test_mask.nonzero().flatten().tolist() == list(range(30, 40))


def test_arxiv_becomes_undirected(tmp_path: Path) -> None:
    ogb_samples.arxiv(tmp_path)
    data = read("ogbn-arxiv", tmp_path)
    pairs = {frozenset(pair) for pair in data.edge_index.t().tolist() if pair[0] != pair[1]}
    graph = Problem.from_data(data).graph
    assert not graph.directed
    assert {frozenset(pair) for pair in graph.edges.t().tolist()} == pairs


@pytest.mark.parametrize("species_file", ["species", "node_species"])
def test_proteins_has_edge_features_one_hot_species_and_112_questions(tmp_path: Path, species_file: str) -> None:
    folder = ogb_samples.proteins(tmp_path, species_file)
    before = sorted(os.listdir(folder / "raw"))
    data = read("ogbn-proteins", tmp_path)
    assert sorted(os.listdir(folder / "raw")) == before
    expected = as_ogb_reads(folder, additional_node_files=["node_species"])
    assert isinstance(data, GraphData)
    assert data.edge_attr is not None
    assert np.array_equal(data.edge_attr, expected["edge_feat"])
    assert np.array_equal(data.edge_index, expected["edge_index"])
    assert data.y.shape == (ogb_samples.NODES, ogb_samples.TASKS)
    assert set(data.y.unique().tolist()) == {0.0, 1.0}
    species = np.array([3702, 4932, 9606])[data.x.argmax(dim=1)]
    assert np.array_equal(species, expected["node_species"].flatten())
    assert data.x.sum(dim=1).eq(1).all()


def test_collab_has_the_official_pairs(tmp_path: Path) -> None:
    folder = ogb_samples.collab(tmp_path)
    data = read("ogbl-collab", tmp_path)
    assert isinstance(data, LinkData)
    assert np.array_equal(data.edge_index, as_ogb_reads(folder)["edge_index"])
    for part, file in (("val", "valid"), ("test", "test")):
        split = torch.load(folder / f"split/time/{file}.pt", weights_only=False)
        assert np.array_equal(getattr(data, f"{part}_edges").t(), split["edge"])
        assert np.array_equal(getattr(data, f"{part}_negatives").t(), split["edge_neg"])
    assert data.metric == "hits@50"


class Evil:
    """What a pickle may do when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_split_that_would_run_something_is_refused_and_does_not_run(tmp_path: Path) -> None:
    folder = ogb_samples.collab(tmp_path)
    torch.save({"edge": Evil(tmp_path / "ran"), "edge_neg": np.zeros((1, 2))}, folder / "split/time/valid.pt")
    with pytest.raises(DataError, match=r"valid\.pt: is damaged, or holds something other than arrays"):
        read("ogbl-collab", tmp_path)
    assert not (tmp_path / "ran").exists()


def test_processed_files_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ogb_samples.arxiv(tmp_path)
    for file in ("processed/geometric_data_processed.pt", "split/time/split_dict.pt"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(b"not to be read")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("unpickled something"))
    assert read("ogbn-arxiv", tmp_path).name == "ogbn-arxiv"


@pytest.mark.parametrize(
    ("file", "table", "message"),
    [
        ("raw/edge.csv.gz", [[0, 40]], "names node 40, but the graph has nodes 0 to 39"),
        ("raw/edge.csv.gz", [[0, 1, 2]], "has 1 rows and 3 columns, expected any number of rows and 2 columns"),
        ("raw/node-feat.csv.gz", [[1.0]], "has 1 rows and 1 columns, expected 40 rows"),
        ("raw/node-label.csv.gz", [["cat"]] * 40, "cannot be read as a table of float32"),
        ("raw/num-node-list.csv.gz", [20, 20], "names 2 graphs, expected one"),
        ("split/time/valid.csv.gz", [-1], "names node -1"),
    ],
)
def test_damaged_tables_are_named(tmp_path: Path, file: str, table: list[Any], message: str) -> None:
    folder = ogb_samples.arxiv(tmp_path)
    ogb_samples.write(folder / file, table)
    with pytest.raises(DataError, match=message) as caught:
        read("ogbn-arxiv", tmp_path)
    assert file in str(caught.value)


def test_a_file_that_is_no_gzip_is_named(tmp_path: Path) -> None:
    (ogb_samples.arxiv(tmp_path) / "raw/edge.csv.gz").write_bytes(b"0,1")
    with pytest.raises(DataError, match=r"edge\.csv\.gz: cannot be read"):
        read("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize("name", list(RELEASES))
def test_without_network_the_error_says_which_files_go_where(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(url: str, folder: str) -> str:
        assert url.startswith("http")
        raise OSError("no network")

    monkeypatch.setattr("ogb.utils.url.download_url", offline)
    with pytest.raises(DataError, match=r"cannot be downloaded \(no network\)") as caught:
        read(name)
    message = str(caught.value)
    assert str(tmp_path / "cache/aceglt/ogb" / name.replace("-", "_")) in message
    assert all(file in message for file in RELEASES[name].files)


def test_a_download_is_unpacked_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: str, folder: str) -> str:
        assert url.endswith("/arxiv.zip")
        ogb_samples.arxiv(Path(folder)).rename(Path(folder) / "arxiv")
        return str(Path(folder) / "arxiv.zip")

    monkeypatch.setattr("ogb.utils.url.download_url", fetch)
    monkeypatch.setattr("ogb.utils.url.extract_zip", lambda path, folder: None)
    first = read("ogbn-arxiv")
    monkeypatch.setattr("ogb.utils.url.download_url", lambda *_: pytest.fail("downloaded twice"))
    assert torch.equal(read("ogbn-arxiv").x, first.x)
    assert ("ogbn-arxiv", True, str(tmp_path / "cache/aceglt/ogb/ogbn_arxiv")) in available()


@pytest.mark.parametrize("name", list(RELEASES))
def test_without_the_package_the_error_names_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(module: str, *args: Any, **kwargs: Any) -> Any:
        if module.split(".")[0] in ("ogb", "pandas"):
            raise ImportError(module)
        return real(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for written in (False, True):
        if written:
            WRITERS[name](tmp_path)
        with pytest.raises(DataError, match=r"pip install 'aceglt\[ogb\]'"):
            read(name, tmp_path)


def test_our_accuracy_is_ogbs(tmp_path: Path) -> None:
    ogb_samples.arxiv(tmp_path)
    problem = Problem.from_data(read("ogbn-arxiv", tmp_path))
    outputs = torch.randn(1, ogb_samples.NODES, 2, generator=torch.Generator().manual_seed(0))
    nodes = slice(30, 40)
    answer = {"y_true": problem.y[nodes, None], "y_pred": outputs[0, nodes].argmax(dim=1, keepdim=True)}
    assert float(problem.measure(outputs, "test")) == as_ogb_measures("ogbn-arxiv", answer)["acc"]


def test_our_hits_are_ogbs_on_the_official_pairs(tmp_path: Path) -> None:
    ogb_samples.collab(tmp_path)
    data = read("ogbl-collab", tmp_path)
    problem = Problem.from_data(data, task="link")
    outputs = torch.randn(1, ogb_samples.NODES, 4, generator=torch.Generator().manual_seed(0))
    scores = {
        name: (outputs[0, pairs[0]] * outputs[0, pairs[1]]).sum(dim=1)
        for name, pairs in (("y_pred_pos", data.test_edges), ("y_pred_neg", data.test_negatives))
    }
    assert problem.metric == "hits@50"
    assert float(problem.measure(outputs, "test")) == as_ogb_measures("ogbl-collab", scores)["hits@50"]


def test_held_out_pairs_of_collab_are_not_in_the_graph_unless_they_are_training_edges_too(tmp_path: Path) -> None:
    ogb_samples.collab(tmp_path)
    data = read("ogbl-collab", tmp_path)
    graph = Problem.from_data(data, task="link").graph
    pairs = {frozenset(pair) for pair in data.edge_index.t().tolist() if pair[0] != pair[1]}
    assert {frozenset(pair) for pair in graph.edges.t().tolist()} == pairs


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"test_edges": torch.tensor([[0], [40]])}, {}, "test_edges names node 40"),
        ({"val_negatives": torch.zeros(2, 0, dtype=torch.int64)}, {}, "val_negatives is empty"),
        ({}, {"edge_split": "connected"}, "comes with held-out edges"),
    ],
)
def test_bad_held_out_pairs_are_named(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    ogb_samples.collab(tmp_path)
    data = read("ogbl-collab", tmp_path)
    assert isinstance(data, LinkData)
    with pytest.raises(DataError, match=f"ogbl-collab: {message}"):
        Problem.from_data(replace(data, **change), task="link", **options)


def test_a_search_on_collab_ends_in_a_ticket(tmp_path: Path) -> None:
    ogb_samples.collab(tmp_path)
    result = aceglt.search(
        dataset="ogbl-collab", task="link", data_root=tmp_path, backbone="resgcn", hidden=8, layers=28, embedding=4,
        method="ugs", axis="graph", levels=1, seeds=1, epochs=2, tickets="all",
    )  # fmt: skip
    assert result.results["metric"] == "hits@50"
    assert result.tickets[0].graph_sparsity == pytest.approx(0.05, abs=0.01)
    data = Data(**vars(read("ogbl-collab", tmp_path)), num_nodes=ogb_samples.NODES)
    pruned = Graph.from_edge_index(result.tickets[0].apply(data).edge_index, ogb_samples.NODES)
    assert pruned.num_edges == int(result.tickets[0].masks.edges.sum())


def test_proteins_is_measured_as_ogb_does(tmp_path: Path) -> None:
    ogb_samples.proteins(tmp_path)
    data = read("ogbn-proteins", tmp_path)
    assert isinstance(data, GraphData)
    problem = Problem.from_data(data)
    assert problem.metric == "roc_auc"
    outputs = torch.randn(2, ogb_samples.NODES, ogb_samples.TASKS, generator=torch.Generator().manual_seed(0))
    for run, ours in enumerate(problem.measure(outputs, "test").tolist()):
        tested = {"y_true": data.y[data.test_mask].numpy(), "y_pred": outputs[run, data.test_mask].numpy()}
        assert ours == pytest.approx(as_ogb_measures("ogbn-proteins", tested)["rocauc"], abs=1e-12)


@pytest.mark.parametrize("aids", [{}, {"precision": "bfloat16", "checkpoint_blocks": True, "partitions": 2}])
def test_a_search_on_proteins_prunes_the_maps_of_edge_features_too(tmp_path: Path, aids: dict[str, Any]) -> None:
    ogb_samples.proteins(tmp_path)
    result = aceglt.search(
        dataset="ogbn-proteins", data_root=tmp_path, backbone="resgcn", hidden=8, method="ugs", axis="joint", levels=1,
        seeds=1, epochs=2, tickets="all", **aids,
    )  # fmt: skip
    (ticket,) = result.tickets
    assert ticket.masks.total.weights == 3 * 8 + 28 * (8 * 8 + 8 * 8) + 8 * ogb_samples.TASKS
    assert ticket.masks.total.edges == ogb_samples.EDGES
    assert result.results["metric"] == "roc_auc"
    assert 0 < result.results["levels"][0]["test"][0] < 1


def test_a_search_with_28_layers_ends_in_a_ticket(tmp_path: Path) -> None:
    ogb_samples.arxiv(tmp_path)
    settings = {
        "dataset": "ogbn-arxiv", "data_root": tmp_path, "backbone": "resgcn", "hidden": 8, "method": "ugs",
        "axis": "joint", "levels": 1, "seeds": 1, "epochs": 2, "precision": "bfloat16", "partitions": 2,
        "tickets": "all",
    }  # fmt: skip
    result = aceglt.search(**settings, checkpoint_blocks=True, out=tmp_path / "run", report=False)
    (ticket,) = result.tickets
    assert ticket.masks.total.weights == 6 * 8 + 28 * 8 * 8 + 8 * 2
    assert ticket.model_sparsity == pytest.approx(0.2, abs=1e-3)
    assert ticket.trained.prunable.dtype == torch.float32
    environment = json.loads((tmp_path / "run/environment.json").read_text())
    assert environment["peak_memory"] > 10_000_000
    assert len(aceglt.evaluate(ticket, data_root=tmp_path, seeds=1).ticket.test or []) == 1

    keeping = aceglt.search(**settings)
    assert keeping.results["levels"][0]["val"] == result.results["levels"][0]["val"]
    assert torch.equal(keeping.tickets[0].masks.weights, ticket.masks.weights)
    assert torch.equal(keeping.tickets[0].trained.prunable, ticket.trained.prunable)


def test_a_species_for_every_node_is_not_believed(tmp_path: Path) -> None:
    folder, nodes = ogb_samples.proteins(tmp_path), 12_000
    ogb_samples.write(folder / "raw/num-node-list.csv.gz", np.array([nodes]))
    ogb_samples.write(folder / "raw/species.csv.gz", np.arange(nodes))
    with pytest.raises(DataError, match=r"species\.csv\.gz: 12000 species: would take 1\.61 GiB of memory"):
        read("ogbn-proteins", tmp_path)


def test_rows_that_unpack_to_gigabytes_of_numbers_are_refused_early(tmp_path: Path) -> None:
    folder = ogb_samples.arxiv(tmp_path)
    with gzip.open(folder / "raw/edge.csv.gz", "wb") as file:
        for _ in range(40):
            file.write(b"0,1\n" * (1 << 18))
    with pytest.raises(DataError, match=r"edge\.csv\.gz: would take \S+ GiB of memory, too much for"):
        read("ogbn-arxiv", tmp_path)


def test_a_split_that_unpacks_to_more_than_it_is_is_refused(tmp_path: Path) -> None:
    folder = ogb_samples.collab(tmp_path)
    with zipfile.ZipFile(folder / "split/time/valid.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 28))
    with pytest.raises(DataError, match=r"valid\.pt: would take \S+ GiB of memory, too much for"):
        read("ogbl-collab", tmp_path)
