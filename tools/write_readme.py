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
DEVICES = {"CPU core": Path("benchmarks/ticket-cpu.json"), "H200": Path("benchmarks/ticket-gpu.json")}
SEARCH = "`aceglt search --axis joint --levels 4 --prune-model 0.6838 --prune-graph 0.2047`"
BEGIN, END = "<!-- savings -->\n", "\n<!-- end of savings -->"
_SHOWN = {
    "random": ("random", "#888888"),
    "ugs": ("UGS, labels", "#4477aa"),
    "ace": ("ACE (top-K), labels", "#cc3311"),
    "ace/default": ("ACE, teacher: the default", "#117733"),
}
_VARIANTS = {"pyg": "dense in PyG", "dense": "dense in aceglt", "ticket": "ticket"}
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
    """What the ticket of README.md reaches and saves, a row for each thing that is counted or measured."""
    measured = {name: json.loads((ROOT / path).read_text()) for name, path in DEVICES.items() if (ROOT / path).exists()}
    counts = next(iter(measured.values()))
    rows = [
        ("", *_VARIANTS.values(), "saved"),
        ("---",) * 5,
        _row("weights", [counts], "parameters", "{:,.0f}"),
        _row("edges", [counts], "edges", "{:,.0f}"),
        _row("million MACs", [counts], "macs", "{:,.0f}"),
        _row(f"latency: {', '.join(measured)}", list(measured.values()), "latency", "{:.1f} ms"),
    ]
    records = ", ".join(f"[{name}]({path})" for name, path in DEVICES.items() if name in measured)
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    made = f"Measured by `aceglt bench` ({records}), searched by\n{SEARCH} ([results]({TICKET}))."
    return f"{_accuracies()}\n\n{table}\n\n{made}"


def _accuracies() -> str:
    found = json.loads((ROOT / TICKET).read_text())
    level = found["levels"][found["highest_winning"]["strict"]["level"] - 1]
    dense, ticket = (100 * mean_std(entry["test"])[0] for entry in (found["dense"], level))
    return (
        f"A GCN with 512 hidden units on CiteSeer, {len(found['seeds'])} seeds. "
        f"Test accuracy is {dense:.1f} % dense, {ticket:.1f} % with the ticket."
    )


def _row(name: str, records: Sequence[Mapping[str, Any]], key: str, form: str) -> tuple[str, ...]:
    """What each variant has, and how much less than PyG's the ticket's is; a figure for each record."""
    figures = [[_figure(record, variant, key) for variant in _VARIANTS] for record in records]
    shown = [", ".join(map(form.format, column)) for column in zip(*figures, strict=True)]
    return name, *shown, ", ".join(f"{100 * (1 - row[-1] / row[0]):.1f} %" for row in figures)


def _figure(record: Mapping[str, Any], variant: str, key: str) -> float:
    """Latencies are medians with inputs prepared once; of PyG's two forms, CSR and `edge_index`, the faster one's."""
    row = next(row for row in record["rows"] if row["variant"] == variant)
    if key == "latency":
        return float(min(row[form]["median"] for form in (("full", "first") if variant == "pyg" else ("full",))))
    return float(row[key]) / (1e6 if key == "macs" else 1)


if __name__ == "__main__":
    main()
