"""ACE-GLT (Wang et al., 2023): adversarial complementary erasing, Algorithm 2 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from aceglt.config.methods import AceOptions
from aceglt.methods.base import Level, Selection, best_of
from aceglt.methods.ugs import Ugs
from aceglt.numerics import rng
from aceglt.numerics.masks import SIDES, Masks, Scores, share
from aceglt.pruning.exchange import DRAWS, Exchange, Limits, Scored, exchange
from aceglt.pruning.sampling import Sampling


@dataclass(frozen=True)
class Ace(AceOptions):
    """Prune as UGS does; then, in rounds, exchange the pruned elements that matter most for the retained ones that
    matter least."""

    batches: ClassVar[int] = 2  # the retained and the pruned part

    def select(self, level: Level) -> Selection:
        cut = Ugs().select(level)  # line 1: M_A and M_W by Algorithm 1
        matrices = [quota.part for quota in level.quotas]  # weights are exchanged within them
        runs = _start(cut.masks, matrices, self.exchange)
        candidates: list[tuple[Tensor, Masks]] = []  # validation metric and masks that each round starts from
        for t in range(self.rounds):  # line 4
            masks = _masks(runs)
            both = Masks.cat([masks, _pruned_part(masks, matrices)])  # lines 2 and 3: Z_retained and Z_pruned
            fit = level.train_scores(both, self.refine_epochs, f"refine {t}")  # lines 5 and 6: Equations 2 and 3
            assert fit.scores is not None
            candidates.append((fit.val[: masks.runs], masks))
            retained, pruned = level.importance(fit.scores[: masks.runs]), level.importance(fit.scores[masks.runs :])
            runs = self._refine(runs, retained, pruned, level.key(f"exchange {t}"))
        refined = _masks(runs)
        if self.keep == "best":
            last = level.train_scores(refined, self.refine_epochs, f"refine {self.rounds}")
            refined = best_of([*candidates, (last.val, refined)])
        return Selection(refined, cut.scores, {**cut.diagnostics, "ace": _diagnostics(runs)}, self.cost(level.epochs))

    def cost(self, epochs: int) -> int:
        last = self.refine_epochs if self.keep == "best" else 0
        return epochs + 2 * self.rounds * self.refine_epochs + last

    @property
    def sampling(self) -> Sampling:
        """How the elements to exchange are drawn."""
        return Sampling(self.temperature, self.replacement)

    def _refine(self, runs: Sequence[_Run], retained: Scores, pruned: Scores, key: Tensor) -> list[_Run]:
        """Weights and edges of every run, each with its own K and similarity."""
        return [
            {
                side: self._round(run[side], retained.of(side)[i], pruned.of(side)[i], rng.fold(key[i : i + 1], salt))
                for salt, side in enumerate(SIDES)
            }
            for i, run in enumerate(runs)
        ]

    def _round(self, side: _Side, retained: Tensor, pruned: Tensor, key: Tensor) -> _Side:
        """Lines 7 to 17 for one side of one run."""
        keys = [rng.fold(key, draw) for draw in range(2 * DRAWS)]
        drawn = exchange(Scored(side.mask, retained, pruned), side.k, keys[:DRAWS], self.sampling)  # Equations 4 and 5
        similarity = drawn.similarity(side.last) if side.last is not None else 0.0  # line 12: Equation 7
        repeats = similarity > self.threshold  # line 13
        halves, redraws = repeats and self.adaptive_k, repeats and self.resample
        k = _halved(side.k) if halves else side.k  # line 14
        if redraws:  # line 15: from the last round's scores, with fresh noise
            assert side.last is not None
            drawn = exchange(side.last.scored, k, keys[DRAWS:], self.sampling)
        return _Side(
            drawn.mask,  # line 17: Equation 6
            k,
            drawn,
            (*side.similarity, similarity),
            (*side.exchanged, drawn.size),
            side.halved + halves,
            side.resampled + redraws,
        )


@dataclass(frozen=True)
class _Side:
    """The weights, or the edges, of one run between two rounds."""

    mask: Tensor  # [n] bool: the retained part
    k: Limits
    last: Exchange | None = None
    similarity: tuple[float, ...] = ()
    exchanged: tuple[int, ...] = ()
    halved: int = 0
    resampled: int = 0


_Run = Mapping[str, _Side]


def _start(masks: Masks, matrices: Sequence[slice], share_of_smaller: float) -> list[_Run]:
    """Before the first round: K is a share of the smaller part."""

    def side(mask: Tensor, parts: Sequence[slice]) -> _Side:
        return _Side(mask, [(part, _limit(mask[part], share_of_smaller)) for part in parts or [slice(None)]])

    pairs = zip(masks.weights, masks.edges, strict=True)
    return [{"weights": side(weights, matrices), "edges": side(edges, [])} for weights, edges in pairs]


def _limit(mask: Tensor, share_of_smaller: float) -> int:
    alive = int(mask.sum())
    smaller = min(alive, len(mask) - alive)
    return min(smaller, max(1, share(share_of_smaller, smaller)))


def _halved(k: Limits) -> Limits:
    return [(part, max(1, limit // 2) if limit else 0) for part, limit in k]


def _masks(runs: Sequence[_Run]) -> Masks:
    return Masks(*(torch.stack([run[side].mask for run in runs]) for side in SIDES))


def _pruned_part(masks: Masks, matrices: Sequence[slice]) -> Masks:
    """The complement, with matrices that have lost nothing as they are: without one of its layers a network says
    nothing, and nothing could be learned about the rest."""
    pruned = masks.complement()
    for matrix in matrices:
        pruned.weights[:, matrix] |= masks.weights[:, matrix].all(dim=1, keepdim=True)
    return pruned


def _diagnostics(runs: Sequence[_Run]) -> dict[str, Any]:
    """How the refinement went, lists over runs."""
    names = ("similarity", "exchanged", "halved", "resampled")
    return {side: {name: [getattr(run[side], name) for run in runs] for name in names} for side in SIDES}
