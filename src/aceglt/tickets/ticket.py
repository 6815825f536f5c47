"""The ticket: masks, the initial and trained weights that are alive, and where it comes from. The product."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aceglt import datasets
from aceglt.backbones import Backbone, Params, build
from aceglt.config import Config
from aceglt.config.formats import FORMAT, read_config
from aceglt.config.own import again, is_own
from aceglt.errors import AcegltError, ConfigError, TicketError, is_shortage
from aceglt.files import check_claim, schema
from aceglt.files import tensors as storage
from aceglt.files.schema import COUNT, FLAG, NUMBER, OBJECT, TEXT, Kind
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks
from aceglt.problems import build_problem
from aceglt.searches.sketch import bars
from aceglt.searches.wording import escape, percent, plus_minus, quantity
from aceglt.tickets.compact import CompactModel
from aceglt.tickets.export import export as write_export
from aceglt.tickets.own import Names, export_own, module_of
from aceglt.tickets.own import outputs as own_outputs

UNSEEN = ("error", "keep", "drop")
_KIND = "ticket"
_LARGER = 4  # than the training graph a whole one may be
_MAX_NODES = 2**31 - 1
_SIZES = ("in_features", "out_features", "macs", "dense_macs")
_METRICS = ("val", "test", "dense_val", "dense_test")
_EDGE_SIZES = ("edge_features",)  # only in tickets of a backbone that reads such
_POSITIVE = Kind("a whole number from 1", lambda value: COUNT.fits(value) and value >= 1)
_PAYLOAD = {
    "config": OBJECT,
    "seed": COUNT,
    "level": COUNT,
    "metrics": dict.fromkeys(_METRICS, (NUMBER,)),
    "sizes": dict.fromkeys(_SIZES, _POSITIVE),
    "several": FLAG,
    "backend": TEXT,
    "method": TEXT,
    "graph": {"num_nodes": _POSITIVE, "num_edges": _POSITIVE, "directed": FLAG, "fingerprint": TEXT,
              "structure": TEXT, "edge_features": FLAG},
    "counts": {"weights": COUNT, "edges": COUNT},
}  # fmt: skip
_PER_WEIGHT, _PER_EDGE = 13, 80  # bytes of memory that a mask's bit stands for, measured


@dataclass(frozen=True, repr=False)
class Ticket:
    """A sparse subgraph and a sparse subnetwork of one run, with the weights it starts from and those it ended with.

    Examples:
        >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2, hidden=8).tickets[0]
        >>> ticket
        Ticket of random, gcn with 8 hidden units on data, node task
        level 1 of the model axis, seed 0, preset default, 2 epochs
        weights  51 of 64 (20.31 % sparse)
        ...
    """

    config: Config
    seed: int
    level: int
    masks: Masks  # S = 1
    initial: Params  # S = 1, dead weights are 0; with `rewind_epoch`, those of the dense model after that epoch
    trained: Params  # S = 1, dead weights are 0
    metrics: Mapping[str, float | None]
    """val, test, dense_val, dense_test of this run; test is None where it was never read."""
    sizes: Mapping[str, int]
    """in_features, out_features, macs, dense_macs; edge_features where the backbone reads such."""
    graph: Graph
    """The (training) graph that it was found on: all edges, dead ones too, with their weights."""
    fingerprint: str
    """Of that graph; it covers features of edges too, which a ticket does not hold."""
    several: bool = False
    """Whether a node may have several labels (or none) rather than one class."""
    names: Names | None = None
    """What a model of the user's own calls its weights; None for a built-in backbone."""
    backend: str = "unknown"
    """What trained it; another one gives the same to rounding only."""
    method: str = ""
    """The name of a method of the user's own; empty for a built-in one."""

    @property
    def model_sparsity(self) -> float:
        return self.masks.sparsity[0]

    @property
    def graph_sparsity(self) -> float:
        return self.masks.sparsity[1]

    def __repr__(self) -> str:
        c, alive, total, dense = self.config, self.masks.alive, self.masks.total, self.sizes["dense_macs"]
        shown = {name: plus_minus(None if value is None else [value]) for name, value in self.metrics.items()}
        network = f"your own {c.backbone}" if is_own(c.backbone) else c.backbone
        rewound = f", rewound to epoch {c.training.rewind_epoch}" if c.training.rewind_epoch else ""
        width = "" if is_own(c.backbone) else f" with {c.backbone_options.hidden} hidden units"
        return "\n".join(
            [
                f"Ticket of {self.method or c.label}, {network}{width} on {c.dataset}, {c.task} task",
                f"level {self.level} of the {c.pruning.axis} axis, seed {self.seed}, preset {c.preset}, "
                f"{c.training.epochs} epochs{rewound}",
                f"weights  {alive.weights:,} of {total.weights:,} ({percent(self.model_sparsity)} sparse)",
                f"edges    {alive.edges:,} of {total.edges:,} ({percent(self.graph_sparsity)} sparse)",
                f"MACs     {quantity(self.sizes['macs'])} of {quantity(dense)} "
                f"({dense / self.sizes['macs']:.1f}× fewer)",
                f"val      {shown['val']} (dense {shown['dense_val']})",
                f"test     {shown['test']} (dense {shown['dense_test']})",
                f"graph    {self.graph.num_nodes:,} nodes, fingerprint {self.fingerprint}",
            ]
        )

    def _repr_html_(self) -> str:
        first, second, *facts = (escape(line) for line in repr(self).splitlines())
        shares = {"weights": 1 - self.model_sparsity, "edges": 1 - self.graph_sparsity}
        shares["MACs"] = self.sizes["macs"] / self.sizes["dense_macs"]
        drawn = bars([(f"{name} left", share, percent(share)) for name, share in shares.items()], "what is left")
        return f"<p><b>{first}</b><br>{second}</p>{drawn}<pre>{'<br>'.join(facts)}</pre>"

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: bit-packed masks, the alive weights and the graph's edges."""
        alive, graph = self.masks.weights[0], self.graph
        with_edge_features = self.fingerprint != graph.fingerprint  # which the ticket does not hold
        payload = {
            "config": self.config.to_dict(),
            "seed": self.seed,
            "level": self.level,
            "metrics": dict(self.metrics),
            "sizes": dict(self.sizes),
            "several": self.several,
            "backend": self.backend,
            **({"method": self.method} if self.method else {}),
            "graph": {**_facts(graph), "fingerprint": self.fingerprint, "edge_features": with_edge_features},
            **({} if self.names is None else {"names": self.names.plain()}),
            "counts": {"weights": alive.shape[0], "edges": self.masks.edges.shape[1]},
        }
        tensors = {
            "masks.weights": storage.pack(self.masks.weights),
            "masks.edges": storage.pack(self.masks.edges),
            "edges": graph.edges.int(),
            **({} if graph.edge_weight is None else {"edge_weight": graph.edge_weight}),
        }
        for when, params in (("initial", self.initial), ("trained", self.trained)):
            tensors |= {f"{when}.prunable": params.prunable[0][alive], f"{when}.other": params.other[0]}
        storage.write_tensors(Path(path), _KIND, FORMAT, payload, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Ticket:
        """Read a ticket; nothing in it is executed.

        Raises TicketError if the file is missing, damaged or of another kind.
        """
        payload, tensors = storage.read_tensors(Path(path), _KIND, FORMAT, TicketError)
        try:
            schema.check({"backend": "", "method": "", **payload}, _PAYLOAD, "ticket")
            needed = _PER_WEIGHT * payload["counts"]["weights"] + _PER_EDGE * payload["counts"]["edges"]
            check_claim(needed, os.path.getsize(path), "its masks", TicketError)
            return _from_parts(payload, tensors)
        except KeyError as problem:
            raise TicketError(f"{path}: the ticket lacks {problem}") from None
        except (TypeError, ValueError, ArithmeticError, RuntimeError, IndexError, AcegltError) as problem:
            if is_shortage(problem):
                raise
            raise TicketError(f"{path}: the ticket's content does not fit together ({problem})") from None

    def apply(self, data: Any, unseen: str = "error") -> Any:
        """A copy of a PyG `Data` without the dead edges, in either direction; all else is kept.

        What the data says about edges (`edge_attr` …) is filtered with them; self-loops, which are never pruned, stay.
        An inductive ticket says nothing about edges unseen in training: they stay, and the data needs its split. Edges
        that link prediction holds out go.

        Args:
            data: a PyG `Data`, or what `aceglt.datasets.load` returns.
            unseen: what to do where the graph is not the one that the ticket was found on. "error": raise TicketError.
                "keep" or "drop": edges that the search never saw stay or go; nodes are known by their number, so new
                ones come after those of the search. No node is ever removed.
        """
        check_unseen(unseen)
        kept = self._kept(data, unseen)
        return data.edge_subgraph(kept.to(data.edge_index.device))

    def _kept(self, data: Any, unseen: str) -> Tensor:
        """[A] bool: which columns of the data's `edge_index` stay."""
        edge_index, alive = data.edge_index.cpu(), self.masks.edges[0]
        if self.config.task != "node":
            if unseen != "error":
                raise ConfigError(f"unseen='{unseen}' is for the node task, this ticket is of {self.config.task}")
            problem = build_problem(self.config, data)
            self._check_structure(problem.graph)
            view = problem.view("test")
            if view is None:
                return problem.graph.expand(alive, edge_index, unseen=False)
            return view.graph.expand(view.scatter(self.masks.edges)[0], edge_index)
        num_nodes = int(data.num_nodes)
        if unseen == "error":
            self._check_structure(Graph.from_edge_index(edge_index, num_nodes, self.graph.directed))
        elif num_nodes < self.graph.num_nodes:
            raise TicketError(
                f"the ticket's graph has {self.graph.num_nodes} nodes, this one {num_nodes}; nodes are known by their "
                "number, so apply the ticket before taking a part of the graph"
            )
        return self.graph.expand(alive, edge_index, unseen == "keep")

    def model(self, backbone: Any = None) -> Any:
        """The trained network without what is dead, for inference on a graph that the ticket was applied to.

        Of a ticket of your own model, that module with the ticket's weights, dead ones 0, to infer or to train:
        `backbone` is its class, a factory, an instance (which is copied) or "module:attribute". What the ticket names
        is never imported by itself.

        Examples:
            >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
            >>> ticket.model()(data.x, ticket.apply(data).edge_index).shape
            torch.Size([24, 2])
        """
        if is_own(self.config.backbone):
            return module_of(self, backbone)
        again(self.config.to_dict(), {"backbone": backbone})  # refuses one that is given in vain
        built = self.backbone()
        layers, directed = built.layers(self.trained_weights()), self.graph.directed
        return CompactModel(layers, built.coefficients, directed, built.edge_features).eval()

    def state_dict(self) -> dict[str, Tensor]:
        """The trained weights by the names that the model has for them, dead ones 0; for `load_state_dict` of your own.

        Examples:
            >>> sorted(aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0].state_dict())
            ['layer0.weight', 'layer1.weight']
        """
        if not is_own(self.config.backbone):
            return {name: part.clone() for name, part in self.trained_weights().items()}
        if self.names is None:
            raise TicketError(
                "the ticket is of an earlier version, which did not record the names of weights; search again"
            )
        return self.names.split(self.trained.prunable[0], self.trained.other[0])

    def predict(
        self, data: Any, unseen: str = "error", device: torch.device | str = "cpu", backbone: Any = None
    ) -> Tensor:
        """Probability of each class (or, where nodes have several, label) at each node, [N, classes].

        See `apply` for `unseen`, and `model` for `backbone`, which a ticket of your own model needs.

        Examples:
            >>> ticket = aceglt.search(data, method="random", levels=1, seeds=1, epochs=2).tickets[0]
            >>> ticket.predict(data).sum(dim=1).allclose(torch.ones(24))
            True
        """
        model, pruned = self.model(backbone).to(device), self.apply(data, unseen)
        if is_own(self.config.backbone):
            self.check_plain()
            outputs: Tensor = own_outputs(self, pruned, model, device)
        else:
            parts = (getattr(pruned, name, None) for name in ("x", "edge_index", "edge_attr"))
            outputs = model(*(None if part is None else part.to(device) for part in parts))
        if not bool(outputs.isfinite().all()):
            raise TicketError("the model's outputs on this graph are not finite: its weights or the features overflow")
        return (outputs.sigmoid() if self.several else outputs.softmax(dim=-1)).cpu()

    def export(self, out: str | Path, format: str = "pyg", backbone: Any = None) -> Path:
        """Write the compact model and the alive edges into a new folder, for use without aceglt.

        See `aceglt.tickets.export.export` for the formats. Of your own model, named as `backbone`, the format pyg
        writes a `state_dict` with dead weights 0; the others trace the module.
        """
        if is_own(self.config.backbone):
            self.check_plain()
            return export_own(self, out, format, backbone)
        again(self.config.to_dict(), {"backbone": backbone})
        return write_export(self, out, format)

    def trained_weights(self) -> dict[str, Tensor]:
        """The trained weights by name, dead ones 0."""
        return {name: part[0] for name, part in self.backbone().weights(self.trained).items()}

    def backbone(self) -> Backbone:
        """The backbone that the weights belong to.

        Raises TicketError if the ticket has no compact form, or the weights do not fit.
        """
        c, sizes = self.config, self.sizes
        self.check_plain()
        if is_own(c.backbone):
            raise TicketError(f"the ticket is of your own model {c.backbone}, which has no compact form")
        options = asdict(c.backbone_options) | {name: sizes[name] for name in _EDGE_SIZES if name in sizes}
        backbone = build(c.backbone, sizes["in_features"], sizes["out_features"], **options)
        wanted = (backbone.prunable.size, backbone.other.size)
        found = (self.masks.total.weights, self.trained.other.shape[1])
        if wanted != found:
            raise TicketError(
                f"the ticket has {found[0]} prunable and {found[1]} other weights, but a {c.backbone} of its sizes has "
                f"{wanted[0]} and {wanted[1]}"
            )
        return backbone

    def check_plain(self) -> None:
        """Raise TicketError where predictions are not those of a module on x and edge_index alone."""
        if self.config.task == "link" or self.graph.edge_weight is not None:
            raise TicketError(
                "model, predict, bench and export are for node tasks on graphs without edge weights; "
                "apply, evaluate and state_dict work for all"
            )

    def load_data(self, dataset: str | None = None, data_root: str | Path | None = None) -> Any:
        """The graph that the ticket was found on, by the name that its search gave; `dataset` names another place.

        Only what the caller names is downloaded, or made if it is far larger than the ticket's own graph.
        """
        if dataset is None and self.config.dataset == "data":
            raise ConfigError(
                "the ticket was found on a graph given in Python; say where it is, by the name of a dataset or as a "
                ".npz file"
            )
        if dataset is not None:
            return datasets.read(dataset, data_root)
        nodes = datasets.nodes_of_synthetic(self.config.dataset)
        if nodes > _LARGER * self.graph.num_nodes:
            raise TicketError(
                f"the ticket's graph has {self.graph.num_nodes} nodes, {self.config.dataset} {nodes}; name it with "
                "--dataset if it is that one all the same"
            )
        return datasets.read(self.config.dataset, data_root, download=False)

    def check(self, graph: Graph) -> None:
        """Raise TicketError unless this is the (training) graph that the ticket was found on."""
        self._check_structure(graph)
        if graph.fingerprint != self.fingerprint:
            raise TicketError(
                f"the ticket was found on a graph with the same edges but other edge_weight or edge_attr "
                f"({self.config.dataset})"
            )

    def _check_structure(self, graph: Graph) -> None:
        ours = self.graph
        if graph.structure != ours.structure:
            raise TicketError(
                f"the ticket was found on a graph with {ours.num_nodes} nodes and {ours.num_edges} "
                f"edges ({self.config.dataset}); this one has {graph.num_nodes} nodes and {graph.num_edges} edges"
                + ("" if graph.num_edges != ours.num_edges else ", and other ones")
            )


def check_unseen(unseen: str) -> None:
    """Refuse an unknown policy for what the search never saw."""
    if unseen not in UNSEEN:
        raise ConfigError(f"unknown policy '{unseen}' for what the search never saw; known are {', '.join(UNSEEN)}")


def _from_parts(payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Ticket:
    counts, sizes, metrics = payload["counts"], payload["sizes"], payload["metrics"]
    masks = Masks(*(storage.unpack(tensors[f"masks.{side}"], int(counts[side])) for side in ("weights", "edges")))
    config = read_config(payload["config"], payload["format"])
    names = _SIZES + tuple(name for name in _EDGE_SIZES if name in sizes)
    if names != _SIZES and not config.backbone_options.reads_edge_features:
        raise ValueError(f"the backbone {config.backbone} does not read edge_features")
    if masks.weights.shape[0] != 1 or masks.edges.shape[0] != 1:
        raise ValueError("the masks are not those of one run")
    return Ticket(
        config=config,
        seed=int(payload["seed"]),
        level=int(payload["level"]),
        masks=masks,
        initial=_scattered(masks, tensors, "initial"),
        trained=_scattered(masks, tensors, "trained"),
        metrics={name: None if metrics[name] is None else float(metrics[name]) for name in _METRICS},
        sizes={name: _positive(name, sizes[name]) for name in names},
        graph=_graph(payload["graph"], tensors, masks.total.edges),
        fingerprint=str(payload["graph"]["fingerprint"]),
        several=bool(payload["several"]),
        names=_names(payload.get("names"), masks, tensors) if is_own(config.backbone) else None,
        backend=payload.get("backend", "unknown"),
        method=payload.get("method", ""),
    )


def _names(values: Any, masks: Masks, tensors: Mapping[str, Tensor]) -> Names | None:
    return None if values is None else Names.read(values, masks.total.weights, tensors["trained.other"].numel())


def _facts(graph: Graph) -> dict[str, Any]:
    return {name: getattr(graph, name) for name in ("structure", "num_nodes", "num_edges", "directed")}


def _graph(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], masked: int) -> Graph:
    edges, weight = tensors["edges"], tensors.get("edge_weight")
    num_nodes = _positive("num_nodes", facts["num_nodes"])
    if num_nodes > _MAX_NODES:
        raise ValueError(f"num_nodes must be at most {_MAX_NODES}, found {num_nodes}")
    if edges.dtype != torch.int32 or edges.shape != (2, masked) or masked == 0:
        raise ValueError(f"masks of {masked} edges for edges {edges.dtype} of shape {list(edges.shape)}")
    if weight is not None and (weight.shape != (masked,) or not weight.is_floating_point()):
        raise ValueError(f"masks of {masked} edges for weights {weight.dtype} of shape {list(weight.shape)}")
    graph = Graph(num_nodes, edges.long(), bool(facts["directed"]), weight)
    code = graph.edges[0] * num_nodes + graph.edges[1]
    if not (0 <= int(edges.min()) and int(edges.max()) < num_nodes and bool((code.diff() > 0).all())):
        raise ValueError("the edges are not sorted pairs of nodes")
    known = {name: value for name, value in facts.items() if name not in ("fingerprint", "edge_features")}
    if known != _facts(graph) or (not facts["edge_features"] and facts["fingerprint"] != graph.fingerprint):
        raise ValueError("the edges are not those of the graph's fingerprint")
    return graph


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1, found {value!r}")
    return value


def _scattered(masks: Masks, tensors: Mapping[str, Tensor], when: str) -> Params:
    alive, other = tensors[f"{when}.prunable"], tensors[f"{when}.other"]
    prunable = torch.zeros(1, masks.total.weights, dtype=alive.dtype)
    if alive.shape != (masks.alive.weights,) or other.dim() != 1:
        raise ValueError(f"{when} weights do not fit the mask")
    if alive.dtype not in (torch.float32, torch.float64) or other.dtype != alive.dtype:
        raise ValueError(f"{when} weights must be float32 or float64, found {alive.dtype} and {other.dtype}")
    if not (bool(torch.isfinite(alive).all()) and bool(torch.isfinite(other).all())):
        raise ValueError(f"the {when} weights are not finite")
    prunable[masks.weights] = alive
    return Params(prunable, other.unsqueeze(0))
