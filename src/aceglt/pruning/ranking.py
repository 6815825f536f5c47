"""Which elements go: importance from scores, and exact choices by it, with ties broken at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from aceglt.backbones.base import Layout
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks, Quota, Scores, count

_FEW_NEIGHBOURS = 5.0
_SAMPLED, _MARGIN = 1 << 14, 6.0  # of values, to bracket one by its rank; standard deviations of that rank


@dataclass(frozen=True)
class Ranking:
    """How elements are ranked when they are pruned; as published unless something is given."""

    balance: float = 0.0
    """Share of the kept weights that is allotted per matrix, in proportion to the sum of its sides."""
    degree_bonus: float = 0.0
    """What the importance of an edge gains, over the root of the product of its ends' degrees; see `bonus`."""

    def importance(self, graph: Graph, scores: Scores, masks: Masks) -> Scores:
        """What elements are ranked by: the magnitudes of their scores, and for edges their weights in symmetric
        normalisation by what is alive in the masks that a level starts from, so that the last of a node stay."""
        weights, edges = scores.weights.abs(), scores.edges.abs()
        if self.degree_bonus:
            (source, target), alive = graph.edges, masks.edges.to(edges.dtype)
            degrees = alive.new_ones(masks.runs, graph.num_nodes)  # themselves counted
            degrees.index_add_(1, source, alive).index_add_(1, target, alive)
            edges = edges + self.bonus(graph) * (degrees[:, source] * degrees[:, target]).rsqrt()
        return Scores(weights, edges)

    def bonus(self, graph: Graph) -> float:
        """The degree bonus on a graph. The more neighbours nodes have, the less one edge matters and the noisier its
        score is, so that degrees count more: from five neighbours on average on with their mean's square."""
        mean = 2 * graph.num_edges / graph.num_nodes
        return self.degree_bonus * max(1.0, mean / _FEW_NEIGHBOURS) ** 2

    def quotas(self, layout: Layout, keep: int) -> list[Quota]:
        """The fewest weights that each matrix keeps, of `keep` in all: this share of what is balanced; none where all
        weights compete."""
        found = balanced(layout, keep) if self.balance else []
        return [replace(quota, keep=math.ceil(self.balance * quota.keep)) for quota in found]


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


def prune(masks: Masks, scores: Scores, keep: Counts, key: Tensor, quotas: Sequence[Quota] = ()) -> Masks:
    """Kill the lowest-magnitude alive elements until exactly `keep` are left (Algorithm 1, lines 5 and 6).

    The most important weights of each of the `quotas` stay; what these leave of `keep` goes to the most important of
    all others.
    """
    weights = torch.zeros_like(masks.weights)
    for number, quota in enumerate(quotas):
        scored, alive = scores.weights[:, quota.part], masks.weights[:, quota.part]
        draw = rng.fold(rng.fold(key, 2), number)  # its own, or ties would be broken alike in all matrices
        weights[:, quota.part] = lowest(-scored.abs(), alive, quota.keep, draw)
    rest = keep.weights - sum(quota.keep for quota in quotas)
    weights |= cut(scores.weights, masks.weights & ~weights, rest, rng.fold(key, 0))
    return Masks(weights, cut(scores.edges, masks.edges, keep.edges, rng.fold(key, 1)))


def cut(scores: Tensor, alive: Tensor, keep: int, key: Tensor) -> Tensor:
    """[S, n] the `keep` alive elements with the scores of the highest magnitude."""
    counts = {count(run) for run in alive}
    if len(counts) > 1 or min(counts) < keep:
        raise ValueError(f"asked to keep {keep} of {sorted(counts)} alive elements")
    return alive & ~lowest(scores.abs(), alive, counts.pop() - keep, key)


def lowest(values: Tensor, candidates: Tensor, k: int, key: Tensor, *, together: bool | None = None) -> Tensor:
    """Bool mask of exactly k of the candidates with the lowest values, for each run; equal values are drawn at random.

    Each element has a fixed place in that draw, so the same key breaks the ties of other values in the same order.
    values [S, n], candidates [S, n] bool, key [S]. Raises ValueError where a run has fewer than k candidates. Whether
    all runs are searched `together` changes the speed alone; by default they are on a GPU.
    """
    if together if together is not None else values.is_cuda and len(values) > 1:
        return _lowest_together(values, candidates, k, key)
    return torch.stack(
        [_lowest(v, c, k, key[i : i + 1]) for i, (v, c) in enumerate(zip(values, candidates, strict=True))]
    )


def _lowest_together(values: Tensor, candidates: Tensor, k: int, key: Tensor) -> Tensor:
    """The same for all runs at once, almost without waiting for a GPU."""
    fewest = int(candidates.sum(dim=1).min())
    if k > fewest:
        raise ValueError(f"asked for {k} of {fewest} candidates")
    if k == 0:
        return torch.zeros_like(candidates)
    order = _places(values, candidates)
    threshold = _kth(order, torch.full_like(order[:, 0], k))
    below, tied = order < threshold, order == threshold
    wanted = k - below.sum(dim=1)
    if bool((tied.sum(dim=1) > wanted).any()):
        noise = _places(rng.uniform(key, values.shape[1]), tied)
        tied &= noise <= _kth(noise, wanted)
    return below | tied


def _places(values: Tensor, candidates: Tensor) -> Tensor:
    """Whole numbers in the order of floating-point values; the highest for what is no candidate."""
    whole = torch.int64 if values.dtype == torch.float64 else torch.int32
    bits = (values + 0.0).view(whole)  # -0 becomes 0
    last = torch.iinfo(whole).max
    return torch.where(bits < 0, bits ^ last, bits).masked_fill_(~candidates, last)


def _kth(numbers: Tensor, k: Tensor) -> Tensor:
    """[S, 1] the k-th lowest of whole numbers [S, n], k [S]; kthvalue is not deterministic on a GPU."""
    return numbers.sort(dim=1).values.gather(1, k.long().unsqueeze(1) - 1)


def _lowest(values: Tensor, candidates: Tensor, k: int, key: Tensor) -> Tensor:
    total = count(candidates)
    if k > total:
        raise ValueError(f"asked for {k} of {total} candidates")
    if k == 0:
        return torch.zeros_like(candidates)
    threshold = _kth_of(values, candidates, k, total)
    chosen, tied = candidates & (values < threshold), candidates & (values == threshold)
    wanted = k - count(chosen)
    if count(tied) > wanted:
        index = tied.nonzero().squeeze(1)
        drawn = rng.uniform_at(key, index)[0].topk(wanted, largest=False).indices
        tied = torch.zeros_like(candidates).index_fill_(0, index[drawn], True)
    return chosen | tied


def _kth_of(values: Tensor, candidates: Tensor, k: int, total: int) -> float:
    """The k-th lowest of the candidates' values [n], of which there are `total`."""
    if values.is_cuda:  # kthvalue has no deterministic algorithm there; a sort has
        return float(values[candidates].sort().values[k - 1])
    found, among, step = values.numpy(), candidates.numpy(), len(values) // _SAMPLED
    sample = np.sort(found[::step][among[::step]]) if step > 4 and 8 * total > len(values) else found[:0]
    if len(sample):  # says between which two values it is, so that the others need no sorting
        place = k * len(sample) / total
        margin = _MARGIN * math.sqrt(place + 1) + 1
        low, high = (sample[min(max(0, int(at)), len(sample) - 1)] for at in (place - margin, place + margin))
        below = np.count_nonzero(among & (found < low))
        near = found[among & (found >= low) & (found <= high)]
        if below < k <= below + len(near):
            return float(np.partition(near, k - below - 1)[k - below - 1])
    return float(np.partition(found[among], k - 1)[k - 1])
