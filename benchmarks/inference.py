"""Inference of tickets with random masks: python -m benchmarks.inference [--graphs] [--json FILE] [--device cpu].

Speed depends on how many weights, units and features are left, so masks keep of each matrix what a search keeps at the
least (`--balance` as by default), at random. Drawn over all weights at once, most hidden units would lose every weight
to the few outputs, and the ticket would be fast for that reason. With --graphs, one table over ten graphs: is a ticket
ever slower than the dense model, or than PyG's? With --units, whole hidden units are pruned. With --tickets, tickets
that searches found are measured instead. Features are dense, as PyG's models read them. The record is written after
each measurement.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch_geometric.data import Data

from aceglt import Benchmark, Ticket, benchmark, datasets
from aceglt.backbones import Params, build
from aceglt.config import Config, Pruning
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks, Scores, share
from aceglt.pruning.ranking import Ranking, prune
from aceglt.report.terminal import print_benchmark
from aceglt.searches.levels import inference_macs


def random_ticket(
    data: Any, model_sparsity: float, graph_sparsity: float, backbone: str = "gcn", hidden: int = 512, seed: int = 0,
    units: bool = False,
) -> Ticket:  # fmt: skip
    """A ticket with random masks of exactly these sparsities, with the default's share of the weights allotted per
    matrix; its "trained" weights are the initial ones.

    With `units`, whole hidden units of a GCN go, and weights as exactly as that allows.
    """
    graph = Graph.from_edge_index(data.edge_index, data.num_nodes)
    classes = int(data.y.max()) + 1 if data.y.dim() == 1 else data.y.shape[1]
    sizes = {"in_features": data.x.shape[1], "out_features": classes}
    network = build(backbone, sizes["in_features"], sizes["out_features"], hidden)
    start = network.init([seed])
    counts = Counts(start.prunable.shape[1], graph.num_edges)
    alike = Scores(torch.ones(1, counts.weights), torch.ones(1, counts.edges))  # so that chance decides
    keep = Counts(
        counts.weights - share(model_sparsity, counts.weights), counts.edges - share(graph_sparsity, counts.edges)
    )
    quotas = Ranking(Pruning.balance).quotas(network.prunable, keep.weights)
    masks = prune(Masks.full(1, counts), alike, keep, rng.keys([seed], "random ticket"), quotas)
    if units:
        dead = share(model_sparsity, hidden)
        alive = network.prunable.split(torch.ones_like(masks.weights))
        alive["layer0.weight"][:, :, :dead], alive["layer1.weight"][:, :dead] = False, False
        masks = Masks(network.prunable.join(alive), masks.edges)
    initial, trained = (Params(start.prunable * masks.weights, start.other.clone()) for _ in range(2))
    macs = {
        "macs": inference_macs(network, graph, masks.alive),
        "dense_macs": inference_macs(network, graph, masks.total),
    }
    readings = dict.fromkeys(("val", "test", "dense_val", "dense_test"))
    config = Config(backbone=backbone, hidden=hidden, method="random", seeds=(seed,))
    return Ticket(config, seed, 1, masks, initial, trained, readings, {**sizes, **macs}, graph, graph.fingerprint)


def synthetic(nodes: int = 50_000, edges: int = 1_000_000, features: int = 128, classes: int = 10) -> Data:
    """A random graph of this many undirected edges (a few less, where two are alike) with dense features."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, features, generator=generator)
    y = torch.arange(nodes) % classes
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=y)


def cases() -> dict[str, tuple[Any, Ticket]]:
    """By name, the graph and the ticket."""
    citeseer, large = datasets.load("citeseer"), synthetic()
    return {
        "CiteSeer, GCN-512, 95 % model sparsity": (citeseer, random_ticket(citeseer, 0.95, 0.05)),
        "CiteSeer, GCN-512, 20 % model sparsity": (citeseer, random_ticket(citeseer, 0.2, 0.05)),
        "CiteSeer, GIN-512, 95 % model sparsity": (citeseer, random_ticket(citeseer, 0.95, 0.05, "gin")),
        "CiteSeer, GAT 8×64, 95 % model sparsity": (citeseer, random_ticket(citeseer, 0.95, 0.05, "gat", 64)),
        "10^6 edges, 128 features, GCN-128, 40 % graph sparsity": (large, random_ticket(large, 0.0, 0.4, hidden=128)),
    }


GRAPHS = (
    "cora", "citeseer", "pubmed", "squirrel-filtered", "minesweeper", "tolokers", "amazon-photo", "amazon-computers",
    "coauthor-cs", "wordnet",
)  # fmt: skip


_WAYS = {"first": "plain", "full": "prepared", "node": "one node", "batch": "256 nodes"}


def on_graph(name: str, choices: argparse.Namespace) -> Benchmark:
    """GCN-512 on a graph, with a ticket of random masks."""
    data = datasets.load(name)
    data = data.dense() if data.x.numel() < 2**31 else data
    ticket = random_ticket(data, choices.sparsity, 0.05, units=choices.units)
    return benchmark(ticket, data, device=choices.device, repeats=choices.repeats)


def table_of(results: Mapping[str, Benchmark], title: str) -> Table:
    """Milliseconds of a pass from plain tensors and on prepared inputs, and how many times as fast the ticket is as PyG
    and dense; what is slower (than dense by more than 5 %) is marked."""
    table = Table("graph", title=title)
    for words in _WAYS.values():
        table.add_column(f"{words}: PyG / dense / ticket, ms", justify="right")
        table.add_column("× PyG, × dense", justify="right")
    for name, result in results.items():
        row = []
        for what in _WAYS:
            row.append(" / ".join(f"{getattr(result[kind], what).median:.2f}" for kind in ("pyg", "dense", "ticket")))
            pyg, dense = result.speedup("pyg", what=what), result.speedup("dense", what=what)
            row.append(f"{pyg:.2f}, {dense:.2f}" + (" slower" if pyg < 1 or dense < 0.95 else ""))
        table.add_row(name, *row)
    return table


def summary(result: Benchmark) -> dict[str, float]:
    """The ratios that the project promises."""
    promised = result["dense"].macs / result["ticket"].macs
    return {
        "speedup_over_pyg": result.speedup("pyg", what="full"),
        "speedup_over_pyg_from_plain_tensors": result.speedup("pyg"),
        "speedup_over_dense": result.speedup("dense", what="full"),
        "speedup_that_macs_promise": promised,
        "share_of_promise": result.speedup("dense", what="full") / promised,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", action="store_true", help="one table over ten graphs")
    parser.add_argument("--sparsity", type=float, default=0.95, help="of the weights, for --graphs")
    parser.add_argument("--units", action="store_true", help="prune whole hidden units, for --graphs")
    parser.add_argument("--tickets", type=Path, nargs="+", default=[], help="files of tickets to measure")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    choices = parser.parse_args()
    console, record = Console(width=220 if choices.graphs else 130), {}

    def keep(name: str, found: dict[str, Any]) -> None:
        record[name] = found
        if choices.json:
            choices.json.write_text(json.dumps({"command": sys.argv[1:], **record}, indent=1) + "\n")

    tickets = {path.stem: Ticket.load(path) for path in choices.tickets}
    found = {name: (ticket.load_data().dense(), ticket) for name, ticket in tickets.items()}
    for name, (data, ticket) in (found or ({} if choices.graphs else cases())).items():
        if choices.only not in name:
            continue
        result = benchmark(ticket, data, device=choices.device, repeats=choices.repeats)
        console.rule(name)
        print_benchmark(console, result)
        keep(name, {"summary": summary(result), "metrics": dict(ticket.metrics), **result.to_dict()})
        console.print(record[name]["summary"])

    measured = {}
    for name in GRAPHS if choices.graphs else ():
        if choices.only in name:
            measured[name] = on_graph(name, choices)
            keep(name, measured[name].to_dict())
    if measured:
        console.print(table_of(measured, f"{choices.device}, {choices.sparsity:.0%} of the weights"))


if __name__ == "__main__":
    main()
