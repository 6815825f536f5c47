"""Neighbour sampling (GraphSAGE): a step reads some nodes, and of every node it needs a few neighbours per layer.

A part has the seeds, whose outputs the loss reads, and edges that are drawn: layer by layer, at most `neighbours` among
the alive edges of each node that is new. Edges keep their numbers, so that scores and masks are those of the whole
graph. A drawn edge carries messages in both directions, as any edge does. Evaluation is exact: without gradients, the
whole graph takes one layer after the other and holds the units of two.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from aceglt.numerics import rng
from aceglt.numerics.batch import pointers
from aceglt.numerics.graph import Graph
from aceglt.training import processes
from aceglt.training.partitions import Part, Parts

_SHIFT = 1 << 20  # of a layer's draws, those that turn each node's list of neighbours


class Sampler:
    """Draws the parts of a run among its alive edges [E]; the draws are the same for all runs."""

    def __init__(self, parts: Parts, graph: Graph, alive: Tensor, seeds: Tensor | None, layers: int) -> None:
        """`seeds` [n] are the nodes to cut into parts; None is all."""
        self._parts, self._key, self._layers = parts, parts.key(graph), layers
        self._seeds = torch.arange(graph.num_nodes, device=alive.device) if seeds is None else seeds
        self._arcs = _Arcs(graph, alive)

    def steps(self, epoch: int | Tensor) -> Iterator[list[Part | None]]:
        """The parts of each step of an epoch, made when it is their turn; None where another process makes one."""
        key, per_step = rng.fold(self._key, 1 + epoch), self._parts.per_step
        count = min(self._parts.count, len(self._seeds))
        order = self._seeds[rng.uniform_at(key, self._seeds)[0].argsort()]
        cut = order.tensor_split(count)
        for first in range(0, count, per_step):
            numbers = range(first, min(first + per_step, count))
            mine = set(processes.mine(numbers))
            yield [self.part(cut[n].sort().values, rng.fold(key, n)) if n in mine else None for n in numbers]

    def part(self, seeds: Tensor, key: Tensor) -> Part:
        """The part of these seeds [s], in ascending order; marks are cheaper than sorts."""
        arcs = self._arcs
        layer = torch.zeros(arcs.num_nodes, dtype=torch.int16, device=seeds.device)  # from 1, that a node is reached by
        drawn = torch.zeros(arcs.num_edges, dtype=torch.bool, device=seeds.device)
        layer[seeds], reached = 1, seeds
        for number in range(self._layers):
            neighbours, edges = arcs.draw(reached, self._parts.neighbours, rng.fold(key, number))
            layer[neighbours[layer[neighbours] == 0]] = number + 2
            reached = (layer == number + 2).nonzero().squeeze(1)
            drawn[edges] = True
        return Part(layer.nonzero().squeeze(1), drawn.nonzero().squeeze(1), seeds)


class _Arcs:
    """The arcs into each node over some of the edges ([E] bool), in a few bytes per edge."""

    def __init__(self, graph: Graph, alive: Tensor) -> None:
        edge = alive.nonzero().squeeze(1)
        (source, target), self.num_nodes, self.num_edges = graph.edges[:, edge], graph.num_nodes, graph.num_edges
        if not graph.directed:
            source, target, edge = torch.cat([source, target]), torch.cat([target, source]), edge.repeat(2)
        order = target.argsort(stable=True)
        self.first = pointers(target[order], graph.num_nodes)  # [N + 1]
        self.source, self.edge = source[order].int(), edge[order].int()  # [A]

    def draw(self, nodes: Tensor, fan_out: int, key: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours and edges of at most so many arcs into each of the nodes [n], all alike.

        A node's list of arcs is turned by a random number of places and cut into `fan_out` runs, each of which gives
        one arc: all are different, and each has the chance fan_out / degree.
        """
        first, degree = self.first[nodes].long(), (self.first[nodes + 1] - self.first[nodes]).long()
        shift = (rng.uniform_at(rng.fold(key, _SHIFT), nodes)[0] * degree).long()
        run, degree = torch.arange(fan_out, device=nodes.device), degree.unsqueeze(1)
        chance = rng.uniform_at(key, (nodes.unsqueeze(1) * fan_out + run).flatten())[0].view(-1, fan_out)
        begin, end = run * degree // fan_out, (run + 1) * degree // fan_out
        place = (begin + (chance * (end - begin)).long() + shift.unsqueeze(1)) % degree.clamp(min=1)
        place = torch.where(degree <= fan_out, run, place)  # all there are
        at = (first.unsqueeze(1) + place)[run < degree]
        return self.source[at].long(), self.edge[at].long()
