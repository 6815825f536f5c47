"""What a ticket saves: the plain PyG model, our dense model and the ticket, on one machine in one run."""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aceglt.config.checks import count
from aceglt.config.own import is_own
from aceglt.errors import ConfigError
from aceglt.files import write_atomic
from aceglt.numerics import rng
from aceglt.numerics.csr import as_csr, stored_bytes, take_rows
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks
from aceglt.searches.sketch import bars
from aceglt.searches.wording import byte_count, counted, escape, html_table, quantity, text_table
from aceglt.tickets.applied import as_searched
from aceglt.tickets.compact import CompactModel, parts_of
from aceglt.tickets.own import compact_of, forward, module_of
from aceglt.tickets.plain import adjacent, plain_model
from aceglt.tickets.ticket import Ticket
from aceglt.training.memory import free_memory
from aceglt.training.setup import pick_device

BATCH = 256  # nodes that are asked for at once
MAX_REPEATS = 10_000


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one forward pass over repetitions."""

    median: float
    p95: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.p95:.2f})"

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        ordered = sorted(1e3 * s for s in seconds)
        return cls(statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))])


@dataclass(frozen=True)
class Measured:
    """One variant: `pyg` (PyG's layers, dense x), `dense` (the ticket's model with nothing pruned) or `ticket`."""

    variant: str
    macs: int
    parameters: int
    """Weights that may be pruned and are not; biases and others that never are do not count."""
    edges: int
    file_bytes: int
    """Of the weights in a file; of a ticket, the whole file."""
    memory_bytes: int
    """The most that tensors took up in a forward pass on the full graph from plain tensors: these, the weights as they
    are multiplied (copies in another order included), and what the pass makes."""
    first: Latency
    """Of the full graph from the plain x and edge_index."""
    full: Latency
    """Of the full graph, features and structure prepared where the variant can; PyG's layers get a CSR adjacency."""
    node: Latency
    """Of a single node's neighbourhood (of 2 hops, or as many as there are layers), from its plain x and edge_index."""
    batch: Latency
    """Of the neighbourhood of `BATCH` nodes, likewise."""


@dataclass(frozen=True, repr=False)
class Benchmark:
    """The variants side by side."""

    rows: Sequence[Measured]
    device: str
    threads: int
    repeats: int
    kernels: Mapping[str, str]
    """Which kernel each product of the ticket's model ran on."""
    own: bool = False
    """Whether dense is the user's own module, beside which there is no PyG model of the same shape."""

    def __getitem__(self, variant: str) -> Measured:
        return next(row for row in self.rows if row.variant == variant)

    def speedup(self, over: str, of: str = "ticket", what: str = "first") -> float:
        """How many times as fast: the ratio of the medians, from plain tensors or of another latency of `Measured`."""
        slow: Latency = getattr(self[over], what)
        fast: Latency = getattr(self[of], what)
        return slow.median / fast.median

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def _table(self) -> list[list[str]]:
        quantities: dict[str, Callable[[Measured], str]] = {
            "": lambda row: row.variant,
            "MACs": lambda row: quantity(row.macs),
            "weights": lambda row: f"{row.parameters:,}",
            "edges": lambda row: f"{row.edges:,}",
            "file": lambda row: byte_count(row.file_bytes),
            "memory": lambda row: byte_count(row.memory_bytes),
            "full graph, ms": lambda row: str(row.first),
            "prepared, ms": lambda row: str(row.full),
            "one node, ms": lambda row: str(row.node),
            f"{BATCH} nodes, ms": lambda row: str(row.batch),
        }
        return [[name, *map(words, self.rows)] for name, words in quantities.items()]

    def _verdict(self) -> list[str]:
        called = {"pyg": "PyG", "dense": "dense"}
        over = [row.variant for row in self.rows if row.variant in called]

        def faster(what: str) -> str:
            return " and ".join(f"{self.speedup(name, what=what):.1f}× as fast as {called[name]}" for name in over)

        fewer = self["dense"].macs / self["ticket"].macs
        prepared = "" if self.own else " (model.prepare)"  # a module of one's own has no such function
        measured = f"ms: median (95 %) of {self.repeats} on {self.device}, {counted(self.threads, 'thread')}."
        return [
            f"From plain tensors, the ticket is {faster('first')} (MACs: {fewer:.1f}×).",
            f"With inputs prepared once{prepared}, {faster('full')}.",
            *(["dense is your own module with nothing pruned; it is the baseline, and there is no other."] * self.own),
            measured,
        ]

    def __repr__(self) -> str:
        return "\n".join([*text_table(self._table()), *self._verdict()])

    def _repr_html_(self) -> str:
        slowest = max(row.first.median for row in self.rows)
        rows = [(row.variant, row.first.median / slowest, f"{row.first.median:.2f} ms") for row in self.rows]
        drawn, words = (
            bars(rows, "latency of the full graph, from plain tensors"),
            "<br>".join(map(escape, self._verdict())),
        )
        return f"{html_table(self._table())}{drawn}<p>{words}</p>"


def benchmark(
    ticket: Ticket | str | Path, data: Any = None, *, device: str = "auto", repeats: int = 30, seed: int = 0,
    backbone: Any = None, pyg: bool = True,
) -> Benchmark:  # fmt: skip
    """Measure a ticket against our dense model and, unless `pyg` is False, the plain PyG model of the same shape.

    The variants take turns, so that a noisy machine treats them alike; weights are the ticket's, and random ones for
    the dense variants, which are as fast with any. `data` is by default the graph that the ticket was found on; the
    single nodes are drawn by `seed`. A ticket of your own model, named as `backbone`, is measured against that model.
    Raises TicketError if the graph is another one.

    Examples:
        >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
        >>> found = aceglt.benchmark(ticket, data, device="cpu", repeats=1)
        >>> found["ticket"].macs < found["dense"].macs
        True
    """
    count(1, MAX_REPEATS)("repeats", repeats)
    if not isinstance(ticket, Ticket):
        ticket = Ticket.load(ticket)
    data = data if data is not None else ticket.load_data()
    target = pick_device(device)
    model = ticket.model(backbone).to(target)
    own = is_own(ticket.config.backbone)
    variants = _own_variants(ticket, backbone, data, target) if own else _variants(ticket, model, data, target, pyg)
    with torch.no_grad():
        latencies = _measure(variants, target, repeats, seed)
        rows = [_measured(*each, target, ticket) for each in zip(variants, latencies, strict=True)]
    name = torch.cuda.get_device_name(target) if target.type == "cuda" else platform.processor() or "cpu"
    return Benchmark(rows, name, torch.get_num_threads(), repeats, {} if own else model.kernels, own)


class _Inputs(NamedTuple):
    x: Tensor  # [N, F] dense or CSR
    edge_index: Tensor  # [2, A]
    edge_weight: Tensor | None  # [A] if the ticket's graph has such
    edge_attr: Tensor | None  # [A, D] if the backbone reads features of edges
    hops: int  # of a node's neighbourhood

    @classmethod
    def of(cls, data: Any, ticket: Ticket, device: torch.device) -> _Inputs:
        """Of data as `Ticket.apply` lists it, in the ticket's type of number."""
        built = None if is_own(ticket.config.backbone) else ticket.backbone()
        data = data.dense() if built is None and hasattr(data, "dense") else data
        x, arcs, weight, attr = (part if part is None else part.to(device) for part in parts_of(data))
        dtype, reads_attr = ticket.trained.prunable.dtype, built is not None and built.edge_features
        attr = attr.to(dtype).view(len(attr), -1) if attr is not None and reads_attr else None
        weight = weight.to(dtype).reshape(-1) if weight is not None and ticket.weighted else None
        assert x is not None
        assert arcs is not None
        x = x.to(dtype)
        hops = sum(stage.messages for stage in built.chain) if built is not None else 0
        return cls(x if x.layout == torch.strided else as_csr(x), arcs, weight, attr, hops or 2)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """What models read."""
        return self.x, self.edge_index, self.edge_weight, self.edge_attr

    def around(self, nodes: list[int]) -> _Inputs:
        """The nodes' neighbourhood as a graph of its own: PyG's `k_hop_subgraph`, whose import takes as long as a
        search."""
        source, target = self.edge_index
        inside = torch.zeros(len(self.x), dtype=torch.bool, device=source.device)
        inside[nodes] = True
        for _ in range(self.hops):
            inside[source[inside[target]]] = True
        kept, number = inside[source] & inside[target], inside.cumsum(0) - 1
        weight, attr = (None if part is None else part[kept] for part in self.parts[2:])
        x = take_rows(self.x, inside.nonzero().squeeze(1))
        return _Inputs(x, number[self.edge_index[:, kept]], weight, attr, self.hops)

    @property
    def nbytes(self) -> int:
        return sum(stored_bytes(part) for part in self.parts if part is not None)

    def dense(self) -> _Inputs:
        """With dense features, which PyG's layers read. Raises ConfigError where they would take most of the memory."""
        needed, free = self.x.numel() * self.x.element_size(), free_memory(self.x.device)
        if self.x.layout != torch.strided and 2 * needed > free:
            raise ConfigError(
                f"bench compares with PyG's layers, which read a dense x: {needed / 2**30:.1f} GiB, and "
                f"{free / 2**30:.1f} GiB are free"
            )
        return self._replace(x=self.x.to_dense())


@dataclass(frozen=True)
class _Variant:
    name: str
    inputs: _Inputs
    run: Callable[[_Inputs], Tensor]
    """A forward pass from plain inputs."""
    prepare: Callable[[_Inputs], Callable[[], Tensor]]
    """A function that runs a forward pass on these inputs."""
    weight_bytes: Callable[[], int]
    file_bytes: int

    @classmethod
    def of(cls, name: str, inputs: _Inputs, run: Any, prepare: Any, weights: Mapping[str, Tensor]) -> _Variant:
        """A variant whose file would hold these weights."""
        file_bytes = len(save({name: part.contiguous() for name, part in weights.items()}))
        size = sum(part.nbytes for part in weights.values())
        return cls(name, inputs, run, prepare, lambda: size, file_bytes)


def _variants(ticket: Ticket, model: CompactModel, data: Any, device: torch.device, pyg: bool) -> list[_Variant]:
    inputs, pruned = (_Inputs.of(given, ticket, device) for given in (_dense(ticket, data), ticket.apply(data)))
    backbone = ticket.backbone()
    weights = backbone.weights(backbone.init([ticket.seed], device))

    dense = CompactModel(
        backbone.layers({name: part[0] for name, part in weights.items()}), backbone.coefficients, model.directed,
        model.edge_features, model.weighted,
    ).to(device)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ticket"
        ticket.save(path, parts="inference")
        file_bytes = path.stat().st_size
    return [
        *([_plain_variant(ticket, inputs.dense(), device)] if pyg else []),
        replace(_Variant.of("dense", inputs, *_ways(dense), weights), weight_bytes=lambda: dense.nbytes),
        _Variant("ticket", pruned, *_ways(model), lambda: model.nbytes, file_bytes),
    ]


def _plain_variant(ticket: Ticket, inputs: _Inputs, device: torch.device) -> _Variant:
    plain = plain_model(ticket.backbone()).to(device, ticket.trained.prunable.dtype).eval()
    state = {name: part for name, part in plain.state_dict().items() if part.is_floating_point()}
    return _Variant.of("pyg", inputs, lambda given: plain(*given.parts), partial(adjacent, plain), state)


def _ways(model: CompactModel) -> tuple[Callable[[_Inputs], Tensor], Callable[[_Inputs], Callable[[], Tensor]]]:
    """A pass of a model from plain inputs, and what makes inputs ready for passes."""
    return lambda given: model(*given.parts), lambda given: partial(model.run, model.prepare(*given.parts))


def _dense(ticket: Ticket, data: Any) -> Any:
    """The data with all edges that the search was about, listed as a model reads them."""
    if ticket.whole is None:
        return replace(ticket, masks=Masks.full(1, ticket.masks.total)).apply(data)
    return as_searched(data.edge_subgraph(data.edge_index[0] != data.edge_index[1]), ticket.graph.directed)


def _own_variants(ticket: Ticket, backbone: Any, data: Any, device: torch.device) -> list[_Variant]:
    """The user's module as wide as it is, and without dead units on the pruned graph; both as dense torch has them."""
    made = {"dense": (_dense(ticket, data), False), "ticket": (ticket.apply(data), True)}
    variants = []
    for name, (graph, trained) in made.items():
        module = compact_of(ticket, backbone) if trained else module_of(ticket, backbone, trained=False)
        module = module.to(device)
        run = partial(_forward, module)
        prepare = partial(partial, run)
        once = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}  # what is tied
        weights = {name: part for name, part in module.state_dict().items() if name in once}
        variants.append(_Variant.of(name, _Inputs.of(graph, ticket, device), run, prepare, weights))
    return variants


def _forward(module: nn.Module, given: _Inputs) -> Tensor:
    return forward(module, given.x, given.edge_index, given.edge_weight)


def _measure(variants: Sequence[_Variant], device: torch.device, repeats: int, seed: int) -> list[dict[str, Latency]]:
    """Latencies of each variant; in every repetition each has its turn."""
    ready = [variant.prepare(variant.inputs) for variant in variants]
    times: list[list[list[float]]] = [[] for _ in variants]
    key = rng.keys([seed], "bench nodes")
    for turn in range(repeats + 1):
        nodes = (rng.uniform(rng.fold(key, turn), BATCH)[0] * len(variants[0].inputs.x)).long().tolist()
        for variant, full, taken in zip(variants, ready, times, strict=True):
            inputs = variant.inputs, variant.inputs.around(nodes[:1]), variant.inputs.around(nodes)
            plain: list[Callable[[], Any]] = [partial(variant.run, given) for given in inputs]
            for trial in plain[1:]:  # of a shape that is new, which libraries may prepare for
                trial()
            taken.append([_seconds(trial, device) for trial in (full, *plain)])
    names = ("full", "first", "node", "batch")
    # the first time is a warm-up
    return [dict(zip(names, map(Latency.of, zip(*taken[1:], strict=True)), strict=True)) for taken in times]


def _seconds(trial: Callable[[], Any], device: torch.device) -> float:
    """What one run takes, until the device has done what it was told."""
    wait: Callable[[], Any] = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    trial()
    wait()
    return time.perf_counter() - began


def _measured(variant: _Variant, latencies: Mapping[str, Latency], device: torch.device, ticket: Ticket) -> Measured:
    inputs, pruned = variant.inputs, variant.name == "ticket"
    return Measured(
        variant=variant.name,
        macs=ticket.sizes["macs" if pruned else "dense_macs"],
        parameters=(ticket.masks.alive if pruned else ticket.total).weights,
        edges=Graph.from_edge_index(inputs.edge_index.cpu(), len(inputs.x), ticket.graph.directed).num_edges,
        file_bytes=variant.file_bytes,
        memory_bytes=inputs.nbytes + _peak_bytes(partial(variant.run, inputs), device) + variant.weight_bytes(),
        **latencies,
    )


def _peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """The most that a run puts on top of what is there."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before: int = torch.cuda.memory_allocated(device)
        run()
        peak: int = torch.cuda.max_memory_allocated(device)
        return peak - before
    allocations = Allocations()
    with allocations:
        run()
    return allocations.peak


class Allocations(TorchDispatchMode):
    """Follows the storage of every tensor that an operation makes; what kernels use inside is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = self._now = 0
        self._alive: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import torch.compile's machinery to leave this class alone, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(storage) for storage in _storages((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        for storage in _storages(out):
            if id(storage) not in given | self._alive:
                self._alive.add(id(storage))
                self._now += storage.nbytes()
                self.peak = max(self.peak, self._now)
                weakref.finalize(storage, self._remove, id(storage), storage.nbytes())
        return out

    def _remove(self, number: int, size: int) -> None:
        self._alive.discard(number)
        self._now -= size


def _storages(values: Any) -> list[Any]:
    """Of the dense tensors among nested values."""
    tensors = (value for value in tree_leaves(values) if isinstance(value, Tensor) and value.layout == torch.strided)
    return [tensor.untyped_storage() for tensor in tensors]


_LABELS = {
    "first": "full graph", "full": "full graph, prepared", "node": "one node's neighbourhood",
    "batch": f"neighbourhood of {BATCH} nodes",
}  # fmt: skip


def write_plot(result: Benchmark, path: str | Path) -> None:
    """The latencies as bars in one HTML page, which needs no network."""
    import plotly.graph_objects as go

    bars = [
        go.Bar(
            name=row.variant,
            x=list(_LABELS.values()),
            y=[getattr(row, what).median for what in _LABELS],
            error_y={"array": [getattr(row, what).p95 - getattr(row, what).median for what in _LABELS]},
        )
        for row in result.rows
    ]
    layout = {"barmode": "group", "yaxis": {"title": {"text": "ms (median; whisker: 95 %)"}, "type": "log"}}
    write_atomic(Path(path), go.Figure(bars, layout).to_html(include_plotlyjs=True).encode())
