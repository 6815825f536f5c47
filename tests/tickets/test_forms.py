"""Every form of a ticket predicts what the search does, for every backbone, task, direction and weight."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from own_models import LAYERS, Normed
from search_samples import graph
from sklearn.datasets import load_digits
from ticket_samples import code_of
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, PNA, GraphSAGE

import aceglt
from aceglt.backbones import portable
from aceglt.config.own import Own
from aceglt.problems import build_problem
from aceglt.searches.levels import outputs
from aceglt.training.setup import build_backbone

QUICK: dict[str, Any] = {
    "method": "random", "levels": 1, "epochs": 2, "seeds": 1, "hidden": 6, "prune_model": 0.6, "axis": "joint",
    "prune_graph": 0.3, "device": "cpu", "tickets": "all",
}  # fmt: skip
BUILT_IN: dict[str, dict[str, Any]] = {
    "gcn": {"backbone": "gcn"},
    "gcn, batch norm, skips": {"backbone": "gcn", "layers": 3, "norm": "batch", "skip": "linear", "output": "linear"},
    "sage": {"backbone": "sage"},
    "gin": {"backbone": "gin"},
    "gat": {"backbone": "gat", "heads": 2},
    "resgcn": {"backbone": "resgcn", "layers": 2},
    "gcn, structured": {"backbone": "gcn", "layers": 3, "norm": "layer", "structure": "units,features"},
}
_UNITS = {"structure": "units"}
BUILT_IN |= {f"{name}, structured": BUILT_IN[name] | _UNITS for name in ("sage", "gin", "gat", "resgcn")}
HISTOGRAM = torch.tensor([0, 4, 8, 4, 2])
OWN: dict[str, Any] = {
    **{name: LAYERS[name] for name in ("sage", "gatv2", "gin", "transformer", "gcn weighted", "gcn", "tied")},
    "normed": Normed,
    "PyG's GCN": GCN(6, 5, 2, 2),
    "PyG's GraphSAGE": GraphSAGE(6, 5, 2, 2, norm="batch"),
    "PyG's GAT": GAT(6, 6, 2, 2, heads=2),
    "PyG's GIN": GIN(6, 5, 2, 2),
    "PyG's PNA": PNA(6, 5, 2, 2, aggregators=["mean", "max"], scalers=["identity"], deg=HISTOGRAM),
}
PROBLEMS: dict[str, dict[str, Any]] = {
    "node": {},
    "directed": {"directed": True},
    "weighted": {},
    "weighted, directed": {"directed": True},
    "inductive": {"task": "inductive"},
    "link": {"task": "link", "embedding": 4},
}
PROBLEMS |= {
    f"{of}, {task}": PROBLEMS[task] | PROBLEMS[of]
    for of in ("directed", "weighted", "weighted, directed")
    for task in ("inductive", "link")
}
LINK_OF_SIX = {"task": "link", "embedding": 2}  # so that models made for two outputs fit


def data_of(kind: str) -> Data:
    data = graph()
    if "directed" in kind:
        data.edge_index = data.edge_index[:, ::2]
    if "weighted" in kind:
        low, high = data.edge_index.min(dim=0).values, data.edge_index.max(dim=0).values
        data.edge_weight = ((3 * low + high) % 7 + 1.0) / 4  # the same in both directions
    return data


def searched(ticket: aceglt.Ticket, data: Data, model: Any = None) -> Tensor:
    """What the search itself computes: masks on the whole network and graph."""
    problem = build_problem(ticket.config, data)
    backbone = build_backbone(ticket.config, problem, Own(backbone=model))
    return outputs(problem, backbone, ticket.trained, ticket.masks, "test")[0]


def assert_same(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape
    found, wanted = found.detach(), wanted.detach()
    assert float((found - wanted).abs().max()) <= 1e-5 * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("backbone", BUILT_IN)
def test_every_form_of_a_ticket_agrees(backbone: str, kind: str, tmp_path: Path) -> None:
    data = data_of(kind)
    ticket = aceglt.search(data, **QUICK, **BUILT_IN[backbone], **PROBLEMS[kind]).tickets[-1]
    wanted, pruned = searched(ticket, data), ticket.apply(data)
    link, inductive = (ticket.config.task == task for task in ("link", "inductive"))
    assert_same(ticket.predict(data), wanted if link else wanted.softmax(dim=-1))
    if link:
        pairs = torch.tensor([[0, 1, 2], [3, 5, 9]])
        scores = (wanted[pairs[0]] * wanted[pairs[1]]).sum(dim=-1).sigmoid()
        assert_same(ticket.predict(data, pairs=pairs), scores)
    inputs = pruned.x, pruned.edge_index, pruned.edge_weight
    model = ticket.model()
    assert_same(model(*inputs), wanted)
    assert_same(model.run(model.prepare(pruned)), wanted)
    ticket.save(tmp_path / "small", parts="inference")
    assert_same(aceglt.Ticket.load(tmp_path / "small").predict(data), ticket.predict(data))
    other, *arcs = portable.load(ticket.export(tmp_path / "served") / "ticket.pt")  # which is beside it as model.py
    assert_same(other(*(part for part in inputs if part is not None)), wanted)
    if not inductive:  # where the arcs are those of training alone
        assert_same(other(data.x, *arcs), wanted)
    if backbone in ("gat", "gcn, structured"):
        measured = aceglt.benchmark(ticket, data, device="cpu", repeats=1)
        assert measured["ticket"].edges == pruned.num_edges // (1 if "directed" in kind else 2)


def outputs_of(folder: Path, format: str, x: Tensor) -> Tensor:
    """Of the program that an export's README shows."""
    found: dict[str, Any] = {"x": x.numpy() if format == "onnx" else x}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(code_of(folder), found)
    return torch.as_tensor(found["outputs"])


TRACED = ("node", "weighted, directed", "weighted, link")
QUICKLY_TRACED = (("torch-export", "gcn", "weighted, directed"), ("onnx", "gat", "weighted, directed"))


@pytest.mark.parametrize(
    ("format", "backbone", "kind"),
    [
        pytest.param(*case, marks=() if case in QUICKLY_TRACED else pytest.mark.slow)
        for case in product(("torch-export", "onnx"), BUILT_IN, TRACED)
    ],
)
def test_a_traced_model_agrees(format: str, backbone: str, kind: str, tmp_path: Path) -> None:
    data = data_of(kind)
    ticket = aceglt.search(data, **QUICK, **BUILT_IN[backbone], **PROBLEMS[kind]).tickets[-1]
    assert_same(outputs_of(ticket.export(tmp_path / "served", format), format, data.x), searched(ticket, data))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["torch-export", "onnx"])
@pytest.mark.parametrize("name", OWN)
def test_a_traced_module_of_ones_own_agrees(name: str, format: str, tmp_path: Path) -> None:
    data, model = data_of("node"), OWN[name]
    ticket = aceglt.search(data, backbone=model, **{**QUICK, "hidden": 512}).tickets[-1]
    folder = ticket.export(tmp_path / "served", format, backbone=model)
    assert_same(outputs_of(folder, format, data.x), searched(ticket, data, model))


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", OWN)
def test_every_form_of_a_ticket_of_ones_own_model_agrees(name: str, kind: str, tmp_path: Path) -> None:
    data, model = data_of(kind), OWN[name]
    options = PROBLEMS[kind] | (LINK_OF_SIX if "link" in kind else {})
    ticket = aceglt.search(data, backbone=model, **{**QUICK, "hidden": 512}, **options).tickets[-1]
    wanted, pruned = searched(ticket, data, model), ticket.apply(data)
    answer = wanted if "link" in kind else wanted.softmax(dim=-1)
    assert_same(ticket.predict(data, backbone=model), answer)
    ticket.save(tmp_path / "small", parts="inference")
    assert_same(aceglt.Ticket.load(tmp_path / "small").predict(data, backbone=model), answer)
    if "weighted" in kind and name != "gcn weighted":
        return  # a module that reads no weights gets them from the search alone; see test_own_tickets
    weight = pruned.edge_weight if "weighted" in kind else torch.ones(pruned.num_edges)
    options = {"edge_weight": weight} if name == "gcn weighted" else {}
    module = ticket.model(model)
    exported = torch.load(ticket.export(tmp_path / "served", backbone=model) / "state_dict.pt", weights_only=True)
    assert_same(module(pruned.x, pruned.edge_index, **options), wanted)
    assert_same(ticket.model(model, compact=True)(pruned.x, pruned.edge_index, **options), wanted)
    for state in (ticket.state_dict(), exported):
        module.load_state_dict(state, strict=False)
        assert_same(module(pruned.x, pruned.edge_index, **options), wanted)


@pytest.mark.parametrize(("backbone", "said"), [("gcn", True), ("resgcn", False)])
def test_features_of_edges_that_a_backbone_does_not_read_are_said(
    backbone: str, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = graph()
    data.edge_attr = torch.ones(data.num_edges)
    with caplog.at_level("WARNING", "aceglt"):
        aceglt.search(data, backbone=backbone, **QUICK, **({"layers": 2} if backbone == "resgcn" else {}))
    assert ("weights of edges belong in edge_weight" in caplog.text) == said


def test_one_way_arcs_of_a_knn_graph_are_said_and_become_edges(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An exported model that is fed `ticket.apply(data).edge_index` predicts what the ticket does."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.data[:120]).float() / 16, torch.from_numpy(digits.target[:120])
    near = torch.cdist(x, x).topk(4, largest=False).indices[:, 1:]  # [N, 3] without the node itself
    arcs = torch.stack([near.flatten(), torch.arange(120).repeat_interleave(3)])
    part = torch.arange(120) % 3
    masks = {f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))}
    data = Data(x=x, y=y, edge_index=arcs, **masks)
    back = set(map(tuple, arcs.flip(0).T.tolist()))
    alone = sum(pair not in back for pair in map(tuple, arcs.T.tolist()))
    with caplog.at_level("WARNING", "aceglt"):
        ticket = aceglt.search(data, **QUICK).tickets[-1]
    assert alone > 0
    assert f"{alone:,} of 360 arcs are listed without their reverse" in caplog.text
    model, _ = portable.load(ticket.export(tmp_path / "served") / "ticket.pt")
    found = model(data.x, ticket.apply(data).edge_index).softmax(dim=-1)
    assert_same(found, ticket.predict(data))
    assert_same(ticket.predict(data), searched(ticket, data).softmax(dim=-1))
