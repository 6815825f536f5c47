"""What the tests of reproductions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aceglt import Reproduction

Reproduce = Callable[..., Reproduction]

TINY: dict[str, Any] = {"levels": 2, "epochs": 2, "seeds": 2, "hidden": 4, "device": "cpu"}
"""A scale at which a search takes a moment on the tiny graph."""
