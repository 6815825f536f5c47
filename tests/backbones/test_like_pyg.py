"""A dense training against the same network in plain PyG: how it starts, and where it gets to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from samples import tiny_problem
from torch import Tensor

from aceglt.backbones import Backbone, build
from aceglt.backends.reference import Reference
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.tickets.plain import plain_model
from aceglt.training.fit import fit

OPTIONS: dict[str, Any] = {"layers": 3, "norm": "layer", "skip": "linear", "output": "linear", "bias": True}


def ours_as_plain(backbone: Backbone) -> dict[str, str]:
    """The names of our parameters by those of PyG's network."""
    layer = {
        "gcn": {"convs.{}.lin.weight": "layer{}.weight", "convs.{}.bias": "layer{}.bias"},
        "sage": {
            "convs.{}.lin_l.weight": "layer{}.weight",
            "convs.{}.lin_l.bias": "layer{}.bias",
            "convs.{}.lin_r.weight": "layer{}.root",
        },
    }[backbone.name]
    layer = layer | {
        "skips.{}.weight": "layer{}.skip",
        "norms.{}.weight": "norm{}.scale",
        "norms.{}.bias": "norm{}.shift",
    }
    last = len(backbone.chain) - 1
    names = {theirs.format(i): mine.format(i) for i in range(last) for theirs, mine in layer.items()}
    return {**names, f"convs.{last}.weight": "output.weight", f"convs.{last}.bias": "output.bias"}


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_weights_start_as_those_of_pyg(name: str) -> None:
    seeds, backbone = 40, build(name, 20, 16, 24, **OPTIONS)
    mine, names = backbone.weights(backbone.init(range(seeds))), ours_as_plain(backbone)
    drawn: dict[str, list[Tensor]] = {part: [] for part in names}
    for seed in range(seeds):
        torch.manual_seed(seed)
        for part, values in plain_model(backbone).named_parameters():
            drawn[part].append(values.detach().flatten())
    for part, theirs in drawn.items():
        ours, expected = mine[names[part]].flatten(), torch.cat(theirs)
        assert float(ours.abs().max()) == pytest.approx(float(expected.abs().max()), rel=0.05), part
        assert float(ours.std()) == pytest.approx(float(expected.std()), rel=0.05), part


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("backend", [Reference(), None], ids=["reference", "cpu"])
@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_a_training_without_dropout_goes_where_pygs_does(name: str, backend: Reference | None) -> None:
    """The same best epoch and weights, so the same loss, decay of every parameter, Adam and choice of an epoch."""
    problem, epochs, training = tiny_problem(), 25, Training(lr=0.01, weight_decay=5e-3)
    backbone = build(name, problem.x.shape[1], problem.out_features, 8, dropout=0.0, **OPTIONS)
    start, names = backbone.init([3]), ours_as_plain(backbone)
    plain: Any = plain_model(backbone)
    parameters = dict(plain.named_parameters())
    with torch.no_grad():
        for part, values in parameters.items():
            ours = backbone.weights(start)[names[part]][0]
            values.copy_(ours.t() if values.dim() == 2 else ours[0])
    optimiser = torch.optim.Adam(plain.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    x, arcs = problem.x.to_dense(), torch.cat([problem.graph.edges, problem.graph.edges.flip(0)], dim=1)
    best, at, weights = -1.0, 0, {}
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(plain(x, arcs)[problem.train], problem.y[problem.train]).backward()
        optimiser.step()
        val = float(problem.measure(plain(x, arcs).detach()[None], "val"))
        if val > best:
            best, at, weights = val, epoch, {part: values.detach().clone() for part, values in parameters.items()}
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges), "cpu")
    found = fit(problem, backbone, start, masks, epochs, training, rng.keys([3], "test"), backend=backend)
    assert (float(found.val[0]), int(found.epoch[0])) == (best, at)
    assert found.params is not None
    for part, values in weights.items():
        ours = backbone.weights(found.params)[names[part]][0]
        torch.testing.assert_close(ours.t() if values.dim() == 2 else ours[0], values, rtol=1e-4, atol=1e-6)
