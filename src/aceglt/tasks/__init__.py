"""The tasks by name."""

from __future__ import annotations

from aceglt.problem import Problem
from aceglt.tasks.inductive import InductiveProblem
from aceglt.tasks.node import NodeProblem

TASKS: dict[str, type[Problem]] = {"node": NodeProblem, "inductive": InductiveProblem}

__all__ = ["TASKS", "InductiveProblem", "NodeProblem"]
