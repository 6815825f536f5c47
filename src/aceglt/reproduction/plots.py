"""The figures as static files, drawn by matplotlib, which is imported when it is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import cycle
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
_STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#A37B00", "v"))


def draw(exhibit: Exhibit, found: Mapping[Cell, Results], stem: Path) -> list[Path]:
    """Write the figure of what was found; no file if nothing was."""
    from matplotlib.figure import Figure  # not pyplot, which would keep it and look for a screen

    panels = [panel for panel in exhibit.panels if any(cell in found for _, cell in panel.lines)]
    if not panels:
        return []
    excerpts = exhibit.plot == "excerpt"
    columns = 2 if excerpts else min(len(panels), 2 if len(panels) <= 4 else 6)
    rows = len(panels) if excerpts else math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    if excerpts:
        for pair, panel in zip(axes, panels, strict=True):
            _draw_excerpts(pair, panel, found)
    else:
        for ax, panel in zip(axes.flat, panels, strict=False):
            _draw_lines(ax, panel, found)
    for ax in axes.flat[0 if excerpts else len(panels) :]:
        ax.set_axis_off()
    paths = [stem.with_suffix(f".{kind}") for kind in FORMATS]
    for kind, path in zip(FORMATS, paths, strict=True):
        write_atomic(path, encoded(figure, kind))
    return paths


def _draw_lines(ax: Any, panel: Panel, found: Mapping[Cell, Results]) -> None:
    of_test = panel.show == "test"
    for (name, cell), (colour, marker) in zip(panel.lines, cycle(_STYLES), strict=False):
        if cell not in found:
            continue
        results, factor, seen = found[cell], 100 if of_test else 1, []
        for level in results["levels"]:
            readings = level if of_test else level.get("fluctuation") or {}
            values = [value for value in readings.get(panel.show, []) if value is not None]
            seen += [(level, values)] if values else []
        xs = [100 * level[cell.sparsity] for level, _ in seen]
        means, stds = ([factor * mean_std(values)[k] for _, values in seen] for k in (0, 1))
        ax.plot(xs, means, color=colour, marker=marker, markersize=3, linewidth=1.3, label=name)
        low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
        ax.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
        if of_test and (winner := results["highest_winning"]["paper"]):
            ax.axvline(100 * winner[cell.sparsity], color=colour, linestyle=":", linewidth=1.2)
    first = next(cell for _, cell in panel.lines if cell in found)
    dense = {"y": 100 * mean_std(found[first]["dense"]["test"])[0], "label": "dense"} if of_test else {"y": 0}
    ax.axhline(**dense, color="0.45", linestyle="--", linewidth=1)
    metric = metric_in_words(found[first]["metric"])
    ax.set_ylabel(f"test {metric} (%)" if of_test else "importance fluctuation")
    ax.set_xlabel(f"{first.axis} sparsity (%)")
    ax.set_title(panel.title)
    ax.grid(alpha=0.25)
    ax.legend(fontsize="small")


def _draw_excerpts(pair: Any, panel: Panel, found: Mapping[Cell, Results]) -> None:
    cell = panel.lines[0][1]
    edges = [(a, b) for a, b in found[cell]["excerpt"]["edges"]]
    for ax, level in zip(pair, excerpt_levels(found[cell], cell), strict=False):
        draw_scene(ax, scene_of(level, edges), arrange(edges))
        ax.set_title(f"{panel.title}, sparsity = {100 * level[cell.sparsity]:.0f} %")
