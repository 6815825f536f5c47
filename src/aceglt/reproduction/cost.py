"""What searches will cost on the machine at hand, roughly: epochs from the method, seconds from a short measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from timeit import repeat

import torch

from aceglt.backbones import build
from aceglt.config import Config
from aceglt.datasets import KNOWN
from aceglt.methods.base import level_epochs
from aceglt.methods.build import build_method
from aceglt.training.setup import pick_device

NONZERO_FEATURES = {"cora": 49_216, "citeseer": 105_165, "pubmed": 988_031}
"""Of graphs whose features are sparse; those of the others count in full."""

# An epoch of score training with validation, in forward passes: what GCN and GAT took on Cora, CiteSeer and PubMed lies
# between 3 and 8.
_PASSES = 5
_LAUNCH_SECONDS = 2e-3  # what an epoch takes on a GPU even if there is nothing to compute


def epochs_per_seed(config: Config) -> int:
    """Epochs that a search trains per seed at most."""
    epochs = config.training.epochs
    return epochs + config.stopping.levels * level_epochs(build_method(config), config.scoring_epochs, epochs)


def estimator(device: str) -> Callable[[Config, int], float]:
    """Of a configuration and a number of seeds, the seconds to search at this machine's speed, measured once."""
    place = pick_device(device)
    return partial(seconds_to_search, rate=measured_rate(place), on_gpu=place.type == "cuda")


def seconds_to_search(config: Config, seeds: int, rate: float, on_gpu: bool) -> float:
    """Of a known dataset, at `rate` multiply-adds per second, as if no level were cheaper than the first."""
    epoch = seeds * _PASSES * _forward(config) / rate
    return epochs_per_seed(config) * (max(epoch, _LAUNCH_SECONDS) if on_gpu and seeds else epoch)


def measured_rate(device: torch.device) -> float:
    """Multiply-adds per second of a sparse product such as a backbone's, measured here and now."""
    nodes, degree, width = 4_000, 30, 256
    columns = torch.arange(nodes * degree, device=device) * 7919 % nodes
    rows = torch.arange(nodes, device=device).repeat_interleave(degree)
    matrix = torch.sparse_coo_tensor(torch.stack([rows, columns]), torch.ones(len(rows), device=device)).coalesce()
    x = torch.ones(matrix.shape[1], width, device=device)

    def multiply() -> None:
        torch.sparse.mm(matrix, x)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return matrix._nnz() * width / min(repeat(multiply, number=1, repeat=5))


def _forward(config: Config) -> int:
    """Multiply-adds of a forward pass: products with features and weights, and sums over edges."""
    graph = KNOWN[config.dataset]
    outputs: int = getattr(config.task_options, "embedding", graph.classes)
    backbone = build(config.backbone, graph.features, outputs, **asdict(config.backbone_options))
    arcs = 2 * graph.edges + graph.nodes
    zeros = graph.nodes * graph.features - NONZERO_FEATURES.get(config.dataset, graph.nodes * graph.features)
    reading = sum(shape[1] for _, shape in backbone.prunable.shapes if shape[0] == graph.features)
    return graph.nodes * backbone.prunable.size - zeros * reading + arcs * sum(backbone.aggregation_widths)
