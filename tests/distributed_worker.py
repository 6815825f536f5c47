"""What every process of a distributed test runs: `distributed_worker.py GRAPH OUT`, as torchrun starts it.

It does without PyG, which takes long to import.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import aceglt
from aceglt import datasets
from aceglt.training import processes

SMALL: dict[str, Any] = {
    "method": "ugs", "axis": "joint", "signal": "labels", "levels": 1, "seeds": 1, "epochs": 2, "hidden": 8,
    "tickets": "all", "report": False, "device": "cpu",
}  # fmt: skip

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


def run(file: Path, out: Path) -> None:
    """All cases, for both types of numbers."""
    data, before = datasets.load_npz(file), torch.get_default_dtype()
    for dtype, names in ((torch.float64, tuple(CASES)), (torch.float32, IN_FLOAT32)):
        typed = replace(data, x=data.x.to(dtype))
        torch.set_default_dtype(dtype)
        try:
            for name in names:
                aceglt.search(typed, out=out / str(dtype) / name, **{**SMALL, **CASES[name]})
        finally:
            torch.set_default_dtype(before)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with processes.joined():
        run(Path(sys.argv[1]), Path(sys.argv[2]))
        assert processes.count() == 2
