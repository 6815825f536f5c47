"""Dense models of `--preset tuned`, ours beside the same networks in plain PyG:
`python -m benchmarks.dense DATASET… [--backbone gcn] [--seeds 5] [--pyg-seeds 2] [--splits 1] [--json FILE]`.

Both train with the preset's settings and report the test metric of the epoch that is best on validation. PyG's network
has its own initial weights and dropout, and a GCN passes messages over a normalised CSR adjacency, PyG's fastest form.
Of data with several splits, the first so many are trained. Seeds are a number, or which: 5-9.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import aceglt
from aceglt import datasets
from aceglt.config import Config, resolve
from aceglt.problems import build_problem
from aceglt.searches.statistics import mean_std
from aceglt.training.setup import build_backbone, pick_device
from benchmarks.deep import pyg_network, pyg_step

Found = dict[str, Any]


def ours(seeds: Sequence[int], device: str, root: str | None, **settings: Any) -> Iterator[Found]:
    """Test metrics by seed, of all at once."""
    began = time.perf_counter()
    result = aceglt.search(
        preset="tuned", levels=0, seeds=seeds, tickets="none", device=device, data_root=root, **settings
    )
    dense = result.results["dense"]
    yield {"test": dense["test"], "epoch": dense["epoch"], "seconds": time.perf_counter() - began}


def pyg(seeds: Sequence[int], device: str, root: str | None, **settings: Any) -> Iterator[Found]:
    """The same of plain PyG, one seed after the other; what is found so far, after each of them."""
    config = resolve("tuned", seeds=1, levels=0, **settings)
    data = datasets.load(config.dataset, root)
    problem = build_problem(config, data, config.dataset).to(pick_device(device))
    began, runs = time.perf_counter(), []
    for seed in seeds:
        runs.append(_train(problem, config, seed))
        tests, epochs = zip(*runs, strict=True)
        yield {"test": list(tests), "epoch": list(epochs), "seconds": time.perf_counter() - began}


def _train(problem: Any, config: Config, seed: int) -> tuple[float, int]:
    """The test metric at the best epoch on validation, and which that is."""
    torch.manual_seed(seed)
    training = config.training
    model, adjacency = pyg_network(
        problem, build_backbone(config, problem), "CSR" if config.backbone == "gcn" else "edge_index"
    )
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


def splits_of(dataset: str, root: str | None, count: int) -> list[str | None]:
    """The first so many of several splits, or that which comes with the data."""
    masks = getattr(datasets.load(dataset, root), "train_mask", None)
    several = masks is not None and masks.dim() == 2
    return [str(number) for number in range(count)] if several else [None]


def main(arguments: Sequence[str] | None = None) -> None:
    given = _options(arguments)
    ways = (("ours", ours, seeds_of(given.seeds)), ("pyg", pyg, seeds_of(given.pyg_seeds)))
    lines: list[Found] = []
    for dataset in given.datasets:
        for split in splits_of(dataset, given.data_root, given.splits):
            place = {"dataset": dataset, "backbone": given.backbone, "split": split}
            settings = {name: v for name, v in {**place, "epochs": given.epochs}.items() if v is not None}
            for kind, train, seeds in ways:
                if not seeds:
                    continue
                lines.append({})
                for found in train(seeds, given.device, given.data_root, **settings):
                    lines[-1] = {"kind": kind, **place, "seeds": seeds[: len(found["test"])], **found}
                    if given.json:
                        rows = ",\n ".join(json.dumps(each) for each in lines)
                        given.json.write_text(f"[\n {rows}\n]\n")
                print(line(lines[-1]), flush=True)


def seeds_of(text: str) -> list[int]:
    """`3` → the first three; `5-9` → these."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1) if dash else range(int(first)))


def line(found: Found) -> str:
    """What was found, in a line."""
    mean, std = mean_std([100 * value for value in found["test"]])
    split = f" split {found['split']}" if found["split"] is not None else ""
    shown = f"{mean:.2f} ± {std:.2f} ({len(found['test'])} seeds, {found['seconds']:.0f} s)"
    return f"{found['dataset']} {found['backbone']}{split}, {found['kind']}: {shown}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dense", description=__doc__)
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--backbone", default="gcn")
    parser.add_argument("--seeds", default="5")
    parser.add_argument("--pyg-seeds", default="2")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="instead of the preset's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
