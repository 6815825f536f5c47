"""How the paper's tables and figures are laid out: which quantity of which search stands where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from aceglt.config import SCORING, SETTINGS
from aceglt.reproduction.cells import Cell
from aceglt.reproduction.grid import BOLD, UNDERLINE, Column, Contents, Grid, Row
from aceglt.reproduction.measures import Quantity

SMALL = ("cora", "citeseer", "pubmed")
PAPER_BACKBONES = ("gcn", "gin", "gat")
PAPER_METHODS = ("random", "ugs", "gebt", "ace")
OURS = "ours"
"""Beside the paper's methods: `ugs` with our default scores and pruning, trained as the others are."""
WITHOUT_GEBT = ("random", "ugs", "ace")
PAPER_AXES = {"model": "graph", "graph": "model"}
"""What gets sparser, and what is held meanwhile."""

OUR_SETTINGS = {name: SETTINGS[name].default for name in SCORING}

SPARSITIES = {"model": (20, 40, 50, 60, 70, 80), "graph": (10, 20, 30, 40, 50, 60)}
"""In percent, by axis: the columns of Tables 2 and S4."""
LEVELS = {"model": 7, "graph": 18}
"""Levels that reach the last of these columns."""
FIXED = {"model": (10, 15, 20, 25), "graph": (40, 50, 70, 90)}
"""In percent, by axis: where the other part is held in Figures 4, S5 and S6."""

SWITCHES = ("resample", "adaptive_k")
ABLATIONS = {"neither": (False, False), "resample": (True, False), "adaptive": (False, True), "both": (True, True)}
"""Tables 2 and S4: which of the two switches are on."""

LARGE = {"checkpoint_blocks": True}
"""Settings of a 28-layer ResGCN on a large graph: memory for time, with the same results."""

NAMES = {
    "cora": "Cora", "citeseer": "Citeseer", "pubmed": "PubMed", "ogbn-arxiv": "Ogbn-arxiv",
    "ogbn-proteins": "Ogbn-proteins", "ogbl-collab": "Ogbl-collab", "gcn": "GCN", "gin": "GIN", "gat": "GAT",
    "resgcn": "ResGCN", "random": "Random", "ugs": "UGS", "gebt": "GEBT", "ace": "ACE",
    OURS: "Ours", "model": "Model Sparsity", "graph": "Graph Sparsity",
    "node": "Node Classification", "link": "Link Prediction",
}  # fmt: skip
"""As the paper writes them, but for its own method."""


@dataclass(frozen=True)
class Panel:
    """One plot of a figure: lines over a sparsity."""

    title: str
    lines: tuple[tuple[str, Cell], ...]
    """Each with its name in the legend."""
    show: str = "test"
    """test, or the fluctuation of edges or weights."""


def winners(
    datasets: Iterable[str],
    backbones: Sequence[str],
    methods: Sequence[str],
    columns: Sequence[Column],
    quoted: str,
    marks: Iterable[str] = (BOLD, UNDERLINE),
    **cell: Any,
) -> Grid:
    """The layout of Table 1: per backbone and method, how sparse tickets get on each axis, and the highest metric."""
    rows = [Row(f"{b}/{m}", (NAMES[b], NAMES[m]), b) for b, m in product(backbones, methods)]
    contents: Contents = {}
    for b, m, d in product(backbones, methods, datasets):
        cells = {axis: _searched(d, b, axis, m, **cell) for axis in PAPER_AXES}
        contents |= {(f"{b}/{m}", f"{d}/{axis}"): Quantity("winner", (cells[axis],)) for axis in PAPER_AXES}
        contents[f"{b}/{m}", f"{d}/highest"] = Quantity("highest", tuple(cells.values()))
    return Grid(("Backbone", "Method"), tuple(rows), tuple(columns), contents, frozenset(marks), quoted)


def _searched(dataset: str, backbone: str, axis: str, method: str, **cell: Any) -> Cell:
    if method != OURS:
        return Cell(dataset, backbone, axis, method, **cell)
    return Cell(dataset, backbone, axis, "ugs", variant=OURS, settings=OUR_SETTINGS, **cell)


def by_quantity(datasets: Sequence[str], metric: str) -> list[Column]:
    """Columns of `winners`: datasets under each quantity."""
    groups = {**{axis: NAMES[axis] for axis in PAPER_AXES}, "highest": f"Highest {metric}"}
    return [Column(f"{d}/{key}", group, NAMES[d]) for key, group in groups.items() for d in datasets]


def by_dataset(metrics: Mapping[str, str], highest: bool = True) -> list[Column]:
    """Columns of `winners`: quantities under each dataset."""
    columns = []
    for d, metric in metrics.items():
        columns += [Column(f"{d}/{axis}", NAMES[d], NAMES[axis]) for axis in PAPER_AXES]
        columns += [Column(f"{d}/highest", NAMES[d], metric)] if highest else []
    return columns


def curves(datasets: Iterable[str], backbones: Sequence[str], methods: Sequence[str], **cell: Any) -> tuple[Panel, ...]:
    """The panels of Figure S2: the metric of each method over each sparsity."""
    return tuple(
        Panel(f"{NAMES[d]} + {NAMES[b]}", tuple((NAMES[m], _searched(d, b, axis, m, **cell)) for m in methods))
        for b, d, axis in product(backbones, datasets, PAPER_AXES)
    )


def ablation(blocks: Sequence[tuple[str, str, str]], axes: Sequence[str], quoted: str, *marks: str) -> Grid:
    """The layout of Table 2: the metric at given sparsities with and without re-sampling and adaptive K."""
    columns = [Column(f"{axis}/{p}", NAMES[axis], f"{p}%") for axis in axes for p in SPARSITIES[axis]]
    rows: list[Row] = []
    contents: Contents = {}
    for (d, b, task), (variant, switched) in product(blocks, ABLATIONS.items()):
        block = f"{d}/{b}" if task == "node" else f"{d}/{b}/{task}"
        signs = ("✓" if on else "×" for on in switched)
        rows.append(Row(f"{block}/{variant}", (f"{NAMES[d]}+{NAMES[b]}", NAMES[task], *signs), block))
        off = {name: False for name, on in zip(SWITCHES, switched, strict=True) if not on}
        for axis in axes:
            cell = Cell(d, b, axis, "ace", task, variant, {"method_options": off}, LEVELS[axis])
            contents |= {
                (f"{block}/{variant}", f"{axis}/{p}"): Quantity("test", (cell,), p / 100) for p in SPARSITIES[axis]
            }
    heads = ("", "Task", "re-sample", "adaptive K")
    return Grid(heads, tuple(rows), tuple(columns), contents, frozenset(marks), quoted)


def fixed(datasets: Sequence[str], backbones: Sequence[str], quoted: str = "", task: str = "node") -> Grid:
    """The numbers of Figure 4: how sparse one part gets at each fixed sparsity of the other."""
    columns = [
        Column(f"{axis}/{p}", f"{NAMES[axis]}, fixed {other}", f"{p}%")
        for axis, other in PAPER_AXES.items()
        for p in FIXED[axis]
    ]
    rows = [Row(f"{d}/{b}", (NAMES[d], NAMES[b]), f"{d}/{b}") for d, b in product(datasets, backbones)]
    contents: Contents = {
        (f"{d}/{b}", f"{axis}/{p}"): Quantity("winner", (_held(d, b, axis, p, task),))
        for d, b, axis in product(datasets, backbones, PAPER_AXES)
        for p in FIXED[axis]
    }
    return Grid(("Dataset", "Backbone"), tuple(rows), tuple(columns), contents, quoted=quoted)


def fixed_panels(datasets: Sequence[str], backbones: Sequence[str], task: str = "node") -> tuple[Panel, ...]:
    """The panels of Figure 4: one line per fixed sparsity."""
    return tuple(
        Panel(
            f"{NAMES[d]} + {NAMES[b]}",
            tuple((f"{PAPER_AXES[axis]} {p} %", _held(d, b, axis, p, task)) for p in FIXED[axis]),
        )
        for d, b, axis in product(datasets, backbones, PAPER_AXES)
    )


def _held(dataset: str, backbone: str, axis: str, percent: int, task: str) -> Cell:
    other = PAPER_AXES[axis]
    settings = {f"fixed_{other}": percent / 100}
    return Cell(dataset, backbone, axis, "ace", task, f"{other}-{percent}", settings)


def dense_baselines() -> Grid:
    """Table S5; by searches of Tables S6 and S7 that stop before the first level, so that theirs serve too."""
    small = {(b, d): Cell(d, b, "model", "random", "inductive", levels=0) for b, d in product(PAPER_BACKBONES, SMALL)}
    large = {
        ("resgcn", d): Cell(d, "resgcn", "model", "random", "inductive", settings=LARGE, levels=0)
        for d in ("ogbn-arxiv", "ogbn-proteins")
    }
    cells = {**small, **large}
    columns = tuple(Column(f"{b}/{d}", NAMES[b], NAMES[d]) for b, d in cells)
    contents: Contents = {("dense", f"{b}/{d}"): Quantity("dense", (cell,)) for (b, d), cell in cells.items()}
    return Grid(("Metric",), (Row("dense", ("Accuracy",)),), columns, contents, quoted="tableS5")


def times() -> Grid:
    """Table S8."""
    rows = [Row(f"{b}/{m}", (NAMES[b], NAMES[m]), b) for b, m in product(PAPER_BACKBONES, ("ugs", "ace"))]
    parts = {"seconds": "Training Time", "macs": "Inference MACs"}
    columns = [Column("complexity", "", "Time Complexity")]
    columns += [Column(f"{d}/{part}", NAMES[d], name) for d in SMALL for part, name in parts.items()]
    contents: Contents = {(row.key, "complexity"): "O(epochs·(nnz(X)·H + E·H + W))" for row in rows}
    for b, m, d in product(PAPER_BACKBONES, ("ugs", "ace"), SMALL):
        cell = Cell(d, b, "model", m)
        contents |= {(f"{b}/{m}", f"{d}/{part}"): Quantity(part, (cell,)) for part in parts}
    return Grid(("Backbones", "Methods"), tuple(rows), tuple(columns), contents, quoted="tableS8")


PRUNED = {"edges": "graph", "weights": "model"}
"""Whose importance Figures 1 and S1 follow, and on which axis."""


def fluctuations(datasets: Sequence[str]) -> Grid:
    """The numbers of Figure 1; the first level has nothing before it to be compared with."""
    points = {"edges": SPARSITIES["graph"], "weights": SPARSITIES["model"][1:]}
    columns = [
        Column(f"{side}/{p}", f"{side.capitalize()}, {PRUNED[side]} sparsity", f"{p}%")
        for side in PRUNED
        for p in points[side]
    ]
    contents: Contents = {
        (d, f"{side}/{p}"): Quantity(f"fluctuation of {side}", (Cell(d, "gcn", axis, "ugs"),), p / 100)
        for d in datasets
        for side, axis in PRUNED.items()
        for p in points[side]
    }
    return Grid(("Dataset",), tuple(Row(d, (NAMES[d],), d) for d in datasets), tuple(columns), contents)


def fluctuation_panels(datasets: Sequence[str]) -> tuple[Panel, ...]:
    """The panels of Figure 1: edges in the upper row, weights in the lower."""
    return tuple(
        Panel(f"{NAMES[d]}, {side}", (("UGS", Cell(d, "gcn", axis, "ugs")),), side)
        for (side, axis), d in product(PRUNED.items(), datasets)
    )


def excerpts(datasets: Sequence[str]) -> Grid:
    """The numbers behind Figure S1."""
    names = {
        "early": "sparsity, early",
        "late": "sparsity, late",
        "count": "edges scored at both",
        "change": "mean change of rank",
    }
    contents: Contents = {
        (d, measure): Quantity(measure, (Cell(d, "gcn", "graph", "ugs"),)) for d, measure in product(datasets, names)
    }
    columns = tuple(Column(measure, "", name) for measure, name in names.items())
    return Grid(("Dataset",), tuple(Row(d, (NAMES[d],), d) for d in datasets), columns, contents)


def excerpt_panels(datasets: Sequence[str]) -> tuple[Panel, ...]:
    """The panels of Figure S1; each is drawn at two sparsities."""
    return tuple(Panel(NAMES[d], (("UGS", Cell(d, "gcn", "graph", "ugs")),)) for d in datasets)
