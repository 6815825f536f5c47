"""Modules of one's own without their dead hidden units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from own_models import LAYERS, Normed
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GIN, PNA, GraphSAGE

from aceglt.tickets.narrow import narrowed
from aceglt.tickets.own import forward

X = torch.rand(9, 6, generator=torch.Generator().manual_seed(0))
ARCS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 1, 2], [1, 2, 3, 4, 5, 6, 7, 8, 8, 0]])


def pruned(make: Callable[[], nn.Module], dead: dict[str, tuple[int, list[int]]]) -> nn.Module:
    """A module in which some rows (0) or columns (1) of named weights are dead."""
    torch.manual_seed(0)
    module = make().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]
            part.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    with torch.no_grad():
        for name, (dim, units) in dead.items():
            module.get_parameter(name).index_fill_(dim, torch.tensor(units), 0.0)
    return module


def widths(module: nn.Module, names: list[str]) -> list[tuple[int, ...]]:
    return [tuple(module.get_parameter(name).shape) for name in names]


CASES: dict[str, tuple[Callable[[], nn.Module], dict[str, tuple[int, list[int]]], dict[str, tuple[int, ...]]]] = {
    "sage, batch norm": (
        lambda: Normed(6, 2),
        {"second.lin_l.weight": (1, [1, 4]), "second.lin_r.weight": (1, [1, 4])},
        {"first.lin_l.weight": (4, 6), "first.lin_r.weight": (4, 6), "norm.weight": (4,)},
    ),
    "gcn": (
        lambda: LAYERS["gcn"](6, 2), {"second.lin.weight": (1, [0, 5])},
        {"first.lin.weight": (4, 6), "first.bias": (4,), "second.lin.weight": (2, 4)},
    ),
    "read by one of two": (lambda: Normed(6, 2), {"second.lin_l.weight": (1, [1, 4])}, {"norm.weight": (6,)}),
    "PyG's GraphSAGE": (
        lambda: GraphSAGE(6, 5, 3, 2, norm="batch"),
        {"convs.2.lin_l.weight": (1, [2]), "convs.2.lin_r.weight": (1, [2]), "convs.1.lin_l.weight": (1, [0, 1]),
         "convs.1.lin_r.weight": (1, [0, 1])},
        {"convs.0.lin_l.weight": (3, 6), "convs.1.lin_l.weight": (4, 3), "convs.2.lin_r.weight": (2, 4)},
    ),
    "PyG's GCN, jumping, of which the last is cut": (
        lambda: GCN(6, 5, 2, 2, jk="cat"), {"lin.weight": (1, [3, 8]), "convs.1.lin.weight": (1, [3])},
        {"convs.0.lin.weight": (5, 6), "convs.1.lin.weight": (4, 5), "lin.weight": (2, 9)},
    ),
    "PyG's GIN": (
        lambda: GIN(6, 5, 2, 2, norm="batch"), {"convs.0.nn.lins.1.weight": (1, [0, 3])},
        {"convs.0.nn.lins.0.weight": (3, 6), "convs.0.nn.lins.1.weight": (5, 3)},
    ),
    "residual": (lambda: LAYERS["gcn2"](6, 2), {"leave.weight": (1, [2])}, {"leave.weight": (2, 6)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_dead_units_are_cut_and_outputs_stay(name: str) -> None:
    make, dead, wanted = CASES[name]
    module = pruned(make, dead)
    small, cut = narrowed(module, 6, forward)
    assert dict(zip(wanted, widths(small, list(wanted)), strict=True)) == wanted
    assert (cut > 0) == (sum(map(torch.Tensor.numel, small.parameters())) < sum(p.numel() for p in module.parameters()))
    torch.testing.assert_close(forward(small, X, ARCS), forward(module, X, ARCS), rtol=1e-4, atol=1e-5)


def test_a_printed_module_says_how_wide_its_layers_are() -> None:
    make, dead, _ = CASES["sage, batch norm"]
    small, _ = narrowed(pruned(make, dead), 6, forward)
    assert "(first): SAGEConv(6, 4, aggr=mean)" in repr(small)
    assert "(second): SAGEConv(4, 2, aggr=mean)" in repr(small)


@pytest.mark.parametrize("name", ["gatv2", "transformer", "gat", "PyG's GAT", "PyG's PNA"])
def test_what_cannot_be_cut_stays(name: str) -> None:
    """Attention over units, and layers that reshape: nothing is wrong, though units may stay."""
    made: dict[str, Any] = {
        "PyG's GAT": lambda: GAT(6, 6, 2, 2, heads=2),
        "PyG's PNA": lambda: PNA(
            6, 5, 2, 2, aggregators=["mean", "max"], scalers=["identity"], deg=torch.tensor([1, 5])
        ),
    }
    module = pruned(made.get(name) or (lambda: LAYERS[name](6, 2)), {})
    for parameter_name, parameter in module.named_parameters():
        if parameter.dim() == 2 and parameter.shape[1] == 6 and "second" in parameter_name:
            parameter.data[:, [1, 2]] = 0
    small, _ = narrowed(module, 6, forward)
    found: Tensor = forward(small, X, ARCS)
    torch.testing.assert_close(found, forward(module, X, ARCS), rtol=1e-4, atol=1e-5)
