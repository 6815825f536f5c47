"""Forward passes in bfloat16."""

from __future__ import annotations

import pytest
import torch
from backbone_samples import CLASSES, FEATURES, all_alive, draw, features, random_graph, weights
from torch import Tensor

from aceglt.backbones import Backbone, Dropout, build
from aceglt.numerics.features import Features

BACKBONES = ("gcn", "gin", "gat", "resgcn")


def small(name: str) -> Backbone:
    return build(name, FEATURES, CLASSES, 8, **({"layers": 3} if name == "resgcn" else {}))


def train(backbone: Backbone, named: dict[str, Tensor]) -> list[Tensor]:
    """Outputs, and the gradients of weights and scores, with dropout."""
    graph, x = random_graph(), Features(features(0.5))
    batch, scores = all_alive(backbone, graph), (1 + 0.1 * draw(1, graph.num_edges)).requires_grad_()
    out = backbone.end(named, batch, backbone.begin(named, batch, scores, x), Dropout(torch.tensor([3])))
    return [out, *torch.autograd.grad(out.square().mean(), [*named.values(), scores])]


@pytest.mark.parametrize("name", BACKBONES)
def test_bfloat16_is_close_and_leaves_weights_and_outputs_in_float32(name: str) -> None:
    backbone = small(name)
    named = weights(backbone)
    exact, rounded = train(backbone, named), train(backbone.computing_in(torch.bfloat16), named)
    assert {t.dtype for t in rounded} == {torch.float32}
    assert not torch.equal(exact[0], rounded[0])
    for full, low in zip(exact, rounded, strict=True):
        torch.testing.assert_close(low, full, rtol=0.1, atol=0.05 * float(full.detach().abs().max()) + 1e-6)
