"""Products with pruned weights: the same on every kernel, and which one it is depends on shapes and densities alone."""

from __future__ import annotations

import pytest
import torch
from ticket_samples import assert_close
from torch import Tensor

from aceglt.numerics.csr import to_csr
from aceglt.numerics.kernels import Kernels
from aceglt.tickets import linear
from aceglt.tickets.linear import PrunedLinear, choose_input


def choose(
    x: Tensor,
    read: Tensor,
    units: int,
    once: bool = False,
    whole: bool = False,
    spared: float = 0.0,
    alive: float = 1.0,
) -> Tensor:
    """As a layer of so many units gets the inputs."""
    layer = PrunedLinear(random(len(read), units, alive), None).to(x.device)
    layer.places = read if whole else None
    return choose_input(x, read, [layer], once, spared)


def random(rows: int, columns: int, density: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    return values * (torch.rand(rows, columns, generator=generator) < density)


@pytest.mark.parametrize("way", ["itself", "data", "other data", "moved"])
def test_copies_follow_a_weight_that_is_written_to(way: str) -> None:
    layer, h = PrunedLinear(random(600, 512, 0.05, 1), None), random(900, 600)
    before = layer([h])
    assert layer.copies
    with torch.no_grad():
        if way == "itself":
            layer.weight.mul_(2)
        elif way == "data":
            layer.weight.data.mul_(2)
        elif way == "other data":
            layer.weight.data = 2 * layer.weight.data
        else:
            layer = layer.double().float()
            layer.weight.data[:] *= 2
    assert_close(layer([h]), 2 * before, 1e-6)
    assert layer.used == ["sparse weight"]


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(
    ("kernel", "units", "alive", "sparse"),
    [
        ("dense", 32, 0.05, False),
        ("dense", 512, 0.5, False),
        ("sparse weight", 512, 0.05, False),
        ("narrow", 7, 0.05, False),
        ("sparse input", 32, 0.01, True),
        ("sparse input", 512, 0.2, True),
        ("sparse both", 512, 0.01, True),
    ],
)
def test_every_kernel_gives_the_same(kernel: str, units: int, alive: float, sparse: bool, shifted: bool) -> None:
    h, weight, shift = random(900, 600, 0.2), random(600, units, alive, 1), random(1, units)[0]
    layer, given = PrunedLinear(weight, shift if shifted else None), h.to_sparse_csr() if sparse else h
    wanted = h @ weight + (shift if shifted else 0)
    assert_close(layer([given]), wanted, 1e-5)
    assert layer.used == [kernel]
    parts = [part.to_sparse_csr() if sparse else part.contiguous() for part in h.split([250, 350], dim=1)]
    assert_close(layer(parts), wanted, 1e-5)
    assert layer.used == [kernel] * 2


@pytest.mark.parametrize(("sparse", "ran"), [(False, "dense"), (True, "sparse input")])
def test_without_a_compiled_kernel_what_ran_in_its_place_is_named(
    sparse: bool, ran: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "kernels", lambda device: Kernels())
    h, layer = random(900, 600, 0.2), PrunedLinear(random(600, 512, 0.01, 1), None)
    assert_close(layer([h.to_sparse_csr() if sparse else h]), h @ layer.weight, 1e-5)
    assert layer.used == [ran]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("units", [7, 32, 512])
def test_sparse_inputs_are_multiplied_in_half_precision(units: int, dtype: torch.dtype) -> None:
    h, weight = random(900, 60, 0.2), random(60, units, 0.05, 1)
    for by in (Kernels(), linear.kernels("cpu")):
        made = by.product(h.to(dtype).to_sparse_csr(), weight.to(dtype))
        assert made.dtype == dtype
        torch.testing.assert_close(made.float(), h @ weight, rtol=0.02, atol=0.05)
    made = PrunedLinear(weight.to(dtype), None)([h.to(dtype).to_sparse_csr()])
    torch.testing.assert_close(made.float(), h @ weight, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("alive", [0.33, 1.0])
def test_zeros_change_the_kernel_only_where_few_weights_are_left(alive: float) -> None:
    h, layers = random(900, 80), [PrunedLinear(random(80, 512, share), None) for share in (1.0, alive)]
    for given in (h, h.to_sparse_csr()):
        for layer in layers:
            layer([given])
        assert layers[0].used == layers[1].used


@pytest.mark.parametrize("alive", [0.01, 1.0])
def test_weights_that_are_edited_in_place_are_used(alive: float) -> None:
    h, layer = random(300, 80, 0.2), PrunedLinear(random(40, 512, alive), None)
    layer.places = torch.arange(0, 80, 2)
    before = layer([h.to_sparse_csr()])
    assert layer.copies
    with torch.no_grad():
        layer.weight.mul_(2)
    assert_close(layer([h.to_sparse_csr()]), 2 * before, 1e-5)
    assert_close(layer([h]), 2 * before, 1e-5)


def test_a_copy_of_weights_that_are_edited_while_it_is_made_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    h, layer = random(300, 80, 0.2).to_sparse_csr(), PrunedLinear(random(80, 512, 0.01), None)

    def slow(weight: Tensor) -> Tensor:
        made = to_csr(weight)
        monkeypatch.undo()
        with torch.no_grad():
            layer.weight.mul_(2)
        layer([h])  # as another thread does
        return made

    monkeypatch.setattr(linear, "to_csr", slow)
    before = layer([h])
    assert layer.used == ["sparse both"]
    assert_close(layer([h]), 2 * before, 1e-5)


def test_a_layer_made_for_inference_alone_multiplies_too() -> None:
    with torch.inference_mode():
        h, layer = random(300, 80, 0.2), PrunedLinear(random(80, 512, 0.01), None)
        assert_close(layer([h.to_sparse_csr()]), h @ layer.weight, 1e-5)


def test_printed_units_are_those_that_have_weights() -> None:
    weight = torch.nn.functional.pad(torch.ones(5, 29), (0, 3))
    assert str(PrunedLinear(weight, None)) == "PrunedLinear(5, 29 of 32, non-zero=145)"


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(
    ("density", "units", "sparse"),
    [(0.01, 512, True), (0.1, 512, True), (0.4, 512, False), (1.0, 512, False), (0.01, 1, False)],
)
def test_features_are_made_sparse_where_that_is_cheaper(density: float, units: int, once: bool, sparse: bool) -> None:
    x, read = random(400, 500, density), torch.arange(500)
    made = choose(x, read, units, once, whole=True)
    assert (made.layout == torch.sparse_csr) == sparse
    assert made.to_dense().equal(x)


def test_few_rows_of_wide_features_read_few_rows_of_the_weight() -> None:
    assert choose(random(6, 4000, 0.01), torch.arange(4000), 512, once=True).layout == torch.sparse_csr
    assert choose(random(6, 40, 0.01), torch.arange(40), 512, once=True).layout == torch.strided


def test_a_sparse_weight_takes_dense_features_where_it_is_cheaper() -> None:
    x, read = random(400, 500, 0.15), torch.arange(500)
    assert choose(x, read, 512, once=True).layout == torch.sparse_csr
    assert choose(x, read, 512, once=True, alive=0.05).layout == torch.strided


def test_features_that_arcs_would_sum_stay_dense() -> None:
    x, read = random(4000, 100, 0.1), torch.arange(100)
    assert choose(x, read, 512).layout == torch.sparse_csr
    assert choose(x, read, 512, spared=1e5).layout == torch.strided


@pytest.mark.parametrize("density", [0.01, 1.0])
def test_for_one_pass_columns_are_selected_where_most_are_unread(density: float) -> None:
    x, few, most = random(400, 500, density), torch.arange(0, 500, 20), torch.arange(1, 500)
    for given in (x, x.to_sparse_csr()):
        made = choose(given, few, 512, once=True, whole=True)
        assert made.to_dense().equal(x[:, few])
        assert choose(given, most, 512, once=True, whole=True).to_dense().equal(x)
        assert choose(given, most, 512, once=True).to_dense().equal(x[:, most])
        assert choose(given, most, 512).to_dense().equal(x[:, most])


@pytest.mark.gpu
def test_a_gpu_takes_features_as_they_are_where_the_product_is_light() -> None:
    x, most, few = random(4000, 500, 0.01).cuda(), torch.arange(1, 500).cuda(), torch.arange(0, 500, 20).cuda()
    assert choose(x, most, 512, once=True, whole=True) is x
    assert choose(x, few, 512, once=True, whole=True).equal(x[:, few])
    assert choose(x, few, 16, once=True, whole=True) is x
    for once in (False, True):
        made = choose(x, most, 1 << 14, once)
        assert made.layout == torch.sparse_csr
        assert made.to_dense().equal(x[:, most])
