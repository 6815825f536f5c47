"""How the paper's tables and figures are laid out: which quantity of which search stands where, and what is drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any

from aceglt.config import SCORING, SETTINGS
from aceglt.reproduction.cells import Cell
from aceglt.reproduction.grid import Column, Contents, Grid, Row
from aceglt.reproduction.measures import Quantity

SMALL = ("cora", "citeseer", "pubmed")
PAPER_BACKBONES = ("gcn", "gin", "gat")
PAPER_METHODS = ("random", "ugs", "gebt", "ace")
PAPER_AXES = {"model": "graph", "graph": "model"}
"""What gets sparser, and what is held meanwhile."""

DEFAULT_SCORES = {name: SETTINGS[name].default for name in SCORING}
VARIANTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "literal": ("ace", {"method_options": {"reading": "literal"}}),
    "code": ("ace", {"method_options": {"reading": "code"}}),
    "teacher": ("ugs", DEFAULT_SCORES),
    "default": ("ace", {**DEFAULT_SCORES, "method_options": {"reading": "default"}}),
}
"""Beside the paper's methods as its preset has them, by the name of a row: other readings of ACE, and the default
scores and pruning of aceglt without and with its exchange, trained as the others are."""

SPARSITIES = {"model": (20, 40, 50, 60, 70, 80), "graph": (10, 20, 30, 40, 50, 60)}
"""In percent, by axis: the columns of Tables 2 and S4."""
LEVELS = {"model": 7, "graph": 18}
"""Levels that reach the last of these columns."""
FIXED = {"model": (10, 15, 20, 25), "graph": (40, 50, 70, 90)}
"""In percent, by axis: where the other part is held in Figures 4, S5 and S6."""
FOLLOWED = {"edges": ("graph", SPARSITIES["graph"]), "weights": ("model", SPARSITIES["model"][1:])}
"""Whose importance Figure 1 follows, on which axis, and where; the first level has none before it to compare with."""

SWITCHES = ("resample", "adaptive_k")
ABLATIONS = {"neither": (False, False), "resample": (True, False), "adaptive": (False, True), "both": (True, True)}
"""Tables 2 and S4: which of the two switches are on."""

EXHIBITS_FILE = json.loads(files(__package__).joinpath("exhibits.json").read_text(encoding="utf-8"))
"""All tables and figures, and the words that they share."""
NAMES: dict[str, str] = EXHIBITS_FILE["names"]
"""Of datasets, backbones, methods, sparsities and tasks: as the paper writes them, but for its own method."""


@dataclass(frozen=True)
class Panel:
    """One plot of a figure: lines over a sparsity."""

    title: str
    lines: tuple[tuple[str, Cell], ...]
    """Each with its name in the legend."""
    show: str = "test"
    """test, or the fluctuation of edges or weights."""


TableLayout = tuple[Grid, tuple[Panel, ...]]
"""A table, and what a figure draws of it."""


def winners(
    metrics: Mapping[str, str],
    methods: Sequence[str],
    backbones: Sequence[str] = PAPER_BACKBONES,
    task: str = "node",
    by_dataset: bool = False,
    highest: bool = True,
) -> TableLayout:
    """Table 1 and Figure S2: per backbone and method, how sparse tickets get on each axis, and the highest metric.

    Metrics are given by dataset; columns are grouped by quantity or by dataset.
    """
    cells = {key: _searched(*key, task) for key in product(metrics, backbones, PAPER_AXES, methods)}
    quantities = [*PAPER_AXES, "highest"] if highest else list(PAPER_AXES)
    if by_dataset:
        heads = {(d, q): (NAMES[d], NAMES.get(q, metrics[d])) for d, q in product(metrics, quantities)}
    else:
        heads = {(d, q): (NAMES.get(q, f"Highest {metrics[d]}"), NAMES[d]) for q, d in product(quantities, metrics)}
    columns = tuple(Column(f"{d}/{q}", *head) for (d, q), head in heads.items())
    contents: Contents = {
        (f"{b}/{m}", f"{d}/{axis}"): Quantity("winner", (cell,)) for (d, b, axis, m), cell in cells.items()
    }
    for b, m, d in product(backbones, methods, metrics):
        both = tuple(cells[d, b, axis, m] for axis in PAPER_AXES)
        contents[f"{b}/{m}", f"{d}/highest"] = Quantity("highest", both)
    panels = (
        Panel(f"{NAMES[d]} + {NAMES[b]}", tuple((NAMES[m], cells[d, b, axis, m]) for m in methods))
        for b, d, axis in product(backbones, metrics, PAPER_AXES)
    )
    return Grid(("Backbone", "Method"), _rows(backbones, methods), columns, contents), tuple(panels)


def _searched(dataset: str, backbone: str, axis: str, method: str, task: str, levels: int | None = None) -> Cell:
    if method in VARIANTS:
        kind, settings = VARIANTS[method]
        return Cell(dataset, backbone, axis, kind, task, method, settings, levels)
    # A 28-layer ResGCN on a large graph: memory for time, with the same results.
    settings = {"checkpoint_blocks": True} if backbone == "resgcn" else {}
    return Cell(dataset, backbone, axis, method, task, settings=settings, levels=levels)


def _rows(*parts: Sequence[str], block: int = 1) -> tuple[Row, ...]:
    """All combinations of names; those of a block have the first so many in common."""
    return tuple(
        Row("/".join(key), tuple(NAMES[part] for part in key), "/".join(key[:block])) for key in product(*parts)
    )


def ablation(blocks: Sequence[tuple[str, str, str]], axes: Sequence[str]) -> TableLayout:
    """Table 2: the metric at given sparsities with and without re-sampling and adaptive K."""
    columns = tuple(Column(f"{axis}/{p}", NAMES[axis], f"{p}%") for axis in axes for p in SPARSITIES[axis])
    rows: list[Row] = []
    contents: Contents = {}
    for (d, b, task), (variant, switched) in product(blocks, ABLATIONS.items()):
        block = f"{d}/{b}" if task == "node" else f"{d}/{b}/{task}"
        signs = ("✓" if on else "×" for on in switched)
        rows.append(Row(f"{block}/{variant}", (f"{NAMES[d]}+{NAMES[b]}", NAMES[task], *signs), block))
        off = {name: False for name, on in zip(SWITCHES, switched, strict=True) if not on}
        for axis in axes:
            cell = Cell(d, b, axis, "ace", task, variant, {"method_options": off}, LEVELS[axis])
            for p in SPARSITIES[axis]:
                contents[f"{block}/{variant}", f"{axis}/{p}"] = Quantity("test", (cell,), p / 100)
    return Grid(("", "Task", "re-sample", "adaptive K"), tuple(rows), columns, contents), ()


def fixed(datasets: Sequence[str], backbones: Sequence[str], task: str = "node") -> TableLayout:
    """Figure 4: how sparse one part gets at each fixed sparsity of the other, a line for each."""
    places = [(axis, other, p) for axis, other in PAPER_AXES.items() for p in FIXED[axis]]
    columns = tuple(Column(f"{axis}/{p}", f"{NAMES[axis]}, fixed {other}", f"{p}%") for axis, other, p in places)
    contents: Contents = {}
    lines: dict[tuple[str, str, str], list[tuple[str, Cell]]] = {}
    for d, b, (axis, other, p) in product(datasets, backbones, places):
        cell = Cell(d, b, axis, "ace", task, f"{other}-{p}", {f"fixed_{other}": p / 100})
        contents[f"{d}/{b}", f"{axis}/{p}"] = Quantity("winner", (cell,))
        lines.setdefault((d, b, axis), []).append((f"{other} {p} %", cell))
    panels = tuple(Panel(f"{NAMES[d]} + {NAMES[b]}", tuple(theirs)) for (d, b, _), theirs in lines.items())
    return Grid(("Dataset", "Backbone"), _rows(datasets, backbones, block=2), columns, contents), panels


def dense_baselines(datasets: Mapping[str, Sequence[str]]) -> TableLayout:
    """Table S5, by backbone; by searches of Tables S6 and S7 that stop before the first level: theirs serve too."""
    pairs = [(b, d) for b, names in datasets.items() for d in names]
    contents: Contents = {
        ("dense", f"{b}/{d}"): Quantity("dense", (_searched(d, b, "model", "random", "inductive", levels=0),))
        for b, d in pairs
    }
    columns = tuple(Column(f"{b}/{d}", NAMES[b], NAMES[d]) for b, d in pairs)
    return Grid(("Metric",), (Row("dense", ("Accuracy",)),), columns, contents), ()


def times(methods: Sequence[str]) -> TableLayout:
    """Table S8."""
    rows = _rows(PAPER_BACKBONES, methods)
    parts = {"seconds": "Training Time", "macs": "Inference MACs"}
    columns = [Column("complexity", "", "Time Complexity")]
    columns += [Column(f"{d}/{part}", NAMES[d], name) for d in SMALL for part, name in parts.items()]
    contents: Contents = {(row.key, "complexity"): "O(epochs·(nnz(X)·H + E·H + W))" for row in rows}
    for b, m, d, part in product(PAPER_BACKBONES, methods, SMALL, parts):
        contents[f"{b}/{m}", f"{d}/{part}"] = Quantity(part, (_searched(d, b, "model", m, "node"),))
    return Grid(("Backbones", "Methods"), rows, tuple(columns), contents), ()


def fluctuations(datasets: Sequence[str]) -> TableLayout:
    """Figure 1: edges in the upper row, weights in the lower."""
    columns: list[Column] = []
    contents: Contents = {}
    panels: list[Panel] = []
    for side, (axis, points) in FOLLOWED.items():
        columns += [Column(f"{side}/{p}", f"{side.capitalize()}, {axis} sparsity", f"{p}%") for p in points]
        for d in datasets:
            cell = Cell(d, "gcn", axis, "ugs")
            panels.append(Panel(f"{NAMES[d]}, {side}", (("UGS", cell),), side))
            for p in points:
                contents[d, f"{side}/{p}"] = Quantity(f"fluctuation of {side}", (cell,), p / 100)
    return Grid(("Dataset",), _rows(datasets), tuple(columns), contents), tuple(panels)


def excerpts(datasets: Sequence[str]) -> TableLayout:
    """Figure S1, each panel drawn at two sparsities, and the numbers behind it."""
    measures = {
        "early": "sparsity, early", "late": "sparsity, late", "count": "edges scored at both",
        "change": "mean change of rank",
    }  # fmt: skip
    cells = {d: Cell(d, "gcn", "graph", "ugs") for d in datasets}
    contents: Contents = {(d, measure): Quantity(measure, (cells[d],)) for d, measure in product(cells, measures)}
    columns = tuple(Column(measure, "", name) for measure, name in measures.items())
    panels = tuple(Panel(NAMES[d], (("UGS", cell),)) for d, cell in cells.items())
    return Grid(("Dataset",), _rows(datasets), columns, contents), panels


LAYOUTS: dict[str, Callable[..., TableLayout]] = {
    each.__name__: each for each in (winners, ablation, fixed, dense_baselines, times, fluctuations, excerpts)
}
"""As exhibits.json calls them."""
