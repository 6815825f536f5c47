"""A search's state as a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from aceglt import storage
from aceglt.errors import RunError
from aceglt.levels import LevelRecord, Outcome, Selected, State
from aceglt.masks import Counts, Masks

_KIND, _VERSION = "checkpoint", 1


def save(path: Path, state: State) -> None:
    """Write a state; masks as bits."""
    tensors: dict[str, Tensor] = {}
    for name, masks in (("last", state.masks), ("selected", state.selected.masks if state.selected else None)):
        if masks is not None:
            tensors[f"{name}.weights"] = storage.pack(masks.weights)
            tensors[f"{name}.edges"] = storage.pack(masks.edges)
    if state.soft is not None:
        tensors["soft"] = state.soft
    payload = {
        "dense": asdict(state.dense) if state.dense else None,
        "records": [asdict(record) for record in state.records],
        "selected": _facts(state.selected) if state.selected else None,
    }
    storage.write_tensors(path, _KIND, _VERSION, payload, tensors)


def load(path: Path, total: Counts, device: Any = "cpu") -> State:
    """Read a state. Raises RunError if the file is damaged or does not fit the search."""
    try:
        payload, tensors = storage.read_tensors(path, _KIND, _VERSION, RunError)
    except RunError as problem:
        raise RunError(f"{problem}; without this file the same command starts again from the beginning") from None

    def masks(name: str) -> Masks | None:
        if f"{name}.weights" not in tensors:
            return None
        weights = storage.unpack(tensors[f"{name}.weights"], total.weights)
        edges = storage.unpack(tensors[f"{name}.edges"], total.edges)
        return Masks(weights.to(device), edges.to(device))

    try:
        chosen, facts = masks("selected"), payload["selected"]
        return State(
            dense=Outcome(**payload["dense"]) if payload["dense"] else None,
            soft=tensors["soft"].to(device) if "soft" in tensors else None,
            masks=masks("last"),
            selected=Selected(masks=chosen, **facts) if chosen is not None else None,
            records=tuple(_record(values) for values in payload["records"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as problem:
        raise RunError(f"{path}: the checkpoint does not fit this search ({problem})") from None


def _facts(selected: Selected) -> dict[str, Any]:
    return {"seconds": selected.seconds, "epochs": selected.epochs, "diagnostics": selected.diagnostics}


def _record(values: dict[str, Any]) -> LevelRecord:
    parts = {"alive": Counts(**values["alive"]), "outcome": Outcome(**values["outcome"])}
    return LevelRecord(**{**values, **parts})
