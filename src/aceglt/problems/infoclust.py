"""Graph InfoClust (Mavromatis and Karypis, 2020): embeddings that know their graph and cluster from fake ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from aceglt.backbones.base import Weights, glorot
from aceglt.numerics import rng

_EPS = 1e-4
_SLOPE = 0.25  # what the authors' PReLU starts from; left untrained, so that embeddings need the backbone alone
_DISCRIMINATOR, _BIAS = "infoclust.discriminator", "infoclust.bias"
_CENTRES = int(rng.keys([0], "init", "infoclust.centres"))  # the key that clustering starts from, always the same


@dataclass(frozen=True)
class InfoClust:
    """Tell a node's embedding from that on corrupted features, by the graph's summary and by its cluster's.

    The graph's summary goes through a trained bilinear form, the cluster's through the inner product. Defaults are
    the authors' for link prediction.
    """

    width: int
    clusters: int = 128
    temperature: float = 100.0
    """Sharpness of the soft assignment to clusters."""
    iterations: int = 10
    alpha: float = 0.5
    """Share of the graph's summary in the loss; the rest is the clusters'."""

    def start(self, runs: int, device: torch.device) -> dict[str, Tensor]:
        """The discriminator: it starts the same in every training, and is no part of the ticket."""
        form = glorot([0], _DISCRIMINATOR, (self.width, self.width), device)
        return {_DISCRIMINATOR: form.repeat(runs, 1, 1), _BIAS: form.new_zeros(runs, 1)}

    @staticmethod
    def embeddings(outputs: Tensor) -> Tensor:
        """[S, N, C] the backbone's outputs after a leaky ReLU."""
        return F.leaky_relu(outputs, _SLOPE)

    def loss(self, outputs: Tensor, corrupted: Tensor, parameters: Weights) -> Tensor:
        """[S] binary cross-entropy of real against corrupted embeddings under both summaries."""
        real, fake = self.embeddings(outputs), self.embeddings(corrupted)
        summary = real.mean(dim=1, keepdim=True).sigmoid()  # [S, 1, C]
        against_graph = summary @ parameters[_DISCRIMINATOR].transpose(1, 2)
        against_cluster = self.cluster_summaries(real).sigmoid()  # [S, N, C]
        bias = parameters[_BIAS]
        of_graph = _told_apart(real, fake, against_graph, bias)
        of_clusters = _told_apart(real, fake, against_cluster, torch.zeros_like(bias))
        return self.alpha * of_graph + (1 - self.alpha) * of_clusters

    def cluster_summaries(self, embeddings: Tensor) -> Tensor:
        """[S, N, C] the centres of the clusters that each node belongs to, by its share in them.

        K-means on the sphere; the gradient passes through the last step alone.
        """
        points = embeddings / (embeddings.norm(dim=-1, keepdim=True) + _EPS)
        key = torch.full((1,), _CENTRES, device=embeddings.device)
        draws = rng.uniform(key, self.clusters * self.width).to(embeddings.dtype)
        centres = draws.view(1, self.clusters, self.width).expand(len(embeddings), -1, -1)
        with torch.no_grad():
            for _ in range(self.iterations):
                centres, _ = self._step(points, centres)
        centres, belonging = self._step(points, centres)
        return belonging @ centres

    def _step(self, points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
        """New centres [S, K, C], and how much every point belonged to the old ones, [S, N, K]."""
        directions = centres / (centres.norm(dim=-1, keepdim=True) + _EPS)
        belonging = (self.temperature * points @ directions.transpose(1, 2)).softmax(dim=-1)
        mass = belonging.sum(dim=1).unsqueeze(-1) + _EPS
        return belonging.transpose(1, 2) @ points / mass, belonging


def _told_apart(real: Tensor, fake: Tensor, summary: Tensor, bias: Tensor) -> Tensor:
    """[S] mean cross-entropy of "is real" by the inner product with a summary, [S, N or 1, C]."""
    logits = torch.cat([(real * summary).sum(dim=-1), -(fake * summary).sum(dim=-1)], dim=1)
    nodes = real.shape[1]
    return -F.logsigmoid(logits + torch.cat([bias.expand(-1, nodes), -bias.expand(-1, nodes)], dim=1)).mean(dim=1)
