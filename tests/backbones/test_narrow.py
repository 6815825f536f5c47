"""A network without its dead units computes what the whole one does with their weights masked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from samples import generator, tiny_problem
from torch import Tensor

from aceglt.backbones import BACKBONES, Backbone, Dropout, Params
from aceglt.backbones.narrow import narrowed, weights_between
from aceglt.numerics import ops, rng
from aceglt.numerics.masks import Masks

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gcn": ("gcn", {}),
    "gcn, batch norm, linear skips, linear output": (
        "gcn", {"layers": 3, "norm": "batch", "skip": "linear", "output": "linear", "bias": True},
    ),
    "gcn, layer norm, identity, jumping": (
        "gcn", {"layers": 4, "norm": "layer", "skip": "identity", "jumping": "cat"},
    ),
    "sage, layer norm": ("sage", {"layers": 3, "norm": "layer"}),
    "gin": ("gin", {}),
    "gin, layer norm, identity": ("gin", {"layers": 3, "norm": "layer", "skip": "identity"}),
    "gat": ("gat", {"heads": 2}),
    "gat, layer norm, identity": ("gat", {"layers": 3, "heads": 2, "norm": "layer", "skip": "identity"}),
    "resgcn": ("resgcn", {"layers": 3}),
}  # fmt: skip
HIDDEN = 6
SEEDS = (1, 2)


def parts(case: str) -> tuple[Backbone, Params, Tensor]:
    """A backbone, random parameters and weights between two thirds of the units, for two runs; the second has fewer."""
    problem, (name, options) = tiny_problem(), CASES[case]
    backbone = BACKBONES[name](problem.x.shape[1], problem.out_features, HIDDEN, **options).with_whole_units()
    start, g = backbone.init(SEEDS), generator(0)
    noise = torch.rand(start.other.shape, generator=g)
    units = {}
    for layer, width in backbone.widths.items():
        order = torch.rand(2, width, generator=g).argsort(dim=1).argsort(dim=1)
        units[layer] = order < torch.tensor([[width * 2 // 3], [width // 2]])
    return backbone, Params(start.prunable, start.other + noise), weights_between(backbone, units)


def outputs(backbone: Backbone, params: Params, masks: Tensor, key: Tensor | None = None) -> Tensor:
    """Of a narrow network, in evaluation or with the dropout of a key."""
    problem, small = tiny_problem(), narrowed(backbone, masks)
    assert small is not None
    x = problem.features if small.features is None else problem.features.columns(small.features)
    ones = torch.ones(len(masks), problem.graph.num_edges)
    graph = problem.graph.batch(ones.bool(), backbone.self_loops)
    own = small.params(params)
    kept = small.masks(Masks(masks, ones.bool())).weights
    weights = small.backbone.weights(Params(own.prunable * kept, own.other))
    state = small.backbone.begin(weights, graph, ones, x)
    return small.backbone.end(weights, graph, state, None if key is None else Dropout(key))


@pytest.mark.parametrize("case", CASES)
def test_a_run_computes_the_same_alone_and_among_wider_ones(case: str) -> None:
    """Among others, dead units make up for the width: masked, and left out of norms."""
    backbone, params, masks = parts(case)
    whole = torch.cat([masks, torch.ones_like(masks[:1])])
    together = outputs(backbone, Params(*(torch.cat([p, p[:1]]) for p in (params.prunable, params.other))), whole)
    for run in range(len(SEEDS)):
        alone = outputs(backbone, params[run : run + 1], masks[run : run + 1])
        torch.testing.assert_close(together[run : run + 1], alone)


@pytest.mark.parametrize("case", ["gcn", "gcn, layer norm, identity, jumping", "gat, layer norm, identity", "resgcn"])
def test_dropout_draws_the_same_alone_and_among_wider_ones(case: str) -> None:
    backbone, params, masks = parts(case)
    backbone.input_dropout = 0.0  # runs share features, and so what is drawn for their entries
    key = rng.keys(SEEDS, "dropout")
    together = outputs(backbone, params, masks, key)
    for run in range(len(SEEDS)):
        one = slice(run, run + 1)
        torch.testing.assert_close(together[one], outputs(backbone, params[one], masks[one], key[one]))


@pytest.mark.parametrize("case", [case for case in CASES if "layer norm" not in case and case != "resgcn"])
def test_without_layer_norms_it_computes_what_the_masked_network_does(case: str) -> None:
    backbone, params, masks = parts(case)
    problem = tiny_problem()
    ones = torch.ones(len(masks), problem.graph.num_edges)
    graph = problem.graph.batch(ones.bool(), backbone.self_loops)
    weights = backbone.weights(Params(params.prunable * masks, params.other))
    masked = backbone.apply(weights, graph, ones, problem.features)
    torch.testing.assert_close(outputs(backbone, params, masks), masked)


def test_a_norm_of_some_units_is_that_of_the_others_taken_away() -> None:
    h, scale, shift = (torch.randn(1, n, 5, generator=generator(n)) for n in (4, 1, 2))
    present = torch.tensor([[[1.0, 0.0, 1.0, 1.0, 0.0]]])
    kept = [0, 2, 3]
    made = ops.layer_norm_of(present, h, scale, shift[:, :1])
    expected = F.layer_norm(h[..., kept], (3,)) * scale[..., kept] + shift[:, :1][..., kept]
    torch.testing.assert_close(made[..., kept], expected)
    assert not bool(made[..., [1, 4]].any())


def test_parameters_of_dead_units_are_nought() -> None:
    backbone, params, masks = parts("gcn, batch norm, linear skips, linear output")
    small = narrowed(backbone, masks)
    assert small is not None
    back = backbone.weights(small.all_params(small.params(params)))
    alive = backbone.prunable.split(masks)
    for number in range(3):
        dead = ~alive[f"layer{number}.weight"].any(dim=1)
        assert bool(dead.any())
        for name in (f"norm{number}.scale", f"norm{number}.shift"):
            assert not bool(back[name].transpose(1, 2)[dead].any())
    torch.testing.assert_close(back["output.bias"], backbone.weights(params)["output.bias"])
