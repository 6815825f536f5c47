"""Exported tickets, used where there is no aceglt."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples import sparse_split_data
from search_samples import graph
from ticket_samples import BACKBONES, DEEP, alive_arcs, code_of, masked_outputs, random_ticket, without_aceglt

import aceglt
from aceglt import Ticket
from aceglt.errors import ConfigError, RunError, TicketError
from aceglt.tickets.export import FORMATS

CASES = {
    f"{format}-{backbone}": (format, backbone)
    for format, backbones in (
        ("pyg", (*BACKBONES, *DEEP)),
        ("torch-export", ("gat", "resgcn", "gin, identity")),
        ("onnx", ("gcn", "gat", "resgcn", "gcn, layer norm, linear skips")),
    )
    for backbone in backbones
}
TRACED_SLOWLY = ("torch-export-gin, identity", "onnx-gcn", "onnx-gat")
"""Cases of which another is of the same format, and another of the same backbone."""
QUICK = [name for name in CASES if name not in TRACED_SLOWLY]


def _ticket(backbone: str) -> Ticket:
    return random_ticket(backbone, 0.4)


def compute(folder: Path, names: Sequence[str]) -> None:
    """Leaves the exported tickets of some cases in the folder, and their outputs, computed without aceglt."""
    for name in names:
        format, backbone = CASES[name]
        place = _ticket(backbone).export(folder / name, format)
        given: dict[str, Any] = {"x": graph().x.numpy() if format == "onnx" else graph().x}
        with without_aceglt(place, "model"):
            exec(code_of(place), given)
        np.save(folder / f"{name}.npy", torch.as_tensor(given["outputs"]).detach().numpy())


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    compute(folder, QUICK)
    return folder


def assert_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())


@pytest.mark.parametrize("name", QUICK)
def test_an_exported_ticket_gives_the_same_outputs_without_aceglt(name: str, outputs: Path) -> None:
    wanted = masked_outputs(_ticket(CASES[name][1]), graph().x)
    assert_close(torch.from_numpy(np.load(outputs / f"{name}.npy")), wanted)


@pytest.mark.slow
def test_so_does_one_that_takes_long_to_export(tmp_path: Path) -> None:
    compute(tmp_path, TRACED_SLOWLY)
    for name in TRACED_SLOWLY:
        wanted = masked_outputs(_ticket(CASES[name][1]), graph().x)
        assert_close(torch.from_numpy(np.load(tmp_path / f"{name}.npy")), wanted)


@pytest.mark.parametrize("backbone", ["gat", "resgcn"])
def test_a_traced_model_takes_graphs_of_other_sizes(backbone: str, outputs: Path) -> None:
    traced = torch.export.load(outputs / f"torch-export-{backbone}" / "model.pt2").module()
    model = _ticket(backbone).model()
    for nodes in (2, 5, 90):
        x = torch.rand(nodes, 6, generator=torch.Generator().manual_seed(nodes))
        ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
        arcs = torch.unique(torch.cat([ring, ring.flip(0)], dim=1), dim=1)
        assert_close(traced(x, arcs), model(x, arcs))


def test_the_python_file_is_all_there_is_to_import(tmp_path: Path) -> None:
    random_ticket().export(tmp_path / "out")
    source = (tmp_path / "out" / "model.py").read_text()
    modules = re.findall(r"^\s*(?:from|import) ([\w.]+)", source, re.MULTILINE)
    assert {name.split(".")[0] for name in modules} <= {*sys.stdlib_module_names, "__future__", "torch"}
    content = torch.load(tmp_path / "out" / "ticket.pt", weights_only=True)
    assert content["edge_index"].equal(alive_arcs(random_ticket()))


@pytest.mark.parametrize("format", FORMATS)
def test_a_ticket_that_does_not_fit_its_backbone_leaves_nothing(format: str, tmp_path: Path) -> None:
    ticket = random_ticket()
    broken = replace(ticket, config=ticket.config.replace(hidden=9))
    with pytest.raises(TicketError, match="a gcn of its sizes has"):
        broken.export(tmp_path / "out", format)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(RunError, match="exists already"):
        random_ticket().export(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["note"]


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'tflite'; known are pyg, torch-export, onnx"):
        random_ticket().export(tmp_path / "out", "tflite")


def test_onnx_without_its_packages_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install 'aceglt\[export\]'"):
        random_ticket().export(tmp_path / "out", "onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_readme_says_which_arcs_another_graph_needs(tmp_path: Path) -> None:
    searched = {
        "method": "random",
        "levels": 1,
        "epochs": 1,
        "seeds": 1,
        "hidden": 4,
        "tickets": "all",
        "device": "cpu",
    }
    said = {}
    for name, more in {"undirected": {}, "directed": {"directed": True}, "inductive": {"task": "inductive"}}.items():
        data = sparse_split_data() if name == "inductive" else graph()
        ticket = aceglt.search(data, progress=False, **searched, **more).tickets[0]  # type: ignore[arg-type]
        said[name] = " ".join((ticket.export(tmp_path / name, "pyg") / "README.md").read_text().split())
    assert "needs both directions of its edges" in said["undirected"]
    assert "needs its arcs" in said["directed"]
    assert "by their numbers in the whole graph" in said["inductive"]
