"""The exchange of adversarial complementary erasing: elements of the retained and the pruned part change places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from aceglt.numerics.masks import share
from aceglt.pruning.sampling import Sampling, trim

DRAWS = 4
"""Keys that an exchange takes: for both samples, and for making them equal in size."""
Limits = Sequence[tuple[slice, int]]
"""K: elements that are exchanged among themselves, and how many of them at most."""


@dataclass(frozen=True)
class Scored:
    """The mask of one run's weights or edges, and the importance of its two parts."""

    mask: Tensor  # [n] bool
    retained: Tensor  # [n] importance where alive
    pruned: Tensor  # [n] importance where dead

    def __getitem__(self, part: slice) -> Scored:
        return Scored(self.mask[part], self.retained[part], self.pruned[part])


@dataclass(frozen=True)
class Exchange:
    """What changes places, and what that was drawn from."""

    scored: Scored
    dropped: Tensor  # [n] bool: ω_retained
    added: Tensor  # [n] bool: ω_pruned
    size: int
    """Of either."""

    @property
    def mask(self) -> Tensor:
        """[n] the refined mask, M ⊕ ω_retained ⊕ ω_pruned (Equation 6)."""
        return self.scored.mask ^ self.dropped ^ self.added

    def similarity(self, last: Exchange) -> float:
        """How much of what the last exchange added this one drops: the cosine of both as 0/1 vectors (Equation 7), 0 if
        one is empty."""
        common, lengths = int((self.dropped & last.added).sum()), self.size * last.size
        return common / lengths**0.5 if lengths else 0.0


def limits(mask: Tensor, parts: Sequence[slice], share_of_smaller: float) -> Limits:
    """K before the first round: a share of the smaller of the two parts, and one where that is less."""
    alive = [(part, int(mask[part].sum()), len(mask[part])) for part in parts or [slice(None)]]
    smaller = [(part, min(count, size - count)) for part, count, size in alive]
    return [(part, min(size, max(1, share(share_of_smaller, size)))) for part, size in smaller]


def exchange(scored: Scored, k: Limits, keys: Sequence[Tensor], sampling: Sampling) -> Exchange:
    """Draw the least important of the retained part and the most important of the pruned part (lines 7 to 11 of
    Algorithm 2), by DRAWS keys [1]."""
    drawn = [_samples(scored[part], limit, keys, sampling) for part, limit in k]
    dropped, added, sizes = zip(*drawn, strict=True)
    return Exchange(scored, torch.cat(dropped), torch.cat(added), sum(sizes))


def _samples(scored: Scored, k: int, keys: Sequence[Tensor], sampling: Sampling) -> tuple[Tensor, Tensor, int]:
    """Both samples, made equal in size so that the sparsity stays exact, and that size."""
    dropped = sampling(scored.retained, scored.mask, k, keys[0], least=True)
    added = sampling(scored.pruned, ~scored.mask, k, keys[1])
    counts = int(dropped.sum()), int(added.sum())
    size = min(counts)
    return trim(dropped, counts[0], size, keys[2]), trim(added, counts[1], size, keys[3]), size
