"""A search finds the same tickets whatever computes it."""

from __future__ import annotations

import pytest
import torch
from search_samples import graph, search

from aceglt.backends import Backend, Cpu, Reference
from aceglt.searches import levels
from aceglt.tickets.ticket import Ticket


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("backbone", ["gcn", "gin"])
def test_a_search_that_leaves_most_hidden_units_unread_is_that_of_the_reference(
    backbone: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(backend: Backend) -> Ticket:
        monkeypatch.setattr(levels, "choose", lambda device: backend)
        settings = {"method": "ugs", "balance": 0, "prune_model": 0.97, "signal": "labels", "hidden": 64}
        result = search(graph(), backbone=backbone, precision=precision, levels=1, epochs=3, seeds=1, **settings)
        return result.tickets[0]

    ours, reference = found(Cpu()), found(Reference())
    assert 0 < int(ours.masks.weights.sum()) < 32  # most of the 64 units are unread
    assert torch.equal(ours.masks.weights, reference.masks.weights)
    assert torch.equal(ours.masks.edges, reference.masks.edges)
    assert ours.metrics == reference.metrics
    tolerance = {"float32": 1e-4, "bfloat16": 2e-2}[precision]
    for part in ("prunable", "other"):
        mine, theirs = (getattr(t.trained, part) - getattr(t.initial, part) for t in (ours, reference))
        assert float((mine - theirs).norm()) <= tolerance * float(theirs.norm())
