"""Digests of what searches find, to show that a change of the code leaves every result as it was, bit by bit.

Run it on two commits on the same machine, then compare:

    OMP_NUM_THREADS=1 PYTHONPATH=src python tools/record_results.py after.json
    python tools/record_results.py --compare before.json after.json

Bits depend on the processor, so the digests are no test; they are made by the public API alone, so that one script
serves both commits.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Case = tuple[str, Any, dict[str, Any]]

METHODS: dict[str, dict[str, Any]] = {
    "random": {},
    "ugs": {},
    "gebt": {"max_epochs": 8},
    "ace": {"rounds": 2, "refine_epochs": 3, "exchange": 0.05, "keep": "last"},
}
BACKBONES: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": 64},
    "gin": {"hidden": 64},
    "gat": {"hidden": 8},
    "resgcn": {"hidden": 16, "layers": 3},
}


def cases() -> Iterator[Case]:
    """Every method × backbone × task on CiteSeer, then what else takes a path of its own."""
    from aceglt import datasets

    data = datasets.load("citeseer")
    common: dict[str, Any] = {"axis": "joint", "levels": 2, "epochs": 5, "seeds": 2, "prune_model": 0.5}
    for method, options in METHODS.items():
        for backbone, sizes in BACKBONES.items():
            for task in ("node", "inductive", "link"):
                settings = {**common, **sizes, "method": method, "backbone": backbone, "task": task}
                yield f"{method} {backbone} {task}", data, {**settings, "method_options": options}
    gcn: dict[str, Any] = {**common, "hidden": 64, "method": "ugs"}
    for name, backbone in (("gcn", "gcn"), ("gin", "gin")):
        for sparsity in (0.9, 0.99):
            sparse = {**gcn, "backbone": backbone, "levels": 1, "prune_model": sparsity, "balance": 0.0}
            yield f"{name} {sparsity} teacher", data, sparse
            yield f"{name} {sparsity} labels", data, {**sparse, "signal": "labels"}
    yield "preset paper", data, {**gcn, "method": "ace", "preset": "paper", "levels": 2}
    yield "preset ugs", data, {**gcn, "preset": "ugs"}
    yield "one run", data, {**gcn, "seeds": 1}
    yield "wide", data, {**gcn, "hidden": 512, "seeds": 1, "levels": 1}
    yield "wide labels", data, {**gcn, "hidden": 512, "signal": "labels", "levels": 1}
    yield "clamped, last epoch", data, {**gcn, "clamp_scores": True, "score_epoch": "last"}
    yield "partitions", data, {**gcn, "partitions": 3}
    yield "split", data, {**gcn, "split": "random:3"}
    yield "infoclust", data, {**gcn, "task": "link", "objective": "infoclust", "signal": "labels", "levels": 1}
    yield "directed", data, {**gcn, "directed": True}
    yield "weighted", weighted(data), gcn
    yield "several labels", several(data), gcn
    yield "resgcn, edge features", attributed(data), {**gcn, "backbone": "resgcn", "hidden": 16, "layers": 2}
    yield "own model", data, {**gcn, "backbone": own_model(), "seeds": 2}
    yield "own model, inductive", data, {**gcn, "backbone": own_model(), "task": "inductive"}


def changed(data: Any, **parts: Any) -> Any:
    names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
    return SimpleNamespace(**{**{name: getattr(data, name) for name in names}, **parts})


def weighted(data: Any) -> Any:
    source, target = data.edge_index
    return changed(data, edge_weight=0.5 + ((source + target) % 7).float() / 7)


def attributed(data: Any) -> Any:
    import torch

    source, target = data.edge_index
    return changed(data, edge_attr=torch.stack([(source + target) % 5, (source * target) % 3], dim=1).float())


def several(data: Any) -> Any:
    import torch

    labels = torch.stack([data.y % 2 == 0, data.y > 2], dim=1).float()
    labels[::7, 0] = torch.nan
    return changed(data, y=labels)


def own_model() -> Any:
    import torch
    from torch_geometric.nn import SAGEConv

    class Sage(torch.nn.Module):
        def __init__(self, in_features: int, out_features: int) -> None:
            super().__init__()
            self.first = SAGEConv(in_features, 16)
            self.norm = torch.nn.BatchNorm1d(16)
            self.second = SAGEConv(16, out_features)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.norm(self.first(x, edge_index)))
            out: torch.Tensor = self.second(torch.dropout(hidden, 0.5, self.training), edge_index)
            return out

    return Sage


def digest(result: Any) -> dict[str, Any]:
    """Metrics as they are, masks and weights as digests."""
    hashes = hashlib.sha256()
    for ticket in result.tickets:
        for tensor in (
            ticket.masks.weights, ticket.masks.edges, ticket.initial.prunable, ticket.trained.prunable,
            ticket.trained.other,
        ):  # fmt: skip
            hashes.update(tensor.contiguous().numpy().tobytes())
    found = result.results
    metrics = [[level["val"], level["test"], level["macs"]] for level in (found["dense"], *found["levels"])]
    return {"metrics": metrics, "tickets": len(result.tickets), "sha256": hashes.hexdigest()}


def record(path: Path, wanted: list[str]) -> None:
    import aceglt

    made = {}
    for name, data, settings in cases():
        if wanted and not any(word in name for word in wanted):
            continue
        made[name] = digest(aceglt.search(data, tickets="all", device="cpu", **settings))
        print(name, made[name]["sha256"][:12], flush=True)
    path.write_text(json.dumps(made, indent=1))


def compare(before: Path, after: Path) -> int:
    a, b = json.loads(before.read_text()), json.loads(after.read_text())
    differ = [name for name in b if a.get(name) != b[name]]
    print(f"{len(b) - len(differ)} of {len(b)} the same" + "".join(f"\ndiffers: {name}" for name in differ))
    return int(bool(differ))


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])))
    record(Path(sys.argv[1]), sys.argv[2:])
