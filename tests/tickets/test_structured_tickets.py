"""A ticket that was pruned by units: masked, compact and exported networks give the same, and what is left is dense."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from search_samples import graph
from ticket_samples import alive_arcs, assert_close, random_ticket
from torch import Tensor

import aceglt
from aceglt import Ticket
from aceglt.backbones import Params, portable
from aceglt.backbones.narrow import narrowed
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.masks import Masks
from aceglt.pruning.structure import build_units
from aceglt.tickets.linear import PrunedLinear

BACKBONES = ("gcn", "sage", "gin", "gat")
NORMS = ("none", "layer", "batch")
SKIPS = ("none", "linear", "identity")
CASES: dict[str, dict[str, Any]] = {
    f"{backbone}, {norm} norm, {skip} skips": {"backbone": backbone, "norm": norm, "skip": skip, "layers": 3}
    for backbone, norm, skip in product(BACKBONES, NORMS, SKIPS)
}
CASES |= {
    "gcn of two layers": {"backbone": "gcn"},
    "gin, jumping, linear output": {"backbone": "gin", "layers": 3, "jumping": "cat", "output": "linear"},
    "resgcn": {"backbone": "resgcn", "layers": 3},
}
TRACED = ("gcn, layer norm, identity skips", "gat, layer norm, linear skips", "resgcn")


def ticket_of(case: str, structure: str = "units,features") -> Ticket:
    """Half of the units and features of a network with random weights."""
    made = random_ticket(alive=0.6, structure=structure, **CASES[case])
    backbone = made.backbone()
    units = build_units(made.config.pruning, backbone)
    assert units is not None
    importance = rng.uniform(rng.keys([1], "importance"), units.count)
    alive = torch.ones(1, units.count, dtype=torch.bool)
    left = units.cut(alive, importance, made.masks.total.weights // 3, rng.keys([1], "cut"))
    masks = Masks(units.weights(left), made.masks.edges)
    trained = torch.randn(made.trained.prunable.shape, generator=torch.Generator().manual_seed(2)) * masks.weights
    return replace(made, masks=masks, trained=Params(trained, made.trained.other))


def masked_outputs(ticket: Ticket, x: Tensor) -> Tensor:
    """Of the network with all its units, beside one that needs them all: dead ones are masked."""
    backbone = ticket.backbone()
    weights = torch.cat([ticket.masks.weights, torch.ones_like(ticket.masks.weights)])
    both = narrowed(backbone, weights)
    assert both is not None
    assert both.backbone.prunable == backbone.prunable
    assert both.features is None
    params = both.params(Params(*(p.expand(2, -1) for p in (ticket.trained.prunable, ticket.trained.other))))
    edges = ticket.masks.edges.expand(2, -1)
    batch = ticket.graph.batch(edges, backbone.self_loops)
    return both.backbone.apply(both.backbone.weights(params), batch, edges.to(x.dtype), Features(x))[0]


@pytest.mark.parametrize("case", CASES)
def test_masked_compact_and_exported_networks_agree(case: str, tmp_path: Path) -> None:
    ticket, x = ticket_of(case), graph().x
    wanted, model = masked_outputs(ticket, x), ticket.model()
    assert_close(model(x, alive_arcs(ticket)), wanted, 1e-5)
    ticket.save(tmp_path / "ticket")
    again = Ticket.load(tmp_path / "ticket")
    assert_close(again.model()(x, alive_arcs(again)), wanted, 1e-5)
    exported, arcs = portable.load(ticket.export(tmp_path / "pyg") / "ticket.pt")
    assert_close(exported(x, arcs), wanted, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["torch-export", "onnx"])
@pytest.mark.parametrize("case", TRACED)
def test_traced_networks_agree(case: str, format: str, tmp_path: Path) -> None:
    ticket, x = ticket_of(case), graph().x
    folder, arcs = ticket.export(tmp_path / format, format), alive_arcs(ticket)
    if format == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
        found = torch.from_numpy(session.run(None, {"x": x.numpy(), "edge_index": arcs.numpy()})[0])
    else:
        found = torch.export.load(folder / "model.pt2").module()(x, arcs)
    assert_close(found, masked_outputs(ticket, x), 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_no_weight_of_the_compact_model_is_dead(case: str) -> None:
    ticket = ticket_of(case)
    model = ticket.model()
    parts = [part for part in model.modules() if isinstance(part, PrunedLinear)]
    assert sum(part.weight.numel() for part in parts) < ticket.masks.total.weights * 0.6  # with attention
    assert all(bool((part.weight != 0).all()) for part in parts)
    model(graph().x, alive_arcs(ticket))
    assert "sparse weight" not in " ".join(model.kernels.values())


def test_a_printed_model_says_how_wide_it_is() -> None:
    ticket = ticket_of("gcn of two layers", "units")
    first, second = ticket.state_dict().values()
    units = int((first != 0).any(dim=0).sum())
    inputs, outputs = len(first), second.shape[1]
    assert f"({inputs}, {units}, non-zero={inputs * units})" in repr(ticket.model())
    assert f"({units}, {outputs}, non-zero={units * outputs})" in repr(ticket.model())


def test_a_search_by_units_gives_tickets_whose_predictions_were_measured(tmp_path: Path) -> None:
    data = graph()
    result = aceglt.search(
        data, method="ugs", structure="units,features", layers=3, norm="layer", hidden=8, levels=2, seeds=2, epochs=4,
        tickets="all", out=tmp_path / "run", progress=False,
    )  # fmt: skip
    assert result.results["structure"] == "units,features"
    for ticket in result.tickets:
        level = result.results["levels"][ticket.level - 1]
        run = result.results["seeds"].index(ticket.seed)
        right = (ticket.predict(data).argmax(dim=1) == data.y)[data.test_mask]
        assert float(right.double().mean()) == pytest.approx(level["test"][run])
        widths = {layer: counts[run] for layer, counts in level["units"].items()}
        assert len(ticket.model().features) <= widths["features"]
        assert ticket.sizes["macs"] < ticket.sizes["dense_macs"]
