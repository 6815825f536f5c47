"""The presets: what each changes of the defaults, by dataset, backbone, method and task where its source says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aceglt.config.groups import PUBLISHED, Training

# What each means unless the user says otherwise, and the rest depends on.
PRESETS: dict[str, Mapping[str, Any]] = {"default": {}, "paper": {}, "ugs": {"method": "ugs"}, "quick": {}}

# "paper" is Table S2 by task and dataset; "ugs" what its authors published by dataset, λ by backbone too.
_NUMBERS = json.loads(Path(__file__).with_name("published.json").read_text())
_NAMES = ("lr", "weight_decay", "lambda_edges", "lambda_weights")

# Link prediction as the UGS authors have it, whom the paper follows; ogbl-collab comes with its held-out edges.
_UGS_LINK = {"objective": "infoclust", "edge_split": "connected"}

_ACE = {"paper": {"reading": "topk"}, "ugs": {"reading": "topk"}, "quick": {"rounds": 1}}


def overrides(preset: str, dataset: str, backbone: str, method: str, task: str) -> dict[str, Any]:
    """The settings that a preset changes; on a dataset that its source does not name, training is as by default."""
    if preset == "quick":
        return {"levels": 5, "epochs": 100, "method_options": _ACE[preset] if method == "ace" else {}}
    if preset == "default":
        return {}
    link = task == "link"
    if preset == "paper":
        numbers = _NUMBERS["paper"].get(f"{'link' if link else 'node'}/{dataset}", ())
    else:
        by_dataset = _NUMBERS["ugs"].get(dataset, ())
        numbers = () if link else _NUMBERS["ugs"].get(f"{backbone}/{dataset}", by_dataset)
    return {
        **PUBLISHED, "levels": 20, "method_options": _ACE[preset] if method == "ace" else {},
        **({} if link else {"lr": Training.lr, "weight_decay": Training.weight_decay}),
        **dict(zip(_NAMES, numbers, strict=False)), **(_UGS_LINK if link and dataset != "ogbl-collab" else {}),
    }  # fmt: skip
