"""Models as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, Sequential
from torch_geometric.nn import GATConv, GATv2Conv, GCN2Conv, GCNConv, GINConv, SAGEConv, TransformerConv


class Stack(Module):
    """Two layers of a kind."""

    def __init__(self, layer: Callable[[int, int], Module], sizes: tuple[int, int, int], dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second, self.dropout = layer(*sizes[:2]), layer(*sizes[1:]), dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.first(x, edge_index).relu(), self.dropout, self.training)
        return self.second(hidden, edge_index)


class Weighted(Stack):
    """The same with edge weights."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        hidden = F.dropout(self.first(x, edge_index, edge_weight).relu(), self.dropout, self.training)
        return self.second(hidden, edge_index, edge_weight)


class Deep(Module):
    """GCN2Conv, which takes the first layer's outputs too."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.enter, self.leave = Linear(in_features, 6), Linear(6, out_features)
        self.convs = torch.nn.ModuleList([GCN2Conv(6, 0.1, 0.5, 1), GCN2Conv(6, 0.1, shared_weights=False)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = hidden = self.enter(x).relu()
        for conv in self.convs:
            hidden = conv(hidden, first, edge_index).relu()
        return self.leave(hidden)


class Normed(Module):
    """Dropout and batch normalisation: randomness and state."""

    def __init__(self, in_features: int, out_features: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.first, self.norm, self.second = SAGEConv(in_features, 6), BatchNorm1d(6), SAGEConv(6, out_features)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.norm(self.first(x, edge_index)).relu(), self.dropout, self.training)
        return self.second(hidden, edge_index)


class Tied(Module):
    """A weight of two layers, and a layer under two names."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.enter, self.leave = Linear(in_features, 6), Linear(6, out_features)
        self.first, self.second, self.norm = GCNConv(6, 6), GCNConv(6, 6), BatchNorm1d(6)
        self.second.lin.weight = self.first.lin.weight
        self.third, self.last = self.first, self.norm

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.norm(self.first(self.enter(x).relu(), edge_index).relu())
        return self.leave(self.last(self.third(self.second(hidden, edge_index).relu(), edge_index)))


class NoPyG(Module):
    """No message-passing layer: the weighted adjacency matrix by hand, normalised with its degrees."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.map = Linear(in_features, out_features)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        degree = x.new_ones(len(x)).index_add(0, edge_index[1], edge_weight)
        values = edge_weight / (degree[edge_index[0]] * degree[edge_index[1]]).sqrt()
        z = self.map(x)
        return z + torch.zeros_like(z).index_add(0, edge_index[1], values[:, None] * z[edge_index[0]])


def gin(i: int, o: int) -> GINConv:
    return GINConv(Sequential(Linear(i, o)), train_eps=True)


def stack(layer: Callable[..., Module], **options: Any) -> Callable[[int, int], Module]:
    return lambda i, o: Stack(lambda a, b: layer(a, b, **options), (i, 6, o))


LAYERS: dict[str, Callable[[int, int], Module]] = {
    "gcn": stack(GCNConv),
    "gcn weighted": lambda i, o: Weighted(GCNConv, (i, 6, o)),
    "sage": stack(SAGEConv),
    "sage max": stack(SAGEConv, aggr="max"),
    "gat": stack(GATConv),
    "gatv2": stack(GATv2Conv),
    "transformer": stack(TransformerConv),
    "gin": stack(gin),
    "gcn2": Deep,
    "normed": Normed,
    "tied": Tied,
    "by hand": NoPyG,
}
