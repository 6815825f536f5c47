"""The compact form of ResGCN: deep, residual, with a softmax over messages and features of edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from search_samples import graph, search
from ticket_samples import alive_arcs, assert_close, masked_outputs, random_ticket
from torch import Tensor
from torch_geometric.data import Data

from aceglt import Ticket, benchmark
from aceglt.backbones import Params
from aceglt.backbones.portable import BlockSpec, TicketModel
from aceglt.errors import DataError, TicketError
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.tickets.shrink import shrink


@pytest.mark.parametrize("alive", [0.05, 0.5])
def test_28_layers_agree_in_float32(alive: float) -> None:
    ticket, x = random_ticket("resgcn", alive, hidden=32, layers=28), graph().x
    wanted = masked_outputs(ticket, x)
    assert_close(ticket.model()(x, alive_arcs(ticket)), wanted, 1e-4)
    parts = shrink(ticket.backbone().layers(ticket.trained_weights()))
    assert_close(TicketModel(*parts, "softmax")(x, alive_arcs(ticket)), wanted, 1e-4)


@pytest.mark.usefixtures("double")
def test_exponents_that_share_no_shift_agree_too() -> None:
    ticket, x = random_ticket("resgcn", 0.7), graph().x.double()
    hot = ticket.trained.other.clone()
    backbone = ticket.backbone()
    for name, part in backbone.other.split(hot).items():
        if name.endswith("temperature"):
            part.fill_(500.0)
    ticket = replace(ticket, trained=Params(ticket.trained.prunable, hot))
    assert_close(ticket.model()(x, alive_arcs(ticket)), masked_outputs(ticket, x), 1e-9)


def test_features_and_units_go_where_no_norm_needs_them() -> None:
    encoder, first, last = torch.rand(4, 3), torch.rand(3, 3), torch.rand(3, 2)
    first[1] = 0  # nobody reads the encoder's unit 1
    encoder[2, [0, 2]] = 0  # and only unit 1 reads feature 2
    last[0] = 0
    ones, bias = torch.ones(3), torch.arange(3.0)
    blocks = [
        BlockSpec(encoder, bias),
        BlockSpec(first, bias, temperature=torch.ones(1)),
        BlockSpec(last, torch.zeros(2), scale=ones, shift=bias),
    ]
    features, (a, b, c) = shrink(blocks)
    assert features.tolist() == [0, 1, 3]
    assert isinstance(a, BlockSpec)
    assert a.weight.equal(encoder[[0, 1, 3]][:, [0, 2]])
    assert a.bias.tolist() == [0.0, 2.0]
    assert b.weight.equal(first[[0, 2]])  # all its units stay: the norm is over them
    assert isinstance(c, BlockSpec)
    assert c.read is not None
    assert c.read.tolist() == [1, 2]
    assert c.weight.equal(last[1:])


def test_messages_are_never_kept_for_all_arcs_and_units(monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = random_ticket("resgcn", 1.0, hidden=64)
    sizes: list[int] = []
    index = Tensor.__getitem__

    def recorded(self: Tensor, key: object) -> Tensor:
        result = index(self, key)
        sizes.append(result.numel())
        return result

    model, arcs = ticket.model(), alive_arcs(ticket)
    inputs = model.prepare(graph().x, arcs)
    monkeypatch.setattr(Tensor, "__getitem__", recorded)
    model.run(inputs)
    assert max(sizes, default=0) < arcs.shape[1] * 64


def with_edge_features(width: int = 3) -> Data:
    """Both directions of an edge have the same."""
    data = graph()
    low, high = data.edge_index.min(dim=0).values, data.edge_index.max(dim=0).values
    data.edge_attr = torch.stack([(low * (i + 2) + high) % 5 / 5.0 for i in range(width)], dim=1)
    return data


@pytest.fixture(scope="module")
def ticket() -> Ticket:
    """Found on a graph with features of edges."""
    settings = {"backbone": "resgcn", "layers": 3, "method": "random", "levels": 1, "seeds": 1, "epochs": 2}
    return search(with_edge_features(), **settings).tickets[0]


def test_features_of_edges_are_read_as_in_the_search(ticket: Ticket, tmp_path: Path) -> None:
    ticket.save(tmp_path / "ticket")
    ticket = Ticket.load(tmp_path / "ticket")
    data, backbone = with_edge_features(), ticket.backbone()
    assert backbone.edge_features == ticket.model().edge_features == 3
    whole = Graph.from_edge_index(data.edge_index, data.num_nodes, edge_attr=data.edge_attr)
    batch, values = whole.batch(ticket.masks.edges, False), ticket.masks.edges.float()
    wanted = backbone.apply(backbone.weights(ticket.trained), batch, values, Features(data.x))[0]
    pruned = ticket.apply(data)
    assert_close(ticket.model()(pruned.x, pruned.edge_index, edge_attr=pruned.edge_attr), wanted, 1e-5)
    assert_close(ticket.predict(data), wanted.softmax(dim=-1), 1e-5)
    other = ticket.model()(pruned.x, pruned.edge_index, edge_attr=1 - pruned.edge_attr)
    assert not torch.allclose(other, wanted, rtol=1e-3)


def test_features_of_edges_agree_in_float64(ticket: Ticket, request: pytest.FixtureRequest) -> None:
    data, backbone = with_edge_features(), ticket.backbone()
    request.getfixturevalue("double")  # now: what is drawn for a graph depends on the type
    data.x, data.edge_attr = data.x.double(), data.edge_attr.double()
    whole = Graph.from_edge_index(data.edge_index, data.num_nodes, edge_attr=data.edge_attr)
    weights = {name: part.double() for name, part in backbone.weights(ticket.trained).items()}
    batch = whole.batch(ticket.masks.edges, False)
    wanted = backbone.apply(weights, batch, ticket.masks.edges.double(), Features(data.x))[0]
    pruned = ticket.apply(data)
    assert_close(ticket.model().double()(pruned.x, pruned.edge_index, edge_attr=pruned.edge_attr), wanted, 1e-9)


def test_a_benchmark_hands_the_features_of_edges_to_all(ticket: Ticket) -> None:
    result = benchmark(ticket, with_edge_features(), device="cpu", repeats=1)
    assert result["pyg"].parameters == result["dense"].parameters > result["ticket"].parameters


@pytest.mark.parametrize("width", [None, 2])
def test_other_features_of_edges_are_refused(width: int | None, ticket: Ticket) -> None:
    data = graph() if width is None else with_edge_features(width)
    with pytest.raises(DataError, match="the model reads 3 features per edge"):
        ticket.model()(data.x, data.edge_index, edge_attr=data.edge_attr)
    for use in (ticket.predict, lambda data: benchmark(ticket, data, device="cpu", repeats=1)):
        with pytest.raises(DataError, match="the model reads 3 features per edge"):
            use(data)


def test_directions_that_disagree_are_refused(ticket: Ticket) -> None:
    data = with_edge_features()
    data.edge_attr[0] += 1
    with pytest.raises(DataError, match="differs between its two directions"):
        ticket.model()(data.x, data.edge_index, edge_attr=data.edge_attr)


def test_a_model_that_reads_features_of_edges_is_not_exported(ticket: Ticket, tmp_path: Path) -> None:
    with pytest.raises(TicketError, match="reads edge_attr, which a ticket does not hold"):
        ticket.export(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_ticket_with_features_of_edges_for_a_backbone_without_is_refused(tmp_path: Path) -> None:
    wrong = random_ticket("gcn")
    replace(wrong, sizes={**wrong.sizes, "edge_features": 3}).save(tmp_path / "ticket")
    with pytest.raises(TicketError, match="gcn does not read edge_features"):
        Ticket.load(tmp_path / "ticket")
