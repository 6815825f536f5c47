"""Small graphs in the files of the Open Graph Benchmark, as its zip files have them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch

NODES, EDGES, TASKS = 40, 90, 112


def write(path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.asarray(table)
    rows = rows.reshape(len(rows), -1)
    text = "\n".join(",".join(str(value) for value in row) for row in rows.tolist())
    path.write_bytes(gzip.compress(text.encode()))


def _graph(folder: Path, rng: np.random.Generator, once: bool = False) -> np.ndarray:
    """Arcs at random, or each edge in one direction, as ogbn-proteins has it."""
    pairs = np.stack(np.triu_indices(NODES, 1), axis=1)
    edges = rng.permutation(pairs)[:EDGES] if once else rng.integers(0, NODES, (EDGES, 2))
    write(folder / "raw/edge.csv.gz", edges)
    write(folder / "raw/num-node-list.csv.gz", [NODES])
    write(folder / "raw/num-edge-list.csv.gz", [EDGES])
    (folder / "RELEASE_v1.txt").touch()
    return edges


def _node_split(folder: Path, split: str) -> None:
    for part, nodes in {"train": range(20), "valid": range(20, 30), "test": range(30, NODES)}.items():
        write(folder / "split" / split / f"{part}.csv.gz", list(nodes))


def arxiv(root: Path) -> Path:
    """Two classes that the first feature tells apart."""
    folder, rng = root / "ogbn_arxiv", np.random.default_rng(0)
    _graph(folder, rng)
    labels = np.arange(NODES) % 2
    x = rng.normal(size=(NODES, 6))
    x[:, 0] += 4 * labels
    write(folder / "raw/node-feat.csv.gz", x)
    write(folder / "raw/node-label.csv.gz", labels)
    write(folder / "raw/node_year.csv.gz", 2000 + labels)
    _node_split(folder, "time")
    return folder


def proteins(root: Path, species_file: str = "species") -> Path:
    folder, rng = root / "ogbn_proteins", np.random.default_rng(1)
    _graph(folder, rng, once=True)
    write(folder / "raw/edge-feat.csv.gz", rng.random((EDGES, 8)))
    write(folder / "raw/node-label.csv.gz", rng.integers(0, 2, (NODES, TASKS)))
    write(folder / f"raw/{species_file}.csv.gz", np.array([3702, 4932, 9606])[np.arange(NODES) % 3])
    _node_split(folder, "species")
    return folder


def collab(root: Path) -> Path:
    folder, rng = root / "ogbl_collab", np.random.default_rng(2)
    edges = _graph(folder, rng)
    write(folder / "raw/node-feat.csv.gz", rng.normal(size=(NODES, 5)))
    write(folder / "raw/edge_weight.csv.gz", np.ones(EDGES, dtype=np.int64))
    write(folder / "raw/edge_year.csv.gz", np.full(EDGES, 2017))
    (folder / "split/time").mkdir(parents=True)
    torch.save({"edge": edges, "weight": np.ones(EDGES), "year": np.full(EDGES, 2017)}, folder / "split/time/train.pt")
    for part, count in (("valid", 7), ("test", 9)):
        split = {"edge": rng.integers(0, NODES, (count, 2)), "edge_neg": rng.integers(0, NODES, (60, 2))}
        torch.save({**split, "weight": np.ones(count)}, folder / f"split/time/{part}.pt")
    return folder
