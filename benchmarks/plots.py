"""Small figures of a benchmark's record: `python -m benchmarks.plots FILE.json FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "aceglt", "figure.figsize": (6, 3.2), "font.size": 9, "savefig.bbox": "tight"})

import matplotlib.pyplot as plt  # noqa: E402


def draw(record: dict[str, Any], folder: Path) -> None:
    """One SVG for each part that the record has."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, figure in (("epoch", _epoch), ("levels", _levels), ("growth", _growth)):
        if part in record:
            fig, axes = plt.subplots()
            figure(axes, record[part])
            fig.savefig(folder / f"{part}.svg", metadata={"Date": None})
            plt.close(fig)


def _epoch(axes: Any, part: dict[str, Any]) -> None:
    rows = [row for row in part["rows"] if row["runs"] == 1]
    names = [f"{row['backbone']}\n{row['dataset']}" for row in rows]
    axes.bar(names, [row["labels_ms"] for row in rows], color="#4477aa", label="score training")
    floors = [(name, row["floor_ms"]) for name, row in zip(names, rows, strict=True) if "floor_ms" in row]
    axes.plot([n for n, _ in floors], [v for _, v in floors], "_", ms=18, mew=2, color="black", label="floor")
    slow = {f"gcn\n{row['dataset']}": row["reference_ms"] for row in part["reference"]}
    axes.plot(list(slow), list(slow.values()), "x", color="#cc3311", label="dense reference")
    axes.set(yscale="log", ylabel="ms per epoch, one run")
    axes.legend()


def _levels(axes: Any, searches: list[dict[str, Any]]) -> None:
    for search in searches:
        rows = search["levels"]
        label = f"{search['method']}, {search['signal']}"
        axes.plot(
            [100 * row["start"] for row in rows], [row["s"] / rows[0]["s"] for row in rows], "o-", ms=3, label=label
        )
    axes.set(xlabel="model sparsity at the level's start, %", ylabel="time over the first level's", ylim=(0, None))
    axes.legend()


def _growth(axes: Any, part: dict[str, Any]) -> None:
    edges = [row["edges"] for row in part["rows"]]
    for name, unit in (("ms", "ms per epoch"), ("mib", "MiB")):
        label = f"{unit}, exponent {part['exponents'].get(name, '?')}"
        axes.plot(edges, [row[name] for row in part["rows"]], "o-", label=label)
    axes.set(xscale="log", yscale="log", xlabel="edges")
    axes.legend()


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
