"""Draw the picture of README.md and write its table, from what results/ and benchmarks/ keep.

python tools/write_readme.py    in the root of the repository; needs the extra `plots`
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aceglt.files import write_atomic
from aceglt.report.static import encoded
from aceglt.searches.statistics import mean_std

ROOT = Path(__file__).parents[1]
PICTURE = Path("docs/images/citeseer.svg")
SEARCHES = {axis: Path(f"results/table1/citeseer-gcn-{axis}.json") for axis in ("model", "graph")}
TICKET = Path("results/citeseer-joint.json")
DEVICES = {"one CPU core": Path("benchmarks/ticket-cpu.json"), "H200": Path("benchmarks/ticket-gpu.json")}
BEGIN, END = "<!-- savings -->\n", "\n<!-- end of savings -->"
_SHOWN = {
    "random": ("random", "#888888"),
    "ugs": ("UGS", "#4477aa"),
    "ace": ("ACE, labels (its paper)", "#cc3311"),
    "ace/default": ("ACE, teacher (default)", "#117733"),
}
_SPEEDS = {"first": "", "full": ", prepared"}
"""Latencies: from `x` and `edge_index` as they are, then with inputs prepared once."""
_AXES = {"model": "weights pruned, %", "graph": "edges pruned, %"}


def main() -> None:
    write_atomic(ROOT / PICTURE, encoded(picture(), "svg"))
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    write_atomic(readme, (before + BEGIN + savings() + END + rest.split(END)[1]).encode())


def picture() -> Any:
    """Test accuracy against sparsity, a panel per axis; bands are one standard deviation over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.1), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (axis, path) in zip(panels, SEARCHES.items(), strict=True):
        searches = {found["cell"].split(f"/{axis}/")[1]: found for found in json.loads((ROOT / path).read_text())}
        for cell, (name, colour) in _SHOWN.items():
            _curve(panel, searches[cell], axis, name, colour)
        dense = 100 * mean_std(searches["random"]["dense"]["test"])[0]
        panel.axhline(dense, color="black", ls=":", lw=1.2, label="dense")
        panel.set(xlabel=_AXES[axis], ylim=(dense - 12, dense + 4), xlim=(0, None))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("test accuracy, %")
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _curve(panel: Any, search: Mapping[str, Any], axis: str, name: str, colour: str) -> None:
    x = [100 * level[f"{axis}_sparsity"] for level in search["levels"]]
    means, stds = zip(*(mean_std([100 * v for v in level["test"]]) for level in search["levels"]), strict=True)
    low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
    panel.plot(x, means, color=colour, lw=1.8, label=name)
    panel.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def savings() -> str:
    """What the ticket of README.md saves, a line for each thing that is counted or measured."""
    measured = {name: json.loads((ROOT / path).read_text()) for name, path in DEVICES.items() if (ROOT / path).exists()}
    pyg, dense, ticket = (_row(next(iter(measured.values())), variant) for variant in ("pyg", "dense", "ticket"))
    found = json.loads((ROOT / TICKET).read_text())
    level = found["levels"][found["highest_winning"]["strict"]["level"] - 1]
    accuracies = [100 * mean_std(entry["test"])[0] for entry in (found["dense"], level)]
    lines = [
        ("", "dense in PyG", "dense in aceglt", "ticket", "saved"),
        ("---",) * 5,
        ("test accuracy", "", *(f"{value:.1f} %" for value in accuracies), ""),
        _counted("weights", (pyg, dense, ticket), "parameters"),
        _counted("edges", (pyg, dense, ticket), "edges"),
        _counted("MACs of a forward pass", (pyg, dense, ticket), "macs"),
        _counted("file", (pyg, dense, ticket), "file_bytes"),
        *(_speed(name, record, *how) for name, record in measured.items() for how in _SPEEDS.items()),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(record: Mapping[str, Any], variant: str) -> Mapping[str, Any]:
    return next(row for row in record["rows"] if row["variant"] == variant)


def _counted(name: str, rows: Sequence[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    values = [int(row[key]) for row in rows]
    units = {"macs": (1e6, 0, " M"), "file_bytes": (1e6, 1, " MB")}
    scale, digits, unit = units.get(key, (1, 0, ""))
    shown = [f"{value / scale:,.{digits}f}{unit}" for value in values]
    return name, *shown, f"{100 * (1 - values[-1] / values[1]):.1f} %"


def _speed(name: str, record: Mapping[str, Any], latency: str, how: str) -> tuple[str, ...]:
    """In multiples of PyG's: the variants took turns on one machine."""
    pyg, dense, ticket = (_row(record, variant)[latency]["median"] for variant in ("pyg", "dense", "ticket"))
    return f"speed, {name}{how}", "1 ×", f"{pyg / dense:.1f} ×", f"{pyg / ticket:.1f} ×", ""


if __name__ == "__main__":
    main()
