"""Predictions as a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from torch import Tensor

from aceglt.files import write_atomic


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
