"""ACE-GLT (Wang et al., 2023): adversarial complementary erasing, Algorithm 2 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from aceglt.config.methods import AceOptions
from aceglt.methods.base import Level, Selection, best_of, best_ticket
from aceglt.methods.ugs import Ugs
from aceglt.numerics import rng
from aceglt.numerics.masks import SIDES, Masks
from aceglt.pruning.exchange import DRAWS, Exchange, Limits, Sampling, Scored, exchange, limits


@dataclass(frozen=True)
class Ace(AceOptions):
    """Prune as UGS does; then, in rounds, exchange the pruned elements that matter most for the retained ones that
    matter least."""

    batches: ClassVar[int] = 2  # the retained and the pruned part

    def select(self, level: Level) -> Selection:
        cut = Ugs().select(level)  # line 1: M_A and M_W by Algorithm 1
        parts, first = level.parts, level.elements(cut.masks)  # weights, or units, are exchanged within these parts
        sides = {
            "weights": [_Side(mask, limits(mask, parts, self.exchange)) for mask in first.weights],
            "edges": [_Side(mask, limits(mask, [], self.exchange)) for mask in first.edges],
        }
        refining = self._epochs(level.epochs)
        candidates: list[tuple[Tensor, Masks]] = []  # what each round starts from, with its validation metric
        for t in range(self.rounds):  # line 4
            elements = _masks(sides)
            others = pruned_part(elements, parts, whole_graph=self.pruned_graph == "full")
            masks = level.masks_of(elements)
            both = Masks.cat([masks, level.masks_of(others)])  # lines 2 and 3: Z_retained and Z_pruned
            fit = level.train_scores(both, refining, f"refine {t}")  # lines 5 and 6: Equations 2 and 3
            assert fit.scores is not None
            candidates.append((fit.val[: masks.runs], masks))
            halves = [slice(0, masks.runs), slice(masks.runs, None)]
            retained, pruned = (level.per_element(level.importance(fit.scores[h]), both[h]) for h in halves)
            key = level.key(f"exchange {t}").cpu()  # a few numbers, which a GPU would be slow to fold
            for salt, side in enumerate(SIDES):
                for run, before in enumerate(sides[side]):
                    scored = Scored(before.mask, retained.of(side)[run], pruned.of(side)[run])
                    sides[side][run] = self._round(before, scored, rng.fold(key[run : run + 1], salt))
        refined = level.masks_of(_masks(sides))
        if self.keep == "best":
            last = level.train_scores(refined, refining, f"refine {self.rounds}")
            refined = best_of([*candidates, (last.val, refined)])
        trained, epochs = None, self.cost(level.epochs)
        if self.keep == "trained":  # a round that did not help is taken back
            refined, trained = best_ticket(level, [*(masks for _, masks in candidates), refined])
            epochs += self.rounds * level.ticket_epochs  # beside those of the ticket that is kept
        return Selection(
            refined, cut.scores, {**cut.diagnostics, "ace": _diagnostics(sides)}, epochs,
            handed_on=None if self.hand_on else cut.masks, trained=trained,
        )  # fmt: skip

    def _round(self, side: _Side, scored: Scored, key: Tensor) -> _Side:
        """Lines 7 to 17 for one side of one run."""
        sampling = Sampling(self.temperature, self.replacement)
        keys = [rng.fold(key, draw) for draw in range(2 * DRAWS)]
        drawn = exchange(scored, side.k, keys[:DRAWS], sampling)  # Equations 4 and 5
        similarity = drawn.similarity(side.last) if side.last is not None else 0.0  # line 12: Equation 7
        repeats = similarity > self.threshold  # line 13
        halves, redraws = repeats and self.adaptive_k, repeats and self.resample
        k = [(part, max(min(1, limit), limit // 2)) for part, limit in side.k] if halves else side.k  # line 14
        if redraws:  # line 15: from the last round's scores, with fresh noise
            assert side.last is not None
            drawn = exchange(side.last.scored, k, keys[DRAWS:], sampling)
        facts = (similarity, drawn.size, halves, redraws)
        return _Side(drawn.mask, k, drawn, (*side.rounds, facts))  # line 17: Equation 6

    @property
    def trainings(self) -> int:
        """Tickets that are trained to choose one."""
        return self.rounds + 1 if self.keep == "trained" else 0

    def cost(self, epochs: int) -> int:
        refining = self._epochs(epochs)
        return epochs + 2 * self.rounds * refining + (refining if self.keep == "best" else 0)

    def _epochs(self, scoring: int) -> int:
        """Of a round: never more than the level's scores are trained for."""
        return min(self.refine_epochs, scoring)


@dataclass(frozen=True)
class _Side:
    """The weights, or the edges, of one run between two rounds."""

    mask: Tensor  # [n] bool: the retained part
    k: Limits
    last: Exchange | None = None
    rounds: tuple[tuple[float, int, bool, bool], ...] = ()
    """Of each the similarity, how many were exchanged, and whether K was halved and the sample redrawn."""


_Sides = Mapping[str, Sequence[_Side]]  # by run


def _masks(sides: _Sides) -> Masks:
    return Masks(*(torch.stack([run.mask for run in sides[side]]) for side in SIDES))


def pruned_part(masks: Masks, parts: Sequence[slice], whole_graph: bool) -> Masks:
    """The complement, with matrices (or layers of units) that have lost nothing as they are: without one of its layers
    a network says nothing, and nothing could be learned about the rest."""
    pruned = masks.complement()
    for part in parts:
        pruned.weights[:, part] |= masks.weights[:, part].all(dim=1, keepdim=True)
    return Masks(pruned.weights, torch.ones_like(pruned.edges)) if whole_graph else pruned


def _diagnostics(sides: _Sides) -> dict[str, Any]:
    """How the refinement went, lists over runs."""
    return {
        side: {
            "similarity": [tuple(facts[0] for facts in run.rounds) for run in runs],
            "exchanged": [tuple(facts[1] for facts in run.rounds) for run in runs],
            "halved": [sum(facts[2] for facts in run.rounds) for run in runs],
            "resampled": [sum(facts[3] for facts in run.rounds) for run in runs],
        }
        for side, runs in sides.items()
    }
