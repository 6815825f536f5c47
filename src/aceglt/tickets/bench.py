"""What a ticket saves: the plain PyG model, our dense model and the ticket, on one machine in one run."""

from __future__ import annotations

import platform
import statistics
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aceglt.backbones import Backbone, Params
from aceglt.backbones.portable import BlockSpec, LayerSpec
from aceglt.backends import choose
from aceglt.errors import ConfigError
from aceglt.files import write_atomic
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.sparse import as_csr, stored_bytes, take_rows
from aceglt.tickets.compact import seconds
from aceglt.tickets.ticket import Ticket
from aceglt.training.memory import free_memory
from aceglt.training.setup import pick_device

HOPS = 2


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one forward pass over repetitions."""

    median: float
    p95: float

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
    """Of a single node's 2-hop neighbourhood, from its plain x and edge_index."""


@dataclass(frozen=True)
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


def benchmark(
    ticket: Ticket | str | Path, data: Any = None, *, device: str = "auto", repeats: int = 30, seed: int = 0
) -> Benchmark:
    """Measure a ticket against our dense model and the plain PyG model of the same shape.

    The variants take turns, so that a noisy machine treats them alike; weights are the ticket's, and random ones for
    the dense variants, which are as fast with any. `data` is by default the graph that the ticket was found on; the
    single nodes are drawn by `seed`. Raises TicketError if the graph is another one.
    """
    if repeats < 1:
        raise ConfigError(f"repeats must be 1 or more, found {repeats}")
    if not isinstance(ticket, Ticket):
        ticket = Ticket.load(ticket)
    data = data if data is not None else ticket.load_data()
    pruned = ticket.apply(data)
    target = pick_device(device)
    compact = _Ticket(ticket, target)
    variants = {**_dense_variants(ticket, target), "ticket": compact}
    inputs = {name: _Inputs.of(pruned if name == "ticket" else data, ticket, target) for name in variants}
    inputs["pyg"] = inputs["pyg"].dense()
    with torch.no_grad():
        times = _measure(variants, inputs, target, repeats, seed)
        rows = [_measured(ticket, name, variants[name], inputs[name], times[name], target) for name in variants]
    return Benchmark(rows, _device_name(target), torch.get_num_threads(), repeats, compact.kernels)


@dataclass(frozen=True)
class _Inputs:
    x: Tensor  # [N, F] dense or CSR
    edge_index: Tensor  # [2, A]
    edge_attr: Tensor | None  # [A, D] if the backbone reads features of edges

    @classmethod
    def of(cls, data: Any, ticket: Ticket, device: torch.device) -> _Inputs:
        """In the ticket's type of number, an undirected edge in both directions however the data lists it."""
        from torch_geometric.utils import to_undirected

        dtype, arcs = ticket.trained.prunable.dtype, data.edge_index
        attr = getattr(data, "edge_attr", None) if ticket.backbone().edge_features else None
        if attr is not None:
            attr = attr.to(dtype).view(len(attr), -1)
        if not ticket.graph.directed:
            arcs, attr = to_undirected(arcs, attr, num_nodes=len(data.x), reduce="mean")
        x = data.x.to(device, dtype)
        return cls(
            x if x.layout == torch.strided else as_csr(x), arcs.to(device), None if attr is None else attr.to(device)
        )

    def around(self, node: int) -> _Inputs:
        """The node's neighbourhood as a graph of its own."""
        from torch_geometric.utils import k_hop_subgraph

        nodes, arcs, _, kept = k_hop_subgraph(node, HOPS, self.edge_index, relabel_nodes=True, num_nodes=len(self.x))
        return _Inputs(take_rows(self.x, nodes), arcs, None if self.edge_attr is None else self.edge_attr[kept])

    @property
    def nbytes(self) -> int:
        return sum(stored_bytes(part) for part in (self.x, self.edge_index, self.edge_attr) if part is not None)

    def dense(self) -> _Inputs:
        """With dense features, which PyG's layers read. Raises ConfigError where they would take most of the memory."""
        needed, free = self.x.numel() * self.x.element_size(), free_memory(self.x.device)
        if self.x.layout != torch.strided and 2 * needed > free:
            raise ConfigError(
                f"bench compares with PyG's layers, which read a dense x: {needed / 2**30:.1f} GiB, and "
                f"{free / 2**30:.1f} GiB are free"
            )
        return replace(self, x=self.x.to_dense())


class _Variant(Protocol):
    parameters: int
    weight_bytes: int

    def prepare(self, inputs: _Inputs) -> Callable[[], Tensor]:
        """A function that runs a forward pass on these inputs."""

    def file_bytes(self) -> int:
        """Size of the weights in a file."""


class _Pyg:
    """PyG's layers as a user would stack them."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.parameters = sum(p.numel() for p in model.parameters())
        self.weight_bytes = sum(p.nbytes for p in model.parameters())

    def prepare(self, inputs: _Inputs) -> Callable[[], Tensor]:
        return partial(self._model, inputs.x, inputs.edge_index, inputs.edge_attr)

    def file_bytes(self) -> int:
        return len(save(dict(self._model.state_dict())))


class _Stack(nn.Module):
    """Convolutions with an activation between them."""

    def __init__(self, convolution: Callable[[LayerSpec], nn.Module], specs: Sequence[LayerSpec]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(convolution(spec) for spec in specs)
        self._activation = torch.relu if specs[0].activation == "relu" else F.elu

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        h = x
        for layer in self.layers[:-1]:
            h = self._activation(layer(h, edge_index))
        out: Tensor = self.layers[-1](h, edge_index)
        return out


def _gcn(spec: LayerSpec) -> nn.Module:
    from torch_geometric.nn import GCNConv

    return cast(nn.Module, GCNConv(*spec.weight.shape, bias=spec.bias is not None))


def _gin(spec: LayerSpec) -> nn.Module:
    from torch_geometric.nn import GINConv

    return cast(nn.Module, GINConv(nn.Linear(*spec.weight.shape), train_eps=True, aggr="mean"))


def _gat(spec: LayerSpec) -> nn.Module:
    from torch_geometric.nn import GATConv

    return cast(nn.Module, GATConv(spec.weight.shape[0], spec.widths[0], len(spec.widths)))


class _Deep(nn.Module):
    """DeeperGCN as in PyG's examples: encoder, residual layers, and norm and ReLU before the last map."""

    def __init__(self, specs: Sequence[BlockSpec]) -> None:
        super().__init__()
        encoder, *layers, decoder = specs
        self.encoder, self.decoder = nn.Linear(*encoder.weight.shape), nn.Linear(*decoder.weight.shape)
        self.layers = nn.ModuleList(_residual(spec) for spec in layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        first: Any = self.layers[0]
        h = first.conv(self.encoder(x), edge_index, edge_attr)
        for layer in self.layers[1:]:
            h = layer(h, edge_index, edge_attr)
        out: Tensor = self.decoder(first.act(first.norm(h)))
        return out


def _residual(spec: BlockSpec) -> nn.Module:
    from torch_geometric.nn import DeepGCNLayer, GENConv

    width, edge_dim = spec.weight.shape[0], spec.edge_features or None
    conv = GENConv(width, width, aggr="softmax", learn_t=True, num_layers=1, bias=True, edge_dim=edge_dim)
    return cast(nn.Module, DeepGCNLayer(conv, nn.LayerNorm(width), nn.ReLU(), block="res+"))


_PLAIN: dict[str, Callable[[Any], nn.Module]] = {
    "symmetric": partial(_Stack, _gcn),
    "mean": partial(_Stack, _gin),
    "attention": partial(_Stack, _gat),
    "softmax": _Deep,
}


class _Dense:
    """Our model as it is trained, nothing pruned."""

    def __init__(self, backbone: Backbone, params: Params, directed: bool) -> None:
        self._backbone, self._weights, self._directed = backbone, backbone.weights(params), directed
        self.parameters = params.prunable.numel() + params.other.numel()
        self.weight_bytes = params.prunable.nbytes + params.other.nbytes

    def prepare(self, inputs: _Inputs) -> Callable[[], Tensor]:
        nodes, attr = len(inputs.x), inputs.edge_attr
        graph = Graph.from_edge_index(inputs.edge_index, nodes, self._directed, edge_attr=attr)
        ones = torch.ones(1, graph.num_edges, dtype=torch.bool, device=inputs.x.device)
        backend = choose(inputs.x.device)
        batch = graph.batch(ones, self._backbone.self_loops, backend.kernels)
        values, features = ones.to(inputs.x.dtype), Features(inputs.x, backend.kernels)
        network = backend.network(self._backbone)
        return lambda: network.apply(self._weights, batch, values, features)

    def file_bytes(self) -> int:
        return len(save({name: part.contiguous() for name, part in self._weights.items()}))


class _Ticket:
    """The compact model."""

    def __init__(self, ticket: Ticket, device: torch.device) -> None:
        self._ticket, self._model = ticket, ticket.model().to(device)
        self.parameters = ticket.masks.alive.weights + ticket.trained.other.numel()
        self.weight_bytes = sum(p.nbytes for p in self._model.parameters())

    def prepare(self, inputs: _Inputs) -> Callable[[], Tensor]:
        prepared = self._model.prepare(inputs.x, inputs.edge_index, inputs.edge_attr)
        return lambda: self._model.run(prepared)

    def file_bytes(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ticket"
            self._ticket.save(path)
            return path.stat().st_size

    @property
    def kernels(self) -> Mapping[str, str]:
        """Which kernel each product ran on."""
        return self._model.kernels


def _dense_variants(ticket: Ticket, device: torch.device) -> dict[str, _Variant]:
    backbone = ticket.backbone()
    params = backbone.init([ticket.seed], device)
    specs = backbone.layers({name: part[0] for name, part in backbone.weights(params).items()})
    plain = _PLAIN[backbone.coefficients](specs).to(device, specs[0].weight.dtype).eval()
    return {"pyg": _Pyg(plain), "dense": _Dense(backbone, params, ticket.graph.directed)}


Times = dict[str, list[float]]  # seconds of "full", "first" and "node"


def _measure(
    variants: Mapping[str, _Variant], inputs: Mapping[str, _Inputs], device: torch.device, repeats: int, seed: int
) -> dict[str, Times]:
    """Seconds of each variant; in every repetition each has its turn."""
    times: dict[str, Times] = {name: {"full": [], "first": [], "node": []} for name in variants}
    ready = {name: variant.prepare(inputs[name]) for name, variant in variants.items()}
    draws = rng.uniform(rng.keys([seed], "bench nodes"), repeats + 1)[0]
    nodes = (draws * len(inputs["pyg"].x)).long().tolist()
    for i, node in enumerate(nodes):  # the first time is a warm-up
        for name, variant in variants.items():
            small = inputs[name].around(node)
            taken = {
                "full": seconds(ready[name], device),
                "node": seconds(partial(_run, variant, small), device),
                "first": seconds(partial(_run, variant, inputs[name]), device),
            }
            for what, value in taken.items():
                times[name][what] += [value] if i else []
    return times


def _run(variant: _Variant, inputs: _Inputs) -> Tensor:
    return variant.prepare(inputs)()


def _measured(
    ticket: Ticket, name: str, variant: _Variant, inputs: _Inputs, times: Times, device: torch.device
) -> Measured:
    graph = Graph.from_edge_index(inputs.edge_index.cpu(), len(inputs.x), ticket.graph.directed)
    return Measured(
        variant=name,
        macs=ticket.sizes["macs" if name == "ticket" else "dense_macs"],
        parameters=variant.parameters,
        edges=graph.num_edges,
        file_bytes=variant.file_bytes(),
        memory_bytes=_peak_bytes(variant, inputs, device),
        **{what: Latency.of(seconds) for what, seconds in times.items()},
    )


def _peak_bytes(variant: _Variant, inputs: _Inputs, device: torch.device) -> int:
    """Weights, inputs and the most that a forward pass from plain inputs puts on top of them."""
    resting: int = variant.weight_bytes + inputs.nbytes
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before: int = torch.cuda.memory_allocated(device)
        _run(variant, inputs)
        peak: int = torch.cuda.max_memory_allocated(device)
        return resting + peak - before
    allocations = Allocations()
    with allocations:
        _run(variant, inputs)
    return resting + allocations.peak


class Allocations(TorchDispatchMode):
    """Follows the storage of every tensor that an operation makes; what kernels use inside is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = self._now = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {id(self._storage(t)) for t in tree_leaves((args, kwargs)) if self._storage(t) is not None}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            storage = self._storage(tensor)
            if storage is not None and id(storage) not in known | self._alive:
                self._add(storage)
        return out

    @staticmethod
    def _storage(value: Any) -> Any:
        strided = isinstance(value, Tensor) and value.layout == torch.strided
        return value.untyped_storage() if strided else None

    def _add(self, storage: Any) -> None:
        number, size = id(storage), storage.nbytes()
        self._alive.add(number)
        self._now += size
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._remove, number, size)

    def _remove(self, number: int, size: int) -> None:
        self._alive.discard(number)
        self._now -= size


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"


_LABELS = {"full": "full graph", "first": "full graph, from plain tensors", "node": "one node's neighbourhood"}


def write_plot(result: Benchmark, path: str | Path) -> None:
    """The latencies as bars in one HTML page, which needs no network."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise ConfigError("the plot needs plotly: pip install plotly") from None

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
