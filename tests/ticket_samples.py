"""Tickets with random masks, for tests of what is done with a ticket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from search_samples import graph
from torch import Tensor

from aceglt import Ticket
from aceglt.backbones import Params, build
from aceglt.config import Config
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks
from aceglt.searches.levels import inference_macs
from aceglt.tickets.export import alive_graph

BACKBONES = ("gcn", "gin", "gat", "resgcn")
DEEP: dict[str, dict[str, Any]] = {
    "gcn, layer norm, linear skips": {
        "backbone": "gcn", "layers": 4, "norm": "layer", "skip": "linear", "output": "linear", "bias": True,
    },
    "sage, jumping": {"backbone": "sage", "layers": 3, "jumping": "cat"},
    "sage, batch norm": {"backbone": "sage", "layers": 3, "norm": "batch", "output": "linear", "skip": "linear"},
    "gin, identity": {"backbone": "gin", "layers": 4, "skip": "identity", "jumping": "cat", "output": "linear"},
    "gat, batch norm, identity": {"backbone": "gat", "heads": 2, "layers": 3, "norm": "batch", "skip": "identity"},
    "gat, one layer": {"backbone": "gat", "layers": 1},
}  # fmt: skip
"""A few networks that are not of two plain layers."""


def random_ticket(
    backbone: str = "gcn", alive: float = 0.3, data: Any = None, hidden: int = 8, seed: int = 0, **options: Any
) -> Ticket:
    """Weights (biases too) and edges are alive with probability `alive`; nothing was trained.

    `backbone` is a name, or one of the networks of `DEEP`.
    """
    options = {"backbone": backbone, **({"layers": 3} if backbone == "resgcn" else {}), **DEEP.get(backbone, options)}
    data, backbone = data if data is not None else graph(), options["backbone"]
    of = Graph.from_edge_index(data.edge_index, data.num_nodes)
    config = Config(dataset="data", hidden=hidden, seeds=(seed,), **options)
    network = build(backbone, data.x.shape[1], 2, **asdict(config.backbone_options))
    generator = torch.Generator().manual_seed(seed)

    def mask(count: int) -> torch.Tensor:
        return torch.rand(1, count, generator=generator) < alive

    masks = Masks(mask(network.prunable.size), mask(of.num_edges))
    start = network.init([seed])
    other = torch.randn(start.other.shape, generator=generator, dtype=start.other.dtype)
    for name, part in network.other.split(other).items():
        if name.endswith("variance"):
            part.abs_().add_(0.1)
    trained = 3 * torch.randn(start.prunable.shape, generator=generator, dtype=start.prunable.dtype)
    return Ticket(
        config=config,
        seed=seed,
        level=1,
        masks=masks,
        initial=Params(start.prunable * masks.weights, start.other),
        trained=Params(trained * masks.weights, other),
        metrics={"val": 0.5, "test": 0.5, "dense_val": 0.5, "dense_test": 0.5},
        sizes={
            "in_features": data.x.shape[1],
            "out_features": 2,
            "macs": inference_macs(network, of, masks.alive),
            "dense_macs": inference_macs(network, of, masks.total),
        },
        graph=of,
        fingerprint=of.fingerprint,
    )


def masked_outputs(ticket: Ticket, x: torch.Tensor) -> torch.Tensor:
    """What the search itself computes for this ticket: masks on the full model and graph."""
    backbone = ticket.backbone()
    batch = ticket.graph.batch(ticket.masks.edges, backbone.self_loops)
    values = ticket.masks.edges.to(x.dtype)
    return backbone.apply(backbone.weights(ticket.trained), batch, values, Features(x))[0]


def assert_close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    """Within a tolerance relative to the largest of those wanted."""
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


def alive_arcs(ticket: Ticket) -> Tensor:
    """PyG's edge_index [2, A] of the ticket's alive edges, an undirected one in both directions."""
    return alive_graph(ticket)["edge_index"]


@contextmanager
def without_aceglt(folder: Path, *modules: str) -> Iterator[None]:
    """Inside, a program runs in this folder where aceglt cannot be imported; these modules are imported anew."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == "aceglt"]:
            patch.setitem(sys.modules, name, None)
        for name in modules:
            patch.delitem(sys.modules, name, raising=False)
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        yield
        for name in modules:
            sys.modules.pop(name, None)


def code_of(folder: Path) -> str:
    """The program that an exported ticket's README shows."""
    return (folder / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
