"""A backbone in PyG's own layers, as people write it: what tickets are measured against."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from aceglt.backbones.base import Backbone, Stage
from aceglt.backbones.layered import ACTIVATIONS

_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda _: nn.Identity(), "layer": nn.LayerNorm, "batch": nn.BatchNorm1d,
}  # fmt: skip


def plain_model(backbone: Backbone) -> nn.Module:
    """The network with weights of its own; forward(x, edge_index, edge_weight, edge_attr)."""
    return PlainNetwork(backbone) if backbone.chain else _deeper_gcn(backbone)


def adjacent(model: nn.Module, given: Any) -> Callable[[], Tensor]:
    """A pass over a CSR adjacency, PyG's faster way, where its layers take one; over edge_index where they do not.

    `given` has x, edge_index, edge_weight and edge_attr as `parts`.
    """
    x, edge_index, weight, attr = given.parts
    if isinstance(model, PlainNetwork) and model.coefficients in ("symmetric", "mean"):
        from torch_geometric.utils import to_torch_csr_tensor

        matrix = to_torch_csr_tensor(edge_index.flip(0), weight, size=(len(x), len(x)))  # rows are targets
        return partial(model, x, matrix.to(x.dtype))
    return partial(model, x, edge_index, weight, attr)


class PlainNetwork(nn.Module):
    """Stage by stage, without anything kept from one pass to the next."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.stages, self.input_dropout = backbone.chain, backbone.input_dropout
        self.coefficients = backbone.coefficients
        self.convs = nn.ModuleList(_conv(backbone.coefficients, stage) for stage in self.stages)
        self.skips = nn.ModuleList(_skip(stage) for stage in self.stages)
        self.norms = nn.ModuleList(_NORMS[stage.norm](stage.units) for stage in self.stages)

    def forward(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        """PyG's layers but GCNConv read no weights of edges; without, they are as fast."""
        arcs = (edge_index,) if edge_weight is None or self.coefficients != "symmetric" else (edge_index, edge_weight)
        made = {-1: nn.functional.dropout(x, self.input_dropout, self.training)}
        for number, stage in enumerate(self.stages):
            h = torch.cat([made[read] for read in stage.reads], dim=1)
            out = self.convs[number](h, *arcs) if stage.messages else self.convs[number](h)
            if stage.identity or not isinstance(self.skips[number], nn.Identity):
                out = out + self.skips[number](h)
            out = ACTIVATIONS[stage.activation](self.norms[number](out))
            made[number] = nn.functional.dropout(out, stage.dropout, self.training)
        return made[len(self.stages) - 1]


def _skip(stage: Stage) -> nn.Module:
    linear = any(name.endswith("skip") for name in stage.roots)
    return nn.Linear(stage.inputs, stage.units, bias=False) if linear else nn.Identity()


def _conv(coefficients: str, stage: Stage) -> Any:
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv  # takes seconds, and a search needs none of it

    size, heads, bias = (stage.inputs, stage.units), len(stage.weights), any("bias" in name for name in stage.along)
    if not stage.messages:
        return nn.Linear(*size, bias)
    if coefficients == "symmetric":
        return GCNConv(*size, bias=bias)
    if coefficients == "attention":
        return GATConv(stage.inputs, stage.units // heads, heads, bias=bias)
    if any(name.endswith("root") for name in stage.roots):
        return SAGEConv(*size, bias=bias)
    return GINConv(nn.Linear(*size, bias), train_eps=True, aggr="mean")


def _deeper_gcn(backbone: Backbone) -> nn.Module:
    """DeeperGCN as in PyG's examples: encoder, residual layers, and norm and ReLU before the last map."""
    from torch_geometric.nn import DeepGCNLayer, GENConv, Sequential

    shapes, along = dict(backbone.prunable.shapes), "x, edge_index, edge_attr -> x"
    encoder, decoder = shapes["encoder.weight"], shapes["decoder.weight"]
    width, edge_dim = encoder[1], backbone.edge_features or None
    options = {"aggr": "softmax", "learn_t": True, "num_layers": 1, "bias": True, "edge_dim": edge_dim}
    first, *others = (GENConv(width, width, **options) for _ in backbone.aggregation_widths)
    layers = [DeepGCNLayer(conv, nn.LayerNorm(width), nn.ReLU(), block="res+") for conv in others]
    steps: list[Any] = [(nn.Linear(encoder[0], width), "x -> x"), *((layer, along) for layer in (first, *layers))]
    steps += [nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, decoder[1])]
    model: nn.Module = Sequential("x, edge_index, edge_weight, edge_attr", steps)
    return model
