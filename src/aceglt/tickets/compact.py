"""The compact model: a ticket's network without what is dead, with the fastest kernel that this machine has for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from aceglt.backbones.portable import SELF_LOOPS, ArcGraph, EdgeMap, Layer, Linear, ResidualBlock, Spec, TicketModel
from aceglt.backends import kernels
from aceglt.errors import DataError
from aceglt.numerics import ops
from aceglt.numerics.csr import as_csr, stored_bytes, take_columns, to_csr
from aceglt.numerics.graph import Graph
from aceglt.problems.checks import check_edges
from aceglt.tickets.shrink import shrink

_TRIALS, _BRIEF = 3, 0.03  # rounds of trials, and seconds that they take together at least
_CLEAR = 0.9  # of the time of the first trial, that another must take to be chosen
_FEW_NODES = 64
_SAMPLE = 256  # rows of x that say how sparse it is
_FEW = 4  # times as many units as features, for these to be summed along arcs, which takes them dense
_FEW_ALIVE = 0.1  # share of non-zeros of a weight from which on no kernel for sparse inputs gains by them
_RARE, _HEAVY = 64, 1 << 33  # one of how many entries, and multiply-adds, for sparse to be faster without a trial
_LIGHT = 1 << 32  # multiply-adds that a GPU has done before it has looked at how sparse x is
_COLUMNS = 64  # up to which it may be better to read a wide block row by row
_SPARSE = 0.5  # share of non-zeros above which no sparse kernel is worth a trial


class Inputs(NamedTuple):
    """Features and graph as a model reads them: made once, used for any number of forward passes."""

    x: Tensor  # [N, F'] dense or CSR
    graph: ArcGraph


class CompactModel(TicketModel):
    """Outputs [N, classes] from all features x [N, F], dense or sparse, and a PyG `edge_index`, as the masked model
    gives them.

    Dead hidden units, features that no alive weight reads and dead edges are not there, but for a few that kernels are
    faster with; of a residual network, whose norms need all hidden units, unread features and units of the encoder.
    What is left of a ticket that was pruned by units is dense. Each product runs on the kernel that was fastest when
    this machine first met its shape. It is for inference; no gradients are kept.

    `edge_index` is read as a search reads it: self-loops and repetitions do not count, and an edge of an undirected
    graph may be listed in one direction or both. It should hold alive edges only; see `Ticket.apply`. A model that is
    `weighted` reads a weight of each listed edge from `edge_weight`, one with `edge_features` so many from `edge_attr`;
    others pay no heed to these.
    """

    def __init__(
        self,
        layers: Sequence[Spec],
        coefficients: str,
        directed: bool = False,
        edge_features: int = 0,
        weighted: bool = False,
        inputs: Tensor | None = None,
    ) -> None:
        """`inputs` [F] bool are the features that the first layer has weights for; None is all."""
        super().__init__(*shrink(layers, inputs, aligned=True), coefficients, MeasuredLinear)
        self.in_features, self.directed = len(layers[0].weight if inputs is None else inputs), directed
        self.edge_features, self.weighted = edge_features, weighted
        first = self.layers[0]
        if getattr(first, "identity", None) is None:  # it would add features by their places among those that are read
            for part in first.modules():
                if isinstance(part, MeasuredLinear):
                    part.places = self.features

    def prepare(
        self,
        x: Any,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Inputs:
        """What `run` reads, made once for any number of passes, from a PyG `Data` or from its tensors: features without
        the dead ones, sparse if that is faster, and the graph with its coefficients."""
        if not isinstance(x, Tensor):
            x, edge_index, edge_weight, edge_attr = parts_of(x)
        return self._inputs(x, edge_index, edge_weight, edge_attr, once=False)

    @torch.no_grad()
    def _inputs(
        self, x: Tensor, edge_index: Tensor | None, edge_weight: Tensor | None, edge_attr: Tensor | None, once: bool
    ) -> Inputs:
        """`once` says that the inputs serve one pass, so that making them counts too."""
        if x.dim() != 2 or x.shape[1] != self.in_features:
            raise DataError(f"the model reads {self.in_features} features per node, x has shape {list(x.shape)}")
        if edge_index is None:
            raise DataError("the model reads x and edge_index, or a Data with both; edge_index is missing")
        first = cast(MeasuredLinear, cast(Layer | ResidualBlock, self.layers[0]).entry)
        x = x.to(first.weight.dtype)
        weight = self._checked_weight(edge_index, edge_weight) if self.weighted else None
        if self.coefficients == "softmax":
            attr = self._checked_attr(edge_index, edge_attr) if self.edge_features else None
            graph: ArcGraph = ArcBatch(edge_index, x.shape[0], self.directed, attr, weight, x.dtype)
        else:
            graph = CsrGraph(edge_index, x.shape[0], self.coefficients, self.directed, weight, x.dtype)
        return Inputs(first.choose_input(x if x.layout == torch.strided else as_csr(x), self.features, once), graph)

    def _checked_weight(self, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        if edge_weight is None or edge_weight.numel() != edge_index.shape[1]:
            found = "none" if edge_weight is None else f"shape {list(edge_weight.shape)}"
            raise DataError(
                f"the model reads weights of edges: edge_weight must have shape [{edge_index.shape[1]}], found {found}"
            )
        return edge_weight.reshape(-1)

    def _checked_attr(self, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        if edge_attr is not None and edge_attr.dim() == 1:
            edge_attr = edge_attr.unsqueeze(1)
        if edge_attr is None or edge_attr.shape != (edge_index.shape[1], self.edge_features):
            found = "none" if edge_attr is None else f"shape {list(edge_attr.shape)}"
            raise DataError(
                f"the model reads {self.edge_features} features per edge: edge_attr must have shape "
                f"[{edge_index.shape[1]}, {self.edge_features}], found {found}"
            )
        return edge_attr

    @torch.no_grad()
    def run(self, inputs: Inputs) -> Tensor:
        """Outputs for prepared inputs."""
        return self.propagate(*inputs)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        """Outputs from scratch; where features and graph stay, `prepare` them once and `run`."""
        if torch.compiler.is_compiling():
            return _uncompiled(self._from_scratch)(x, edge_index, edge_weight, edge_attr)
        return self._from_scratch(x, edge_index, edge_weight, edge_attr)

    def _from_scratch(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None
    ) -> Tensor:
        return self.run(self._inputs(x, edge_index, edge_weight, edge_attr, once=True))

    @property
    def nbytes(self) -> int:
        """What the weights take, with the copies that kernels have made of them."""
        made = [copy for part in self.modules() if isinstance(part, MeasuredLinear) for copy in part.copies]
        return sum(part.nbytes for part in (*self.parameters(), *self.buffers())) + sum(map(stored_bytes, made))

    @property
    def kernels(self) -> Mapping[str, str]:
        """Which kernel each product of the last forward pass ran on."""
        named = [(name, part) for name, part in self.named_modules() if isinstance(part, MeasuredLinear)]
        return {name: ", ".join(part.used) for name, part in named}


def _uncompiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function as torch.compile leaves it alone: kernels are chosen by measuring them, which no graph holds."""
    reason = "a ticket's model measures its kernels and runs them as they are; compile an export to pyg, which is plain"
    disabled: Callable[..., Tensor] = torch.compiler.disable(function, reason=reason)
    return disabled


def parts_of(data: Any) -> tuple[Any, ...]:
    """x, edge_index, edge_weight and edge_attr of a `Data`, None for what it has not."""
    return tuple(getattr(data, name, None) for name in ("x", "edge_index", "edge_weight", "edge_attr"))


class CsrGraph(ArcGraph):
    """The arcs as a sparse matrix of N rows (targets) and columns (sources), with the coefficients of its kind.

    Arcs that are listed as PyG has them are sorted, and nothing else: shapes are known beforehand, so that a GPU is
    waited for once, to learn whether they are. Small graphs take as long as
    there are operations, so these are few.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        coefficients: str,
        directed: bool,
        edge_weight: Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        self.num_nodes = num_nodes
        if not self._listed(edge_index, coefficients, directed, edge_weight):
            check_edges(edge_index, num_nodes, "the graph")
            try:
                graph = Graph.from_edge_index(edge_index, num_nodes, directed, edge_weight)
            except ValueError as problem:
                raise DataError(str(problem)) from None
            arcs, weight = graph.arcs()
            self._listed(arcs, coefficients, True, weight)
        starts = self._every(max(1, num_nodes), num_nodes**2 + 1, self._code)
        self._rowptr = torch.searchsorted(self._code, starts, out_int32=True)
        degree = self._rowptr.diff().to(dtype)
        if self.weight is not None:
            self.weight = self.weight.to(dtype)
            if coefficients == "symmetric":
                degree = self.sum(degree.new_ones(num_nodes, 1), self.weight.abs()).squeeze(1)
        self._weigh(coefficients, degree)

    def _listed(self, edge_index: Tensor, coefficients: str, directed: bool, edge_weight: Tensor | None) -> bool:
        """Sort the arcs by target and source, with self-loops where layers want them. False where the matrix is not
        that of the graph: arcs twice, loops that are not ours, or an undirected edge in one direction."""
        n = self.num_nodes
        source, target = edge_index.to(torch.int32 if n * n < 2**31 else torch.int64)
        code = torch.add(source, target, alpha=n)
        if coefficients in SELF_LOOPS:
            code = torch.cat([code, self._every(n + 1, n * n, code)])
        code, order = code.sort(stable=True)  # which for integers is a radix sort
        target, source = (code // n).int(), (code % n).int()
        self._code, self.source, self.target, self.weight = code, source, target, None
        wrong = (code[1:] == code[:-1]).any() | (edge_index != edge_index.clamp(0, max(0, n - 1))).any()
        if coefficients not in SELF_LOOPS:
            wrong |= (source == target).any()
        if edge_weight is not None:
            loops = edge_weight.new_ones(len(code) - len(edge_weight))
            self.weight = torch.cat([edge_weight, loops])[order]
        if not directed:
            by_source, mirror = source.sort(stable=True)
            mirrored = torch.add(target.index_select(0, mirror), by_source.to(code.dtype), alpha=n)
            wrong |= (mirrored != code).any()
            if self.weight is not None:
                wrong |= ~torch.isclose(self.weight[mirror], self.weight).all()
        return not bool(wrong)

    @staticmethod
    def _every(step: int, end: int, like: Tensor) -> Tensor:
        return torch.arange(0, end, step, device=like.device, dtype=like.dtype)

    def sum(self, z: Tensor, coefficients: Tensor | None = None) -> Tensor:
        return _product(self._own_matrix if coefficients is None else self._matrix(coefficients), z)

    @cached_property
    def _own_matrix(self) -> Tensor:
        assert self.own is not None
        return self._matrix(self.own)

    def _matrix(self, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(self._rowptr, self.source, values, (self.num_nodes, self.num_nodes))

    def softmax(self, logits: Tensor) -> Tensor:
        return ops.softmax_rows(logits, self._rowptr, self.target)


class ArcBatch(ArcGraph):
    """The arcs as a search has them, with the features of edges that the steps of a residual network read."""

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        directed: bool,
        edge_attr: Tensor | None,
        edge_weight: Tensor | None,
        dtype: torch.dtype,
    ) -> None:
        try:
            graph = Graph.from_edge_index(edge_index, num_nodes, directed, edge_weight, edge_attr)
        except ValueError as problem:
            raise DataError(str(problem)) from None
        graph = replace(graph, **{name: value.to(dtype) for name, value in graph.values.items()})
        alive = torch.ones(1, graph.num_edges, dtype=torch.bool, device=edge_index.device)
        self._batch = graph.batch(alive, self_loops=False)
        self._scores = ops.arc_values(self._batch, alive.to(dtype))

    def softmax_sum(self, y: Tensor, temperature: Tensor, edge: EdgeMap | None) -> Tensor:
        terms = None if edge is None else (edge[0].unsqueeze(0), edge[1].unsqueeze(0))
        return ops.softmax_messages(self._batch, y.unsqueeze(0), self._scores, temperature, terms).squeeze(0)


class MeasuredLinear(Linear):
    """h·weight + shift on the kernel that is fastest here, measured once per shape and share of non-zeros."""

    places: Tensor | None
    """[in] which of the features its inputs are, where it may be given them all."""

    def __init__(self, weight: Tensor, shift: Tensor | None) -> None:
        super().__init__(weight, shift)
        self.register_buffer("places", None, persistent=False)
        self.used: list[str] = []
        self._nonzeros = int(torch.count_nonzero(weight))
        self._copies: dict[Any, Tensor] = {}  # of the weight's rows, as kernels read them

    def extra_repr(self) -> str:
        rows, columns = self.weight.shape
        return f"{rows}, {columns}, non-zero={self._nonzeros}"

    def _load_from_state_dict(self, *given: Any) -> None:
        super()._load_from_state_dict(*given)
        self._copies.clear()  # of the weight before
        self._nonzeros = int(torch.count_nonzero(self.weight))

    @property
    def copies(self) -> list[Tensor]:
        """Of the weight, as kernels read it."""
        return list(self._copies.values())

    def forward(self, blocks: Sequence[Tensor]) -> Tensor:
        self.used.clear()
        out, first = None, 0
        for block in blocks:
            rows = slice(first, first + block.shape[1])
            self.used.append(self._choose(block, rows))
            part = self._multiply(self.used[-1], block, rows)
            out, first = part if out is None else out.add_(part), rows.stop
        assert out is not None
        return out if self.shift is None else out.add_(self.shift)

    def choose_input(self, x: Tensor, features: Tensor, once: bool = False) -> Tensor:
        """The features that are read, dense or as a sparse matrix, whichever this layer multiplies faster, with what it
        takes to make them if they serve `once`: then all features stay, unless half of them are unread, since to
        multiply the others by 0 takes less than a copy. Sparse ones stay so unless most of them are not 0."""
        whole = once and self.places is not None and 2 * len(features) > x.shape[1]
        columns = None if whole or len(features) == x.shape[1] else features
        if x.layout != torch.strided:
            return _columns(x, columns, x.values().numel() <= _SPARSE * x.numel())
        work = x.numel() * self.weight.shape[1]
        if once and x.is_cuda and work <= _LIGHT:
            return _columns(x, columns, sparse=False)
        rarity = _rarity(x)
        if rarity * _SPARSE < 1 or _FEW * len(self.weight) <= self.weight.shape[1]:
            return _columns(x, columns, sparse=False)

        if x.device.type == "cpu" and rarity >= _RARE and work > _HEAVY:
            return _columns(x, columns, sparse=True)

        def trials() -> dict[str, Callable[[], Any]]:
            made = {name: partial(_columns, x, columns, name == "sparse") for name in ("dense", "sparse")}
            self([made["dense"]()])  # so that its own choice is made and not timed
            if once:
                return {name: partial(self._multiply_made, make) for name, make in made.items()}
            return {name: partial(self, [make()]) for name, make in made.items()}

        shape = ("input", once, *self._shape(len(x), len(features), x.dtype), x.shape[1], int(rarity).bit_length())
        before = set(self._copies)
        sparse = fastest(shape, x.device, trials) == "sparse"
        if sparse:
            self._drop(set(self._copies) - before)
        return _columns(x, columns, sparse)

    def _multiply_made(self, make: Callable[[], Tensor]) -> Tensor:
        made: Tensor = self([make()])
        return made

    def _choose(self, block: Tensor, rows: slice) -> str:
        alive = self._nonzeros / self.weight.numel()
        if block.layout == torch.strided:
            names = ["dense"]
            names += ["narrow"] if self.weight.shape[1] <= _COLUMNS else []
            names += ["sparse weight"] if alive < _SPARSE else []
        elif alive < _FEW_ALIVE and block.device.type == "cpu":
            names = ["sparse input", "sparse both"]
        else:
            names = ["sparse input"]
        if len(names) == 1:
            return names[0]
        before = set(self._copies)
        chosen = fastest(
            ("product", names[0], *self._shape(block.shape[0], block.shape[1], block.dtype)),
            block.device,
            lambda: {name: partial(self._multiply, name, block, rows) for name in names},
        )
        self._drop(set(self._copies) - before - {self._key(chosen, rows)})
        return chosen

    def _drop(self, keys: Iterable[Any]) -> None:
        """The copies that trials have made and nobody needs."""
        for key in keys:
            del self._copies[key]

    def _key(self, kernel: str, rows: slice) -> Any:
        return kernel, rows.start, rows.stop, self.weight.device, self.weight.dtype

    def _multiply(self, kernel: str, block: Tensor, rows: slice) -> Tensor:
        """block · the weight's rows; "narrow" reads a wide block row by row, which suits few columns; with "sparse
        both", block and weight are read as CSR."""
        if kernel in ("dense", "sparse input"):
            return _product(block, self._rows(rows))
        key = self._key(kernel, rows)
        if kernel == "sparse both":
            if key not in self._copies:
                self._copies[key] = to_csr(self._rows(rows))
            made = kernels(block.device.type).sparse_by_sparse(block, self._copies[key])
            return _product(block, self._rows(rows)) if made is None else made
        if key not in self._copies:
            transposed = self._rows(rows).t().contiguous()
            self._copies[key] = transposed if kernel == "narrow" else to_csr(transposed)
        return _product(self._copies[key], block.t()).t().contiguous()

    def _rows(self, rows: slice) -> Tensor:
        """The weight's rows for inputs that are a part of all, all, or all features."""
        count = rows.stop - rows.start
        if self.places is None or count <= len(self.weight):
            return self.weight if count == len(self.weight) else self.weight[rows]
        key = self._key("all features", rows)
        if key not in self._copies:
            wider = self.weight.new_zeros(count, self.weight.shape[1])
            self._copies[key] = wider.index_copy_(0, self.places, self.weight)
        return self._copies[key]

    def _shape(self, nodes: int, width: int, dtype: torch.dtype) -> tuple[Any, ...]:
        """What the speed of a product depends on; counts of nodes and non-zeros to within a factor of two.

        Small counts of nodes are all alike, so that a server of single nodes need not measure again and again.
        """
        nodes = max(_FEW_NODES, nodes)
        return nodes.bit_length(), width, self.weight.shape[1], self._nonzeros.bit_length(), dtype


def _rarity(x: Tensor) -> float:
    """One of how many entries of a dense x is not 0, by a sample of its rows."""
    sample = x[:: max(1, len(x) // _SAMPLE)]
    return sample.numel() / max(1, int(torch.count_nonzero(sample)))


def _columns(x: Tensor, columns: Tensor | None, sparse: bool) -> Tensor:
    """Some columns of x, or all, dense or as CSR, which is taken from the few non-zeros: a copy of x would take longer
    than the product."""
    x = _sparse(x) if sparse else x.to_dense().contiguous()
    if columns is None:
        return x
    if not sparse:
        return x.index_select(1, columns)
    return take_columns(x, torch.zeros(x.shape[1], dtype=torch.bool, device=x.device).index_fill_(0, columns, True))


def _sparse(x: Tensor) -> Tensor:
    """x as CSR by the fastest kernels of its device."""
    made = kernels(x.device.type).nonzeros(x) if x.layout == torch.strided else None
    return as_csr(x) if made is None else made


_FASTEST: dict[tuple[Any, ...], str] = {}


def fastest(shape: tuple[Any, ...], device: torch.device, trials: Callable[[], Mapping[str, Callable[[], Any]]]) -> str:
    """The name of the fastest trial, or of the first unless another is clearly faster; timed when this process first
    meets the shape, then remembered."""
    key = (*shape, device, torch.get_num_threads())
    if key not in _FASTEST:
        made = trials()
        for trial in made.values():
            trial()
        taken: list[dict[str, float]] = []
        while len(taken) < _TRIALS or sum(sum(turn.values()) for turn in taken) < _BRIEF:
            taken.append({name: seconds(trial, device) for name, trial in made.items()})
        times = {name: min(turn[name] for turn in taken) for name in made}  # noise only ever adds
        first, best = next(iter(times)), min(times, key=times.__getitem__)
        _FASTEST[key] = best if times[best] < _CLEAR * times[first] else first
    return _FASTEST[key]


def seconds(trial: Callable[[], Any], device: torch.device) -> float:
    """What one run takes, until the device has done what it was told."""
    wait: Callable[[], Any] = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    trial()
    wait()
    return time.perf_counter() - began


def _product(left: Tensor, dense: Tensor) -> Tensor:
    """left · dense by the fastest kernels of its device."""
    return kernels(dense.device.type).product(left, dense)
