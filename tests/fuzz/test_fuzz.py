"""Whatever a reader is given, it answers with a correct result or one clear error."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from campaign_table import Tell
from fuzz_guard import BYTES, Peak, outcome, size
from fuzz_readers import READERS, Reader
from hypothesis import HealthCheck, Phase, given, settings

pytestmark = [pytest.mark.filterwarnings("ignore:Generating overly large repr")]
EACH = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


def attack(reader: Reader, inputs: int) -> tuple[Counter[str], int]:
    """Let a reader try this many inputs; how many were read and refused, and the most bytes that it took above any."""
    counts: Counter[str] = Counter()
    most = 0

    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(reader.inputs())
    def each(value: Any) -> None:
        nonlocal most
        with Peak() as peak:
            counts[outcome(reader.read, value)] += 1
        most = max(most, peak.grown - size(value))

    each()
    return counts, most


@EACH
def test_a_hostile_input_is_refused_or_read(reader: Reader) -> None:
    assert attack(reader, 25)[0].total() > 0  # all may happen to be read, or refused; anything else raises


@pytest.mark.slow
@EACH
def test_the_campaign(reader: Reader, share: float, tell: Tell) -> None:
    attack(reader, 5)  # whatever is loaded or made once
    counts, most = attack(reader, inputs := round(share * reader.campaign))
    numbers = {"inputs": counts.total(), "refused": counts["refused"], "read": counts["read"]}
    tell(f"input: {reader.name}", reader.name, "read, or refused in one line", **numbers, MB=most / 1e6)
    assert counts.total() >= 0.95 * inputs  # hypothesis stops early where it has tried everything
    assert counts["refused"] > 0
    assert most < BYTES
