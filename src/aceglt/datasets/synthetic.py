"""Graphs of the size and shape of ogbn-arxiv, ogbn-proteins and ogbl-collab, made on the spot with a known structure.

Nodes lie in communities and have skewed degrees; a share of the edges stays within a community, the others join
nodes at random and mean nothing. What is to be predicted follows the community, and features tell it only vaguely, so
that neighbours help and the random edges do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.datasets.base import GraphData, LinkData
from aceglt.errors import DataError
from aceglt.numerics import rng

PREFIX = "synthetic-"
_CHUNK = 1 << 23  # candidates that are drawn at a time, which bounds the memory beside the edges themselves
_DENSEST = 0.1  # share of all pairs that edges may take: scaled down, ogbn-proteins would be nearly complete
_FEWEST_NODES = 300
_LARGEST = 10  # scale
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Shape:
    """What a synthetic graph has in common with the one that it is named after."""

    nodes: int
    edges: int
    features: int
    outputs: int  # classes, yes-no questions, or 0 for link prediction
    within: float
    """Share of the edges that join two nodes of one community."""
    skew: float
    """Node r of a community of n is drawn with a density that falls like (r / n) ^ (1 / skew - 1)."""
    metric: str


SHAPES = {
    "synthetic-arxiv": Shape(169_343, 1_166_243, 128, 40, 0.65, 2.0, "accuracy"),
    "synthetic-proteins": Shape(132_534, 39_561_252, 8, 112, 0.5, 1.4, "roc_auc"),
    "synthetic-collab": Shape(235_868, 1_285_465, 128, 0, 0.85, 1.5, "hits@50"),
}


def load_synthetic(name: str) -> GraphData | LinkData:
    """Make the graph that `NAME`, `NAME:SCALE` or `NAME:SCALE:SEED` stands for, NAME being one of `SHAPES`.

    SCALE multiplies the numbers of nodes and edges (default 1); a SEED other than 0 gives another graph of the same
    kind. Raises `DataError` where the name is not of this form or the scale leaves too few nodes.
    """
    kind, seed, nodes, edges = _read_name(name)
    return _MAKERS[kind](name, _Draw(seed, kind), nodes, edges)


def nodes_of_synthetic(name: str) -> int:
    """How many nodes the graph of a name has, without making it; 0 where the name is not of a synthetic one."""
    return _read_name(name.lower())[2] if name.lower().startswith(PREFIX) else 0


def _read_name(name: str) -> tuple[str, int, int, int]:
    """Kind, seed, nodes and edges."""
    kind, _, rest = name.partition(":")
    scale, _, seed = rest.partition(":")
    if kind not in SHAPES:
        raise DataError(f"unknown synthetic dataset {kind!r}: known are {', '.join(SHAPES)}")
    try:
        factor, number = float(scale or 1), int(seed or 0)
    except ValueError:
        raise DataError(f"{name!r}: expected {kind}:SCALE or {kind}:SCALE:SEED, such as {kind}:0.01") from None
    nodes = round(SHAPES[kind].nodes * factor) if 0 < factor <= _LARGEST else 0
    if nodes < _FEWEST_NODES:
        raise DataError(
            f"{name!r}: the scale must be at most {_LARGEST} and leave {_FEWEST_NODES} nodes, "
            f"that is {_FEWEST_NODES / SHAPES[kind].nodes:.4f} or more; found {scale}"
        )
    edges = min(round(SHAPES[kind].edges * factor), int(_DENSEST * nodes * (nodes - 1) / 2))
    return kind, number, nodes, edges


def _arxiv(name: str, draw: _Draw, nodes: int, edges: int) -> GraphData:
    """Classes of unequal size are the communities; one label in eight is wrong, as no graph can tell."""
    shape = SHAPES["synthetic-arxiv"]
    blocks = _Blocks.of(torch.arange(1, shape.outputs + 1).double().rsqrt(), nodes, draw)
    centres = draw.normal("centres", shape.outputs, shape.features)
    x = _around(0.2 * centres, blocks.of_node, draw.normal("features", nodes, shape.features))
    wrong = draw.uniform("wrong", nodes) < 0.125
    y = torch.where(wrong, (draw.uniform("label", nodes) * shape.outputs).long(), blocks.of_node)
    pairs = blocks.edges(edges, shape, draw)
    return GraphData(name, x, pairs, y, *_split(blocks.place, (0.54, 0.17)))


def _proteins(name: str, draw: _Draw, nodes: int, edges: int) -> GraphData:
    """Eight species, each with the same eight functions as communities; features of edges tell the function.

    The first five species are for training, then one for validation and two for test. A question is a half-space of
    functions, with noise; the species, which is all that a node itself shows, does not answer it.
    """
    shape = SHAPES["synthetic-proteins"]
    species, functions = shape.features, 8
    sizes = torch.arange(1, functions + 1).double().rsqrt().repeat(species)
    blocks = _Blocks.of(sizes, nodes, draw)
    kind = blocks.of_node // functions
    trait = draw.normal("functions", functions, 8)[blocks.of_node % functions]
    trait = trait + 0.5 * draw.normal("traits", nodes, 8)
    asked = draw.normal("questions", 8, shape.outputs)
    y = trait @ asked + draw.normal("noise", nodes, shape.outputs) > draw.normal("rarity", 1, shape.outputs) + 2.0
    pairs = blocks.edges(edges, shape, draw)
    attr = torch.empty(pairs.shape[1], 8)
    related = blocks.of_node[pairs[0]] == blocks.of_node[pairs[1]]
    for channel in range(8):  # one at a time: all channels in float64 would be several times the result
        shown = torch.where(related, (trait[:, channel][pairs[0]] + trait[:, channel][pairs[1]]) / 2, 0.0)
        attr[:, channel] = (3.0 * shown + 2.0 * draw.uniform(f"edge {channel}", len(shown)).float() - 1.0).sigmoid()
    masks = (kind < 5, kind == 5, kind > 5)
    return GraphData(name, F.one_hot(kind, species).float(), pairs, y.float(), *masks, edge_attr=attr)


def _collab(name: str, draw: _Draw, nodes: int, edges: int) -> LinkData:
    """Communities of about 60 authors; of the edges, 4.7 % are held out for validation and 3.6 % for test."""
    shape = SHAPES["synthetic-collab"]
    blocks = _Blocks.of(torch.ones(max(5, nodes // 60)), nodes, draw)
    centres = draw.normal("centres", len(blocks.sizes), shape.features)
    x = _around(0.35 * centres, blocks.of_node, draw.normal("features", nodes, shape.features))
    pairs = blocks.edges(edges, shape, draw)
    train, val, test = (pairs[:, part] for part in _split(draw.order("split", edges), (0.91722, 0.04674)))
    code = pairs[0] * nodes + pairs[1]
    wanted = round(100_000 * nodes / shape.nodes)

    def candidates(n: int, salt: int) -> Tensor:
        return (draw.uniform(f"negatives {salt}", 2 * n) * nodes).long().view(2, n)

    free = _distinct(2 * wanted, nodes, candidates, draw, taken=code)
    return LinkData(name, x, train, val, free[:, ::2], test, free[:, 1::2], metric="hits@50")


_MAKERS: dict[str, Callable[[str, _Draw, int, int], GraphData | LinkData]] = {
    "synthetic-arxiv": _arxiv,
    "synthetic-proteins": _proteins,
    "synthetic-collab": _collab,
}


def _around(centres: Tensor, of_node: Tensor, noise: Tensor) -> Tensor:
    """[N, F] each node's centre plus its noise, which becomes the result."""
    for rows, mine in zip(noise.split(_CHUNK >> 7), of_node.split(_CHUNK >> 7), strict=True):
        rows += centres[mine]
    return noise


@dataclass(frozen=True)
class _Draw:
    """Random numbers of one graph."""

    seed: int
    kind: str

    def uniform(self, purpose: str, n: int) -> Tensor:
        """[n] float64 on (0, 1)."""
        return rng.uniform(rng.keys([self.seed], self.kind, purpose), n)[0]

    def normal(self, purpose: str, rows: int, columns: int) -> Tensor:
        """[rows, columns] float32, standard normal; a chunk at a time, since draws are made in float64."""
        key, centred = rng.keys([self.seed], self.kind, purpose), torch.empty(rows * columns)
        for first in range(0, len(centred), _CHUNK):
            index = torch.arange(first, min(first + _CHUNK, len(centred)))
            centred[index[0] : index[-1] + 1] = rng.uniform_at(key, index)[0].mul_(2.0).sub_(1.0)
        centred.clamp_(2.0**-24 - 1.0, 1.0 - 2.0**-24)  # in float32, draws next to 1 are 1
        return centred.erfinv_().mul_(2.0**0.5).view(rows, columns)

    def order(self, purpose: str, n: int) -> Tensor:
        """[n] a random order of 0 … n - 1."""
        return self.uniform(purpose, n).argsort()


@dataclass(frozen=True)
class _Blocks:
    """Communities of nodes; node numbers say nothing about them."""

    sizes: Tensor  # [B]
    node_at: Tensor  # [N] the nodes, community by community
    place: Tensor  # [N] where each node is in that order
    of_node: Tensor  # [N] community of each node

    @classmethod
    def of(cls, shares: Tensor, nodes: int, draw: _Draw) -> _Blocks:
        """Communities in proportion to `shares` [B], up to rounding."""
        ends = (shares.double().cumsum(0) * (nodes / shares.double().sum())).round().long()
        sizes = torch.diff(ends, prepend=ends.new_zeros(1))
        node_at = draw.order("nodes", nodes)
        place = node_at.argsort()
        return cls(sizes, node_at, place, torch.repeat_interleave(sizes)[place])

    def edges(self, count: int, shape: Shape, draw: _Draw) -> Tensor:
        """[2, count] different edges, each listed once and in the order that `Graph` keeps them."""
        start, at_place = self.sizes.cumsum(0) - self.sizes, torch.repeat_interleave(self.sizes)

        def candidates(n: int, salt: int) -> Tensor:
            u = [draw.uniform(f"edges {salt} {column}", n) for column in range(5)]
            here, there = (at_place[(each * len(at_place)).long()] for each in u[:2])
            block = torch.stack([here, torch.where(u[2] < shape.within, here, there)])
            # low places are likelier, so they have the high degrees
            return self.node_at[start[block] + (torch.stack(u[3:]).pow(shape.skew) * self.sizes[block]).long()]

        return _distinct(count, len(at_place), candidates, draw)


def _distinct(
    count: int, nodes: int, candidates: Callable[[int, int], Tensor], draw: _Draw, taken: Tensor | None = None
) -> Tensor:
    """[2, count] different pairs source < target, sorted; `candidates(n, salt)` draws [2, n] pairs of any kind.

    Pairs whose number source · nodes + target is in `taken` (sorted) are left out.
    """
    found, salt = torch.empty(0, dtype=torch.int64), 0
    while len(found) < count:
        missing = count - len(found)
        wanted = 2 * missing if salt else missing  # most are found at once, and few of the rest are new
        drawn = []
        for first in range(0, wanted, _CHUNK):
            low, high = torch.aminmax(candidates(min(_CHUNK, wanted - first), salt), dim=0)
            drawn.append((low * nodes + high)[low != high])
            salt += 1
        fresh = torch.unique(torch.cat(drawn))
        for known in (found, taken):
            fresh = fresh if known is None else fresh[~_among(fresh, known)]
        if len(fresh) > missing:
            fresh = fresh[draw.order(f"surplus {salt}", len(fresh))[:missing]]
        found = torch.cat([found, fresh]).sort().values
    return torch.stack([found // nodes, found % nodes])


def _among(values: Tensor, known: Tensor) -> Tensor:
    """[n] bool: which values are in `known`, which is sorted."""
    if not len(known):
        return torch.zeros_like(values, dtype=torch.bool)
    return known[torch.searchsorted(known, values).clamp(max=len(known) - 1)] == values


def _split(place: Tensor, shares: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Masks [n] bool of training, validation and test, in these shares of any run of neighbouring places."""
    u = (place.double() * _GOLDEN).frac()
    train, val = u < shares[0], (u >= shares[0]) & (u < sum(shares))
    return train, val, ~(train | val)
