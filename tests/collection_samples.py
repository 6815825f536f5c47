"""Small raw files in the formats of PyG's collections."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.sparse import coo_matrix, random_array, save_npz

NODES, CLASSES = 30, 3
DRAWS = np.random.default_rng(0)
ARCS = np.unique(DRAWS.integers(0, NODES, (2, 80)), axis=1)  # a few self-loops and both directions among them
LABELS = np.arange(NODES) % CLASSES
FEATURES = random_array((NODES, 7), density=0.4, rng=1, dtype=np.float32).tocsr()
PARTS = DRAWS.permuted(np.broadcast_to(np.arange(NODES) % 3, (10, NODES)), axis=1)  # [10, N]: 0, 1, 2


def shchur(folder: Path, file: str) -> None:
    adjacency = coo_matrix((np.ones(ARCS.shape[1]), ARCS), (NODES, NODES)).tocsr()
    parts = {f"{name}_{part}": getattr(matrix, part) for name, matrix in (("adj", adjacency), ("attr", FEATURES))
             for part in ("data", "indices", "indptr", "shape")}  # fmt: skip
    np.savez(folder / file, labels=LABELS, idx_to_node=np.array([None]), **parts)


def platonov(folder: Path, file: str) -> None:
    masks = {f"{name}_masks": PARTS == i for i, name in enumerate(("train", "val", "test"))}
    np.savez(folder / file, node_features=FEATURES.toarray(), node_labels=LABELS, edges=ARCS.T, **masks)


def wikics(folder: Path, file: str) -> None:
    masks = {f"{name}_masks": (PARTS == i).tolist() for i, name in enumerate(("train", "val", "stopping"))}
    links = [ARCS[1, ARCS[0] == node].tolist() for node in range(NODES)]
    test = (PARTS[0] == 2).tolist()
    table = {"features": FEATURES.toarray().tolist(), "labels": LABELS.tolist(), "links": links, "test_mask": test}
    (folder / file).write_text(json.dumps({**table, **masks}))


def actor(folder: Path, file: str) -> None:
    words = [",".join(map(str, {node % 5, node % 7})) for node in range(NODES)]
    lines = [
        "node_id\tfeature\tlabel",
        *(f"{node}\t{words[node]}\t{LABELS[node]}" for node in DRAWS.permutation(NODES)),
    ]
    (folder / file).write_text("\n".join(lines) + "\n")
    edges = ["node_id\tnode_id", *(f"{u}\t{v}" for u, v in ARCS.T)]
    (folder / "out1_graph_edges.txt").write_text("\n".join(edges) + "\n")
    for i, part in enumerate(PARTS):
        masks = {
            f"{name}_mask": (part == number).astype(np.int64) for number, name in enumerate(("train", "val", "test"))
        }
        np.savez(folder / f"film_split_0.6_0.2_{i}.npz", **masks)


def flickr(folder: Path, file: str) -> None:
    save_npz(folder / file, coo_matrix((np.ones(ARCS.shape[1]), ARCS), (NODES, NODES)).tocsr())
    np.save(folder / "feats.npy", FEATURES.toarray().astype(np.float64))
    (folder / "class_map.json").write_text(json.dumps({str(node): int(LABELS[node]) for node in range(NODES)}))
    roles = {key: (PARTS[0] == i).nonzero()[0].tolist() for i, key in enumerate(("tr", "va", "te"))}
    (folder / "role.json").write_text(json.dumps(roles))


def reddit(folder: Path, file: str) -> None:
    np.savez(folder / file, feature=FEATURES.toarray(), label=LABELS, node_types=1 + PARTS[0])
    save_npz(folder / "reddit_graph.npz", coo_matrix((np.ones(ARCS.shape[1]), ARCS), (NODES, NODES)))
