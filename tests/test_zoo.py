"""The tickets in zoo/ are those of their checksums, and predict what they say."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aceglt import Ticket, datasets

ZOO = Path(__file__).parents[1] / "zoo"
SUMS = [line.split("  ") for line in (ZOO / "SHA256SUMS").read_text().splitlines()]


@pytest.mark.parametrize(("checksum", "file"), SUMS, ids=[file for _, file in SUMS])
def test_a_ticket_of_the_zoo_is_whole_and_has_a_card(checksum: str, file: str) -> None:
    path = ZOO / file
    assert hashlib.sha256(path.read_bytes()).hexdigest() == checksum
    ticket = Ticket.from_pretrained(path.parent)
    card = (path.parent / "README.md").read_text()
    assert f"| {ticket.masks.alive.weights:,} | {ticket.total.weights:,} |" in card
    assert f"`{ticket.fingerprint}`" in card
    assert path.stat().st_size < 4 * ticket.total.weights  # than dense weights
    assert f"({path.parent.name}/README.md)" in (ZOO / "README.md").read_text()


def test_a_ticket_on_the_embedded_graph_reaches_what_it_says() -> None:
    ticket, data = Ticket.from_pretrained(ZOO / "citeseer-gcn"), datasets.load("citeseer")
    right = ticket.predict(data).argmax(dim=1) == data.y
    test = ticket.metrics["test"]
    assert test is not None
    assert float(right[data.test_mask].double().mean()) == pytest.approx(test, abs=0.005)  # weights are in float16
