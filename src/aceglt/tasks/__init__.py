"""The tasks by name."""

from __future__ import annotations

from aceglt.problem import Problem
from aceglt.tasks.node import NodeProblem

TASKS: dict[str, type[Problem]] = {"node": NodeProblem}

__all__ = ["TASKS", "NodeProblem"]
