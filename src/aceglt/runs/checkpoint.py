"""A search's state as a file."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from aceglt.errors import RunError
from aceglt.files import schema
from aceglt.files import tensors as storage
from aceglt.errors import RunError
from aceglt.numerics.masks import SIDES, Counts, Masks, Scores
from aceglt.pruning.importance import sample_indices
from aceglt.searches.state import LevelRecord, Outcome, Selected, State
from aceglt.files.schema import COUNT, NUMBER, OBJECT

_KIND, _VERSION = "checkpoint", 1

_OUTCOME = {"val": [NUMBER], "test": ([NUMBER],), "epoch": [COUNT], "seconds": NUMBER}
_RECORD = {
    "level": COUNT,
    "alive": {"weights": COUNT, "edges": COUNT},
    "outcome": _OUTCOME,
    "select_seconds": NUMBER,
    "select_epochs": COUNT,
    "diagnostics": OBJECT,
}
_PAYLOAD = {
    "dense": (_OUTCOME,),
    "records": [_RECORD],
    "selected": ({"seconds": NUMBER, "epochs": COUNT, "diagnostics": OBJECT},),
}


def save(path: Path, state: State) -> None:
    """Write a state; masks as bits."""
    tensors: dict[str, Tensor] = {}
    for name, masks in (("last", state.masks), ("selected", state.selected.masks if state.selected else None)):
        if masks is not None:
            tensors[f"{name}.weights"] = storage.pack(masks.weights)
            tensors[f"{name}.edges"] = storage.pack(masks.edges)
    if state.soft is not None:
        tensors["soft"] = state.soft
    if state.importance is not None:
        tensors |= {f"importance.{side}": getattr(state.importance, side) for side in SIDES}
    payload = {
        "dense": asdict(state.dense) if state.dense else None,
        "records": [asdict(record) for record in state.records],
        "selected": _facts(state.selected) if state.selected else None,
    }
    storage.write_tensors(path, _KIND, _VERSION, payload, tensors)


def load(path: Path, total: Counts, runs: int, device: Any = "cpu") -> State:
    """Read a state. Raises RunError if the file is damaged or does not fit a search of so many elements and runs."""
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

    def importance() -> Scores | None:
        if "importance.weights" not in tensors:
            return None
        return Scores(*(_followed(tensors[f"importance.{side}"], getattr(total, side)).to(device) for side in SIDES))

    try:
        schema.check(payload, _PAYLOAD, "checkpoint")
        chosen, facts = masks("selected"), payload["selected"]
        state = State(
            dense=Outcome(**payload["dense"]) if payload["dense"] else None,
            soft=tensors["soft"].to(device) if "soft" in tensors else None,
            masks=masks("last"),
            importance=importance(),
            selected=Selected(masks=chosen, **facts) if chosen is not None else None,
            records=tuple(_record(values) for values in payload["records"]),
        )
        _check_together(state, runs)
        return state
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as problem:
        raise RunError(f"{path}: the checkpoint does not fit this search ({problem})") from None


def _followed(values: Tensor, n: int) -> Tensor:
    """The importance of some of n elements, checked."""
    if values.dim() != 2 or values.shape[1] != len(sample_indices(n, values.device)):
        raise ValueError(f"importance of shape {list(values.shape)} for {n} elements")
    return values


def _check_together(state: State, runs: int) -> None:
    """Raise ValueError unless the parts are of one search of so many runs."""
    outcomes = [record.outcome for record in state.records] + ([state.dense] if state.dense else [])
    lists = [values for o in outcomes for values in (o.val, o.test, o.epoch) if values is not None]
    real = ([] if state.soft is None else [state.soft]) + _sides(state.importance)
    tensors = [*real, *_sides(state.masks), *_sides(state.selected.masks if state.selected else None)]
    if any(len(values) != runs for values in [*lists, *tensors]):
        raise ValueError(f"it is not of {runs} run(s)")
    if not all(t.is_floating_point() and not bool(t.isinf().any()) for t in real):
        raise ValueError("its predictions or importances are not finite")
    if [record.level for record in state.records] != list(range(1, len(state.records) + 1)):
        raise ValueError("its levels are not numbered from 1")
    if (state.masks is None) != (not state.records) or (state.dense is None and (state.records or state.selected)):
        raise ValueError("a part is missing")
    if state.masks is not None and state.masks.alive != state.records[-1].alive:
        raise ValueError("the masks are not those of the last level")


def _sides(of: Masks | Scores | None) -> list[Tensor]:
    return [] if of is None else [of.weights, of.edges]


def _facts(selected: Selected) -> dict[str, Any]:
    return {f.name: getattr(selected, f.name) for f in fields(selected) if f.name != "masks"}


def _record(values: dict[str, Any]) -> LevelRecord:
    parts = {"alive": Counts(**values["alive"]), "outcome": Outcome(**values["outcome"])}
    return LevelRecord(**{**values, **parts})
