"""What training costs on the machine at hand, in one run: `python -m benchmarks [PARTS] [--json FILE] [--plots DIR]`.

Parts: `epoch` (time per epoch and peak memory, beside the floor and a dense reference), `levels` (time per level of a
20-level search) and `growth` (over synthetic graphs). Each figure is the fastest of some repetitions, because other
work on the machine only ever adds time; each is made in a process of its own, so that memory is its own too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PARTS = ("epoch", "levels", "growth")
_PLANETOID = ("cora", "citeseer", "pubmed")


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks import machine

    options = _options(arguments)
    record: dict[str, Any] = {"machine": alone(machine.describe, options.device)}
    Console(width=140).print(record["machine"])
    for part in options.parts or PARTS:
        record[part] = globals()[f"_{part}"](options, record["machine"])
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.plots:
        from benchmarks.plots import draw

        draw(record, options.plots)


def alone(work: Any, *arguments: Any, **options: Any) -> Any:
    """What a function returns in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **options).result()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PARTS", help=f"some of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root")
    parser.add_argument("--datasets", default=",".join(_PLANETOID), help="those that are not present are left out")
    parser.add_argument("--backbones", default="gcn,gin,gat")
    parser.add_argument("--runs", help="numbers of runs, such as 1,10 (default: 1,2 on a CPU, 1,10 on a GPU)")
    parser.add_argument("--signals", default="labels", help="of the searches, such as labels,teacher")
    parser.add_argument("--levels", type=int, default=20)
    parser.add_argument("--structure", help="of the searches, such as units (default: single weights)")
    parser.add_argument("--edges", default="10000,100000,1000000,10000000", help="sizes of the synthetic graphs")
    parser.add_argument("--json", type=Path, help="write the figures and the machine's description there")
    parser.add_argument("--plots", type=Path, help="draw the figures into this folder (needs matplotlib)")
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part '{min(unknown)}'; known are {', '.join(PARTS)}")
    options.runs = options.runs or ("1,2" if options.device == "cpu" else "1,10")
    return options


def _epoch(options: argparse.Namespace, machine: dict[str, Any]) -> dict[str, Any]:
    from aceglt import datasets
    from benchmarks import epoch

    where = {"data_root": options.data_root, "device": options.device}
    present = {name for name, there, _ in datasets.available(options.data_root) if there}
    names = [name for name in options.datasets.split(",") if name in present]
    references = [alone(epoch.measure_reference, name, **where) for name in names if name != "pubmed"]  # 20 GiB there
    slow = {row["dataset"]: row["reference_ms"] for row in references}
    rows = []
    for name in names:
        for backbone in options.backbones.split(","):
            for runs in map(int, options.runs.split(",")):
                if runs > 1 and backbone == "gat" and options.device == "cpu":
                    continue  # takes minutes, and as many times one run's as there are runs
                row = alone(epoch.measure, name, backbone, runs, machine["rates"], **where)
                if backbone == "gcn" and runs == 1 and name in slow:
                    row["reference_over_ours"] = round(slow[name] / row["labels_ms"], 1)
                rows.append(row)
    _print("Milliseconds per epoch", rows)
    _print("Dense reference, GCN, score training on labels", references)
    return {"rows": rows, "reference": references}


def _levels(options: argparse.Namespace, machine: dict[str, Any]) -> list[dict[str, Any]]:
    from benchmarks import levels

    runs = int(options.runs.split(",")[-1]) if options.device != "cpu" else 1
    searches = [
        alone(
            levels.measure, method, signal, runs, options.levels, options.data_root, options.device, options.structure
        )
        for signal in options.signals.split(",")
        for method in ("ugs", "ace")
    ]
    for search in searches:
        ratios = {name: search[name] for name in ("ratio", "cpu_ratio") if name in search}
        _print(f"Seconds per level, {search['method']}, {search['signal']}, {runs} run(s) {ratios}", search["levels"])
    return searches


def _growth(options: argparse.Namespace, machine: dict[str, Any]) -> dict[str, Any]:
    from benchmarks import growth

    rows = [alone(growth.measure, int(edges), options.device) for edges in options.edges.split(",")]
    exponents = growth.exponents(rows)
    _print(f"Growth over edges, exponents {exponents}", rows)
    return {"rows": rows, "exponents": exponents}


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, box=None, title_justify="left")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in columns))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
