"""Read by mypy alone, as part of `make check`: an error that it does not find makes its `ignore` one too many."""

from __future__ import annotations

from aceglt import search, sweep, tune


def calls() -> None:
    search(seeds=2)
    search(backbone=object, levels=None)
    search(sedes=2)  # type: ignore[call-arg]
    search(lr="high")  # type: ignore[arg-type]
    search(split=0)
    sweep({}, "out", workers=2)
    sweep({}, "out", worker=2)  # type: ignore[call-arg]
    tune("out", gpus=0.5, lr=0.1)
    tune("out", gpus="half")  # type: ignore[arg-type]
