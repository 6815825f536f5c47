"""The figures as static files, drawn by matplotlib, which is imported when it is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aceglt.files import write_atomic
from aceglt.report.excerpt import arrange, scene_of
from aceglt.report.static import draw_scene, encoded
from aceglt.reproduction.cells import Cell, Results
from aceglt.reproduction.layouts import Panel
from aceglt.reproduction.measures import excerpt_levels
from aceglt.reproduction.registry import Exhibit
from aceglt.searches.statistics import mean_std, metric_in_words

FORMATS = ("png", "svg")
# Okabe and Ito's colours, which people with any colour vision tell apart; each line has its own marker too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#A37B00")
_MARKERS = ("o", "s", "^", "D", "v")


def draw(exhibit: Exhibit, found: Mapping[Cell, Results], stem: Path) -> list[Path]:
    """Write the figure of what was found; no file if nothing was."""
    panels = [panel for panel in exhibit.panels if any(cell in found for _, cell in panel.lines)]
    if not panels:
        return []
    figure = _excerpts(panels, found) if exhibit.plot == "excerpt" else _lines(panels, found)
    paths = {kind: stem.with_suffix(f".{kind}") for kind in FORMATS}
    for kind, path in paths.items():
        write_atomic(path, encoded(figure, kind))
    return list(paths.values())


def _axes(rows: int, columns: int) -> tuple[Any, list[Any]]:
    """A figure without pyplot, which would keep it and look for a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _lines(panels: Sequence[Panel], found: Mapping[Cell, Results]) -> Any:
    columns = min(len(panels), 2 if len(panels) <= 4 else 6)
    figure, axes = _axes(math.ceil(len(panels) / columns), columns)
    for ax, panel in zip(axes, panels, strict=False):
        _panel(ax, panel, found)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure


def _panel(ax: Any, panel: Panel, found: Mapping[Cell, Results]) -> None:
    shown = [(i, name, cell) for i, (name, cell) in enumerate(panel.lines) if cell in found]
    for i, name, cell in shown:
        _line(ax, panel, name, cell, found[cell], i)
    cell, results = shown[0][2], found[shown[0][2]]
    if panel.show == "test":
        dense = 100 * mean_std(results["dense"]["test"])[0]
        ax.axhline(dense, color="0.45", linestyle="--", linewidth=1, label="dense")
        ax.set_ylabel(f"test {metric_in_words(results['metric'])} (%)")
    else:
        ax.axhline(0, color="0.45", linestyle="--", linewidth=1)
        ax.set_ylabel("importance fluctuation")
    ax.set_xlabel(f"{cell.axis} sparsity (%)")
    ax.set_title(panel.title)
    ax.grid(alpha=0.25)
    ax.legend(fontsize="small")


def _line(ax: Any, panel: Panel, name: str, cell: Cell, results: Results, i: int) -> None:
    colour = _COLOURS[i % len(_COLOURS)]
    points = [(100 * level[cell.sparsity], values) for level in results["levels"] if (values := _values(panel, level))]
    factor = 100 if panel.show == "test" else 1
    xs = [x for x, _ in points]
    means, stds = ([factor * mean_std(values)[k] for _, values in points] for k in (0, 1))
    ax.plot(xs, means, color=colour, marker=_MARKERS[i % len(_MARKERS)], markersize=3, linewidth=1.3, label=name)
    low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
    ax.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    winner = results["highest_winning"]["paper"]
    if panel.show == "test" and winner is not None:
        ax.axvline(100 * winner[cell.sparsity], color=colour, linestyle=":", linewidth=1.2)


def _values(panel: Panel, level: Results) -> list[float]:
    """What a level shows, over seeds."""
    if panel.show == "test":
        return list(level["test"])
    return [value for value in (level.get("fluctuation") or {}).get(panel.show, []) if value is not None]


def _excerpts(panels: Sequence[Panel], found: Mapping[Cell, Results]) -> Any:
    figure, axes = _axes(len(panels), 2)
    for i, panel in enumerate(panels):
        cell = panel.lines[0][1]
        edges = [(a, b) for a, b in found[cell]["excerpt"]["edges"]]
        for ax, level in zip(axes[2 * i : 2 * i + 2], excerpt_levels(found[cell], cell), strict=False):
            draw_scene(ax, scene_of(level, edges), arrange(edges))
            ax.set_title(f"{panel.title}, sparsity = {100 * level[cell.sparsity]:.0f} %")
    for ax in axes:
        ax.set_axis_off()
    return figure
