"""How far a search is: what is known of the dense model and of each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aceglt.numerics.masks import Counts, Masks, Scores, share
from aceglt.searches.statistics import Readings
from aceglt.training.fit import Fit


@dataclass(frozen=True)
class Outcome(Readings):
    """Metrics of a training in isolation, lists over seeds; no `test` in tuning mode, where it is never read."""

    epoch: list[int]
    seconds: float


@dataclass(frozen=True)
class LevelRecord:
    """What is known of a finished level."""

    level: int
    alive: Counts
    outcome: Outcome
    select_seconds: float
    select_epochs: int
    diagnostics: Mapping[str, Any]
    fluctuation: Mapping[str, Any] | None = None
    """Change of ranks since the level before, lists over runs; None if either level has no scores."""
    excerpt: Mapping[str, Any] | None = None
    """The first run's edges in a small part of the graph."""
    structure: Mapping[str, Any] | None = None
    """Where units go as a whole, lists over runs: alive weights, MACs, and by layer the units that are alive."""
    unseen: int | None = None
    """Alive edges of the test graph that training does not see; None where all are."""

    def sparsity(self, total: Counts) -> tuple[float, float]:
        """Share of dead weights and of dead edges."""
        return 1 - self.alive.weights / total.weights, 1 - self.alive.edges / total.edges


@dataclass(frozen=True)
class Selected:
    """Masks that were chosen but not yet trained in isolation."""

    masks: Masks
    seconds: float
    epochs: int
    diagnostics: Mapping[str, Any]
    fluctuation: Mapping[str, Any] | None = None
    excerpt: Mapping[str, Any] | None = None
    handed_on: Masks | None = None
    """What the next level starts from, if not these masks."""
    trained: Fit | None = None
    """Their training, where it was needed to choose them; no checkpoint has it, since none is written before the level
    ends: to repeat it alone would be another batch, whose results differ on a GPU."""


@dataclass(frozen=True)
class State:
    """How far a search is."""

    dense: Outcome | None = None
    soft: Tensor | None = None  # [S, N, C] the dense models' predictions
    taught: Mapping[str, list[bool]] | None = None
    """Whether what they teach was changed before, lists over runs; see `Softened`."""
    masks: Masks | None = None  # masks of the last finished level; None before the first
    handed_on: Masks | None = None  # what the next level starts from, if not those
    importance: Scores | None = None  # of a sample at the last choice, what the next one's is compared with
    selected: Selected | None = None
    records: tuple[LevelRecord, ...] = ()

    @property
    def level(self) -> int:
        """The last finished level."""
        return len(self.records)

    def with_level(
        self,
        chosen: Selected,
        outcome: Outcome,
        structure: Mapping[str, Any] | None = None,
        unseen: int | None = None,
    ) -> State:
        """The state once the chosen masks are trained."""
        record = LevelRecord(
            self.level + 1, chosen.masks.alive, outcome, chosen.seconds, chosen.epochs, chosen.diagnostics,
            chosen.fluctuation, chosen.excerpt, structure, unseen,
        )  # fmt: skip
        records = (*self.records, record)
        return replace(self, masks=chosen.masks, handed_on=chosen.handed_on, selected=None, records=records)

    def to(self, device: torch.device | str) -> State:
        """The same state on a device."""
        parts = {name: getattr(self, name) for name in ("soft", "masks", "handed_on", "importance")}
        moved: dict[str, Any] = {name: None if part is None else part.to(device) for name, part in parts.items()}
        selected = self.selected
        if selected is not None:
            base = selected.handed_on and selected.handed_on.to(device)
            selected = replace(selected, masks=selected.masks.to(device), handed_on=base, trained=None)
        return replace(self, selected=selected, **moved)


def _level(record: LevelRecord) -> Any:
    """What two searches of other seeds have in common at a level."""
    return record.alive if record.structure is None else (record.alive.edges, record.structure["units"].keys())


def joined(first: State, second: State, order: Sequence[int]) -> State:
    """Two finished searches of other seeds as one; `order` has the places of the runs, the second's after the first's.

    Raises ValueError where they do not have the same levels.
    """
    if [_level(record) for record in first.records] != [_level(record) for record in second.records]:
        raise ValueError("the searches have other levels")
    assert first.dense is not None
    assert second.dense is not None
    sizes = [len(first.dense.val), len(second.dense.val)]

    def lists(a: Any, b: Any) -> Any:
        """Lists over runs, at any depth; what is none is the first's."""
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return {name: lists(value, b.get(name)) for name, value in a.items()}
        if isinstance(a, list) and isinstance(b, list) and [len(a), len(b)] == sizes:
            return [[*a, *b][place] for place in order]
        return a

    def tensors(a: Any, b: Any) -> Any:
        """Tensors with a leading dimension of runs, or masks or scores of runs."""
        if a is None or b is None:
            return None
        both = torch.cat([a, b]) if isinstance(a, Tensor) else type(a).cat([a, b])
        return both[list(order)]

    def outcome(a: Outcome, b: Outcome) -> Outcome:
        return Outcome(lists(a.val, b.val), lists(a.test, b.test), lists(a.epoch, b.epoch), a.seconds + b.seconds)

    records = [
        replace(
            a,
            outcome=outcome(a.outcome, b.outcome),
            select_seconds=a.select_seconds + b.select_seconds,
            select_epochs=max(a.select_epochs, b.select_epochs),
            diagnostics=lists(a.diagnostics, b.diagnostics),
            fluctuation=lists(a.fluctuation, b.fluctuation),
            excerpt=a.excerpt if order[0] < sizes[0] else b.excerpt,
            structure=(both := lists(a.structure, b.structure)),
            alive=a.alive if both is None else Counts(share(1 / sum(sizes), sum(both["weights"])), a.alive.edges),
        )
        for a, b in zip(first.records, second.records, strict=True)
    ]
    names = ("soft", "masks", "handed_on", "importance")
    parts = {name: tensors(getattr(first, name), getattr(second, name)) for name in names}
    taught = lists(first.taught, second.taught)
    return State(dense=outcome(first.dense, second.dense), taught=taught, records=tuple(records), **parts)
