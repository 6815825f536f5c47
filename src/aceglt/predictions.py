"""Predictions as a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from torch import Tensor

from aceglt.files import write_atomic


def write_csv(path: str | Path, probabilities: Tensor) -> None:
    """A line per node: its number, the predicted class and the probability of each class, from [N, classes]."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", "predicted", *(f"probability_{c}" for c in range(probabilities.shape[1]))])
    predicted = probabilities.argmax(dim=1).tolist()
    for node, (label, row) in enumerate(zip(predicted, probabilities.tolist(), strict=True)):
        writer.writerow([node, label, *(f"{p:.6g}" for p in row)])
    write_atomic(Path(path), text.getvalue().encode())
