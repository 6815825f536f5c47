"""For use without aceglt: a folder with a ticket's compact model in some format and the alive edges."""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from aceglt.backbones import portable
from aceglt.backbones.portable import Spec, TicketModel
from aceglt.errors import ConfigError, RunError, TicketError
from aceglt.files import write_atomic
from aceglt.tickets.shrink import alive_layers, shrink

if TYPE_CHECKING:
    from aceglt.tickets.ticket import Ticket


def export(ticket: Ticket, out: str | Path, format: str = "pyg") -> Path:
    """Write a folder that holds the compact model, the alive edges and a README; it needs no aceglt.

    Args:
        ticket: what to export.
        out: a folder that does not exist yet; it is there whole or not at all.
        format: "pyg" (a Python file for torch, which reads PyG's x and edge_index), "torch-export" or "onnx".

    Raises ConfigError for an unknown format or one whose packages are missing, RunError if `out` exists.
    """
    return write_folder(ticket, out, format, lambda: {**FORMATS[format](ticket), "README.md": _readme(ticket, format)})


def write_folder(ticket: Ticket, out: str | Path, format: str, made: Callable[[], Mapping[str, bytes]]) -> Path:
    """Write files into a new folder, as `export` says."""
    if format not in FORMATS:
        raise ConfigError(f"unknown format '{format}'; known are {', '.join(FORMATS)}")
    if ticket.config.task == "inductive" and ticket.nodes is None:
        raise TicketError(
            "the edges of this inductive ticket, which an earlier version saved, are numbered within its training "
            "graph; search again, or use apply and predict"
        )
    path = Path(out)
    if os.path.lexists(path):
        raise RunError(f"{path} exists already; choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
        folder = Path(temporary) / path.name
        folder.mkdir()
        for name, content in made().items():
            write_atomic(folder / name, content)
        folder.rename(path)
    return path


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    """What is saved, to be written by us: the libraries do not say that a disk is full."""
    content = io.BytesIO()
    save(content)
    return content.getvalue()


def _pyg(ticket: Ticket) -> dict[str, bytes]:
    content = portable.content(*_parts(ticket), alive_graph(ticket))
    return {"ticket.pt": saved(partial(torch.save, content)), "model.py": Path(portable.__file__).read_bytes()}


def _torch_export(ticket: Ticket) -> dict[str, bytes]:
    return traced_files(ticket, TicketModel(*_parts(ticket)).eval(), "torch-export", ticket.weighted)


def _onnx(ticket: Ticket) -> dict[str, bytes]:
    return traced_files(ticket, TicketModel(*_parts(ticket)).eval(), "onnx", ticket.weighted)


def traced_files(ticket: Ticket, model: Module, format: str, weighed: bool = False) -> dict[str, bytes]:
    """A model traced for any number of nodes and arcs, from two up, and the alive edges; `weighed` says that it takes
    edge_weight too."""
    if format == "onnx":
        try:
            import onnx  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError as problem:
            raise ConfigError(f"the format onnx needs {problem.name}: pip install 'aceglt[export]'") from None
    x = torch.zeros(7, ticket.sizes["in_features"], dtype=ticket.trained.prunable.dtype)
    edge_index = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    nodes, arcs = torch.export.Dim("nodes", min=2), torch.export.Dim("arcs", min=2)
    more, shapes = ({"edge_weight": x.new_ones(5)}, ({0: arcs},)) if weighed else ({}, ())
    arcs_of = {name: part.numpy() for name, part in alive_graph(ticket).items()}
    edges = {f"{name}.npy": saved(partial(np.save, arr=part)) for name, part in arcs_of.items()}
    with _quiet():
        program = torch.export.export(model, (x, edge_index), more, dynamic_shapes=({0: nodes}, {1: arcs}, *shapes))
        if format == "torch-export":
            return {"model.pt2": saved(partial(torch.export.save, program)), **edges}
        made = torch.onnx.export(program, dynamo=True, verbose=False)
    assert made is not None
    return {"model.onnx": made.model_proto.SerializeToString(), **edges}


FORMATS: dict[str, Callable[[Ticket], dict[str, bytes]]] = {
    "pyg": _pyg,
    "torch-export": _torch_export,
    "onnx": _onnx,
}
"""The files of each format by name."""


def _use(ticket: Ticket, format: str) -> str:
    names = ", ".join(alive_graph(ticket))
    given = ", ".join(f'"{name}": {name}' for name in ("x", *alive_graph(ticket)))
    return {
        "pyg": f"""import torch
from model import load

model, {names} = load()
with torch.no_grad():
    outputs = model(x, {names})""",
        "torch-export": f"""import numpy, torch

model = torch.export.load("model.pt2").module()
{arrays(ticket, "torch.from_numpy(numpy.load({}))")}
outputs = model(x, {names.replace("edge_weight", "edge_weight=edge_weight")})""",
        "onnx": f"""import numpy, onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
{arrays(ticket, "numpy.load({})")}
outputs = session.run(None, {{{given}}})[0]""",
    }[format]


def arrays(ticket: Ticket, read: str) -> str:
    """Lines that read what `alive_graph` has from arrays."""
    return "\n".join(f"{name} = {read.format(repr(name + '.npy'))}" for name in alive_graph(ticket)).replace("'", '"')


def alive_graph(ticket: Ticket) -> dict[str, Tensor]:
    """The alive edges as PyG's `edge_index` [2, A], and their `edge_weight` [A] if they have any."""
    arcs, weight = ticket.graph.subgraph(ticket.masks.edges[0]).arcs()
    arcs = arcs if ticket.nodes is None else ticket.nodes[arcs]
    return {"edge_index": arcs, **({} if weight is None else {"edge_weight": weight})}


def about_graph(ticket: Ticket) -> str:
    """Which graph the exported edges are of, in words for a README."""
    nodes = f"{ticket.graph.num_nodes} nodes that the ticket was found on"
    if ticket.config.task == "inductive":
        return f"the training graph, of {nodes}, by their numbers in the whole graph, all of whose `x` is read"
    return f"the graph of {nodes}"


def about_outputs(ticket: Ticket) -> str:
    """What the outputs are, in words for a README."""
    said = f"The outputs [nodes, {ticket.sizes['out_features']}] are "
    if ticket.config.task == "link":
        if ticket.objective == "infoclust":
            return f"{said}embeddings `h`: a pair is scored by the cosine of `torch.nn.functional.leaky_relu(h, 0.25)`."
        return f"{said}embeddings `h`: `torch.sigmoid((h[u] * h[v]).sum(-1))` is the probability of an edge."
    if ticket.config.task == "inductive":
        said = f"Edges of nodes that were not there in training are not in it: add those of your graph. {said}"
    return f"{said}logits{', of one label each' if ticket.several else ''}."


def _parts(ticket: Ticket) -> tuple[Tensor, list[Spec], str]:
    """Features that are read, layers without what is dead, and how arcs are weighed."""
    backbone = ticket.backbone()
    if backbone.edge_features:
        raise TicketError(
            "the ticket's model reads edge_attr, which a ticket does not hold; export is for those without"
        )
    return *shrink(*alive_layers(backbone, ticket.trained, ticket.masks)), backbone.coefficients


def _readme(ticket: Ticket, format: str) -> bytes:
    sizes, arcs = ticket.sizes, "its arcs" if ticket.graph.directed else "both directions of its edges"
    dtype = str(ticket.trained.prunable.dtype).removeprefix("torch.")
    return f"""# A graph lottery ticket

{ticket.config.backbone} on {ticket.dataset}: {100 * ticket.model_sparsity:.2f} % of the weights and
{100 * ticket.graph_sparsity:.2f} % of the edges are pruned. Made by aceglt, which is not needed to run it.

`x` is {dtype} [nodes, {sizes["in_features"]}]; `edge_index` holds the alive edges of {about_graph(ticket)},
in PyG's form. Another graph needs {arcs}, no self-loops, none twice, as aceglt's
`ticket.apply(data)` lists them. {about_outputs(ticket)}

```python
{_use(ticket, format)}
```
""".encode()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' warnings, which are about themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
