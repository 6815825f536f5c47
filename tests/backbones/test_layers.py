"""Every depth, norm and skip of every backbone against a network of PyG's own layers, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from backbone_samples import (
    CLASSES,
    FEATURES,
    all_alive,
    arcs,
    check_dead_edges_are_deleted,
    check_runs_do_not_influence_each_other,
    draw,
    features,
    random_graph,
    weights,
)
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from aceglt.backbones import Backbone, Dropout, build
from aceglt.numerics.features import Features

HIDDEN, HEADS = 5, 2
NORMS, SKIPS = ("none", "layer", "batch"), ("none", "linear", "identity")
DEPTHS = range(1, 7)

pytestmark = pytest.mark.usefixtures("double")


class Plain(nn.Module):
    """What the options mean, in PyG's and torch's words."""

    def __init__(
        self, backbone: str, layers: int, norm: str, skip: str, output: str, jumping: str = "none", bias: bool = True
    ) -> None:
        super().__init__()
        self.backbone, self.skip, self.jumping = backbone, skip, jumping
        width, hidden = HIDDEN * (HEADS if backbone == "gat" else 1), layers - (output == "conv")
        self.convs, self.skips, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        norms: dict[str, Any] = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
        for number in range(hidden):
            size = FEATURES if number == 0 else width
            self._add(size, HIDDEN, HEADS, bias and norm != "batch")
            self.norms.append(norms[norm](width))
        last = FEATURES if hidden == 0 else width * (hidden if jumping == "cat" else 1)
        self.output = nn.Linear(last, CLASSES, bias) if output == "linear" else None
        if self.output is None:
            self._add(last, CLASSES, 1, bias)

    def _add(self, size: int, units: int, heads: int, bias: bool) -> None:
        makers: dict[str, Any] = {
            "gcn": lambda: GCNConv(size, units, bias=bias),
            "sage": lambda: SAGEConv(size, units, bias=bias),
            "gin": lambda: GINConv(nn.Linear(size, units, bias), train_eps=True, aggr="mean"),
            "gat": lambda: GATConv(size, units, heads, bias=bias),
        }
        self.convs.append(makers[self.backbone]())
        if self.skip == "linear":
            self.skips.append(nn.Linear(size, units * (heads if self.backbone == "gat" else 1), bias=False))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        activate = nn.functional.elu if self.backbone == "gat" else torch.relu
        made: list[Tensor] = []
        for number, norm in enumerate(self.norms):
            h = made[-1] if made else x
            made.append(activate(norm(self._conv(number, h, edge_index, tied=number > 0))))
        h = torch.cat(made, dim=1) if self.jumping == "cat" and made else made[-1] if made else x
        if self.output is not None:
            return self.output(h)  # type: ignore[no-any-return]
        return self._conv(len(made), h, edge_index, tied=False)

    def _conv(self, number: int, h: Tensor, edge_index: Tensor, tied: bool) -> Tensor:
        out: Tensor = self.convs[number](h, edge_index)
        if self.skip == "linear":
            out = out + self.skips[number](h)
        return out + h if self.skip == "identity" and tied else out

    def parameter(self, name: str) -> Tensor:
        """Of our name, as torch holds it."""
        place, _, part = name.partition(".")
        number = int(place.removeprefix("layer").removeprefix("norm") if place != "output" else 0)
        if place == "output":
            return getattr(self.output, part)  # type: ignore[no-any-return]
        if place.startswith("norm"):
            names = {"scale": "weight", "shift": "bias", "mean": "running_mean", "variance": "running_var"}
            return getattr(self.norms[number], names[part])  # type: ignore[no-any-return]
        if part == "skip":
            return self.skips[number].weight  # type: ignore[return-value]
        conv: Any = self.convs[number]
        if part.startswith("head"):
            first = int(part[4:].split(".")[0]) * HIDDEN
            return conv.lin.weight[first : first + HIDDEN]  # type: ignore[no-any-return]
        found = {
            "gcn": lambda: {"weight": conv.lin.weight, "bias": conv.bias},
            "sage": lambda: {"weight": conv.lin_l.weight, "root": conv.lin_r.weight, "bias": conv.lin_l.bias},
            "gin": lambda: {"weight": conv.nn.weight, "bias": conv.nn.bias, "epsilon": conv.eps},
            "gat": lambda: {
                "weight": conv.lin.weight,
                "bias": conv.bias,
                "source": conv.att_src,
                "target": conv.att_dst,
            },
        }
        return found[self.backbone]()[part]  # type: ignore[no-any-return]


def as_torch(name: str, part: Tensor, like: Tensor) -> Tensor:
    """A tensor of ours [1, …] as torch has it: matrices are transposed."""
    prunable = name.endswith(("weight", "root", "skip"))
    return part[0].t() if prunable else part.reshape(like.shape)


def check(name: str, backbone: Backbone, plain: Plain) -> None:
    """Outputs and gradients in training, running statistics after it, and outputs in evaluation."""
    graph, x, named = random_graph(), features(0.5), weights(backbone)
    with torch.no_grad():
        for part, value in named.items():
            plain.parameter(part).copy_(as_torch(part, value, plain.parameter(part)))
    batch, ones = all_alive(backbone, graph), torch.ones(1, graph.num_edges)
    state = backbone.stem(named, batch, ones, Features(x))
    mine, theirs = backbone.head(named, batch, state, Dropout(torch.tensor([1])))[0], plain(x, arcs(graph))
    torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)
    direction = draw(*theirs.shape, seed=9)
    (mine * direction).sum().backward()
    (theirs * direction).sum().backward()
    for part, value in named.items():
        if part in backbone.buffers:
            torch.testing.assert_close(value.flatten(), plain.parameter(part))
        elif ".head" in part:
            first, conv = int(part.split("head")[1].split(".")[0]) * HIDDEN, plain.convs[int(part[5:].split(".")[0])]
            torch.testing.assert_close(value.grad[0].t(), conv.lin.weight.grad[first : first + HIDDEN])
        else:
            wanted = plain.parameter(part).grad
            torch.testing.assert_close(as_torch(part, value.grad, wanted), wanted, rtol=1e-6, atol=1e-8)
    evaluated = backbone.apply(named, batch, ones, Features(x))[0]
    torch.testing.assert_close(evaluated, plain.eval()(x, arcs(graph)), rtol=1e-8, atol=1e-9)


def made(name: str, **options: Any) -> Backbone:
    heads = {"heads": HEADS} if name == "gat" else {}
    return build(name, FEATURES, CLASSES, HIDDEN, dropout=0.0, input_dropout=0.0, **heads, **options)


@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat"])
def test_forward_and_gradients_are_those_of_pyg(name: str, depth: int, norm: str, skip: str) -> None:
    output = ("conv", "linear")[(depth + NORMS.index(norm) + SKIPS.index(skip)) % 2]
    options: dict[str, Any] = {"layers": depth, "norm": norm, "skip": skip, "output": output, "bias": True}
    check(name, made(name, **options), Plain(name, **options))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("output", ["conv", "linear"])
@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat"])
def test_the_output_may_read_all_hidden_layers(name: str, output: str, bias: bool) -> None:
    options: dict[str, Any] = {"layers": 3, "norm": "layer", "skip": "linear", "jumping": "cat", "bias": bias}
    check(name, made(name, output=output, **options), Plain(name, output=output, **options))


DEEP: dict[str, dict[str, Any]] = {
    "norm and skips": {"layers": 3, "norm": "layer", "skip": "linear", "output": "linear", "input_dropout": 0.3},
    "batch norm, jumping": {"layers": 3, "norm": "batch", "skip": "identity", "jumping": "cat"},
}


@pytest.mark.parametrize("options", DEEP)
@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat"])
def test_deep_networks_keep_what_masks_promise(name: str, options: str) -> None:
    heads = {"heads": HEADS} if name == "gat" else {}
    backbone = build(name, FEATURES, CLASSES, HIDDEN, **heads, **DEEP[options])
    check_dead_edges_are_deleted(backbone)
    check_runs_do_not_influence_each_other(backbone)
