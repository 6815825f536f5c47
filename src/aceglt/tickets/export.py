"""For use without aceglt: a folder with a ticket's compact model in some format and the alive edges, or predictions."""

from __future__ import annotations

import csv
import io
import logging
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
from aceglt.tickets.shrink import shrink

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
    if ticket.config.task == "inductive":
        raise TicketError(
            "the edges of an inductive ticket are numbered within its training graph; use apply and predict"
        )
    path = Path(out)
    if path.exists():
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
    content = portable.content(*_parts(ticket), alive_arcs(ticket))
    return {"ticket.pt": saved(partial(torch.save, content)), "model.py": Path(portable.__file__).read_bytes()}


def _torch_export(ticket: Ticket) -> dict[str, bytes]:
    return traced_files(ticket, TicketModel(*_parts(ticket)).eval(), "torch-export")


def _onnx(ticket: Ticket) -> dict[str, bytes]:
    return traced_files(ticket, TicketModel(*_parts(ticket)).eval(), "onnx")


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
    edges = {"edge_index.npy": saved(lambda content: np.save(content, alive_arcs(ticket).numpy()))}
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

_USE = {
    "pyg": """import torch
from model import load

model, edge_index = load()
with torch.no_grad():
    outputs = model(x, edge_index)""",
    "torch-export": """import numpy, torch

model = torch.export.load("model.pt2").module()
edge_index = torch.from_numpy(numpy.load("edge_index.npy"))
outputs = model(x, edge_index)""",
    "onnx": """import numpy, onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
edge_index = numpy.load("edge_index.npy")
outputs = session.run(None, {"x": x, "edge_index": edge_index})[0]""",
}


def alive_arcs(ticket: Ticket) -> Tensor:
    """PyG's edge_index [2, A] of the ticket's alive edges, an undirected one in both directions."""
    edges = ticket.graph.edges[:, ticket.masks.edges[0]]
    return edges if ticket.graph.directed else torch.cat([edges, edges.flip(0)], dim=1)


def _parts(ticket: Ticket) -> tuple[Tensor, list[Spec], str]:
    """Features that are read, layers without what is dead, and how arcs are weighed."""
    backbone = ticket.backbone()
    if backbone.edge_features:
        raise TicketError(
            "the ticket's model reads edge_attr, which a ticket does not hold; export is for those without"
        )
    features, layers = shrink(backbone.layers(ticket.trained_weights()))
    return features, layers, backbone.coefficients


def _readme(ticket: Ticket, format: str) -> bytes:
    n, sizes = ticket.graph.num_nodes, ticket.sizes
    dtype = str(ticket.trained.prunable.dtype).removeprefix("torch.")
    return f"""# A graph lottery ticket

{ticket.config.backbone} on {ticket.config.dataset}: {100 * ticket.model_sparsity:.2f} % of the weights and
{100 * ticket.graph_sparsity:.2f} % of the edges are pruned. Made by aceglt, which is not needed to run it.

`x` is {dtype} [nodes, {sizes["in_features"]}]; `edge_index` holds the alive edges of the graph of {n} nodes that the
ticket was found on, in PyG's form. Another graph needs both directions of its edges, no self-loops, none twice. The
outputs [nodes, {sizes["out_features"]}] are logits.

```python
{_USE[format]}
```
""".encode()


def write_csv(path: str | Path, probabilities: Tensor, several: bool = False) -> None:
    """A line per node: its number, the predicted class and the probability of each class, from [N, classes].

    Where a node may have `several` labels, the predicted ones are those more likely than not, with spaces between.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", "predicted", *(f"probability_{c}" for c in range(probabilities.shape[1]))])
    for node, row in enumerate(probabilities):
        likely = (row > 0.5).nonzero().flatten() if several else row.argmax().unsqueeze(0)
        writer.writerow([node, " ".join(map(str, likely.tolist())), *(f"{p:.6g}" for p in row.tolist())])
    write_atomic(Path(path), text.getvalue().encode())


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
