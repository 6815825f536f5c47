"""Loading by name or path."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aceglt import datasets
from aceglt.datasets import KNOWN, GraphData, available, load, save_npz
from aceglt.errors import DataError


@pytest.mark.parametrize("name", ["citeseer", "CiteSeer", "CITESEER"])
def test_names_are_case_insensitive(name: str) -> None:
    assert load(name).name == "citeseer"


@pytest.mark.parametrize("name", ["citeseer", "cora", "pubmed"])
def test_what_is_known_of_a_dataset_is_true(name: str, raw_root: Path) -> None:
    data, info = load(name, raw_root), KNOWN[name]
    assert data.x.shape == (info.nodes, info.features)
    assert data.edge_index.shape == (2, 2 * info.edges)
    assert int(data.y.max()) + 1 == info.classes


def test_the_environment_variable_names_a_root(raw_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACEGLT_DATA", str(raw_root))
    assert load("cora").name == "cora"
    assert [name for name, present, _ in available() if present][:3] == ["citeseer", "cora", "pubmed"]


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
    assert ("tolokers", True, str(tmp_path / "graphs" / "tolokers.npz")) in available()


def test_a_known_dataset_has_its_metric_unless_its_file_names_one(tmp_path: Path, small: GraphData) -> None:
    (tmp_path / "graphs").mkdir()
    save_npz(tmp_path / "graphs" / "tolokers.npz", small)
    save_npz(tmp_path / "graphs" / "minesweeper.npz", replace(small, metric="accuracy"))
    assert [load(name, tmp_path).metric for name in ("tolokers", "minesweeper", "citeseer")] == [  # type: ignore[union-attr]
        "roc_auc", "accuracy", None,
    ]  # fmt: skip


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


def test_an_unknown_name_lists_the_known_ones_and_the_closest() -> None:
    with pytest.raises(DataError, match=r"'Sitesear'.*citeseer, cora, pubmed, .*did you mean citeseer\?$"):
        load("Sitesear")
    with pytest.raises(
        DataError, match=r"known are citeseer, cora, pubmed, .*synthetic-collab, or the path of an \.npz file$"
    ):
        load("zzz")


def test_available_says_what_is_there_and_where_the_rest_would_go(tmp_path: Path) -> None:
    assert available() == [
        ("citeseer", True, "embedded"),
        ("cora", False, str(tmp_path / "cache/aceglt/planetoid/Cora/raw")),
        ("pubmed", False, str(tmp_path / "cache/aceglt/planetoid/PubMed/raw")),
        ("ogbn-arxiv", False, str(tmp_path / "cache/aceglt/ogb/ogbn_arxiv")),
        ("ogbn-proteins", False, str(tmp_path / "cache/aceglt/ogb/ogbn_proteins")),
        ("ogbl-collab", False, str(tmp_path / "cache/aceglt/ogb/ogbl_collab")),
        *((name, False, str(tmp_path / f"cache/aceglt/graphs/{name}.npz")) for name in ("tolokers", "minesweeper")),
        *((name, True, "generated") for name in ("synthetic-arxiv", "synthetic-proteins", "synthetic-collab")),
    ]


def test_public_names_exist() -> None:
    assert all(hasattr(datasets, name) for name in datasets.__all__)


def test_loading_the_embedded_graph_imports_neither_scipy_nor_pyg() -> None:
    script = (
        "import sys, torch; before = set(sys.modules); from aceglt.datasets import load; load('citeseer');"
        "print({'scipy', 'torch_geometric'} & (set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b", "x" * 5000 + ".npz", "a\0b.npz"])
def test_odd_names_are_data_errors(name: str) -> None:
    with pytest.raises(DataError):
        load(name)
