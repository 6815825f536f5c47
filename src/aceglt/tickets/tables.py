"""Predictions as CSV files: of nodes, embeddings, and scores of pairs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from aceglt.errors import DataError
from aceglt.files import read_regular, write_atomic


def write_predictions(path: str | Path, probabilities: Tensor, several: bool = False) -> None:
    """A line per node: its number, the predicted class and the probability of each class, from [N, classes].

    Where a node may have `several` labels, the predicted ones are those more likely than not, with spaces between.
    """
    likely = [(row > 0.5).nonzero().flatten() if several else row.argmax().unsqueeze(0) for row in probabilities]
    rows = ([node, " ".join(map(str, found.tolist()))] for node, found in enumerate(likely))
    _write(path, ["node", "predicted", *_numbered("probability", probabilities)], rows, probabilities)


def write_embeddings(path: str | Path, embeddings: Tensor) -> None:
    """A line per node: its number and its embedding, from [N, C]."""
    _write(path, ["node", *_numbered("embedding", embeddings)], ([node] for node in range(len(embeddings))), embeddings)


def write_scores(path: str | Path, pairs: Tensor, scores: Tensor) -> None:
    """A line per pair [2, n]: its nodes and its score [n]."""
    _write(path, ["source", "target", "score"], pairs.t().tolist(), scores.unsqueeze(1))


def read_pairs(path: Path) -> Tensor:
    """Pairs of nodes [2, n] from the first two columns of a CSV file, which may have a line of names first.

    Raises DataError where they are no whole numbers, or the file cannot be read.
    """
    try:
        text = read_regular(path).decode("utf-8-sig", errors="replace")  # spreadsheets begin a file with a mark
    except OSError as problem:
        raise DataError(f"{path}: {problem.strerror or problem}") from None
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row]
        rows = rows[1:] if rows and not rows[0][0].strip().lstrip("-").isdigit() else rows
        pairs = [(int(row[0]), int(row[1])) for row in rows]
        return torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t()
    except (csv.Error, ValueError, IndexError, RuntimeError, OverflowError):
        raise DataError(f"{path}: needs two whole numbers in every line, the nodes of a pair") from None


def _numbered(name: str, values: Tensor) -> list[str]:
    return [f"{name}_{number}" for number in range(values.shape[1])]


def _write(path: str | Path, names: Sequence[str], rows: Iterable[Sequence[object]], values: Tensor) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row, numbers in zip(rows, values.tolist(), strict=True):
        writer.writerow([*row, *(f"{number:.6g}" for number in numbers)])
    write_atomic(Path(path), text.getvalue().encode())
