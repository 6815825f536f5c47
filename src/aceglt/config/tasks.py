"""The options of each task; a new one is a class here and a row of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aceglt.config.backbones import MAX_WIDTH
from aceglt.config.fields import TRAIN, Group, from_to, must_be, one_of, setting
from aceglt.config.groups import PUBLISHED
from aceglt.errors import ConfigError


@dataclass(frozen=True)
class TaskOptions(Group):
    """What a task adds to the settings."""

    @classmethod
    def usual(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults of any settings that are others with this task, where these are given."""
        return {}

    @classmethod
    def check_choices(cls, made: Mapping[str, Any]) -> None:
        """Raise ConfigError where choices of the user's have no meaning for this task."""

    def check(self, signal: str, loss: str | None) -> None:
        """Raise ConfigError where the signal or the user's own loss does not go with these options."""


@dataclass(frozen=True)
class NodeOptions(TaskOptions):
    split: str = setting(
        "given", "Masks: given with the data, or random:SEED (20 per class, 500, 1000 nodes).",
        must_be("given or random:SEED", lambda value: re.fullmatch(r"given|random:[0-9]{1,18}", value) is not None),
        shown=True,
    )  # fmt: skip


@dataclass(frozen=True)
class LinkOptions(TaskOptions):
    objective: str = setting(
        "bce", "What link prediction trains: bce [default] or infoclust (the paper's setting).",
        one_of("bce", "infoclust"),
    )  # fmt: skip
    """Cross-entropy against sampled non-edges, or Graph InfoClust."""
    edge_split: str = setting(
        "random",
        "Edges that link prediction holds out: random [default] or connected (the training graph stays so).",
        one_of("random", "connected"),
    )
    embedding: int = setting(
        64, "Width of link prediction's embeddings [default: {default}; infoclust 16].", from_to(1, MAX_WIDTH), TRAIN
    )

    @classmethod
    def usual(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Chosen on validation: weight decay keeps embeddings from growing, and what scores gain in node classification
        they lose in link prediction."""
        if given.get("objective") == "infoclust":
            return {**PUBLISHED, "weight_decay": 0.0, "lr": 1e-3, "embedding": 16}
        return {**PUBLISHED, "weight_decay": 0.0, "lr": 1e-2, "signal": "teacher", "teacher_temperature": 1.0}

    @classmethod
    def check_choices(cls, made: Mapping[str, Any]) -> None:
        if made.get("teacher_smoothing"):
            raise ConfigError(f"teacher_smoothing {made['teacher_smoothing']} is for tasks on nodes, not link")
        if made.get("split", NodeOptions.split) != NodeOptions.split:
            raise ConfigError(f"split '{made['split']}' is of nodes; task link splits edges, see edge_split")

    def check(self, signal: str, loss: str | None) -> None:
        if self.objective == "infoclust" and signal == "teacher":
            raise ConfigError("signal 'teacher' has nothing to teach with objective 'infoclust'; use signal 'labels'")
        if self.objective == "infoclust" and loss is not None:
            raise ConfigError("objective 'infoclust' has a loss of its own; use objective 'bce' with yours")


TASK_OPTIONS: dict[str, type[TaskOptions]] = {"node": NodeOptions, "inductive": NodeOptions, "link": LinkOptions}
