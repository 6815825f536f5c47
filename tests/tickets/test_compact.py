"""The compact model gives what the masked model gives, with less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from search_samples import graph
from ticket_samples import BACKBONES, DEEP, alive_arcs, assert_close, masked_outputs, random_ticket
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from aceglt.backbones import portable
from aceglt.backbones.portable import LayerSpec, TicketModel
from aceglt.errors import DataError
from aceglt.numerics.masks import Masks
from aceglt.tickets.compact import CompactModel
from aceglt.tickets.shrink import shrink


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def tolerance(request: pytest.FixtureRequest) -> Iterator[float]:
    """The design's relative tolerance, with its type as the default."""
    torch.set_default_dtype(request.param)
    yield 1e-9 if request.param == torch.float64 else 1e-5
    torch.set_default_dtype(torch.float32)


def features(density: float) -> Tensor:
    x = graph().x.to(torch.get_default_dtype())
    return x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < density)


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("alive", [0.0, 0.04, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("backbone", [*BACKBONES, *DEEP])
def test_outputs_are_those_of_the_masked_model(backbone: str, alive: float, density: float, tolerance: float) -> None:
    ticket, x = random_ticket(backbone, alive), features(density)
    arcs, wanted = alive_arcs(ticket), masked_outputs(ticket, x)
    assert_close(ticket.model()(x, arcs), wanted, tolerance)
    layers = shrink(ticket.backbone().layers(ticket.trained_weights()))
    assert_close(TicketModel(*layers, ticket.backbone().coefficients)(x, arcs), wanted, tolerance)


def test_weights_that_are_loaded_into_a_model_that_has_run_are_used() -> None:
    first = torch.cat([torch.zeros(10, 32), torch.ones(50, 32)])  # some features are unread
    layers = [LayerSpec(weight=first, widths=(32,), activation="relu"), LayerSpec(torch.ones(32, 3), (3,))]
    model, x, arcs = CompactModel(layers, "symmetric"), torch.ones(5, 60), torch.tensor([[0, 1], [1, 0]])
    before = model(x, arcs)
    model.load_state_dict(
        {name: 2 * part if part.is_floating_point() else part for name, part in model.state_dict().items()}
    )
    assert_close(model(x, arcs), 4 * before, 1e-5)


class Operations(TorchDispatchMode):
    """Counts what torch is told to do: on a GPU, a launch each."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backbone", [*BACKBONES, *DEEP])
def test_a_pass_takes_no_more_operations_than_one_of_the_dense_model(backbone: str) -> None:
    ticket, x = random_ticket(backbone, 0.3), features(1.0)
    counts = []
    for one in (replace(ticket, masks=Masks.full(1, ticket.masks.total)), ticket):
        model, arcs = one.model(), alive_arcs(one)
        with Operations() as operations:
            model(x, arcs)
        counts.append(operations.count)
    assert counts[1] <= counts[0]


@pytest.mark.parametrize("backbone", [*BACKBONES, *DEEP])
@pytest.mark.usefixtures("double")
def test_sparse_features_give_the_same(backbone: str) -> None:
    ticket, x = random_ticket(backbone, 0.3), features(0.2)
    model, arcs, wanted = ticket.model(), alive_arcs(ticket), masked_outputs(ticket, x)
    assert_close(model(x.to_sparse_csr(), arcs), wanted, 1e-9)
    assert "sparse input" in model.kernels.values()
    assert_close(model.run(model.prepare(x.to_sparse_csr(), arcs)), wanted, 1e-9)


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize(
    ("backbone", "alive", "hidden"), [("gcn", 0.3, 6), ("sage", 0.2, 6), ("gat", 0.1, 4), ("resgcn", 0.3, 6)]
)
def test_a_few_unread_features_go_where_inputs_are_prepared(
    backbone: str, alive: float, hidden: int, density: float
) -> None:
    ticket, x = random_ticket(backbone, alive, hidden=hidden), features(density)
    model, arcs, wanted = ticket.model(), alive_arcs(ticket), masked_outputs(ticket, x)
    prepared = model.prepare(x, arcs)
    assert (prepared.x.shape[1], x.shape[1]) == (5, 6)
    for made in (model(x, arcs), model(x.to_sparse_csr(), arcs), model.run(prepared)):
        assert_close(made, wanted, 1e-5)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_model_in_half_precision_runs_on_a_cpu(backbone: str) -> None:
    ticket, x = random_ticket(backbone, 0.3), features(0.5)
    arcs, wanted = alive_arcs(ticket), masked_outputs(ticket, x)
    for given in (x.half(), x.half().to_sparse_csr()):
        difference = ticket.model().half()(given, arcs).float() - wanted
        assert float(difference.norm() / wanted.norm()) < 0.01


def test_widths_that_kernels_like_change_no_outputs() -> None:
    ticket, x = random_ticket("gcn", 0.3, hidden=60), features(1.0)
    layers = ticket.backbone().layers(ticket.trained_weights())
    (_, narrow), (_, aligned) = shrink(layers), shrink(layers, aligned=True)
    assert narrow[0].weight.shape[1] % 16 != 0
    assert aligned[0].weight.shape[1] - narrow[0].weight.shape[1] in range(1, 16)
    assert aligned[0].weight.shape[1] % 16 == 0
    assert_close(ticket.model()(x, alive_arcs(ticket)), masked_outputs(ticket, x), 1e-5)


def test_units_that_nobody_reads_and_features_without_weights_are_gone() -> None:
    first, second = torch.rand(4, 3), torch.rand(3, 2)
    second[1] = 0  # nobody reads unit 1
    first[2, [0, 2]] = 0  # and only unit 1 reads feature 2
    read, layers = shrink([LayerSpec(first, (3,), "relu"), LayerSpec(second, (2,))])
    assert read.tolist() == [0, 1, 3]
    assert layers[0].weight.equal(first[[0, 1, 3]][:, [0, 2]])
    assert layers[1].weight.equal(second[[0, 2]])


def test_units_without_inputs_become_a_shift_of_the_next_layer() -> None:
    first, second, bias = torch.rand(4, 3), torch.rand(3, 2), torch.tensor([1.0, 2.0, -3.0])
    first[:, 1] = 0
    _, layers = shrink([LayerSpec(first, (3,), "relu", bias=bias), LayerSpec(second, (2,))])
    assert layers[0].widths == (2,)
    assert layers[1].shift is not None
    torch.testing.assert_close(layers[1].shift, 2.0 * second[1])


def test_a_head_without_units_goes_with_its_attention() -> None:
    ticket = random_ticket("gat", 1.0)
    specs = ticket.backbone().layers(ticket.trained_weights())
    second = specs[1].weight.clone()
    second[8:16] = 0  # the second head's units
    attention = torch.zeros(64, 2)
    layers = shrink([specs[0], LayerSpec(second, (2,), attention=attention)])[1]
    assert layers[0].widths == (8,) * 7
    assert layers[0].attention is not None
    assert layers[0].attention.shape == (6, 14)


def test_fewer_weights_are_multiplied_as_the_ticket_gets_sparser() -> None:
    sizes = [sum(p.numel() for p in random_ticket("gcn", alive).model().parameters()) for alive in (1.0, 0.3, 0.1)]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize("backbone", BACKBONES)
def test_edges_may_be_listed_once_twice_or_with_self_loops(backbone: str) -> None:
    ticket, x = random_ticket(backbone, 0.5), features(1.0)
    model, arcs = ticket.model(), alive_arcs(ticket)
    once = ticket.graph.edges[:, ticket.masks.edges[0]]
    loops = torch.tensor([[3, 3], [3, 3]])
    for listing in (once, once.flip(0), torch.cat([loops, arcs.flip(1), once], dim=1)):
        torch.testing.assert_close(model(x, listing), model(x, arcs))


def test_directed_arcs_stay_directed() -> None:
    weight = torch.eye(2)
    model = CompactModel([LayerSpec(weight, (2,))], "mean", directed=True)
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert model(x, torch.tensor([[0], [1]])).tolist() == [[0.0, 0.0], [1.0, 2.0]]


def test_weights_of_edges_must_be_there_and_agree_in_both_directions() -> None:
    model = CompactModel([LayerSpec(torch.eye(2), (2,))], "mean", weighted=True)
    x, arcs = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0, 1], [1, 0]])
    assert model(x, arcs, torch.tensor([0.5, 0.5])).tolist() == [[1.5, 2.0], [0.5, 1.0]]
    with pytest.raises(DataError, match=r"edge_weight must have shape \[2\], found none"):
        model(x, arcs)
    with pytest.raises(DataError, match="differs between its two directions"):
        model(x, arcs, torch.tensor([0.5, 0.25]))
    with pytest.raises(DataError, match="names node 2"):
        model(x, arcs + 1, torch.tensor([0.5, 0.5]))


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
def test_compiling_a_model_leaves_it_as_it_is_and_an_exported_one_is_one_graph(tmp_path: Path) -> None:
    ticket, x = random_ticket("gat", 0.5), features(1.0)
    arcs, wanted = alive_arcs(ticket), masked_outputs(ticket, x)
    assert_close(torch.compile(ticket.model(), backend="eager")(x, arcs), wanted, 1e-5)
    plain, _ = portable.load(ticket.export(tmp_path / "served") / "ticket.pt")
    assert_close(torch.compile(plain, backend="eager", fullgraph=True)(x, arcs), wanted, 1e-5)


def test_prepared_inputs_give_the_same_any_number_of_times() -> None:
    ticket, x = random_ticket(), features(0.2)
    model, arcs = ticket.model(), alive_arcs(ticket)
    inputs = model.prepare(x, arcs)
    first = model.run(inputs)
    assert model.run(inputs).equal(first)
    torch.testing.assert_close(model(x, arcs), first)


@pytest.mark.parametrize("shape", [(24, 5), (24,)])
def test_other_features_are_refused(shape: tuple[int, ...]) -> None:
    ticket = random_ticket()
    with pytest.raises(DataError, match="reads 6 features per node"):
        ticket.model()(torch.zeros(shape), alive_arcs(ticket))


def test_a_model_moves_to_another_type() -> None:
    ticket, x = random_ticket("gat", 0.5), features(0.2)
    model, arcs = ticket.model(), alive_arcs(ticket)
    before = model(x, arcs)
    after = model.double()(x, arcs)
    assert after.dtype == torch.float64
    torch.testing.assert_close(after.float(), before)


@pytest.mark.gpu
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.usefixtures("double")
def test_a_gpu_gives_the_same(backbone: str, density: float) -> None:
    ticket, x = random_ticket(backbone, 0.3), features(density)
    out = ticket.model().to("cuda")(x.to("cuda"), alive_arcs(ticket).to("cuda"))
    assert_close(out.cpu(), masked_outputs(ticket, x), 1e-9)
