"""The ticket: masks, the initial and trained weights that are alive, and where it comes from. The product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aceglt import storage
from aceglt.backbones.base import Params
from aceglt.config import Config
from aceglt.errors import AcegltError, TicketError
from aceglt.graph import Graph
from aceglt.masks import Masks
from aceglt.tasks import build_problem

_KIND, _VERSION = "ticket", 1


@dataclass(frozen=True)
class Ticket:
    """A sparse subgraph and a sparse subnetwork of one run, with the weights it starts from and those it ended with."""

    config: Config
    seed: int
    level: int
    masks: Masks  # S = 1
    initial: Params  # S = 1, dead weights are 0
    trained: Params  # S = 1, dead weights are 0
    metrics: Mapping[str, float | None]
    """val, test, dense_val, dense_test of this run; test is None where it was never read."""
    sizes: Mapping[str, int]
    """in_features, out_features, macs, dense_macs."""
    graph: Mapping[str, Any]
    """fingerprint, structure, num_nodes, num_edges, directed of the graph it was found on: the training graph."""

    @property
    def model_sparsity(self) -> float:
        return self.masks.sparsity[0]

    @property
    def graph_sparsity(self) -> float:
        return self.masks.sparsity[1]

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: bit-packed masks and the alive weights."""
        alive = self.masks.weights[0]
        payload = {
            "config": self.config.to_dict(),
            "seed": self.seed,
            "level": self.level,
            "metrics": dict(self.metrics),
            "sizes": dict(self.sizes),
            "graph": dict(self.graph),
            "counts": {"weights": alive.shape[0], "edges": self.masks.edges.shape[1]},
        }
        tensors = {
            "masks.weights": storage.pack(self.masks.weights),
            "masks.edges": storage.pack(self.masks.edges),
            "initial.prunable": self.initial.prunable[0][alive],
            "initial.other": self.initial.other[0],
            "trained.prunable": self.trained.prunable[0][alive],
            "trained.other": self.trained.other[0],
        }
        storage.write_tensors(Path(path), _KIND, _VERSION, payload, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Ticket:
        """Read a ticket; nothing in it is executed.

        Raises TicketError if the file is missing, damaged or of another kind.
        """
        payload, tensors = storage.read_tensors(Path(path), _KIND, _VERSION, TicketError)
        try:
            return _from_parts(payload, tensors)
        except KeyError as problem:
            raise TicketError(f"{path}: the ticket lacks {problem}") from None
        except (TypeError, ValueError, ArithmeticError, RuntimeError, IndexError, AcegltError) as problem:
            raise TicketError(f"{path}: the ticket's content does not fit together ({problem})") from None

    def apply(self, data: Any) -> Any:
        """A copy of a PyG `Data` without the dead edges, in either direction; all else but held-out edges is kept.

        What the data says about edges (`edge_attr` …) is filtered with them; self-loops, which are never pruned, stay.
        An inductive ticket says nothing about edges unseen in training: they stay, and the data needs its split.
        Raises TicketError if the data's (training) graph is not the one that the ticket was found on.
        """
        graph, alive = self._alive_edges(data)
        return data.edge_subgraph(graph.expand(alive, data.edge_index.cpu()).to(data.edge_index.device))

    def _alive_edges(self, data: Any) -> tuple[Graph, Tensor]:
        """A graph on the data's nodes, and which of its edges are alive, [E] bool."""
        if self.config.task == "node":  # needs nothing but the edges, so features, labels and split may be missing
            graph = Graph.from_edge_index(data.edge_index.cpu(), int(data.num_nodes), bool(self.graph["directed"]))
            self._check_structure(graph)
            return graph, self.masks.edges[0]
        problem = build_problem(self.config, data)
        self._check_structure(problem.graph)
        view = problem.view("test")
        return (problem.graph, self.masks.edges[0]) if view is None else (view.graph, view.spread(self.masks.edges)[0])

    def check(self, graph: Graph) -> None:
        """Raise TicketError unless this is the graph that the ticket was found on."""
        self._check_structure(graph)
        if graph.fingerprint != self.graph["fingerprint"]:
            raise TicketError(
                f"the ticket was found on a graph with the same edges but other edge_weight or edge_attr "
                f"({self.config.dataset})"
            )

    def _check_structure(self, graph: Graph) -> None:
        if graph.structure != self.graph["structure"]:
            raise TicketError(
                f"the ticket was found on a graph with {self.graph['num_nodes']} nodes and {self.graph['num_edges']} "
                f"edges ({self.config.dataset}); this one has {graph.num_nodes} nodes and {graph.num_edges} edges"
                + ("" if graph.num_edges != self.graph["num_edges"] else ", and other ones")
            )


def _from_parts(payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Ticket:
    counts = payload["counts"]
    graph, sizes = payload["graph"], payload["sizes"]
    masks = Masks(
        storage.unpack(tensors["masks.weights"], int(counts["weights"])),
        storage.unpack(tensors["masks.edges"], int(counts["edges"])),
    )
    if masks.weights.shape[0] != 1 or masks.edges.shape[0] != 1:
        raise ValueError("the masks are not those of one run")
    if graph["num_edges"] != masks.total.edges:
        raise ValueError(f"masks of {masks.total.edges} edges for a graph of {graph['num_edges']}")
    return Ticket(
        config=Config.from_dict(payload["config"]),
        seed=int(payload["seed"]),
        level=int(payload["level"]),
        masks=masks,
        initial=_spread(masks, tensors, "initial"),
        trained=_spread(masks, tensors, "trained"),
        metrics={name: _reading(payload["metrics"][name]) for name in ("val", "test", "dense_val", "dense_test")},
        sizes={name: _positive(name, sizes[name]) for name in ("in_features", "out_features", "macs", "dense_macs")},
        graph={
            "fingerprint": str(graph["fingerprint"]),
            "structure": str(graph["structure"]),
            "num_nodes": _positive("num_nodes", graph["num_nodes"]),
            "num_edges": _positive("num_edges", graph["num_edges"]),
            "directed": bool(graph["directed"]),
        },
    )


def _reading(value: Any) -> float | None:
    return None if value is None else float(value)


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1, found {value!r}")
    return value


def _spread(masks: Masks, tensors: Mapping[str, Tensor], when: str) -> Params:
    alive, other = tensors[f"{when}.prunable"], tensors[f"{when}.other"]
    prunable = torch.zeros(1, masks.total.weights, dtype=alive.dtype)
    if alive.shape != (masks.alive.weights,) or other.dim() != 1 or not alive.is_floating_point():
        raise ValueError(f"{when} weights do not fit the mask")
    prunable[masks.weights] = alive
    return Params(prunable, other.unsqueeze(0))
