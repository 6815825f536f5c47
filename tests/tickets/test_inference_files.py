"""Tickets that are saved for inference: small, and as good as whole ones for all but training."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from search_samples import graph, npz, search
from ticket_samples import random_ticket
from torch_geometric.data import Data
from typer.testing import CliRunner

import aceglt
from aceglt import Ticket
from aceglt.cli import app
from aceglt.config.formats import FORMAT
from aceglt.errors import ConfigError, TicketError
from aceglt.files import tensors as storage


@settings(max_examples=50)
@given(st.sets(st.integers(0, 2**50), max_size=20))
def test_ascending_numbers_come_back(numbers: set[int]) -> None:
    wanted = torch.tensor(sorted(numbers), dtype=torch.int64)
    assert storage.unpack_ascending(storage.pack_ascending(wanted), 2**50 + 1).equal(wanted)


def test_gaps_are_a_byte_up_to_127() -> None:
    packed = storage.pack_ascending(torch.tensor([0, 1, 129, 258, 20_000]))
    assert packed.tolist() == [0, 0, 127, 128, 1, 19741 % 128 + 128, 19741 // 128 % 128 + 128, 19741 // 128**2]


@pytest.mark.parametrize(
    "packed", [[128], [255] * 12 + [0], [0, 0, 0, 0], [127, 127]], ids=["cut", "long", "many", "beyond"]
)
def test_numbers_that_cannot_be_are_refused(packed: list[int]) -> None:
    with pytest.raises(ValueError, match=r"cut or too large|beyond 3"):
        storage.unpack_ascending(torch.tensor(packed, dtype=torch.uint8), 3)


@pytest.mark.parametrize("half", [False, True])
def test_a_file_for_inference_is_smaller_than_dense_weights_by_about_their_sparsity(half: bool, tmp_path: Path) -> None:
    ticket = random_ticket("gcn", 0.05, hidden=4096)
    dense = len(save({"weights": ticket.trained.prunable}))
    ticket.save(tmp_path / "small", parts="inference", half=half)
    alive = ticket.masks.alive.weights
    overhead = 4_000  # of the configuration
    per_weight = (2 if half else 4) + 1.2  # its value, and the gap before it
    assert (tmp_path / "small").stat().st_size < per_weight * alive + overhead < dense / 6


def ring(nodes: int) -> Data:
    one = torch.arange(nodes)
    arcs = torch.cat([torch.stack([one, (one + step) % nodes]) for step in (1, -1, 2, -2)], dim=1)
    part, x = one % 3, torch.rand(nodes, 6, generator=torch.Generator().manual_seed(0))
    masks = {f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))}
    return Data(x=x, y=one % 2, edge_index=arcs, **masks)


def test_edges_of_a_regular_graph_take_less_room_than_small_dense_weights(tmp_path: Path) -> None:
    """Gaps of a byte each would be 20 kB."""
    data = ring(10_000)
    ticket = search(data, method="random", axis="joint", prune_model=0.95, hidden=256, tickets="all").tickets[-1]
    ticket.save(tmp_path / "small", parts="inference")
    dense = len(save(ticket.state_dict()))
    assert (tmp_path / "small").stat().st_size < dense
    small = Ticket.load(tmp_path / "small")
    assert small.graph.edges.equal(ticket.graph.edges[:, ticket.masks.edges[0]])
    assert small.apply(data).edge_index.equal(ticket.apply(data).edge_index)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_packed_bytes_come_back_and_are_refused_where_they_are_more_than_claimed(content: bytes) -> None:
    plain = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.zeros(0, dtype=torch.uint8)
    packed = storage.deflate(plain)
    assert storage.inflate(packed, len(plain)).equal(plain)
    wrong = [(packed, len(plain) - 1), (packed[:-1], len(plain)), (packed[1:], 10**6), (packed.int(), len(plain))]
    for given_, most in wrong[0 if content else 1 :]:
        with pytest.raises(ValueError, match=r"packed bytes"):
            storage.inflate(given_, most)


def test_packed_edges_cannot_claim_more_than_the_graph_has(tmp_path: Path) -> None:
    path = tmp_path / "small"
    random_ticket(alive=0.5).save(path, parts="inference")
    payload, tensors = storage.read_tensors(path, "ticket", FORMAT, TicketError)
    for name in ("edges.gaps", "edges.gaps.packed"):
        tensors.pop(name, None)
    bomb = storage.deflate(torch.zeros(10**8, dtype=torch.uint8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    storage.write_tensors(path, "ticket", FORMAT, payload, {**tensors, "edges.gaps.packed": bomb})
    with pytest.raises(TicketError, match="packed bytes are cut, or more than"):
        Ticket.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_what_is_loaded_does_all_but_training(tmp_path: Path) -> None:
    data, ticket = graph(), search(tickets="all").tickets[-1]
    ticket.save(tmp_path / "small", parts="inference")
    small = Ticket.load(tmp_path / "small")
    assert repr(small) == f"{ticket!r}\nsaved    for inference: without initial weights and dead edges"
    assert small.initial is None
    assert small.graph.num_edges == ticket.masks.alive.edges < ticket.graph.num_edges == small.total.edges
    assert small.apply(data).edge_index.equal(ticket.apply(data).edge_index)
    assert small.predict(data).equal(ticket.predict(data))
    assert aceglt.benchmark(small, data, device="cpu", repeats=1)["dense"].edges == ticket.total.edges
    small.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "small").read_bytes()
    with pytest.raises(TicketError, match="saved for inference, without its initial weights"):
        aceglt.evaluate(small, data, seeds=1, device="cpu")
    with pytest.raises(TicketError, match="cannot tell them from unseen ones"):
        small.apply(data, unseen="keep")
    with pytest.raises(TicketError, match="was found on"):
        small.apply(graph(seed=1))
    assert small.apply(graph(seed=1), unseen="drop").num_edges < graph(seed=1).num_edges


def test_parts_and_precision_are_checked(tmp_path: Path) -> None:
    ticket = random_ticket()
    with pytest.raises(ConfigError, match=r"'some'.*all, inference"):
        ticket.save(tmp_path / "t", parts="some")
    with pytest.raises(ConfigError, match="half precision is for"):
        ticket.save(tmp_path / "t", half=True)
    large = replace(ticket, trained=replace(ticket.trained, other=ticket.trained.other + 1e6))
    if large.trained.other.numel():
        with pytest.raises(ConfigError, match="beyond the range"):
            large.save(tmp_path / "t", parts="inference", half=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "lie",
    [
        {"graph__num_edges": 3}, {"counts__edges": 3}, {"graph__num_nodes": 2}, {"counts__weights": 10},
        {"tensor__edges_gaps": torch.tensor([25], dtype=torch.uint8)},  # a self-loop
    ],
    ids=str,
)  # fmt: skip
def test_a_file_that_lies_is_refused(lie: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "small"
    random_ticket(alive=0.5).save(path, parts="inference")
    payload, tensors = storage.read_tensors(path, "ticket", FORMAT, TicketError)
    for name, value in lie.items():
        part, _, key = name.partition("__")
        if part == "tensor":
            tensors.pop("edges.gaps.packed", None)
            tensors["edges.gaps"] = value
        else:
            payload[part][key] = value
    storage.write_tensors(path, "ticket", FORMAT, payload, tensors)
    with pytest.raises(TicketError):
        Ticket.load(path)


def test_tickets_are_equal_where_their_content_is(tmp_path: Path) -> None:
    one, other = random_ticket(seed=0), random_ticket(seed=1)
    one.save(tmp_path / "one")
    again = Ticket.load(tmp_path / "one")
    assert one == again
    assert hash(one) == hash(again)
    assert one != other
    assert len({one, again, other}) == 2
    assert one != "a ticket"
    assert one != replace(one, metrics={**one.metrics, "val": 0.1})


def test_the_command_writes_a_small_ticket(tmp_path: Path) -> None:
    random_ticket(alive=0.3).save(tmp_path / "ticket")
    arguments = ["export", str(tmp_path / "ticket"), str(tmp_path / "small")]
    outcome = CliRunner().invoke(app, [*arguments, "--format", "ticket", "--half"])
    assert outcome.exit_code == 0, outcome.output
    assert Ticket.load(tmp_path / "small").initial is None
    assert (tmp_path / "small").stat().st_size < (tmp_path / "ticket").stat().st_size
    outcome = CliRunner().invoke(app, [*arguments[:2], str(tmp_path / "out"), "--half"])
    assert (outcome.exit_code, outcome.output.count("\n")) == (2, 1)


def test_link_predictions_are_embeddings_or_scores_of_pairs(tmp_path: Path) -> None:
    data = graph()
    ticket = search(data, task="link", embedding=3, tickets="all", method="random").tickets[-1]
    ticket.save(tmp_path / "ticket")
    (tmp_path / "pairs.csv").write_text("source,target\n0,5\n3,4\n")
    arguments = ["predict", str(tmp_path / "ticket"), "--dataset", str(npz(tmp_path)), "--device", "cpu", "--out"]
    for extra, head, count in ([], "node,embedding_0,embedding_1,embedding_2", 24), (
        ["--pairs", str(tmp_path / "pairs.csv")], "source,target,score", 2
    ):  # fmt: skip
        outcome = CliRunner().invoke(app, [*arguments, str(tmp_path / "out.csv"), *extra])
        assert outcome.exit_code == 0, outcome.output
        lines = (tmp_path / "out.csv").read_text().splitlines()
        assert (lines[0], len(lines)) == (head, count + 1)
    scores = ticket.predict(data, pairs=torch.tensor([[0, 3], [5, 4]]))
    assert [float(line.split(",")[2]) for line in lines[1:]] == pytest.approx(scores.tolist(), rel=1e-4)
    with pytest.raises(ConfigError, match="pairs names node 99"):
        ticket.predict(data, pairs=torch.tensor([[0], [99]]))
    with pytest.raises(ConfigError, match="link prediction, this one is of node"):
        random_ticket().predict(data, pairs=torch.tensor([[0], [1]]))


def test_an_inductive_ticket_knows_its_nodes_without_a_split(tmp_path: Path) -> None:
    """New nodes and edges stay or go as asked; edges that training knew are pruned wherever they are listed."""
    data = graph()
    ticket = search(data, task="inductive", tickets="all").tickets[-1]
    assert ticket.nodes is not None
    assert ticket.nodes.equal((~data.val_mask & ~data.test_mask).nonzero().squeeze(1))
    kept = ticket.apply(data)
    ticket.save(tmp_path / "ticket")
    loaded = Ticket.load(tmp_path / "ticket")
    for name in ("train_mask", "val_mask", "test_mask", "y"):
        del data[name]
    assert loaded.apply(data).edge_index.equal(kept.edge_index)
    dropped = loaded.apply(data, unseen="drop")
    wanted = ticket.nodes[ticket.graph.edges[:, ticket.masks.edges[0]]]
    pairs = set(map(tuple, wanted.T.tolist()))
    assert set(map(tuple, dropped.edge_index.T.tolist())) == pairs | {(b, a) for a, b in pairs}
