"""Whatever a reader is given, it answers with a correct result or one clear error."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from campaign import ROWS
from fuzz_guard import outcome, peak
from fuzz_readers import READERS, Reader
from hypothesis import HealthCheck, Phase, given, settings

pytestmark = [pytest.mark.filterwarnings("ignore:Generating overly large repr")]
EACH = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


def attack(reader: Reader, inputs: int) -> Counter[str]:
    """Let a reader try this many inputs; how many were read and refused."""
    counts: Counter[str] = Counter()

    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(reader.inputs())
    def each(value: Any) -> None:
        counts[outcome(reader.read, value)] += 1

    each()
    return counts


@EACH
def test_a_hostile_input_is_refused_or_read(reader: Reader) -> None:
    assert attack(reader, 25)["refused"] > 0


@pytest.mark.slow
@EACH
def test_the_campaign(reader: Reader) -> None:
    attack(reader, 5)  # whatever is loaded or made once
    before = peak()
    counts = attack(reader, reader.campaign)
    more = (peak() - before) / 1e6
    told = f"{counts.total():,} inputs: {counts['refused']:,} refused, {counts['read']:,} read, {more:.0f} MB at most"
    ROWS.append((reader.name, "read, or refused in one line", told))
    assert counts.total() >= 0.95 * reader.campaign  # hypothesis stops early where it has tried everything
    assert counts["refused"] > 0
    assert more < 500
