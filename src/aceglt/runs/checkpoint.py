"""A search's state as a file."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from aceglt.errors import RunError, is_shortage
from aceglt.files import schema
from aceglt.files import tensors as storage
from aceglt.files.schema import COUNT, NUMBER, OBJECT
from aceglt.numerics.masks import SIDES, Counts, Masks, Scores
from aceglt.pruning.importance import sample_indices
from aceglt.searches.results import check_taught
from aceglt.searches.state import LevelRecord, Outcome, Selected, State

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
_LATER = {"structure": ({"weights": [COUNT], "macs": [COUNT], "units": OBJECT},), "unseen": (COUNT,)}
"""What records of earlier files lack."""
_PAYLOAD = {
    "dense": (_OUTCOME,),
    "records": [_RECORD],
    "selected": ({"seconds": NUMBER, "epochs": COUNT, "diagnostics": OBJECT},),
}


def save(path: Path, state: State) -> None:
    """Write a state; masks as bits."""
    chosen = {f.name: getattr(state.selected, f.name) for f in fields(state.selected)} if state.selected else None
    masks = {"last": state.masks, "handed_on": state.handed_on}
    if chosen:
        masks |= {"selected": chosen.pop("masks"), "selected.handed_on": chosen.pop("handed_on")}
        del chosen["trained"]
    tensors = {
        f"{name}.{side}": storage.pack(of.of(side)) for name, of in masks.items() if of is not None for side in SIDES
    }
    tensors |= {
        f"{n}.unseen": of.unseen.byte().cpu() for n, of in masks.items() if of is not None and of.unseen is not None
    }
    if state.soft is not None:
        tensors["soft"] = state.soft
    if state.importance is not None:
        tensors |= {f"importance.{side}": state.importance.of(side) for side in SIDES}
    payload = {
        "dense": asdict(state.dense) if state.dense else None,
        "records": [asdict(record) for record in state.records],
        "selected": chosen,
        "taught": state.taught,
    }
    storage.write_tensors(path, _KIND, _VERSION, payload, tensors)


def load(path: Path, total: Counts, runs: int, outputs: tuple[int, int] | None = None) -> State:
    """Read a state. Raises RunError if the file is damaged or does not fit a search of so many elements and runs, whose
    teacher, if that is said, makes outputs [runs, *outputs]."""
    try:
        payload, tensors = storage.read_tensors(path, _KIND, _VERSION, RunError)
    except RunError as problem:
        raise RunError(f"{problem}; without this file the same command starts again from the beginning") from None

    def masks(name: str) -> Masks | None:
        if f"{name}.weights" not in tensors:
            return None
        unseen = tensors.get(f"{name}.unseen")
        weights, edges = (storage.unpack(tensors[f"{name}.{side}"], getattr(total, side)) for side in SIDES)
        return Masks(weights, edges, None if unseen is None else unseen.bool())

    try:
        schema.check(payload, _PAYLOAD, "checkpoint")
        check_taught(taught := payload.get("taught"), "checkpoint: taught")  # earlier files lack it
        chosen, scored = masks("selected"), "importance.weights" in tensors
        state = State(
            dense=Outcome(**payload["dense"]) if payload["dense"] else None,
            soft=tensors.get("soft"),
            taught=taught,
            masks=masks("last"),
            handed_on=masks("handed_on"),
            importance=Scores(*(tensors[f"importance.{side}"] for side in SIDES)) if scored else None,
            selected=Selected(chosen, handed_on=masks("selected.handed_on"), **payload["selected"])
            if chosen is not None
            else None,
            records=tuple(_record(values) for values in payload["records"]),
        )
        _check_together(state, total, runs)
        if outputs and state.soft is not None and state.soft.shape[1:] != outputs:
            raise ValueError(f"predictions of shape {list(state.soft.shape)}, not {[runs, *outputs]}")
        return state
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as problem:
        if is_shortage(problem):
            raise
        raise RunError(f"{path}: the checkpoint does not fit this search ({problem})") from None


def _check_together(state: State, total: Counts, runs: int) -> None:
    """Raise ValueError unless the parts are of one search of so many elements and runs."""

    def of(parts: Masks | Scores | None) -> dict[str, Tensor]:
        return {} if parts is None else {side: parts.of(side) for side in SIDES}

    for side, values in of(state.importance).items():
        if values.dim() != 2 or values.shape[1] != len(sample_indices(getattr(total, side), values.device)):
            raise ValueError(f"importance of shape {list(values.shape)} for {getattr(total, side)} elements")
    outcomes = [record.outcome for record in state.records] + ([state.dense] if state.dense else [])
    lists: list[Sized] = [values for o in outcomes for values in (o.val, o.test, o.epoch) if values is not None]
    lists += list((state.taught or {}).values())
    lists += [s[name] for record in state.records if (s := record.structure) for name in ("weights", "macs")]
    real = [*([] if state.soft is None else [state.soft]), *of(state.importance).values()]
    chosen = (state.selected.masks, state.selected.handed_on) if state.selected else ()
    every = [masks for masks in (state.masks, state.handed_on, *chosen) if masks is not None]
    tensors = [*real, *(part for masks in every for part in of(masks).values())]
    tensors += [masks.unseen for masks in every if masks.unseen is not None]
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


def _record(values: dict[str, Any]) -> LevelRecord:
    schema.check({**dict.fromkeys(_LATER), **values}, _LATER, "checkpoint: a level")
    parts = {"alive": Counts(**values["alive"]), "outcome": Outcome(**values["outcome"])}
    return LevelRecord(**{**values, **parts})
