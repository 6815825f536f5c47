"""Dense models of `--preset tuned`, ours beside the same networks in plain PyG:
`python -m benchmarks.dense DATASET… [--backbone gcn] [--seeds 5] [--pyg-seeds 2] [--splits 1] [--json FILE]`.

Both train with the preset's settings and report the test metric of the epoch that is best on validation. PyG's network
has its own initial weights and dropout. Of data with several splits, the first so many are trained.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import aceglt
from aceglt import datasets
from aceglt.config import Config, resolve
from aceglt.problems import build_problem
from aceglt.searches.statistics import mean_std
from aceglt.tickets.plain import plain_model
from aceglt.training.setup import build_backbone, pick_device
from benchmarks.deep import pyg_step


def ours(dataset: str, backbone: str, split: str | None, seeds: int, device: str, root: str | None) -> dict[str, Any]:
    """Test metrics by seed, and the seconds of all."""
    began = time.perf_counter()
    result = aceglt.search(
        dataset=dataset, backbone=backbone, preset="tuned", levels=0, seeds=seeds, tickets="none", device=device,
        data_root=root, **_split(split),
    )  # fmt: skip
    dense = result.results["dense"]
    return {"test": dense["test"], "epoch": dense["epoch"], "seconds": time.perf_counter() - began}


def pyg(dataset: str, backbone: str, split: str | None, seeds: int, device: str, root: str | None) -> dict[str, Any]:
    """The same of plain PyG, one seed after the other."""
    config = resolve("tuned", dataset=dataset, backbone=backbone, seeds=1, levels=0, **_split(split))
    data = datasets.load(dataset, root)
    problem = build_problem(config, data, dataset).to(pick_device(device))
    began = time.perf_counter()
    runs = [_train(problem, config, seed) for seed in range(seeds)]
    seconds = time.perf_counter() - began
    return {"test": [test for test, _ in runs], "epoch": [epoch for _, epoch in runs], "seconds": seconds}


def _train(problem: Any, config: Config, seed: int) -> tuple[float, int]:
    """The test metric at the best epoch on validation, and which that is."""
    torch.manual_seed(seed)
    training, edges = config.training, problem.graph.edges
    adjacency: Tensor = torch.cat([edges, edges.flip(0)], dim=1)
    model: Any = plain_model(build_backbone(config, problem)).to(problem.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    x, y, train = problem.x.to_dense(), problem.y, problem.reads("train")
    best, test, at, patience = -1.0, 0.0, 0, training.early_stopping or training.epochs
    for epoch in range(1, training.epochs + 1):
        outputs = pyg_step(model, optimiser, x, adjacency, y, train)[None]
        val = float(problem.measure(outputs, "val"))
        if val > best:
            best, test, at = val, float(problem.measure(outputs, "test")), epoch
        if epoch - at >= patience:
            break
    return test, at


def _split(split: str | None) -> Mapping[str, Any]:
    return {} if split is None else {"split": split}


def splits_of(dataset: str, root: str | None, count: int) -> list[str | None]:
    """The first so many of several splits, or that which comes with the data."""
    masks = getattr(datasets.load(dataset, root), "train_mask", None)
    several = masks is not None and masks.dim() == 2
    return [str(number) for number in range(count)] if several else [None]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dense", description=__doc__)
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--backbone", default="gcn")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pyg-seeds", type=int, default=2)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    lines = []
    for dataset in given.datasets:
        for split in splits_of(dataset, given.data_root, given.splits):
            place = (dataset, given.backbone, split)
            mine = ours(*place, given.seeds, given.device, given.data_root)
            theirs = pyg(*place, given.pyg_seeds, given.device, given.data_root) if given.pyg_seeds else None
            lines.append(
                {"dataset": dataset, "backbone": given.backbone, "split": split, "aceglt": mine, "pyg": theirs}
            )
            print(line(lines[-1]), flush=True)
            if given.json:
                given.json.write_text(json.dumps(lines, indent=1) + "\n")


def line(found: Mapping[str, Any]) -> str:
    """What was found, in a line."""
    parts = []
    for name in ("aceglt", "pyg"):
        if found[name]:
            mean, std = mean_std([100 * value for value in found[name]["test"]])
            parts.append(
                f"{name} {mean:.2f} ± {std:.2f} ({len(found[name]['test'])} seeds, {found[name]['seconds']:.0f} s)"
            )
    split = f" split {found['split']}" if found["split"] is not None else ""
    return f"{found['dataset']} {found['backbone']}{split}: {', '.join(parts)}"


if __name__ == "__main__":
    main()
