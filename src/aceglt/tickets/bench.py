"""What a ticket saves: the plain PyG model, our dense model and the ticket, on one machine in one run."""

from __future__ import annotations

import platform
import statistics
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aceglt.backends import choose
from aceglt.config.own import is_own
from aceglt.errors import ConfigError
from aceglt.files import write_atomic
from aceglt.numerics import rng
from aceglt.numerics.csr import as_csr, stored_bytes, take_rows
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.searches.sketch import bars
from aceglt.searches.wording import byte_count, escape, html_table, quantity, text_table
from aceglt.tickets.compact import CompactModel, seconds
from aceglt.tickets.own import forward, module_of
from aceglt.tickets.plain import plain_model
from aceglt.tickets.ticket import Ticket
from aceglt.training.memory import free_memory
from aceglt.training.setup import pick_device


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
    """One variant: `pyg` (PyG's layers, dense features), `dense` (ours, nothing pruned) or `ticket`."""

    variant: str
    macs: int
    parameters: int
    edges: int
    file_bytes: int
    """Of the weights in a file; of a ticket, the whole file."""
    memory_bytes: int
    """The most that tensors took up in a forward pass on the full graph, weights and inputs included."""
    full: Latency
    """Of the full graph, features and structure prepared where the variant can."""
    first: Latency
    """Of the full graph from the plain x and edge_index."""
    node: Latency
    """Of a single node's neighbourhood (of 2 hops, or as many as there are layers), from its plain x and edge_index."""


@dataclass(frozen=True, repr=False)
class Benchmark:
    """The variants side by side."""

    rows: Sequence[Measured]
    device: str
    threads: int
    repeats: int
    kernels: Mapping[str, str]
    """Which kernel each product of the ticket's model ran on."""

    def __getitem__(self, variant: str) -> Measured:
        return next(row for row in self.rows if row.variant == variant)

    def speedup(self, over: str, of: str = "ticket", what: str = "full") -> float:
        """How many times as fast: the ratio of the medians."""
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
            "full graph, ms": lambda row: str(row.full),
            "from plain tensors, ms": lambda row: str(row.first),
            "one node, ms": lambda row: str(row.node),
        }
        return [[name, *map(words, self.rows)] for name, words in quantities.items()]

    def _verdict(self) -> list[str]:
        called = {"pyg": "PyG", "dense": "dense"}
        over = [row.variant for row in self.rows if row.variant in called]
        others = [f"{self.speedup(name):.1f}× as fast as {called[name]}" for name in over]
        fewer = self["dense"].macs / self["ticket"].macs
        measured = f"ms: median (95 %) of {self.repeats} on {self.device}, {self.threads} thread(s)."
        return [measured, f"The ticket is {' and '.join(others)} (MACs: {fewer:.1f}×)."]

    def __repr__(self) -> str:
        return "\n".join([*text_table(self._table()), *self._verdict()])

    def _repr_html_(self) -> str:
        slowest = max(row.full.median for row in self.rows)
        rows = [(row.variant, row.full.median / slowest, f"{row.full.median:.2f} ms") for row in self.rows]
        drawn, words = bars(rows, "latency of the full graph"), "<br>".join(map(escape, self._verdict()))
        return f"{html_table(self._table())}{drawn}<p>{words}</p>"


def benchmark(
    ticket: Ticket | str | Path, data: Any = None, *, device: str = "auto", repeats: int = 30, seed: int = 0,
    backbone: Any = None,
) -> Benchmark:  # fmt: skip
    """Measure a ticket against our dense model and the plain PyG model of the same shape.

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
    if repeats < 1:
        raise ConfigError(f"repeats must be 1 or more, found {repeats}")
    if not isinstance(ticket, Ticket):
        ticket = Ticket.load(ticket)
    data = data if data is not None else ticket.load_data()
    target = pick_device(device)
    model = ticket.model(backbone).to(target)
    own = is_own(ticket.config.backbone)
    variants = _own_variants(ticket, backbone, data, target) if own else _variants(ticket, model, data, target)
    with torch.no_grad():
        latencies = _measure(variants, target, repeats, seed)
        rows = [_measured(*each, target, ticket) for each in zip(variants, latencies, strict=True)]
    name = torch.cuda.get_device_name(target) if target.type == "cuda" else platform.processor() or "cpu"
    return Benchmark(rows, name, torch.get_num_threads(), repeats, {} if own else model.kernels)


class _Inputs(NamedTuple):
    x: Tensor  # [N, F] dense or CSR
    edge_index: Tensor  # [2, A]
    edge_attr: Tensor | None  # [A, D] if the backbone reads features of edges
    hops: int  # of a node's neighbourhood

    @classmethod
    def of(cls, data: Any, ticket: Ticket, device: torch.device) -> _Inputs:
        """In the ticket's type of number, an undirected edge in both directions however the data lists it."""
        from torch_geometric.utils import to_undirected

        dtype, arcs, x = ticket.trained.prunable.dtype, data.edge_index.to(device), data.x
        built = None if is_own(ticket.config.backbone) else ticket.backbone()
        attr = getattr(data, "edge_attr", None) if built is not None and built.edge_features else None
        if attr is not None:
            attr = attr.to(device, dtype).view(len(attr), -1)
        if not ticket.graph.directed:
            arcs, attr = to_undirected(arcs, attr, num_nodes=len(x), reduce="mean")
        x = x.to(device, dtype)
        hops = sum(stage.messages for stage in built.chain) if built is not None else 0
        return cls(x if x.layout == torch.strided else as_csr(x), arcs, attr, hops or 2)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """What models read."""
        return self.x, self.edge_index, self.edge_attr

    def around(self, node: int) -> _Inputs:
        """The node's neighbourhood as a graph of its own."""
        from torch_geometric.utils import k_hop_subgraph

        nodes, arcs, _, kept = k_hop_subgraph(
            node, self.hops, self.edge_index, relabel_nodes=True, num_nodes=len(self.x)
        )
        attr = None if self.edge_attr is None else self.edge_attr[kept]
        return _Inputs(take_rows(self.x, nodes), arcs, attr, self.hops)

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
    prepare: Callable[[_Inputs], Callable[[], Tensor]]
    """A function that runs a forward pass on these inputs."""
    parameters: int
    weight_bytes: int
    file_bytes: int

    @classmethod
    def of(cls, name: str, inputs: _Inputs, prepare: Any, weights: Mapping[str, Tensor]) -> _Variant:
        """A variant whose file would hold these weights."""
        file_bytes = len(save({name: part.contiguous() for name, part in weights.items()}))
        count, size = (sum(each) for each in zip(*((w.numel(), w.nbytes) for w in weights.values()), strict=True))
        return cls(name, inputs, prepare, count, size, file_bytes)

    def run(self, inputs: _Inputs) -> Tensor:
        """A forward pass from plain inputs."""
        return self.prepare(inputs)()


def _variants(ticket: Ticket, model: CompactModel, data: Any, device: torch.device) -> list[_Variant]:
    inputs, pruned = (_Inputs.of(given, ticket, device) for given in (data, ticket.apply(data)))
    backbone = ticket.backbone()
    weights = backbone.weights(backbone.init([ticket.seed], device))
    plain = plain_model(backbone).to(device, ticket.trained.prunable.dtype).eval()

    def prepare_dense(given: _Inputs) -> Callable[[], Tensor]:
        """Our model as it is trained, nothing pruned."""
        graph = Graph.from_edge_index(given.edge_index, len(given.x), ticket.graph.directed, edge_attr=given.edge_attr)
        ones = torch.ones(1, graph.num_edges, dtype=torch.bool, device=device)
        backend = choose(device)
        batch = graph.batch(ones, backbone.self_loops, backend.kernels)
        values, features = ones.to(given.x.dtype), Features(given.x, backend.kernels)
        return partial(backend.network(backbone).apply, weights, batch, values, features)

    state = {name: part for name, part in plain.state_dict().items() if part.is_floating_point()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ticket"
        ticket.save(path)
        file_bytes = path.stat().st_size
    return [
        _Variant.of("pyg", inputs.dense(), lambda given: partial(plain, *given.parts), state),
        _Variant.of("dense", inputs, prepare_dense, weights),
        _Variant(
            "ticket",
            pruned,
            lambda given: partial(model.run, model.prepare(*given.parts)),
            ticket.masks.alive.weights + ticket.trained.other.numel(),
            sum(part.nbytes for part in model.parameters()),
            file_bytes,
        ),
    ]


def _own_variants(ticket: Ticket, backbone: Any, data: Any, device: torch.device) -> list[_Variant]:
    """The user's module as it is, and with the ticket's weights on the pruned graph; both as dense torch has them."""
    ticket.check_plain()
    made = {"dense": (data, False), "ticket": (ticket.apply(data), True)}
    variants = []
    for name, (graph, trained) in made.items():
        module = module_of(ticket, backbone, trained).to(device)
        prepare = partial(_prepared, module)
        variants.append(_Variant.of(name, _Inputs.of(graph, ticket, device), prepare, dict(module.state_dict())))
    return variants


def _prepared(module: nn.Module, given: _Inputs) -> Callable[[], Tensor]:
    return partial(forward, module, given.x, given.edge_index)


def _measure(variants: Sequence[_Variant], device: torch.device, repeats: int, seed: int) -> list[dict[str, Latency]]:
    """Of each variant, "full", "first" and "node"; in every repetition each has its turn."""
    ready = [variant.prepare(variant.inputs) for variant in variants]
    times: list[list[list[float]]] = [[] for _ in variants]
    draws = rng.uniform(rng.keys([seed], "bench nodes"), repeats + 1)[0]
    for node in (draws * len(variants[0].inputs.x)).long().tolist():
        for variant, full, taken in zip(variants, ready, times, strict=True):
            plain = (partial(variant.run, variant.inputs), partial(variant.run, variant.inputs.around(node)))
            taken.append([seconds(trial, device) for trial in (full, *plain)])
    names = ("full", "first", "node")
    # the first time is a warm-up
    return [dict(zip(names, map(Latency.of, zip(*taken[1:], strict=True)), strict=True)) for taken in times]


def _measured(variant: _Variant, latencies: Mapping[str, Latency], device: torch.device, ticket: Ticket) -> Measured:
    inputs = variant.inputs
    return Measured(
        variant=variant.name,
        macs=ticket.sizes["macs" if variant.name == "ticket" else "dense_macs"],
        parameters=variant.parameters,
        edges=Graph.from_edge_index(inputs.edge_index.cpu(), len(inputs.x), ticket.graph.directed).num_edges,
        file_bytes=variant.file_bytes,
        memory_bytes=variant.weight_bytes + inputs.nbytes + _peak_bytes(partial(variant.run, inputs), device),
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


_LABELS = {"full": "full graph", "first": "full graph, from plain tensors", "node": "one node's neighbourhood"}


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
