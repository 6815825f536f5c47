"""Tickets in use: predictions, graphs that the search never saw, the PyG transform, files that lie."""

from __future__ import annotations

import csv
import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from search_samples import TENSORS, graph, npz
from ticket_samples import BACKBONES, masked_outputs, random_ticket
from torch_geometric.data import Data
from torch_geometric.transforms import Compose, NormalizeFeatures
from typer.testing import CliRunner

from aceglt import ApplyTicket, Ticket
from aceglt.cli import app
from aceglt.config.formats import FORMAT
from aceglt.datasets import GraphData
from aceglt.errors import AcegltError, ConfigError, TicketError
from aceglt.files import tensors as storage
from aceglt.tickets.tables import write_predictions


def _pairs(data: Any) -> set[tuple[int, ...]]:
    return set(map(tuple, data.edge_index.T.tolist()))


def _grown() -> Data:
    """The graph with a new node 24, an edge to it, and an edge between old nodes that was not there."""
    data = graph()
    data.x = torch.cat([data.x, torch.ones(1, 6)])
    known = _pairs(data)
    new = next((a, b) for a in range(24) for b in range(a + 1, 24) if (a, b) not in known)
    edges = torch.tensor([[0, new[0]], [24, new[1]]])
    data.edge_index = torch.cat([data.edge_index, edges, edges.flip(0)], dim=1)
    return data


def test_unseen_edges_stay_or_go_and_dead_ones_go() -> None:
    ticket, old, grown = random_ticket(alive=0.5), graph(), _grown()
    alive = _pairs(ticket.apply(old))
    new = _pairs(grown) - _pairs(old)
    assert len(new) == 4
    kept, dropped = (ticket.apply(grown, unseen=policy) for policy in ("keep", "drop"))
    assert _pairs(kept) == alive | new
    assert _pairs(dropped) == alive
    assert kept.num_nodes == dropped.num_nodes == 25


def test_an_unseen_graph_is_an_error_unless_asked() -> None:
    with pytest.raises(TicketError, match=r"this one has 25 nodes .* unseen='keep' or 'drop'"):
        random_ticket().apply(_grown())


def test_edges_of_new_nodes_are_never_taken_for_old_ones() -> None:
    """(0, 25) of a graph with 26 nodes has the number that (1, 1) would have among 24; it must count as unseen."""
    data = graph()
    data.x = torch.rand(27, 6)
    data.edge_index = torch.cartesian_prod(torch.arange(27), torch.arange(24, 27)).T
    ticket = random_ticket(alive=0.0)
    listed = {(a, b) for a, b in _pairs(data) if a != b}
    assert _pairs(ticket.apply(data, "keep")) == listed | {(b, a) for a, b in listed}
    assert _pairs(ticket.apply(data, "drop")) == set()


def test_a_part_of_the_graph_is_refused() -> None:
    small = graph()
    small.x, small.edge_index = small.x[:20], torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(TicketError, match="apply the ticket before taking a part"):
        random_ticket().apply(small, unseen="keep")


def test_an_unknown_policy_is_refused() -> None:
    for attempt in (lambda: random_ticket().apply(graph(), "guess"), lambda: ApplyTicket(random_ticket(), "guess")):
        with pytest.raises(ConfigError, match=r"'guess'.*error, keep, drop"):
            attempt()


def test_a_ticket_is_a_transform() -> None:
    ticket, data = random_ticket(alive=0.5), graph()
    before = data.edge_index.clone()
    out = Compose([NormalizeFeatures(), ApplyTicket(ticket)])(data)
    assert _pairs(out) == _pairs(ticket.apply(data))
    torch.testing.assert_close(out.x.sum(dim=1), torch.ones(24))
    assert data.edge_index.equal(before)
    assert "graph sparsity" in repr(ApplyTicket(ticket))


def test_a_loaded_dataset_is_pruned_like_a_data() -> None:
    ticket, data = random_ticket(alive=0.5), graph()
    loaded = GraphData("tiny", *(getattr(data, name) for name in TENSORS))
    pruned = ticket.apply(loaded)
    assert isinstance(pruned, GraphData)
    assert pruned.edge_index.equal(ticket.apply(data).edge_index)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_predictions_are_the_masked_models(backbone: str) -> None:
    ticket, data = random_ticket(backbone, 0.5), graph()
    torch.testing.assert_close(ticket.predict(data), masked_outputs(ticket, data.x).softmax(dim=-1))


def test_predictions_are_for_unseen_nodes_too() -> None:
    ticket = random_ticket(alive=0.7)
    kept, dropped = (ticket.predict(_grown(), unseen=policy) for policy in ("keep", "drop"))
    assert kept.shape == dropped.shape == (25, 2)
    assert not kept[24].equal(dropped[24])


def test_the_csv_has_a_line_per_node(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.csv", torch.tensor([[0.25, 0.75], [0.5, 0.5]]))
    rows = list(csv.reader((tmp_path / "p.csv").read_text().splitlines()))
    assert rows == [
        ["node", "predicted", "probability_0", "probability_1"], ["0", "1", "0.25", "0.75"], ["1", "0", "0.5", "0.5"],
    ]  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    random_ticket(alive=0.5).save(tmp_path / "ticket")
    return tmp_path / "ticket"


def _run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output


def test_predict_writes_the_predictions(saved: Path, tmp_path: Path) -> None:
    code, _ = _run("predict", saved, "--out", tmp_path / "p.csv", "--dataset", npz(tmp_path), "--device", "cpu")
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    wanted = Ticket.load(saved).predict(graph())
    assert [int(row["predicted"]) for row in rows] == wanted.argmax(dim=1).tolist()
    assert [float(row["probability_1"]) for row in rows] == pytest.approx(wanted[:, 1].tolist(), abs=1e-5)


def test_a_refused_prediction_leaves_no_file_and_one_line(saved: Path, tmp_path: Path) -> None:
    other = npz(tmp_path, edge_index=torch.tensor([[0, 1], [1, 2]]))
    for extra in ([], ["--dataset", other], ["--dataset", other, "--unseen", "guess"]):
        code, text = _run("predict", saved, "--out", tmp_path / "p.csv", "--device", "cpu", *extra)
        assert code == 2
        assert text.count("\n") == 1
        assert text.startswith("error: ")
        assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize("command", ["predict", "bench", "export", "evaluate", "show"])
@pytest.mark.parametrize("damage", ["cut", "flip", "version", "pickle", "other"])
def test_a_damaged_ticket_is_refused_by_every_command(command: str, damage: str, saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    if damage == "version":
        payload, tensors = storage.read_tensors(saved, "ticket", FORMAT, TicketError)
        storage.write_tensors(saved, "ticket", 99, payload, tensors)
    elif damage == "pickle":
        torch.save({"a": 1}, saved)
    else:
        flipped = content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]
        saved.write_bytes({"cut": content[: len(content) // 2], "flip": flipped, "other": b"{}"}[damage])
    out = {"predict": ["--out", tmp_path / "p.csv"], "export": [tmp_path / "out"]}.get(command, [])
    code, text = _run(command, saved, *out)
    assert (code, text.count("\n")) == (2, 1)
    assert text.startswith(f"error: {saved}: ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ticket"]


def _forge(path: Path, **changes: Any) -> None:
    """Change the payload and write it with a right checksum; "a.b" is b in a."""
    payload, tensors = storage.read_tensors(path, "ticket", FORMAT, TicketError)
    for name, value in changes.items():
        part, _, key = name.partition("__")
        if part == "tensor":
            tensors[key.replace("_", ".", 1)] = value
        else:
            payload[part][key] = value
    storage.write_tensors(path, "ticket", FORMAT, payload, tensors)


HUGE = 10**15


@pytest.mark.parametrize(
    "lie",
    [
        {"config__hidden": HUGE},
        {"sizes__in_features": HUGE},
        {"sizes__out_features": HUGE},
        {"graph__num_nodes": HUGE},
        {"graph__num_nodes": 2**31 - 1},
        {"graph__num_edges": HUGE},
        {"counts__weights": HUGE},
        {"counts__edges": HUGE},
        {"config__hidden": 7},
        {"config__backbone": "gat"},
        {"graph__directed": True},
        {"graph__fingerprint": "0" * 32},
        {"tensor__edges": torch.full((2, 40), 10**6, dtype=torch.int32)},
        {"tensor__edges": torch.zeros(2, 1, dtype=torch.int32)},
        {"tensor__trained_other": torch.zeros(3)},
    ],
    ids=str,
)
def test_a_ticket_that_lies_is_refused_before_anything_big_is_made(saved: Path, lie: dict[str, Any]) -> None:
    _forge(saved, **lie)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AcegltError) as caught:
        Ticket.load(saved).model()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
    assert "\n" not in str(caught.value)


def test_a_payload_of_endless_brackets_is_refused(saved: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save

    with safe_open(saved, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for text in ("[" * 100_000, "not json", "[1]", json.dumps(None)):
        forged = {**metadata, "payload": text, "sha256": storage._digest(text, tensors)}
        saved.write_bytes(save(tensors, forged))
        with pytest.raises(TicketError):
            Ticket.load(saved)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value: float, saved: Path) -> None:
    ticket = Ticket.load(saved)
    bad = ticket.trained.prunable.masked_fill(ticket.masks.weights, value)
    replace(ticket, trained=replace(ticket.trained, prunable=bad)).save(saved)
    with pytest.raises(TicketError, match="the trained weights are not finite"):
        Ticket.load(saved)


def test_a_ticket_of_the_users_own_model_says_what_it_needs() -> None:
    ticket = random_ticket(alive=0.5)
    own = replace(ticket, config=ticket.config.replace(backbone="mine:Model"))
    assert own.apply(graph()).num_edges < graph().num_edges
    for attempt in (own.model, lambda: own.predict(graph()), lambda: own.export("nowhere")):
        with pytest.raises(TicketError, match="mine:Model; to run that code, name it again"):
            attempt()


def test_several_labels_are_predicted_each_by_itself(tmp_path: Path) -> None:
    ticket, data = replace(random_ticket(), several=True), graph()
    ticket.save(tmp_path / "ticket")
    probabilities = Ticket.load(tmp_path / "ticket").predict(data)
    torch.testing.assert_close(probabilities, masked_outputs(ticket, data.x).sigmoid())
    write_predictions(tmp_path / "out.csv", torch.tensor([[0.9, 0.8], [0.2, 0.1]]), several=True)
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["0,0 1,0.9,0.8", "1,,0.2,0.1"]
