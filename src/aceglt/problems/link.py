"""Link prediction: tell edges that were held out from pairs that are no edges."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.errors import DataError
from aceglt.numerics.csr import take_rows
from aceglt.numerics.kernels import PLAIN, Kernels
from aceglt.problems.base import Contrast, Problem, Soft, Softened, Split
from aceglt.problems.checks import attribute, check_edges, checked_features, checked_graph
from aceglt.problems.infoclust import InfoClust
from aceglt.problems.metrics import hits_at, roc_auc
from aceglt.problems.pairs import NonEdges, fixed_negatives, split_edges

HELD_OUT = ("val_edges", "val_negatives", "test_edges", "test_negatives")
"""Attributes [2, n] of data whose edges are the training edges alone, as those of ogbl-collab."""


@dataclass(frozen=True)
class LinkProblem(Problem):
    """Score pairs of nodes by the inner product of their embeddings.

    The graph is that of the training edges, for evaluation too; pruned or not, all of them are positives to train on.
    """

    val: Tensor  # [2, V] held-out edges
    val_negatives: Tensor  # [2, V] pairs that are no edges
    test: Tensor
    test_negatives: Tensor
    objective: str = "bce"
    embedding: int = 64
    ranking: str = "roc_auc"
    """The metric: roc_auc, or hits@K."""

    task = "link"

    @classmethod
    def build(
        cls,
        data: Any,
        name: str,
        directed: bool,
        objective: str = "bce",
        embedding: int = 64,
        edge_split: str = "random",
        ranking: str = "roc_auc",
    ) -> LinkProblem:
        x = checked_features(data, name)
        graph = checked_graph(data, name, len(x), directed)
        if all(getattr(data, part, None) is not None for part in HELD_OUT):
            if edge_split == "connected":
                raise DataError(f"{name}: comes with held-out edges, so edge_split 'connected' cannot choose others")
            val, no_val, test, no_test = (_checked_pairs(data, name, part, x.shape[0]) for part in HELD_OUT)
            metric = getattr(data, "metric", None) or ranking
            return cls(name, graph, x, val, no_val, test, no_test, objective, embedding, metric)
        split, non_edges = split_edges(graph, edge_split == "connected"), NonEdges(graph).count
        held_out = [split.val.shape[1], split.test.shape[1]]
        if 0 in held_out:
            raise DataError(
                f"{name}: link prediction holds out 5 % and 10 % of the edges, at least one each; of the graph's "
                f"{graph.num_edges} edges only {sum(held_out)} can be held out"
            )
        if non_edges < sum(held_out):
            raise DataError(
                f"{name}: link prediction needs {sum(held_out)} pairs of nodes that are no edges, one for each edge "
                f"held out; the graph has {non_edges}"
            )
        no_val, no_test = fixed_negatives(graph, sum(held_out)).split(held_out, dim=1)
        return cls(name, split.train, x, split.val, no_val, split.test, no_test, objective, embedding, ranking)

    @property
    def metric(self) -> str:
        return self.ranking

    @property
    def out_features(self) -> int:
        return self.embedding

    @property
    def contrast(self) -> Contrast | None:
        return InfoClust(self.embedding) if self.objective == "infoclust" else None

    def loss(self, outputs: Tensor, soft: Soft | None, key: Tensor, kernels: Kernels = PLAIN) -> Tensor:
        """Cross-entropy on the training edges and as many fresh non-edges, plus the teacher's signal on the same."""
        if 0 in (self.graph.num_edges, self._non_edges.count):  # as in a small part of a graph
            return 0.0 * outputs.sum(dim=(1, 2))
        positives = self.graph.edges.unsqueeze(1).expand(-1, len(outputs), -1)
        pairs = torch.cat([positives, self._non_edges.draw(key, self.graph.num_edges)], dim=2)  # [2, S, 2E]
        logits = _pair_scores(outputs, pairs)
        labels = torch.zeros_like(logits)
        labels[:, : self.graph.num_edges] = 1.0
        labelled = _cross_entropy(logits, labels)
        if soft is None:
            return labelled
        return labelled + soft.beta * _cross_entropy(logits, _pair_scores(soft.targets, pairs).sigmoid())

    def part(self, nodes: Tensor, edges: Tensor) -> LinkProblem:
        """Positives are the part's edges, negatives its other pairs; there is nothing to be measured."""
        none = self.val[:, :0]
        graph, x = self.graph.part(nodes, edges), take_rows(self.x, nodes)
        return replace(self, graph=graph, x=x, val=none, val_negatives=none, test=none, test_negatives=none)

    def soften(self, outputs: Tensor, temperature: float = 1.0, smoothing: float = 0.0) -> Softened:
        """The embeddings as they are, for inner products over the temperature: which pairs the student is taught on is
        drawn anew at every step."""
        return Softened(outputs / math.sqrt(temperature))

    def measure(self, outputs: Tensor, split: Split) -> Tensor:
        """ROC-AUC or Hits@K of the held-out edges, with InfoClust by the cosine."""
        edges: Tensor = getattr(self, split)
        negatives: Tensor = getattr(self, f"{split}_negatives")
        outputs = embeddings(outputs, self.objective)
        pairs = torch.cat([edges, negatives], dim=1).unsqueeze(1).expand(-1, len(outputs), -1)
        scores = _pair_scores(outputs, pairs)
        if self.ranking.startswith("hits@"):
            return hits_at(int(self.ranking[5:]), *scores.split([edges.shape[1], negatives.shape[1]], dim=1))
        return roc_auc(scores, torch.arange(scores.shape[1], device=scores.device) < edges.shape[1])

    @cached_property
    def _non_edges(self) -> NonEdges:
        return NonEdges(self.graph)


def embeddings(outputs: Tensor, objective: str) -> Tensor:
    """Of a backbone's outputs, what pairs are scored by the inner products of: InfoClust does not train lengths."""
    return F.normalize(InfoClust.embeddings(outputs), dim=-1) if objective == "infoclust" else outputs


def _checked_pairs(data: Any, name: str, part: str, num_nodes: int) -> Tensor:
    pairs = attribute(data, name, part)
    check_edges(pairs, num_nodes, name, part)
    if pairs.shape[1] == 0:
        raise DataError(f"{name}: {part} is empty; link prediction needs at least one pair of each kind")
    return pairs.long()


def _pair_scores(outputs: Tensor, pairs: Tensor) -> Tensor:
    """[S, n] inner products of embeddings [S, N, C] of pairs [2, S, n]."""
    runs, nodes, width = outputs.shape
    rows = pairs + nodes * torch.arange(runs, device=pairs.device).unsqueeze(1)
    source, target = F.embedding(rows, outputs.reshape(-1, width)).unbind(0)
    return (source * target).sum(dim=-1)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)
