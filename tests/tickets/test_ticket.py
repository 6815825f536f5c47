"""Tickets: exact files, and graphs without the dead edges."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from search_samples import bits_flipped, graph, search

import aceglt
from aceglt.backbones import Params
from aceglt.config import Config
from aceglt.config.formats import FORMAT
from aceglt.errors import DataError, TicketError
from aceglt.files import tensors as storage
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks
from aceglt.tickets.ticket import Ticket


@pytest.fixture(scope="module")
def found() -> Ticket:
    """A ticket of a search; its masks differ from its neighbours'."""
    return search(tickets="all").tickets[-1]


def _made(edges: list[bool], weights: list[bool], data: Any, directed: bool = False) -> Ticket:
    """A ticket with these masks, for this graph."""
    masks = Masks(torch.tensor([weights]), torch.tensor([edges]))
    values = torch.arange(1.0, len(weights) + 1).unsqueeze(0)
    of = Graph.from_edge_index(data.edge_index, data.num_nodes, directed)
    return Ticket(
        config=Config(dataset="mine", seeds=(3,)),
        seed=3,
        level=1,
        masks=masks,
        initial=Params(values * masks.weights, torch.tensor([[0.5]])),
        trained=Params(-values * masks.weights, torch.tensor([[0.25]])),
        metrics={"val": 0.5, "test": None, "dense_val": 0.25, "dense_test": None},
        sizes={"in_features": 2, "out_features": 2, "macs": 5, "dense_macs": 9},
        graph=of,
        fingerprint=of.fingerprint,
    )


def _assert_equal(one: Ticket, other: Ticket) -> None:
    plain = ("config", "seed", "level", "metrics", "sizes")
    assert [getattr(one, name) for name in plain] == [getattr(other, name) for name in plain]
    assert one.graph.fingerprint == other.graph.fingerprint
    for part, names in (("masks", ("weights", "edges")), ("initial", ("prunable", "other")), ("trained", ("prunable", "other"))):  # noqa: E501  # fmt: skip
        for name in names:
            a, b = (getattr(getattr(ticket, part), name) for ticket in (one, other))
            assert a.dtype == b.dtype
            assert a.equal(b), (part, name)


def _square() -> Any:
    """Four nodes, five edges in both directions."""
    edges = torch.tensor([[0, 0, 0, 1, 2], [1, 2, 3, 2, 3]])
    data = graph()
    data.edge_index, data.x, data.y = torch.cat([edges, edges.flip(0)], dim=1), torch.rand(4, 2), torch.tensor([0, 1] * 2)  # noqa: E501  # fmt: skip
    for name in ("train_mask", "val_mask", "test_mask"):
        del data[name]
    return data


def _pairs(edge_index: torch.Tensor) -> list[tuple[int, ...]]:
    return sorted(map(tuple, edge_index.T.tolist()))


def test_a_saved_ticket_comes_back_exactly(found: Ticket, tmp_path: Path) -> None:
    found.save(tmp_path / "ticket")
    _assert_equal(Ticket.load(tmp_path / "ticket"), found)


def test_saving_a_loaded_ticket_gives_the_same_bytes(found: Ticket, tmp_path: Path) -> None:
    found.save(tmp_path / "one")
    Ticket.load(str(tmp_path / "one")).save(str(tmp_path / "two"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=5, max_size=5), st.lists(st.booleans(), min_size=1, max_size=20))
def test_any_masks_come_back_exactly(edges: list[bool], weights: list[bool]) -> None:
    ticket = _made(edges, weights, _square())
    with tempfile.TemporaryDirectory() as folder:
        ticket.save(Path(folder) / "ticket")
        _assert_equal(Ticket.load(Path(folder) / "ticket"), ticket)


def test_sparsities_are_the_shares_of_dead_elements() -> None:
    ticket = _made([True, False, True, True, True], [False, False, False, True], _square())
    assert ticket.model_sparsity == 0.75
    assert ticket.graph_sparsity == pytest.approx(0.2)


def test_dead_weights_are_stored_nowhere(found: Ticket, tmp_path: Path) -> None:
    found.save(tmp_path / "ticket")
    alive = found.masks.alive.weights
    assert alive < found.masks.total.weights
    with safe_open(tmp_path / "ticket", framework="pt") as file:
        sizes = {name: file.get_tensor(name).numel() for name in file.keys()}  # noqa: SIM118
    assert sizes["initial.prunable"] == sizes["trained.prunable"] == alive
    assert sizes.pop("edges") == 2 * found.masks.total.edges
    assert sum(sizes.values()) == 2 * alive + (found.masks.total.weights + 7) // 8 + (found.masks.total.edges + 7) // 8


def test_weights_that_are_dead_but_not_zero_do_not_reach_the_file(tmp_path: Path) -> None:
    ticket = _made([True] * 5, [True, False, True], _square())
    dirty = replace(ticket, trained=Params(torch.full((1, 3), 7.0), ticket.trained.other))
    dirty.save(tmp_path / "ticket")
    assert Ticket.load(tmp_path / "ticket").trained.prunable.tolist() == [[7.0, 0.0, 7.0]]


def test_apply_removes_exactly_the_dead_edges_in_both_directions() -> None:
    data = _square()
    pruned = _made([True, False, True, True, False], [True], data).apply(data)
    assert _pairs(pruned.edge_index) == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 1), (3, 0)]


def test_apply_keeps_the_rest_of_the_data_and_the_data_itself() -> None:
    data = _square()
    data.note, before = "mine", data.edge_index.clone()
    pruned = _made([False] * 4 + [True], [True], data).apply(data)
    assert data.edge_index.equal(before)
    assert pruned.x is data.x
    assert pruned.y is data.y
    assert pruned.note == "mine"
    assert pruned.num_nodes == 4
    assert type(pruned) is type(data)


def test_apply_filters_what_the_data_says_about_edges() -> None:
    data = _square()
    data.edge_attr = torch.arange(10.0)
    pruned = _made([True, False, True, True, False], [True], data).apply(data)
    assert pruned.edge_attr.tolist() == [0.0, 2.0, 3.0, 5.0, 7.0, 8.0]


def test_apply_keeps_the_order_of_edges_and_drops_self_loops() -> None:
    data = _square()
    data.edge_index = torch.cat([torch.tensor([[3], [3]]), data.edge_index.flip(1)], dim=1)
    pruned = _made([True, False, True, True, True], [True], data).apply(data)
    alive = [pair for pair in map(tuple, data.edge_index.T.tolist()) if pair not in ((0, 2), (2, 0), (3, 3))]
    assert list(map(tuple, pruned.edge_index.T.tolist())) == alive


def test_apply_lists_an_edge_once_in_each_direction_however_the_data_does() -> None:
    """One-way arcs get their reverse, repetitions are one, and what the data says about edges goes with them."""
    data = _square()
    data.edge_index = torch.tensor([[0, 2, 0, 2, 3, 0], [1, 0, 3, 1, 2, 1]])
    data.edge_weight, data.kind = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 0.5]), torch.arange(6)
    pruned = _made([True, False, True, True, True], [True], data).apply(data)
    found = {
        pair: (weight, kind)
        for pair, weight, kind in zip(
            map(tuple, pruned.edge_index.T.tolist()), pruned.edge_weight.tolist(), pruned.kind.tolist(), strict=True
        )
    }
    once = {(0, 1): (1.5, 0), (0, 3): (3.0, 2), (1, 2): (4.0, 3), (2, 3): (5.0, 4)}
    assert found == once | {(b, a): value for (a, b), value in once.items()}
    assert pruned.edge_index.shape == (2, 8)


def test_what_is_no_graph_is_refused_in_one_line(found: Ticket) -> None:
    for other in ("citeseer", None, graph().x):
        with pytest.raises(DataError, match=f"found {type(other).__name__}; see datasets.load"):
            found.predict(other)


def test_apply_to_a_directed_graph_removes_arcs_one_by_one() -> None:
    data = _square()
    data.edge_index = torch.tensor([[0, 1, 2], [1, 0, 3]])
    pruned = _made([True, False, True], [True], data, directed=True).apply(data)
    assert _pairs(pruned.edge_index) == [(0, 1), (2, 3)]


def test_a_ticket_of_a_search_applies_to_its_graph(found: Ticket) -> None:
    data = graph()
    pruned = found.apply(data)
    assert pruned.edge_index.shape[1] == 2 * found.masks.alive.edges < data.edge_index.shape[1]
    assert pruned.is_undirected()


def test_another_graph_is_refused_with_both_sizes(found: Ticket) -> None:
    with pytest.raises(TicketError) as caught:
        found.apply(_square())
    assert f"24 nodes and {found.masks.total.edges} edges (data)" in str(caught.value)
    assert "4 nodes and 5 edges" in str(caught.value)


def test_a_graph_of_the_same_size_with_another_edge_is_refused() -> None:
    data, other = _square(), _square()
    other.edge_index = torch.tensor([[0, 0, 0, 1, 1], [1, 2, 3, 2, 3]])
    with pytest.raises(TicketError, match="5 edges, and other ones"):
        _made([True] * 5, [True], data).apply(other)


def test_a_ticket_cut_at_any_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ticket"
    _made([True] * 5, [True, False], _square()).save(path)
    content = path.read_bytes()
    for length in range(0, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(TicketError):
            Ticket.load(path)


def test_a_ticket_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ticket"
    _made([True] * 5, [True, False], _square()).save(path)
    for i, damaged in enumerate(bits_flipped(path.read_bytes())):
        if i % 41 == 0:
            path.write_bytes(damaged)
            with pytest.raises(TicketError):
                Ticket.load(path)


def _forged(change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> None:
    """Write a ticket with changed content and a right checksum; loading it must raise TicketError, or work."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ticket"
        _made([True, False, True, True, True], [True, False, True], _square()).save(path)
        payload, tensors = storage.read_tensors(path, "ticket", FORMAT, TicketError)
        change(payload, tensors)
        storage.write_tensors(path, "ticket", FORMAT, payload, tensors)
        Ticket.load(path)


@pytest.mark.parametrize("name", ["config", "seed", "level", "metrics", "sizes", "graph", "counts"])
@pytest.mark.parametrize("value", [None, [], "x", 10**400, {"a": 1}])
def test_a_forged_payload_is_refused(name: str, value: Any) -> None:
    if name in ("seed", "level") and value == 10**400:
        return  # a whole number, however big
    with pytest.raises(TicketError):
        _forged(lambda payload, _: payload.update({name: value}))


@pytest.mark.parametrize("name", ["config", "seed", "level", "metrics", "sizes", "graph", "counts"])
def test_a_missing_part_is_named(name: str) -> None:
    with pytest.raises(TicketError, match=f"lacks {name}"):
        _forged(lambda payload, _: payload.pop(name))


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("counts", "weights", 9),
        ("counts", "weights", 2**62),
        ("counts", "weights", -3),
        ("counts", "edges", 9),
        ("graph", "num_edges", 6),
        ("graph", "num_nodes", 0),
        ("sizes", "macs", 0),
        ("sizes", "macs", "many"),
        ("metrics", "val", "high"),
        ("metrics", "val", []),
        ("config", "seeds", [[1]]),
        ("config", "method", "unheard"),
        ("config", "unheard", 1),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(part: str, key: str, value: Any) -> None:
    with pytest.raises(TicketError):
        _forged(lambda payload, _: payload[part].update({key: value}))


_NAMES = (
    "masks.weights",
    "masks.edges",
    "initial.prunable",
    "edges",
    "initial.other",
    "trained.prunable",
    "trained.other",
)


@pytest.mark.parametrize("name", _NAMES)
def test_a_missing_tensor_is_named(name: str) -> None:
    with pytest.raises(TicketError, match=f"lacks '{name}'"):
        _forged(lambda _, tensors: tensors.pop(name))


@settings(max_examples=60)
@given(
    st.sampled_from(_NAMES[:3]),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.uint8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64]),
)
def test_a_tensor_of_another_shape_or_kind_is_refused(name: str, shape: list[int], dtype: torch.dtype) -> None:
    right = ([1, 1], torch.uint8) if name.startswith("masks") else ([2], torch.float32)
    if (shape, dtype) == right:
        return
    if dtype.is_floating_point and shape == right[0] and not name.startswith("masks"):
        return  # weights in another precision
    with pytest.raises(TicketError):
        _forged(lambda _, tensors: tensors.update({name: torch.zeros(shape).to(dtype)}))


def test_nothing_but_plain_values_is_in_the_metadata(found: Ticket, tmp_path: Path) -> None:
    found.save(tmp_path / "ticket")
    with safe_open(tmp_path / "ticket", framework="pt") as file:
        payload = json.loads(file.metadata()["payload"])
    assert payload["config"]["dataset"] == "data"
    assert payload["metrics"].keys() == {"val", "test", "dense_val", "dense_test"}


def test_a_missing_ticket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(aceglt.AcegltError, match="no such file"):
        Ticket.load(tmp_path / "nothing")
