"""The tasks by name, and the problem of a configuration."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aceglt.config import Config
from aceglt.config.groups import TASK_OPTIONS
from aceglt.config.own import built_in, is_own
from aceglt.problems.base import Problem
from aceglt.problems.inductive import InductiveProblem
from aceglt.problems.link import LinkProblem
from aceglt.problems.node import NodeProblem

TASKS: dict[str, type[Problem]] = built_in("problems", TASK_OPTIONS, "task")
Problem.tasks = TASKS


def build_problem(config: Config, data: Any, name: str | None = None) -> Problem:
    """The problem that a configuration makes of data; `name` is for messages, the data's own unless given.

    A user's own model is given features as the user's data has them; those of a file, which are sparse to take less
    room there, are made dense for it.
    """
    if is_own(config.backbone) and hasattr(data, "dense"):
        data = data.dense()
    options = asdict(config.task_options)
    if config.metric is not None and not is_own(config.metric):
        options["metric"] = config.metric
    return Problem.from_data(data, name, config.task, config.directed, **options)


__all__ = ["TASKS", "InductiveProblem", "LinkProblem", "NodeProblem", "build_problem"]
