"""The presets: what each changes of the defaults, by dataset, backbone, method and task where its source says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aceglt.config.groups import BACKBONE_OPTIONS, PUBLISHED, BackboneOptions, LayerOptions, Training
from aceglt.config.methods import METHOD_OPTIONS, MethodOptions

# What each means unless the user says otherwise, and the rest depends on.
PRESETS: dict[str, Mapping[str, Any]] = {
    "default": {}, "tuned": {}, "paper": {}, "ugs": {"method": "ugs"}, "quick": {},
}  # fmt: skip

# "paper" is Table S2 by task and dataset; "ugs" what its authors published by dataset, λ by backbone too.
_NUMBERS = json.loads(Path(__file__).with_name("published.json").read_bytes())
# "tuned" by dataset and backbone, after "Classic GNNs are strong baselines" (Luo et al., NeurIPS 2024) where it says.
_TUNED = json.loads(Path(__file__).with_name("tuned.json").read_bytes())
_ANY_MODEL = ("epochs", "early_stopping")  # what a backbone without these layers takes of it
_NODES_ALONE = ("lr", "weight_decay", "score_epochs")  # link prediction has its own
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
    if preset == "tuned":
        return _tuned(dataset, backbone, method, task)
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


def _tuned(dataset: str, backbone: str, method: str, task: str) -> dict[str, Any]:
    """Training settings of a strong dense model, and scores trained for longer than the default's, whose networks are
    shallow and learn fast; on an unknown graph those that are sound on most."""
    name = dataset.replace("\\", "/").rpartition("/")[2].removesuffix(".npz")
    if name in _TUNED["as by default"]:  # the paper's two layers are sound there
        return {}
    rows = (_TUNED["fallback"], _TUNED.get(f"fallback/{backbone}", {}), _TUNED.get(f"{name}/{backbone}", {}))
    made: dict[str, Any] = {key: value for row in rows for key, value in row.items()}
    if not issubclass(BACKBONE_OPTIONS.get(backbone, BackboneOptions), LayerOptions):
        return {key: made[key] for key in _ANY_MODEL}
    scores = METHOD_OPTIONS.get(method, MethodOptions)
    left_out: tuple[str, ...] = _NODES_ALONE if task == "link" else ()
    if not scores.scored or "score_epochs" in scores.usual:  # a method's own rule
        left_out += ("score_epochs",)
    return {key: value for key, value in made.items() if key not in left_out}
