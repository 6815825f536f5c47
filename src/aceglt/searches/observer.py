"""Who is told about the progress of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Observer:
    """Told about the progress of a search; a subclass overrides what it wants to know. What it raises ends the search.

    Examples:
        >>> class Levels(aceglt.Observer):
        ...     def on_level(self, results):
        ...         print(len(results["levels"]), "levels done")
        >>> result = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2, observer=Levels())
        0 levels done
        1 levels done
    """

    def on_phase(self, level: int, phase: str) -> None:
        """A phase of a level begins: dense (level 0), score, retrain, or what the method calls it."""

    def on_training(self, runs: int, epochs: int) -> None:
        """The phase trains so many runs for so many epochs."""

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        """`runs` runs have finished an epoch of the phase, perhaps before others have begun; `best()` reads their best
        validation metric so far, NaN before the first, and may cost time."""

    def on_test(self, level: int) -> None:
        """The test set is about to be read."""

    def on_level(self, results: Mapping[str, Any]) -> None:
        """Dense or a level has finished; the results up to here, as results.json has them."""


def tell(observer: Any, event: str, *facts: Any) -> None:
    """Tell an observer, if there is one and it wants to know."""
    getattr(observer, event, _ignore)(*facts)


def _ignore(*facts: Any) -> None: ...
