"""Tickets of the user's own model: the module itself with the ticket's weights, dead ones 0."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from aceglt.backbones import Backbone
from aceglt.config.own import again, name_of
from aceglt.errors import ConfigError, DataError, TicketError
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.tickets.export import about_graph, about_outputs, alive_graph, arrays, saved, traced_files, write_folder

if TYPE_CHECKING:
    from aceglt.tickets.ticket import Ticket


@dataclass(frozen=True)
class Names:
    """How the user's module calls what a ticket holds flat: shapes by name, in order."""

    prunable: Mapping[str, tuple[int, ...]]
    other: Mapping[str, tuple[int, ...]]
    unused: tuple[str, ...] = ()
    """Parameters without influence, which a ticket does not hold."""
    tied: Mapping[str, str] = field(default_factory=dict)
    """Further names of tensors that the module has twice."""

    @classmethod
    def of(cls, backbone: Backbone) -> Names:
        unused: frozenset[str] = getattr(backbone, "unused", frozenset())
        tied: dict[str, str] = getattr(backbone, "tied", {})
        left_out = unused | {name for name, first in tied.items() if first in unused}
        kept = {name: first for name, first in tied.items() if name not in left_out}
        return cls(dict(backbone.prunable.shapes), dict(backbone.other.shapes), tuple(sorted(left_out)), kept)

    @classmethod
    def read(cls, values: Any, weights: int, others: int) -> Names:
        """What `plain` gave; ValueError where it is something else, or not of so many numbers."""
        prunable, other = ({str(n): tuple(s) for n, s in values[part]} for part in ("prunable", "other"))
        tied = {str(name): str(first) for name, first in values.get("tied", {}).items()}
        found = cls(prunable, other, tuple(map(str, values["unused"])), tied)
        if not prunable.keys() | other.keys() >= set(tied.values()):
            raise ValueError("further names are of no parameters")
        sizes = [(prunable, weights), (other, others)]
        for shapes, wanted in sizes:
            if not all(isinstance(size, int) and size >= 0 for shape in shapes.values() for size in shape):
                raise ValueError("the shapes of the model's parameters are no whole numbers")
            if sum(map(math.prod, shapes.values())) != wanted:
                raise ValueError("the names of the model's parameters do not fit its weights")
        return found

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        shapes = {part: [[n, list(s)] for n, s in getattr(self, part).items()] for part in ("prunable", "other")}
        tied = {"tied": dict(self.tied)} if self.tied else {}
        return {**shapes, "unused": list(self.unused), **tied}

    def split(self, prunable: Tensor, other: Tensor) -> dict[str, Tensor]:
        """Named tensors of flat ones."""
        made = {**_split(prunable, self.prunable), **_split(other, self.other)}
        return made | {name: made[first] for name, first in self.tied.items()}


def _split(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    parts = flat.split([math.prod(shape) for shape in shapes.values()])
    return {name: part.reshape(shape).clone() for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def module_of(ticket: Ticket, backbone: Any, trained: bool = True) -> Module:
    """The user's module for inference, with the ticket's weights, or as it is made.

    `backbone` is a class, a factory, an instance, which is copied, or the name of one; nothing else is imported.
    Raises TicketError where it is not the model that the ticket was found with.
    """
    given = again(ticket.config.to_dict(), {"backbone": backbone}).backbone
    if isinstance(given, type) and issubclass(given, Backbone):
        raise TicketError(f"{name_of(given)} is a Backbone of aceglt's, not a torch.nn.Module; use ticket.state_dict()")
    if isinstance(given, Module):
        module = copy.deepcopy(given)
    else:
        from aceglt.backbones.module import maker  # imports PyG's layers

        module = maker(given, name_of(given), ticket.sizes["in_features"], ticket.sizes["out_features"])()
    module = module.to(ticket.trained.prunable.dtype)
    if trained:
        _load(ticket, module, name_of(given))
    return module.eval()


def compact_of(ticket: Ticket, backbone: Any) -> Module:
    """The user's module without the dead hidden units that can be cut; says so where there are none."""
    from aceglt.tickets.narrow import narrowed  # imports PyG's layers

    module = module_of(ticket, backbone)
    small, cut = narrowed(module, ticket.sizes["in_features"], forward)
    if not cut:
        logging.getLogger("aceglt").warning(
            "%s: no dead hidden unit can be removed from it; dead weights are 0, and it is as wide as before",
            type(module).__name__,
        )
    return small


def _load(ticket: Ticket, module: Module, name: str) -> None:
    state, own = ticket.state_dict(), module.state_dict()
    sized = [key for key in state if key in own and not is_lazy(own[key])]
    sizes = {key: (list(own[key].shape), list(state[key].shape)) for key in sized}
    if told := [f"{key} is {found}, the ticket's {mine}" for key, (found, mine) in sizes.items() if found != mine]:
        raise TicketError(f"{name} is not the ticket's model: {', '.join(told[:3])}")
    try:
        found = module.load_state_dict(state, strict=False)
    except RuntimeError as problem:
        raise TicketError(f"{name} is not the ticket's model: {problem}") from None
    known = ticket.names.unused if ticket.names else ()
    lost = [key for key in found.missing_keys if key not in known]
    if lost or found.unexpected_keys:
        told = [*(f"{key} is not in the ticket" for key in lost), *(f"it has no {k}" for k in found.unexpected_keys)]
        raise TicketError(f"{name} is not the ticket's model: {', '.join(told[:3])}")


def forward(module: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """Outputs [N, C]; a module that takes weights of edges is given ones where there are none, as in the search."""
    options = {}
    if _takes_weight(module):
        options["edge_weight"] = x.new_ones(edge_index.shape[1]) if edge_weight is None else edge_weight.to(x)
    made: Tensor = module(x, edge_index, **options)
    return made


def outputs(ticket: Ticket, data: Any, backbone: Any, device: torch.device | str = "cpu") -> Tensor:
    """[N, C] of the user's module on data that the ticket was applied to. Where edges have weights, layers that do not
    read `edge_weight` have their messages multiplied, as in the search."""
    module = module_of(ticket, backbone).to(device)
    data = data.dense() if hasattr(data, "dense") else data  # as the search did
    x, edge_index = data.x.to(device, ticket.trained.prunable.dtype), data.edge_index.to(device)
    if ticket.weighted:
        if getattr(data, "edge_weight", None) is None:
            raise DataError("the ticket was found on a graph with edge_weight, which this one lacks")
        graph = Graph.from_edge_index(edge_index, len(x), ticket.graph.directed, data.edge_weight.to(device))
        return _as_searched(ticket, backbone, graph, x)
    with torch.no_grad():
        return forward(module, x, edge_index)


def _as_searched(ticket: Ticket, backbone: Any, graph: Graph, x: Tensor) -> Tensor:
    """Outputs of the module as the search runs it, with the scores of arcs in its layers."""
    from aceglt.backbones.module import ModuleBackbone  # imports PyG's layers

    assert ticket.names is not None
    given, wanted = again(ticket.config.to_dict(), {"backbone": backbone}).backbone, ticket.names.prunable
    network = ModuleBackbone(given, graph, x, ticket.sizes["out_features"], lambda name, _: name in wanted)
    ones = torch.ones(1, graph.num_edges, dtype=torch.bool, device=x.device)
    weights = network.weights(ticket.trained.to(x.device))
    with torch.no_grad():
        return network.apply(weights, graph.batch(ones, network.self_loops), ones.to(x.dtype), Features(x))[0]


def check_weights(ticket: Ticket, module: Module, backbone: Any) -> None:
    """Raise TicketError where edges have weights that the module by itself does not use as the search did."""
    if not ticket.weighted:
        return
    graph = ticket.graph.subgraph(ticket.masks.edges[0])
    x = rng.uniform(rng.keys([0], "weights of edges"), graph.num_nodes * ticket.sizes["in_features"])
    x = x.view(graph.num_nodes, -1).to(ticket.trained.prunable.dtype)
    with torch.no_grad():
        alone = forward(module.cpu(), x, *graph.arcs())
    wanted = _as_searched(ticket, backbone, graph, x)
    if not torch.allclose(alone, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max())):
        raise TicketError(
            f"{type(module).__name__} does not read the graph's edge_weight in all its layers, so the search "
            "multiplied their messages, which the module by itself does not; predict does, and export needs a module "
            "whose forward uses edge_weight"
        )


def _takes_weight(module: Module) -> bool:
    from aceglt.backbones.probe import takes_weight  # imports PyG's layers

    return takes_weight(module, type(module).__name__)


def export_own(ticket: Ticket, out: str | Path, format: str, backbone: Any) -> Path:
    """A folder with the module's weights (pyg) or the traced module (torch-export, onnx), the alive edges, a README.

    Raises what `export` does, and TicketError if the module cannot be traced.
    """
    module = module_of(ticket, backbone) if format == "pyg" else compact_of(ticket, backbone)
    check_weights(ticket, module, backbone)

    def made() -> dict[str, bytes]:
        weighed = _takes_weight(module)
        files = _weights(ticket, module) if format == "pyg" else _traced(ticket, module, format, weighed)
        return {**files, "README.md": _readme(ticket, format, weighed).encode()}

    return write_folder(ticket, out, format, made)


def _weights(ticket: Ticket, module: Module) -> dict[str, bytes]:
    kept = {"state_dict.pt": module.state_dict(), **{f"{name}.pt": part for name, part in alive_graph(ticket).items()}}
    return {name: saved(partial(torch.save, content)) for name, content in kept.items()}


def _traced(ticket: Ticket, module: Module, format: str, weighed: bool) -> dict[str, bytes]:
    try:
        return traced_files(ticket, module, format, weighed)
    except ConfigError:
        raise
    except Exception as problem:
        reason = str(problem).strip().splitlines()
        told = f"{type(module).__name__} for {format} ({reason[0] if reason else type(problem).__name__})"
        raise TicketError(f"torch cannot trace {told}; the format pyg writes its weights") from None


def _readme(ticket: Ticket, format: str, weighed: bool) -> str:
    module, _, kind = ticket.config.backbone.partition(":")
    module = "my_module" if module == "__main__" else module  # of a notebook
    sizes = ticket.sizes
    read = given = ones = ""
    if weighed and ticket.weighted:
        read = '\nedge_weight = torch.load("edge_weight.pt", weights_only=True)'
        given, ones = ", edge_weight=edge_weight", ', "edge_weight": edge_weight'
    elif weighed:
        given = ", edge_weight=torch.ones(edge_index.shape[1], dtype=x.dtype)"
        ones = ', "edge_weight": numpy.ones(edge_index.shape[1], x.dtype)'
    use = {
        "pyg": f"""import torch
from {module} import {kind.split(".")[0]}

model = {kind}({sizes["in_features"]}, {sizes["out_features"]})  # as you make it
model.load_state_dict(torch.load("state_dict.pt", weights_only=True))
edge_index = torch.load("edge_index.pt", weights_only=True){read}
with torch.no_grad():
    outputs = model.eval()(x, edge_index{given})""",
        "torch-export": f"""import numpy, torch

model = torch.export.load("model.pt2").module()
{arrays(ticket, "torch.from_numpy(numpy.load({}))")}
outputs = model(x, edge_index{given})""",
        "onnx": f"""import numpy, onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
{arrays(ticket, "numpy.load({})")}
outputs = session.run(None, {{"x": x, "edge_index": edge_index{ones}}})[0]""",
    }[format]
    directions = "" if ticket.graph.directed else ", both directions of each,"
    return f"""# A graph lottery ticket

{ticket.config.backbone} on {ticket.dataset}: {100 * ticket.model_sparsity:.2f} % of the prunable weights are 0
and {100 * ticket.graph_sparsity:.2f} % of the edges are pruned. Made by aceglt, which is not needed to run it.

`x` is [nodes, {sizes["in_features"]}]; `edge_index` holds the alive edges{directions} of
{about_graph(ticket)}. {about_outputs(ticket)}

```python
{use}
```
"""
