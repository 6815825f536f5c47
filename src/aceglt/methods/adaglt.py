"""AdaGLT (Zhang et al., 2024): thresholds of weights and of edges that are learned beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from aceglt.backbones.base import Backbone
from aceglt.backends.base import Start
from aceglt.backends.reference import PlainElements
from aceglt.config.methods import AdagltOptions
from aceglt.methods.base import Level, Selection
from aceglt.numerics import rng
from aceglt.numerics.adam import TorchAdam
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import SIDES, Masks, Scores
from aceglt.pruning.ranking import prune

WIDTH = 64
"""Hidden units of the network that explains edges."""
SPREAD = 0.1
"""Standard deviation of what it says of the edges, and the temperature of their soft masks."""


@dataclass(frozen=True)
class Adaglt(AdagltOptions):
    """Train weights, a network that explains edges, and thresholds that both must pass; thresholds are pushed up until
    the level's counts are reached. Every level starts anew from the dense pair."""

    batches: ClassVar[int] = 1

    def select(self, level: Level) -> Selection:
        full, rising = level.anew().masks, level.epochs // 2  # in which thresholds rise to the level's counts
        learned = partial(_Thresholds, level=level, method=self, rising=rising)
        fit = level.train_on(learned, full, level.epochs, rising, "thresholds")
        assert fit.scores is not None
        return Selection(furthest(full, fit.scores, level, level.key("drop")), epochs=level.epochs)

    def cost(self, epochs: int) -> int:
        return epochs


def furthest(masks: Masks, margins: Scores, level: Level, key: Tensor) -> Masks:
    """The level's counts of elements, those that are furthest above their thresholds, or least below."""
    above = Scores(*(margins.of(side) - margins.of(side).amin(dim=1, keepdim=True) for side in SIDES))
    return prune(masks, above, level.keep, key, level.quotas)


def slope(margin: Tensor) -> Tensor:
    """The derivative that stands for that of a step: 2 - 4|x| near it, 0.4 up to 1, and 0 beyond."""
    far = margin.abs()
    return torch.where(far <= 0.4, 2 - 4 * far, torch.where(far <= 1, 0.4, 0.0))


def explained(features: Features, graph: Graph, source: Tensor, target: Tensor, out: Tensor) -> Tensor:
    """[S, E] a network's outputs for the features of edges' ends, the mean of both orders of an undirected edge's;
    source and target [S, F, H], out [S, H, 1]. Of each run they have the mean 0 and the deviation `SPREAD`."""
    u, v = graph.edges
    first, second = features.matmul(source), features.matmul(target)  # [S, N, H]
    orders = ((u, v),) if graph.directed else ((u, v), (v, u))
    said = sum(torch.relu(first[:, a] + second[:, b]) @ out for a, b in orders)
    assert isinstance(said, Tensor)
    said = said.squeeze(2) - said.squeeze(2).mean(dim=1, keepdim=True)
    return said * SPREAD / said.square().mean(dim=1, keepdim=True).add(1e-12).sqrt()


class _Thresholds(PlainElements):
    """Weights that act where their magnitude passes the threshold of their unit, and edges where what is said of them
    passes the mean threshold of their ends. Gradients go straight through; once thresholds have risen, the level's
    counts act."""

    def __init__(
        self, backbone: Backbone, start: Start, runs: slice, level: Level, method: Adaglt, rising: int
    ) -> None:
        self._level, self._method, self._rising, self._steps = level, method, rising, 0
        self._runs, self._masks = runs, start.masks
        self._every = [getattr(level.keep, side) == getattr(start.masks.total, side) for side in SIDES]
        super().__init__(backbone, start)
        self._act()

    def _begin(self, start: Start, decay: float, score_decay: float) -> None:
        device, count, key = start.masks.edges.device, start.masks.runs, self._level.key("explainer")[self._runs]
        assert self._level.features is not None
        inputs = self._level.features.shape[1]
        shapes = {"source": (inputs, WIDTH), "target": (inputs, WIDTH), "out": (WIDTH, 1)}
        self._explainer = {
            name: _uniform(rng.fold(key, number), shape, (2 * inputs if number < 2 else WIDTH) ** -0.5)
            for number, (name, shape) in enumerate(shapes.items())
        }
        kind = {"dtype": torch.get_default_dtype(), "device": device}
        self._of_units = {  # one for the weights into a unit
            name: torch.zeros(count, *[1] * (len(shape) - 1), *shape[-1:], **kind)  # type: ignore[call-overload]
            for name, shape in self.backbone.prunable.shapes
        }
        nodes = self._level.graph.num_nodes
        self._of_nodes = torch.full((count, nodes), -2 * SPREAD, **kind)  # type: ignore[call-overload]
        learned = [*self._explainer.values(), *self._of_units.values(), self._of_nodes]
        groups = [
            {"params": [*self.weights.values(), *self.others.values()], "weight_decay": decay},
            {"params": learned, "weight_decay": score_decay},
        ]
        self.optimiser = TorchAdam(groups, lr=start.training.lr)

    def _act(self) -> None:
        """Which elements act now, with what the gradients of the next step need."""
        level, parts = self._level, [part.requires_grad_() for part in (*self._explainer.values(), self._of_nodes)]
        with torch.enable_grad():
            assert level.features is not None
            said = explained(level.features, level.graph, *parts[:-1])
            u, v = level.graph.edges
            ends = parts[-1][:, v] if level.graph.directed else (parts[-1][:, u] + parts[-1][:, v]) / 2
            self._soft = torch.sigmoid((said - ends) / SPREAD)
        self._margins = {name: w.abs() - self._of_units[name] for name, w in self.weights.items()}
        now = Scores(self._flat(list(self._margins.values())), (said - ends).detach())
        if self._steps < self._rising:
            acting = Masks((now.weights > 0) | self._every[0], (now.edges > 0) | self._every[1])
        else:
            acting = furthest(self._masks, now, level, level.key("drop")[self._runs])
        self._now, self._acting = now, self.backbone.prunable.split(acting.weights)
        self._alive = Scores(*(acting.of(side).sum(dim=1) for side in SIDES))  # [S] each
        self.edge_values = acting.edges.to(now.edges)

    def effective(self) -> dict[str, Tensor]:
        return {name: weight * self._acting[name] for name, weight in self.weights.items()}

    def update(self, grads: Mapping[str, Tensor], edges: Tensor | None) -> None:
        assert edges is not None
        method, keep = self._method, self._level.keep
        push = (self._alive.weights > keep.weights).to(edges) * method.push_weights  # until the counts are reached
        for name, weight in self.weights.items():
            through = grads[name] * weight * slope(self._margins[name]) * (not self._every[0])
            weight.grad = grads[name] * self._acting[name] + through * weight.sign()
            threshold = self._of_units[name]
            down = through.sum(dim=1, keepdim=True) if through.dim() > 2 else through
            threshold.grad = -down - push.view(-1, *[1] * (weight.dim() - 1)) * torch.exp(-threshold)
        for name, part in self.others.items():
            part.grad = grads[name]
        learned = [*self._explainer.values(), self._of_nodes]
        for part, grad in zip(learned, torch.autograd.grad(self._soft, learned, edges), strict=True):
            part.grad = grad
        push = (self._alive.edges > keep.edges).to(edges) * method.push_edges
        assert self._of_nodes.grad is not None
        self._of_nodes.grad -= push.unsqueeze(1) * torch.exp(-self._of_nodes.detach())
        self.optimiser.step()
        self._steps += 1
        self._act()

    def scores(self) -> Scores:
        return self._now

    def _current(self) -> list[Tensor]:
        return [*self._margins.values(), self._now.edges]


def _uniform(key: Tensor, shape: tuple[int, int], bound: float) -> Tensor:
    """[S, *shape] uniform on ±bound."""
    drawn = 2 * rng.uniform(key, shape[0] * shape[1]) - 1
    return (drawn * bound).to(torch.get_default_dtype()).view(-1, *shape)
