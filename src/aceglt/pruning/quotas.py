"""How many weights each matrix keeps when they are divided among matrices."""

from __future__ import annotations

import math
from dataclasses import replace

from aceglt.backbones.base import Layout
from aceglt.numerics.masks import Quota


def reserved(layout: Layout, keep: int, balance: float) -> list[Quota]:
    """How many weights each matrix keeps at least when `keep` are kept in all: this share of what is balanced."""
    return [replace(quota, keep=math.ceil(balance * quota.keep)) for quota in balanced(layout, keep)] if balance else []


def balanced(layout: Layout, keep: int) -> list[Quota]:
    """Quotas in proportion to the sum of each matrix's sides, none above its size, `keep` in all.

    A matrix with few weights then stays denser than one with many, as an Erdős–Rényi graph between its units with the
    same number of links per unit would be. Of fewer weights, no matrix keeps more: quotas are those of the largest
    common share (D'Hondt's method), so levels can follow one another.
    """
    sizes = [math.prod(shape) for _, shape in layout.shapes]
    sides = [max(1, sum(shape)) for _, shape in layout.shapes]  # a scalar has none
    rate = _rate(sizes, sides, keep)
    counts = [min(size, int(rate * side)) for size, side in zip(sizes, sides, strict=True)]
    while sum(counts) < keep:
        open_ones = (i for i, count in enumerate(counts) if count < sizes[i])
        counts[min(open_ones, key=lambda i: (counts[i] + 1) / sides[i])] += 1
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [Quota(slice(end - size, end), count) for end, size, count in zip(ends, sizes, counts, strict=True)]


def _rate(sizes: list[int], sides: list[int], keep: int) -> float:
    """Weights per unit of the sides, as matrices that would keep more than they have keep all, just not too many."""
    left, rate = keep, math.inf
    unfilled = sorted(range(len(sizes)), key=lambda i: sizes[i] / sides[i])
    while unfilled:
        rate = left / sum(sides[i] for i in unfilled)
        first = unfilled[0]
        if rate * sides[first] < sizes[first]:
            break
        left -= sizes[first]
        unfilled = unfilled[1:]
    return rate * (1 - 1e-12)  # a rounded product may not exceed what it stands for
