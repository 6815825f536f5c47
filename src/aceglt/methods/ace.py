"""ACE-GLT (Wang et al., 2023): adversarial complementary erasing, Algorithm 2 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from aceglt.errors import ConfigError
from aceglt.methods.base import Level, Selection, best_of, require
from aceglt.methods.ugs import Ugs
from aceglt.numerics import rng
from aceglt.numerics.masks import Masks, share
from aceglt.pruning import sampling

_DRAWS = 4  # keys that an exchange takes: of both samples, and of making them equal in size


@dataclass(frozen=True)
class Ace:
    """Prune as UGS does; then, in rounds, exchange the pruned elements that matter most for the retained ones that
    matter least. Without rounds, which is the default, it is UGS."""

    name: ClassVar[str] = "ace"

    rounds: int = 0
    """T: rounds of refinement per level; the paper has 6. On validation they gain 0.1 points on weights."""
    refine_epochs: int = 30
    """Epochs that the retained and the pruned part are each trained per round."""
    exchange: float = 0.05
    """K as a share of the smaller of the two parts."""
    temperature: float = 0.0
    """Scale of the Gumbel noise; 0 is plain top-K."""
    replacement: bool = False
    """Draw with replacement and remove duplicates, as the paper does (needs temperature > 0)."""
    threshold: float = 0.6
    """Similarity of this round's retained sample to the last round's pruned one above which a round repeats itself."""
    adaptive_k: bool = True
    """Halve K when a round repeats itself."""
    resample: bool = True
    """Go back one round and draw anew when a round repeats itself."""
    keep: Literal["last", "best"] = "last"
    """Which round's masks are kept: the last, or the best on validation (one more training of the retained part)."""

    def __post_init__(self) -> None:
        require(self, "rounds", self.rounds >= 0, "0 or more")
        require(self, "refine_epochs", self.refine_epochs >= 1, "1 or more")
        require(self, "exchange", 0 < self.exchange <= 1, "in (0, 1]")
        require(self, "temperature", self.temperature >= 0, "0 or more")
        require(self, "threshold", 0 <= self.threshold <= 1, "in [0, 1]")
        require(self, "keep", self.keep in ("last", "best"), "'last' or 'best'")
        if self.replacement and self.temperature == 0:
            raise ConfigError("ace: replacement draws need a temperature above 0 (1 is the paper's)")

    def select(self, level: Level) -> Selection:
        cut = Ugs().select(level)
        sides = _Sides.start(cut.masks, [quota.part for quota in level.quotas], self.exchange)
        candidates: list[tuple[Tensor, Masks]] = []  # validation metric and masks of each round's start
        for t in range(self.rounds):
            masks = sides.masks()
            both = Masks.cat([masks, _pruned_part(masks, level)])
            fit = level.train_scores(both, self.refine_epochs, f"refine {t}")
            assert fit.scores is not None
            candidates.append((fit.val[: masks.runs], masks))
            retained, pruned = level.importance(fit.scores[: masks.runs]), level.importance(fit.scores[masks.runs :])
            sides = sides.refine(retained, pruned, level.key(f"exchange {t}"), self)
        final = sides.masks()
        epochs = cut.epochs + 2 * self.rounds * self.refine_epochs
        if self.keep == "best" and self.rounds:
            fit = level.train_scores(final, self.refine_epochs, f"refine {self.rounds}")
            final = best_of([*candidates, (fit.val, final)])
            epochs += self.refine_epochs
        return Selection(final, cut.scores, {**cut.diagnostics, "ace": sides.diagnostics()}, epochs)

    @property
    def batches(self) -> int:
        """The retained and the pruned part of every run are trained together."""
        return 2 if self.rounds else 1

    def cost(self, epochs: int) -> int:
        last = self.refine_epochs if self.keep == "best" and self.rounds else 0
        return epochs + 2 * self.rounds * self.refine_epochs + last


def _pruned_part(masks: Masks, level: Level) -> Masks:
    """The complement, with matrices that have lost nothing as they are: without one of its layers a network says
    nothing, and nothing could be learned about the rest."""
    pruned = masks.complement()
    for quota in level.quotas:
        pruned.weights[:, quota.part] |= masks.weights[:, quota.part].all(dim=1, keepdim=True)
    return pruned


@dataclass(frozen=True)
class _Drawn:
    """What an exchange was drawn from: needed again if the next round undoes it."""

    mask: Tensor  # [n] before the exchange
    retained: Tensor  # [n] scores of the retained part
    pruned: Tensor  # [n] scores of the pruned part

    def __getitem__(self, part: slice) -> _Drawn:
        return _Drawn(self.mask[part], self.retained[part], self.pruned[part])


@dataclass(frozen=True)
class _Side:
    """The weights, or the edges, of one run during refinement."""

    mask: Tensor  # [n] bool: the retained part
    parts: Sequence[slice]  # neighbours that are exchanged among themselves
    k: tuple[int, ...]  # of each
    last: _Drawn | None = None
    into: Tensor | None = None  # [n] bool: last round's sample of the pruned part
    similarity: tuple[float, ...] = ()
    halved: int = 0
    resampled: int = 0
    exchanged: tuple[int, ...] = ()

    def refine(self, retained: Tensor, pruned: Tensor, keys: Sequence[Tensor], ace: Ace) -> _Side:
        """One round (lines 7 to 16 of Algorithm 2); `keys` are for its draws and for drawing them anew."""
        now = _Drawn(self.mask, retained, pruned)
        out, into, size = self._draw(now, self.k, keys[:_DRAWS], ace)
        similarity = 0.0
        if self.into is not None:
            similarity = sampling.cosine(int((out & self.into).sum()), size, self.exchanged[-1])
        repeats = similarity > ace.threshold
        halve, redraw = repeats and ace.adaptive_k, repeats and ace.resample
        k = tuple(max(1, k // 2) if k else 0 for k in self.k) if halve else self.k
        if redraw:
            assert self.last is not None
            now = self.last
            out, into, size = self._draw(now, k, keys[_DRAWS:], ace)
        return replace(
            self,
            mask=now.mask ^ out ^ into,  # Equation 6
            k=k,
            last=now,
            into=into,
            similarity=(*self.similarity, similarity),
            halved=self.halved + halve,
            resampled=self.resampled + redraw,
            exchanged=(*self.exchanged, size),
        )

    def _draw(self, now: _Drawn, k: Sequence[int], keys: Sequence[Tensor], ace: Ace) -> tuple[Tensor, Tensor, int]:
        """`_draw` of each of the parts: the samples side by side, and their size in all."""
        drawn = [_draw(now[part], size, keys, ace) for part, size in zip(self.parts, k, strict=True)]
        outs, intos, sizes = zip(*drawn, strict=True)
        return torch.cat(outs), torch.cat(intos), sum(sizes)


def _draw(now: _Drawn, k: int, keys: Sequence[Tensor], ace: Ace) -> tuple[Tensor, Tensor, int]:
    """Samples of the retained part (least important, Equation 5) and of the pruned part (most important, Equation 4),
    made equal in size, and that size."""
    sample = sampling.categorical if ace.replacement else sampling.top_k
    scale = sampling.log_importance if ace.temperature else torch.abs  # without noise both rank alike
    out = sample(-scale(now.retained), now.mask, k, ace.temperature, keys[0])
    into = sample(scale(now.pruned), ~now.mask, k, ace.temperature, keys[1])
    counts = int(out.sum()), int(into.sum())
    size = min(counts)
    return sampling.trim(out, counts[0], size, keys[2]), sampling.trim(into, counts[1], size, keys[3]), size


@dataclass(frozen=True)
class _Sides:
    """Both sides of every run; each has its own K and similarity."""

    weights: tuple[_Side, ...]
    edges: tuple[_Side, ...]

    @classmethod
    def start(cls, masks: Masks, parts: Sequence[slice], exchange: float) -> _Sides:
        """`parts` of the weights; none if they are one."""

        def side(mask: Tensor, parts: Sequence[slice]) -> _Side:
            return _Side(mask, parts, tuple(_sample_size(mask[part], exchange) for part in parts))

        whole = [slice(None)]
        return cls(
            tuple(side(mask, parts or whole) for mask in masks.weights),
            tuple(side(mask, whole) for mask in masks.edges),
        )

    def masks(self) -> Masks:
        return Masks(torch.stack([s.mask for s in self.weights]), torch.stack([s.mask for s in self.edges]))

    def refine(self, retained: Any, pruned: Any, key: Tensor, ace: Ace) -> _Sides:
        def side(sides: Sequence[_Side], part: str, salt: int) -> tuple[_Side, ...]:
            keys = [rng.fold(rng.fold(key, salt), draw) for draw in range(2 * _DRAWS)]  # each [S]
            scores = zip(sides, getattr(retained, part), getattr(pruned, part), strict=True)
            return tuple(s.refine(r, p, [k[i : i + 1] for k in keys], ace) for i, (s, r, p) in enumerate(scores))

        return _Sides(side(self.weights, "weights", 0), side(self.edges, "edges", 1))

    def diagnostics(self) -> dict[str, Any]:
        """How the refinement went, lists over runs."""
        names = ("similarity", "exchanged", "halved", "resampled")
        return {
            part: {name: [getattr(side, name) for side in getattr(self, part)] for name in names}
            for part in ("weights", "edges")
        }


def _sample_size(mask: Tensor, exchange: float) -> int:
    alive = int(mask.sum())
    smaller = min(alive, len(mask) - alive)
    return min(smaller, max(1, share(exchange, smaller)))
