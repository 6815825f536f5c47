"""A ticket as a file holds it: whole, or what inference needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from aceglt.backbones import Params
from aceglt.config.formats import read_config
from aceglt.config.own import is_own
from aceglt.errors import ConfigError, TicketError
from aceglt.files import schema
from aceglt.files import tensors as storage
from aceglt.files.schema import COUNT, FLAG, NUMBER, OBJECT, TEXT, Kind
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Masks
from aceglt.tickets.own import Names

if TYPE_CHECKING:
    from aceglt.tickets.ticket import Ticket

PARTS = ("all", "inference")
SIZES = ("in_features", "out_features", "macs", "dense_macs")
EDGE_SIZES = ("edge_features",)  # only in tickets of a backbone that reads such
_METRICS = ("val", "test", "dense_val", "dense_test")
_MAX_NODES = 2**31 - 1
_POSITIVE = Kind("a whole number from 1", lambda value: COUNT.fits(value) and value >= 1)
_PAYLOAD = {
    "config": OBJECT,
    "seed": COUNT,
    "level": COUNT,
    "metrics": dict.fromkeys(_METRICS, (NUMBER,)),
    "sizes": dict.fromkeys(SIZES, _POSITIVE),
    "several": FLAG,
    "backend": TEXT,
    "method": TEXT,
    "parts": TEXT,
    "graph": {"num_nodes": _POSITIVE, "num_edges": _POSITIVE, "directed": FLAG, "fingerprint": TEXT,
              "structure": TEXT, "edge_features": FLAG},
    "counts": {"weights": COUNT, "edges": COUNT},
}  # fmt: skip
_GAPS, _PACKED, _PER_GAP = {"weights.gaps": "weights", "edges.gaps": "edges"}, ".packed", 9  # bytes at most
_PER_WEIGHT, _PER_EDGE = 13, 80  # bytes of memory that a mask's bit stands for, measured


@dataclass(frozen=True)
class Whole:
    """What is known of a graph of which a ticket holds the alive edges alone."""

    num_edges: int
    structure: str


def content(ticket: Ticket, parts: str = "all", half: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON payload and the tensors of a ticket's file.

    Raises ConfigError for unknown parts, or weights that are too large for `half` precision.
    """
    if parts not in PARTS:
        raise ConfigError(f"unknown parts '{parts}' of a ticket; known are {', '.join(PARTS)}")
    if half and parts != "inference":
        raise ConfigError("half precision is for parts='inference': a whole ticket has to repeat its training")
    if parts == "all" and (ticket.initial is None or ticket.whole is not None):
        parts = "inference"  # there is no more
    graph, whole = ticket.graph, ticket.whole
    facts = {
        "structure": whole.structure if whole else graph.structure,
        "num_nodes": graph.num_nodes,
        "num_edges": ticket.total.edges,
        "directed": graph.directed,
        "fingerprint": ticket.fingerprint,
        "edge_features": ticket.reads_edge_features,
    }
    payload = {
        "config": ticket.config.to_dict(),
        "seed": ticket.seed,
        "level": ticket.level,
        "metrics": dict(ticket.metrics),
        "sizes": dict(ticket.sizes),
        "several": ticket.several,
        "backend": ticket.backend,
        **({"method": ticket.method} if ticket.method else {}),
        **({"parts": parts} if parts != "all" else {}),
        "graph": facts,
        **({} if ticket.names is None else {"names": ticket.names.plain()}),
        "counts": {"weights": ticket.total.weights, "edges": ticket.total.edges},
    }
    tensors = {} if ticket.nodes is None else {"nodes": storage.pack_ascending(ticket.nodes)}
    if ticket.masks.unseen is not None:
        tensors["masks.unseen"] = ticket.masks.unseen.byte()
    if parts == "inference":
        return payload, tensors | _for_inference(ticket, half)
    tensors |= {
        "masks.weights": storage.pack(ticket.masks.weights),
        "masks.edges": storage.pack(ticket.masks.edges),
        "edges": graph.edges.int(),
        **({} if graph.edge_weight is None else {"edge_weight": graph.edge_weight}),
    }
    for when, params in (("initial", ticket.initial), ("trained", ticket.trained)):
        assert params is not None
        tensors |= _weights(ticket, when, params)
    return payload, tensors


def _weights(ticket: Ticket, when: str, params: Params) -> dict[str, Tensor]:
    alive = np.compress(
        ticket.masks.weights[0].numpy(), params.prunable[0].detach().numpy()
    )  # a seventh of torch's time
    return {f"{when}.prunable": torch.from_numpy(alive), f"{when}.other": params.other[0]}


def _for_inference(ticket: Ticket, half: bool) -> dict[str, Tensor]:
    """The trained weights, the alive edges, and masks by what takes less: a bit per weight, or gaps."""
    kept = ticket.graph.subgraph(ticket.masks.edges[0])
    bits = storage.pack(ticket.masks.weights)
    gaps = storage.pack_ascending(ticket.masks.weights[0].nonzero().squeeze(1))
    values = _weights(ticket, "trained", ticket.trained)
    values |= {} if kept.edge_weight is None else {"edge_weight": kept.edge_weight}
    if half:
        values = {name: value.half() for name, value in values.items()}
        if not all(bool(value.isfinite().all()) for value in values.values()):
            raise ConfigError("the ticket has weights beyond the range of half precision; save it in full")
    masks = {"masks.weights": bits} if len(bits[0]) < len(gaps) else {"weights.gaps": gaps}
    return {**masks, **values, "edges.gaps": storage.pack_ascending(kept.edges[0] * kept.num_nodes + kept.edges[1])}


def written(ticket: Ticket, parts: str = "all", half: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `content` says, with gaps packed where that takes less, as they do in regular graphs."""
    payload, tensors = content(ticket, parts, half)
    for name in _GAPS.keys() & tensors.keys():
        if len(packed := storage.deflate(tensors[name])) < len(tensors[name]):
            del tensors[name]
            tensors[f"{name}{_PACKED}"] = packed
    return payload, tensors


def _unpacked(tensors: Mapping[str, Tensor], counts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The inverse of `written`."""
    given = {name: f"{name}{_PACKED}" for name in _GAPS if f"{name}{_PACKED}" in tensors}
    found = {
        name: storage.inflate(tensors[packed], _PER_GAP * int(counts[_GAPS[name]])) for name, packed in given.items()
    }
    return {**tensors, **found}


def claimed_bytes(payload: Mapping[str, Any]) -> int:
    """What a checked payload makes us allocate."""
    schema.check({"backend": "", "method": "", "parts": "all", **payload}, _PAYLOAD, "ticket")
    return _PER_WEIGHT * int(payload["counts"]["weights"]) + _PER_EDGE * int(payload["counts"]["edges"])


def read(payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The fields of a ticket. Raises ValueError, KeyError and the like where something does not fit."""
    counts, sizes, metrics = payload["counts"], payload["sizes"], payload["metrics"]
    tensors = _unpacked(tensors, counts)
    inference = payload.get("parts", "all") == "inference"
    graph = (_alive_graph if inference else _graph)(payload["graph"], tensors, int(counts["edges"]))
    masks = Masks(
        _weight_mask(tensors, int(counts["weights"])), _edge_mask(graph, tensors, inference), _unseen_mask(tensors)
    )
    config = read_config(payload["config"], payload["format"])
    names = SIZES + tuple(name for name in EDGE_SIZES if name in sizes)
    if names != SIZES and not config.backbone_options.reads_edge_features:
        raise ValueError(f"the backbone {config.backbone} does not read edge_features")
    if masks.weights.shape[0] != 1 or masks.edges.shape[0] != 1:
        raise ValueError("the masks are not those of one run")
    facts = payload["graph"]
    return {
        "config": config,
        "seed": int(payload["seed"]),
        "level": int(payload["level"]),
        "masks": masks,
        "initial": None if inference else _scattered(masks, tensors, "initial"),
        "trained": _scattered(masks, tensors, "trained"),
        "metrics": {name: None if metrics[name] is None else float(metrics[name]) for name in _METRICS},
        "sizes": {name: _positive(name, sizes[name]) for name in names},
        "graph": graph,
        "fingerprint": str(facts["fingerprint"]),
        "several": bool(payload["several"]),
        "names": _names(payload.get("names"), masks, tensors) if is_own(config.backbone) else None,
        "backend": payload.get("backend", "unknown"),
        "method": payload.get("method", ""),
        "nodes": _nodes(tensors, graph.num_nodes),
        "whole": Whole(int(facts["num_edges"]), str(facts["structure"])) if inference else None,
    }


def _weight_mask(tensors: Mapping[str, Tensor], count: int) -> Tensor:
    if "weights.gaps" not in tensors:
        return storage.unpack(tensors["masks.weights"], count)
    alive = storage.unpack_ascending(tensors["weights.gaps"], count)
    return torch.zeros(1, count, dtype=torch.bool).index_fill_(1, alive, True)


def _edge_mask(graph: Graph, tensors: Mapping[str, Tensor], inference: bool) -> Tensor:
    if inference:
        return torch.ones(1, graph.num_edges, dtype=torch.bool)
    return storage.unpack(tensors["masks.edges"], graph.num_edges)


def _unseen_mask(tensors: Mapping[str, Tensor]) -> Tensor | None:
    unseen = tensors.get("masks.unseen")
    if unseen is not None and (unseen.dtype != torch.uint8 or unseen.dim() != 2 or len(unseen) != 1):
        raise ValueError(f"a mask of unseen edges cannot be read from {unseen.dtype} of shape {list(unseen.shape)}")
    return None if unseen is None else unseen.bool()


def _nodes(tensors: Mapping[str, Tensor], count: int) -> Tensor | None:
    if "nodes" not in tensors:
        return None
    nodes = storage.unpack_ascending(tensors["nodes"], _MAX_NODES)
    if len(nodes) != count:
        raise ValueError(f"numbers of {len(nodes)} nodes for a graph of {count}")
    return nodes


def _names(values: Any, masks: Masks, tensors: Mapping[str, Tensor]) -> Names | None:
    return None if values is None else Names.read(values, masks.total.weights, tensors["trained.other"].numel())


def _num_nodes(facts: Mapping[str, Any]) -> int:
    num_nodes = _positive("num_nodes", facts["num_nodes"])
    if num_nodes > _MAX_NODES:
        raise ValueError(f"num_nodes must be at most {_MAX_NODES}, found {num_nodes}")
    return num_nodes


def _checked_weight(weight: Tensor | None, count: int) -> Tensor | None:
    if weight is None:
        return None
    if weight.shape != (count,) or not weight.is_floating_point() or not bool(weight.isfinite().all()):
        raise ValueError(f"weights {weight.dtype} of shape {list(weight.shape)}, or not finite, for {count} edges")
    return weight.float() if weight.dtype == torch.float16 else weight


def _alive_graph(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], claimed: int) -> Graph:
    num_nodes = _num_nodes(facts)
    code = storage.unpack_ascending(tensors["edges.gaps"], num_nodes**2)
    edges, directed = torch.stack([code // num_nodes, code % num_nodes]), bool(facts["directed"])
    if claimed != facts["num_edges"] or len(code) > claimed:
        raise ValueError(f"{len(code)} alive edges of {facts['num_edges']}, and masks of {claimed}")
    if bool((edges[0] == edges[1]).any()) or not (directed or bool((edges[0] < edges[1]).all())):
        raise ValueError("the edges are not sorted pairs of nodes")
    return Graph(num_nodes, edges, directed, _checked_weight(tensors.get("edge_weight"), len(code)))


def _graph(facts: Mapping[str, Any], tensors: Mapping[str, Tensor], masked: int) -> Graph:
    edges, num_nodes = tensors["edges"], _num_nodes(facts)
    if edges.dtype != torch.int32 or edges.shape != (2, masked) or masked == 0:
        raise ValueError(f"masks of {masked} edges for edges {edges.dtype} of shape {list(edges.shape)}")
    weight = _checked_weight(tensors.get("edge_weight"), masked)
    graph = Graph(num_nodes, edges.long(), bool(facts["directed"]), weight)
    code = graph.edges[0] * num_nodes + graph.edges[1]
    if not (0 <= int(edges.min()) and int(edges.max()) < num_nodes and bool((code.diff() > 0).all())):
        raise ValueError("the edges are not sorted pairs of nodes")
    known = (graph.structure, graph.num_edges)
    if known != (facts["structure"], facts["num_edges"]) or (
        not facts["edge_features"] and facts["fingerprint"] != graph.fingerprint
    ):
        raise ValueError("the edges are not those of the graph's fingerprint")
    return graph


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1, found {value!r}")
    return value


def _scattered(masks: Masks, tensors: Mapping[str, Tensor], when: str) -> Params:
    alive, other = tensors[f"{when}.prunable"], tensors[f"{when}.other"]
    if alive.shape != (masks.alive.weights,) or other.dim() != 1:
        raise ValueError(f"{when} weights do not fit the mask")
    if alive.dtype not in (torch.float16, torch.float32, torch.float64) or other.dtype != alive.dtype:
        raise ValueError(f"{when} weights must be float32 or float64, found {alive.dtype} and {other.dtype}")
    if not (bool(torch.isfinite(alive).all()) and bool(torch.isfinite(other).all())):
        raise ValueError(f"the {when} weights are not finite")
    if alive.dtype == torch.float16:  # for less room in the file alone
        alive, other = alive.float(), other.float()
    prunable = torch.zeros(1, masks.total.weights, dtype=alive.dtype)
    prunable[masks.weights] = alive
    return Params(prunable, other.unsqueeze(0))


def checked(ticket: Ticket) -> Params:
    """The initial weights; TicketError where the ticket was saved without them."""
    if ticket.initial is None:
        raise TicketError("the ticket was saved for inference, without its initial weights; evaluate the whole ticket")
    return ticket.initial
