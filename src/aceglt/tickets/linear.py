"""Products with pruned weights, each on the kernel that is cheapest by its shapes and densities.

Costs are counted and not measured, so a ticket runs on the same kernels in every process. A dense weight of the same
shape gets the same kernel, unless the zeros of the pruned one clearly pay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aceglt.backbones.portable import Linear
from aceglt.backends import kernels
from aceglt.numerics.csr import as_csr, take_columns, to_csr

# What one entry of x costs, in nanoseconds of a core with AVX-512; what counts are the ratios.
_READ, _MULTIPLIED = 0.4, 1 / 44  # in a dense product, and for each unit
_LOADED = 0.4  # a dense weight, however few rows x has
_TRANSPOSED, _ADDED = 1.8, 1 / 22  # in a product with a sparse weight, as is one of the output, and per weight
_GATHERED = 1 / 15  # per unit: a non-zero times a row of weights, or an arc times a row of units
_SEEN, _FOUND = 0.7, 10.0  # to be compared with 0, and what a non-zero costs then
_COPIED, _MOVED = 1.0, 10.0  # with a selection of columns, dense, and a non-zero of a CSR matrix
_STARTED, _SCATTERED = 12.0, 0.85  # a non-zero times a sparse row of weights, and for each of these
_CLEAR = 0.8  # of the time of the simpler way, that the other must take to be chosen
_SPARSE, _SPARSE_ON_GPU = 0.3, 0.03  # share of non-zeros up to which a sparse x may be faster
_BEGUN = 1.5e5  # what it takes to begin with a sparse x
_LIGHT, _LIGHT_ONCE = 1 << 32, 1 << 33  # multiply-adds up to which a GPU, which waits for a look, takes none at x
_LAUNCHED = 1 << 28  # multiply-adds that a GPU does while it is told to select columns
_SAMPLE = 64  # rows of x that say how sparse it is
_COLUMNS = 16  # below which a dense product has a kernel of its own on the CPU
_ROWS = 256  # of x, from which on they are transposed for a sparse weight


class Watched(torch.nn.Parameter):
    """A parameter that counts what is written to its `data` as it counts what is written to itself."""

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]


class PrunedLinear(Linear):
    """h·weight + shift for inference, on a kernel for dense or sparse inputs or weights."""

    places: Tensor | None
    """[in] which of the features its inputs are, where it may be given them all."""

    def __init__(self, weight: Tensor, shift: Tensor | None) -> None:
        super().__init__(weight, shift)
        self.weight = Watched(self.weight.detach(), requires_grad=False)
        self.register_buffer("places", None, persistent=False)
        self.used: list[str] = []
        self._made: dict[str, Any] = {}  # of the weight as it was
        self._made_of: tuple[Any, ...] = ()

    def extra_repr(self) -> str:
        """Inputs and units, of which some may be zeros that kernels are faster with, and the number of non-zeros."""
        alive = self.weight != 0
        sides = zip((alive.any(dim=1), alive.any(dim=0)), self.weight.shape, strict=True)
        shape = [f"{total}" if bool(side.all()) else f"{int(side.sum())} of {total}" for side, total in sides]
        return f"{', '.join(shape)}, non-zero={int(alive.sum())}"

    @property
    def copies(self) -> list[Tensor]:
        """Of the weight, as kernels read it."""
        return [made for made in self._made.values() if isinstance(made, Tensor)]

    def forward(self, blocks: Sequence[Tensor]) -> Tensor:
        out, first, used = self.shift, 0, list[str]()
        for block in blocks:
            kernel, weight = self._choose(block), self._rows(first, block.shape[1])
            if kernel == "dense" and out is not None:
                out = torch.addmm(out, block, weight)  # in one operation, which on a GPU is what takes time
            else:
                part, kernel = self._multiply(kernel, block, weight, first)
                out = part if out is None else part.add_(out)
            used.append(kernel)
            first += block.shape[1]
        self.used = used
        assert out is not None
        return out

    def _choose(self, block: Tensor) -> str:
        units, on_cpu = self.weight.shape[1], block.device.type == "cpu"
        if block.layout == torch.strided:
            if on_cpu and units < _COLUMNS:
                return "narrow"
            return "sparse weight" if on_cpu and self._pays(*block.shape) else "dense"
        each = _STARTED + _SCATTERED * self._alive / max(1, len(self.weight)) if on_cpu else 0.0
        return "sparse both" if on_cpu and each < _CLEAR * _GATHERED * units else "sparse input"

    @property
    def _alive(self) -> int:
        found: int = self._kept("alive", lambda: int(torch.count_nonzero(self.weight)))
        return found

    def _pays(self, rows: int, inputs: int) -> bool:
        """Whether a sparse weight clearly pays for so many rows of dense inputs."""
        return rows >= _ROWS and self._sparse_cost(inputs) < _CLEAR * self._dense_cost(inputs)

    def _dense_cost(self, inputs: int) -> float:
        return inputs * (_READ + _MULTIPLIED * self.weight.shape[1])

    def _sparse_cost(self, inputs: int) -> float:
        return _TRANSPOSED * (inputs + self.weight.shape[1]) + _ADDED * self._alive

    def cost(self, rows: int, inputs: int) -> float:
        """Of a row of so many dense inputs, on the CPU."""
        loaded = _LOADED * inputs * self.weight.shape[1] / max(1, rows)
        return self._sparse_cost(inputs) if self._pays(rows, inputs) else self._dense_cost(inputs) + loaded

    def _multiply(self, kernel: str, block: Tensor, weight: Tensor, first: int) -> tuple[Tensor, str]:
        """The product, and the kernel that it ran on, which is another where this one is not there."""
        by = kernels(block.device.type)
        if kernel == "narrow":
            return by.few_columns(block, weight), kernel
        made, rows = None, f"{first}, {len(weight)}"
        if kernel == "sparse both":
            made = by.sparse_by_sparse(block, self._kept(f"sparse {rows}", lambda: to_csr(weight)))
        elif kernel == "sparse weight":
            made = by.by_sparse(block, self._kept(f"transposed {rows}", lambda: to_csr(weight.t().contiguous())))
        if made is not None:
            return made, kernel
        return by.product(block, weight), "dense" if block.layout == torch.strided else "sparse input"

    def _rows(self, first: int, count: int) -> Tensor:
        """The weight's rows for inputs that are a part of all, all, or all features."""
        if self.places is None or count <= len(self.weight):
            return self.weight if count == len(self.weight) else self.weight[first : first + count]

        def wider() -> Tensor:
            assert self.places is not None
            return self.weight.new_zeros(count, self.weight.shape[1]).index_copy_(0, self.places, self.weight)

        made: Tensor = self._kept(f"all features {count}", wider)
        return made

    def _kept(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made of the weight, until that is another or has been edited in place."""
        weight = self.weight
        version = None if weight.is_inference() else weight._version
        made_of = weight.data_ptr(), version, weight.dtype, weight.device
        if made_of != self._made_of:
            self._made, self._made_of = {}, made_of
        made = self._made  # a pass in another thread may begin anew
        if name not in made:
            made[name] = make()
        return made[name]


def choose_input(
    x: Tensor, features: Tensor, parts: Sequence[PrunedLinear], once: bool = False, spared: float = 0.0
) -> Tensor:
    """The features that are read of x [N, F], dense or CSR as it takes less time to multiply them with the parts'
    weights, and to make them if they serve `once`. Then all of them stay where the parts take them all and a copy of
    some would take longer. `spared` says how many multiplications with arcs per node dense features spare."""
    total, units, whole = x.shape[1], sum(part.weight.shape[1] for part in parts), parts[0].places is not None
    columns = None if len(features) == total else features
    if x.layout != torch.strided:
        sparse = x.values().numel() <= 0.5 * x.numel()
        moved = _MOVED * total < (total - len(features)) * _GATHERED * units
        columns = None if whole and once and not moved else columns
        return _selected(x, columns) if sparse else _selected(x.to_dense(), columns)
    if x.is_cuda:
        sparse, unread = _sparse_on_gpu(x, units, once), len(x) * (total - len(features)) * units
        each = _READ + _MULTIPLIED * units if unread > _LAUNCHED else 0.0
    else:
        dense = sum(part.cost(len(x), total) for part in parts) / max(1, total)
        sparse, each = _sparse_on_cpu(x, units, once, spared / max(1, total), dense)
    if whole and once and _COPIED * len(features) > _CLEAR * each * (total - len(features)):
        columns = None
    if sparse and not once:  # no dense copy, which may be large
        return _selected(_sparse(x), columns)
    x = _selected(x, columns)
    return _sparse(x) if sparse else x.contiguous()


def _sparse_on_gpu(x: Tensor, units: int, once: bool) -> bool:
    return x.numel() * units > (_LIGHT_ONCE if once else _LIGHT) and _density(x) < _SPARSE_ON_GPU


def _sparse_on_cpu(x: Tensor, units: int, once: bool, spared: float, dense: float) -> tuple[bool, float]:
    """Whether x is better made sparse, and what an entry of it costs then; `dense` is what it costs as it is."""
    begun = _BEGUN / max(1, x.numel())
    if _CLEAR * dense < begun:  # not worth a look
        return False, dense
    density = _density(x)
    sparse = begun + _GATHERED * (density * units + spared) + (_SEEN + _FOUND * density if once else 0.0)
    return (True, sparse) if density < _SPARSE and sparse < _CLEAR * dense else (False, dense)


def _density(x: Tensor) -> float:
    """Share of non-zeros of a dense x, by a sample of its rows."""
    sample = x[:: max(1, len(x) // _SAMPLE)]
    return int(torch.count_nonzero(sample)) / max(1, sample.numel())


def _selected(x: Tensor, columns: Tensor | None) -> Tensor:
    if columns is None:
        return x
    if x.layout == torch.strided:
        return x.index_select(1, columns)
    return take_columns(x, torch.zeros(x.shape[1], dtype=torch.bool, device=x.device).index_fill_(0, columns, True))


def _sparse(x: Tensor) -> Tensor:
    """x as CSR by the fastest kernels of its device."""
    made = kernels(x.device.type).nonzeros(x)
    return as_csr(x) if made is None else made
