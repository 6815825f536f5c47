"""The tasks by name."""

from __future__ import annotations

from aceglt.problem import Problem
from aceglt.tasks.link import LinkProblem
from aceglt.tasks.node import NodeProblem

TASKS: dict[str, type[Problem]] = {"node": NodeProblem, "link": LinkProblem}

__all__ = ["TASKS", "LinkProblem", "NodeProblem"]
