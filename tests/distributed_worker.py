"""What every process of a distributed test runs: `torchrun … distributed_worker.py OUT`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from search_samples import graph, search

from aceglt.training import processes

CASES: dict[str, dict[str, Any]] = {
    "gcn": {"partitions": 4, "parts_per_step": 2, "seeds": 2, "levels": 2},
    "gcn uneven": {"partitions": 7, "parts_per_step": 3},
    "gin ace": {"backbone": "gin", "method": "ace", "signal": "teacher", "partitions": 2, "parts_per_step": 2,
                "method_options": {"rounds": 1, "refine_epochs": 2}},
    "gat link": {"backbone": "gat", "task": "link", "embedding": 4, "partitions": 4, "parts_per_step": 2},
    "resgcn inductive": {"backbone": "resgcn", "layers": 2, "task": "inductive", "partitions": 2, "parts_per_step": 2},
    "gebt": {"method": "gebt", "method_options": {"max_epochs": 8}, "partitions": 2, "parts_per_step": 2},
}  # fmt: skip


IN_FLOAT32 = ("gcn", "gat link")


def sparse_split() -> Any:
    """Two thirds of the nodes outside of validation and test, so that the inductive task has edges."""
    data = graph(nodes=120)
    part = torch.arange(120) // 2 % 6
    data.train_mask, data.val_mask, data.test_mask = part < 4, part == 4, part == 5
    return data


def run(out: Path, dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        for name in CASES if dtype == torch.float64 else IN_FLOAT32:
            search(sparse_split(), out=out / name, tickets="all", **{"seeds": 1, "levels": 1, **CASES[name]})
    finally:
        torch.set_default_dtype(before)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with processes.joined():
        for dtype in (torch.float64, torch.float32):
            run(Path(sys.argv[1]) / str(dtype), dtype)
        assert processes.count() == 2
