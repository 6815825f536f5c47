"""Read by mypy alone, as part of `make check`: an error that it does not find makes its `ignore` one too many."""

from __future__ import annotations

from aceglt import search


def calls() -> None:
    search(seeds=2)
    search(backbone=object, levels=None)
    search(sedes=2)  # type: ignore[call-arg]
    search(lr="high")  # type: ignore[arg-type]
