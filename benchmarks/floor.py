"""The least time that an epoch of score training can take: what must be computed and moved, over what the machine can.

Counted for stacks of layers without attention (GCN, GIN, GraphSAGE) of any depth, per run, in the state before anything
is pruned. A layer with H units and I inputs has n targets, m sources and a arcs, in training (3 passes: forward, and
back to weights and inputs) and in validation (1 pass). Training reads the receptive field of the labels, with the
teacher's signal all nodes; then validation shares the first layer with it.

- Multiply-adds, two operations each: products m·I·H and messages a·H for each pass, or n·I·H and a·I, whichever is
  less; z·H in place of m·I·H for sparse features with z non-zeros. Features have no gradient: 2 passes in training.
  Dense products are over the rate of the precision that they are in (TF32 on a GPU), all others over float32's.
- Numbers of four bytes: the fused update reads weights, scores, four moments and the gradient and writes all but the
  gradient, and the product of weights and scores; that product is read by training and by validation, and its gradient
  is written: 17 for each weight. What a layer multiplies and what it sums is written and read once, (m + n)·H, and in
  training so are the gradients of both. Features are read in every pass over them, sparse ones with their columns; soft
  targets once.

A product with a sparse matrix reads a row of the other for each of its entries, out of caches that hold more or less of
it, and the rate of a large copy says nothing of that. So on a CPU a second floor takes as given what such products of
the first layer take alone, from caches as warm as they get (`epoch.gathers`), and the update before or after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aceglt.backbones.base import Backbone, Stage
from aceglt.numerics.batch import Block
from aceglt.numerics.features import Features
from aceglt.problems.base import Problem


@dataclass(frozen=True)
class Work:
    """What one epoch of one run must do."""

    products: int
    """Operations of dense products."""
    others: int
    """Operations beside them."""
    bytes: int
    update: int
    """Bytes of the update alone."""

    def floor_ms(self, rates: dict[str, float], runs: int, gathers: float = 0.0) -> float:
        """With the seconds that sparse products take at least, which neither begin before the update nor end after the
        next one."""
        computed = self.products / rates["products_per_s"] + self.others / rates["operations_per_s"]
        in_turn = self.update / rates["bytes_per_s"] + gathers
        return runs * max(computed, self.bytes / rates["bytes_per_s"], in_turn) * 1e3


@dataclass(frozen=True)
class _Count:
    """Multiply-adds of dense products and of others in one pass, and the numbers that it leaves."""

    products: int
    others: int
    numbers: int


def work(problem: Problem, backbone: Backbone, teacher: bool = False) -> Work:
    """Of an epoch that trains scores on labels, or on the teacher's signal."""
    update = 17 * backbone.prunable.size
    first, products, others, numbers = backbone.chain[0], 0, 0, update
    for training in (True, False):
        blocks, features = _read(problem, backbone, training, teacher)
        for number, stage in enumerate(backbone.chain):
            passes, kept = (3, 2) if training else (1, 1)
            if number == 0:
                if teacher and not training:
                    numbers += first.units * blocks[0].targets
                    continue
                if features.csr is None:
                    products += kept * features.shape[0] * features.shape[1] * first.units
                    numbers += kept * features.shape[0] * features.shape[1]
                else:
                    others, numbers = others + kept * features.nnz * first.units, numbers + 2 * kept * features.nnz
                others += passes * blocks[0].num_arcs * first.units
                numbers += 2 * kept * first.units * (blocks[0].targets + blocks[0].sources)
                continue
            count = _stage(stage, blocks[min(number, len(blocks) - 1)])
            products, others = products + passes * count.products, others + passes * count.others
            numbers += 2 * kept * count.numbers
    if teacher:
        numbers += problem.graph.num_nodes * problem.out_features
    return Work(2 * products, 2 * others, 4 * numbers, 4 * update)


def _stage(stage: Stage, block: Block) -> _Count:
    inputs, units, n, m, arcs = stage.inputs, stage.units, block.targets, block.sources, block.num_arcs
    own = len(stage.roots) * n * inputs * units
    if not stage.messages:
        return _Count(n * inputs * units, 0, n * units)
    before = _Count(own + m * inputs * units, arcs * units, (m + n) * units)
    after = _Count(own + n * inputs * units, arcs * inputs, n * (inputs + units))
    return min(before, after, key=lambda count: count.products + count.others)


def _read(problem: Problem, backbone: Backbone, training: bool, teacher: bool) -> tuple[Sequence[Block], Features]:
    """What the layers with messages pass them over, and the features that the first one reads."""
    graph, steps = problem.graph, sum(stage.messages for stage in backbone.chain)
    batch = graph.batch(graph.edges.new_ones(1, graph.num_edges).bool(), backbone.self_loops)
    nodes = problem.reads("train" if training else "val")
    if nodes is None or (teacher and training):
        return [batch] * steps, problem.features
    field = graph.field(nodes, steps)
    batch = batch.within(field)
    return [batch.layer(number) for number in range(steps)], problem.features.rows(field.nodes)
