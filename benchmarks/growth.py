"""Time and memory per epoch over the size of a synthetic graph."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch_geometric.data import Data

from aceglt.backbones import build
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem
from aceglt.training.fit import fit
from benchmarks.epoch import SCORING, TRAINING
from benchmarks.machine import fastest, peak_mib

WIDTH = 16
DEGREE = 10  # edges per node
LINEAR_FROM = 100_000  # edges; below, what does not depend on the graph shows


def synthetic(edges: int) -> Data:
    """A random graph with about this many edges, all of whose nodes are labelled, so that none can be left out."""
    generator, nodes = torch.Generator().manual_seed(0), edges // DEGREE
    part = torch.arange(nodes) % 4
    return Data(
        x=torch.randn(nodes, WIDTH, generator=generator),
        y=torch.randint(4, (nodes,), generator=generator),
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        train_mask=part < 2,
        val_mask=part == 2,
        test_mask=part == 3,
    )


def measure(edges: int, device: str) -> dict[str, Any]:
    """Milliseconds per epoch of score training with a GCN, and the memory it takes beyond an empty process's."""
    before = peak_mib(device)
    problem = Problem.from_data(synthetic(edges), "synthetic").to(device)
    backbone = build("gcn", WIDTH, problem.out_features, WIDTH)
    start, key = backbone.init([0], device), rng.keys([0], "bench", device=device)
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges), device)

    def seconds(epochs: int, repeat: int) -> float:
        train = lambda: fit(problem, backbone, start, masks, epochs, TRAINING, key, scoring=SCORING)  # noqa: E731
        return fastest(train, device, repeat)

    seconds(1, 1)  # compiles, and makes what the problem keeps
    many, repeat = (7, 3) if edges <= 1_000_000 else (4, 1)
    per_epoch = max(1e-5, (seconds(many, repeat) - seconds(1, repeat)) / (many - 1))
    return {"edges": problem.graph.num_edges, "ms": round(per_epoch * 1e3, 2), "mib": peak_mib(device) - before}


def exponents(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Slopes of log time and log memory over log edges, by least squares, from 10^5 edges on."""
    large = [row for row in rows if row["edges"] >= 0.9 * LINEAR_FROM]
    return {name: round(_slope(large, name), 2) for name in ("ms", "mib")} if len(large) > 1 else {}


def _slope(rows: list[dict[str, Any]], name: str) -> float:
    x = torch.tensor([math.log(row["edges"]) for row in rows])
    y = torch.tensor([math.log(row[name]) for row in rows])
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x @ x))
