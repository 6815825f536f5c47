"""Tickets with random masks, for tests of what is done with a ticket."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from search_samples import graph

from aceglt import Ticket
from aceglt.backbones import Params, build
from aceglt.config import Config
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks
from aceglt.searches.levels import inference_macs

BACKBONES = ("gcn", "gin", "gat", "resgcn")


def random_ticket(
    backbone: str = "gcn", alive: float = 0.3, data: Any = None, hidden: int = 8, seed: int = 0, depth: int = 3
) -> Ticket:
    """Weights (biases too) and edges are alive with probability `alive`; nothing was trained.

    `depth` is that of a resgcn; the others have two layers.
    """
    layers = depth if backbone == "resgcn" else None
    data = data if data is not None else graph()
    of = Graph.from_edge_index(data.edge_index, data.num_nodes)
    config = Config(dataset="data", backbone=backbone, hidden=hidden, seeds=(seed,), layers=layers)
    network = build(backbone, data.x.shape[1], 2, **asdict(config.backbone_options))
    generator = torch.Generator().manual_seed(seed)

    def mask(count: int) -> torch.Tensor:
        return torch.rand(1, count, generator=generator) < alive

    masks = Masks(mask(network.prunable.size), mask(of.num_edges))
    start = network.init([seed])
    other = torch.randn(start.other.shape, generator=generator, dtype=start.other.dtype)
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
