"""The least time that an epoch of score training can take: what must be computed and moved, over what the machine can.

Counted for the two-layer backbones with one message width (GCN, GIN), per run, in the state before anything is pruned.
With P weights, H hidden units, C outputs; n1 nodes whose hidden values are needed and n2 nodes that these read; z
non-zero features of those n2 nodes; a1 and a2 arcs into the n1 nodes and into the outputs; each for training (t) and
for validation (v):

- operations, two for each multiply-add: X·W (z_t + z_v)·H, its gradient z_t·H, messages (a1_t + a1_v)·H, their
  gradients by hidden values and by scores 2·a1_t·H, the second layer n1·H·C three times in training and once in
  validation, and its messages a2·C likewise;
- bytes, four for each number: the fused update reads weights, scores, four moments and the gradient and writes all but
  the gradient, and the product of weights and scores (14 P); that product is read by training and by validation, and
  its gradient is written (3 P); X·W, the hidden layer and in training the gradients of both are written once and read
  once (2·H·(2·(n1_t + n2_t) + n1_v + n2_v)); the features' values and column numbers are read three times.

With the teacher's signal, training reads all nodes. Validation then needs no product with the features, no messages of
the first layer and no hidden values of its own: what is left of it is the second layer without dropout.
"""

from __future__ import annotations

from dataclasses import dataclass

from aceglt.backbones.base import Backbone
from aceglt.problems.base import Problem, Split


@dataclass(frozen=True)
class Work:
    """What one epoch of one run must do."""

    operations: int
    bytes: int

    def floor_ms(self, rates: dict[str, float], runs: int) -> float:
        seconds = max(self.operations / rates["operations_per_s"], self.bytes / rates["bytes_per_s"])
        return runs * seconds * 1e3


@dataclass(frozen=True)
class _Part:
    """Sizes of a pass over the part of the graph that a split depends on."""

    n1: int
    n2: int
    z: int
    a1: int
    a2: int


def work(problem: Problem, backbone: Backbone, teacher: bool = False) -> Work:
    """Of score training on labels, or with the teacher's signal beside them."""
    hidden, out = backbone.aggregation_widths
    t, v = _part(problem, backbone, None if teacher else "train"), _part(problem, backbone, "val")
    passes = 16 if teacher else 17  # over the weights; validation reads none of its own
    if teacher:
        v = _Part(v.n1, 0, 0, 0, v.a2)
    adds = (2 * t.z + v.z) * hidden + (3 * t.a1 + v.a1) * hidden
    adds += (3 * t.n1 + v.n1) * hidden * out + (3 * t.a2 + v.a2) * out
    numbers = passes * backbone.prunable.size + 2 * (2 * t.z + v.z)
    numbers += 2 * hidden * (2 * (t.n1 + t.n2) + (0 if teacher else v.n1 + v.n2))
    return Work(2 * adds, 4 * numbers)


def _part(problem: Problem, backbone: Backbone, split: Split | None) -> _Part:
    """None is all nodes."""
    graph, features = problem.graph, problem.features
    alive = problem.graph.edges.new_ones(1, graph.num_edges).bool()
    batch = graph.batch(alive, backbone.self_loops)
    nodes = problem.reads(split) if split is not None else None
    if nodes is None:
        return _Part(graph.num_nodes, graph.num_nodes, features.nnz, batch.num_arcs, batch.num_arcs)
    field = graph.field(nodes, 2)
    batch = batch.within(field)
    _, n1, n2 = field.sizes
    return _Part(n1, n2, features.rows(field.nodes).nnz, batch.layer(0).num_arcs, batch.layer(1).num_arcs)
