"""The figures as plain plotly.js dictionaries; report.js draws them and gives them the page's colours."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aceglt.report.view import PHASES, READINGS, SIDES, RunView, changes_of, seconds_of
from aceglt.report.wording import percent, plus_minus
from aceglt.searches.statistics import mean_std

# Okabe and Ito's colours, their light ones darkened: each stands out from white and from the dark page.
PALETTE = ("#2580C3", "#D55E00", "#009E73", "#CC79A7", "#A37B00", "#7A6FD0")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")
NEUTRAL = "#808080"

Figure = dict[str, Any]
Trace = dict[str, Any]


def sparsity_figure(runs: Sequence[RunView], colours: Sequence[int]) -> Figure:
    """Metric against sparsity for runs of one setting; `colours[i]` is the place of run i in the palette."""
    readings = [key for key in READINGS if any(key in run.readings for run in runs)]
    low, high = _range(runs)
    traces = [trace for reading in readings for trace in _dense_lines(runs, reading)]
    for run, colour in zip(runs, colours, strict=True):
        for reading in readings:
            traces += _curve(run, reading, colour, "solid" if reading == readings[0] else "dashdot")
        traces += _winner_line(run, colour, low, high)
    for trace in traces:
        trace["visible"] = trace["meta"] in (readings[0], "always")
    part = SIDES[runs[0].sparsity]
    return {
        "traces": traces,
        "readings": [[key, READINGS[key].capitalize()] for key in readings],
        "layout": {
            "xaxis": {"title": {"text": f"{part} pruned (%)"}, "range": [0, _right(runs)]},
            "yaxis": {"title": {"text": f"{_safe(runs[0].metric)} (%)"}, "range": [low, high]},
        },
    }


def fluctuation_figure(runs: Sequence[RunView], colours: Sequence[int]) -> Figure | None:
    """Change of ranks against sparsity, of edges and of weights; `None` when no run recorded it."""
    traces = [
        trace
        for side, dash in (("edges", "solid"), ("weights", "dashdot"))
        for run, colour in zip(runs, colours, strict=True)
        for trace in _line(run, changes_of(run, side), f"{run.name}, {side}", side, colour, dash)
    ]
    if not traces:
        return None
    for trace in traces:
        trace["visible"] = trace["meta"] == "edges"
    return {
        "traces": traces,
        "readings": [["edges", "Edges"], ["weights", "Weights"]],
        "layout": {
            "xaxis": {"title": {"text": f"{SIDES[runs[0].sparsity]} pruned (%)"}, "range": [0, _right(runs)]},
            "yaxis": {"title": {"text": "change of rank (% of all places)"}, "rangemode": "tozero"},
        },
    }


def time_figure(runs: Sequence[RunView], colours: Sequence[int]) -> Figure | None:
    """Seconds per level, one bar per run and in it one part per phase; `None` when no run recorded them."""
    traces = [
        _bars(run, phase, colour)
        for run, colour in zip(runs, colours, strict=True)
        for phase in PHASES
        if any(phase in seconds_of(level) for level in run.levels)
    ]
    if not traces:
        return None
    return {
        "traces": traces,
        "readings": [],
        "layout": {
            "barmode": "stack",
            "xaxis": {"title": {"text": "level"}, "dtick": 1 if _most_levels(runs) <= 12 else None},
            "yaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
        },
    }


def _curve(run: RunView, reading: str, colour: int, dash: str) -> list[Trace]:
    points = [(level, level[reading]) for level in run.levels if level.get(reading)]
    return _line(run, points, f"{run.name}, {READINGS[reading]}", reading, colour, dash)


def _line(
    run: RunView,
    points: Sequence[tuple[Any, Sequence[float]]],
    name: str,
    meta: str,
    colour: int,
    dash: str,
) -> list[Trace]:
    """Means over seeds against sparsity, with a band."""
    if not points:
        return []
    shade = PALETTE[colour % len(PALETTE)]
    stats = [mean_std(values) for _, values in points]
    common = {"x": [_percent(level[run.sparsity]) for level, _ in points], "legendgroup": f"run {colour}", "meta": meta}
    line = {
        **common,
        "type": "scatter",
        "mode": "lines+markers",
        "name": _safe(name),
        "y": [_percent(mean) for mean, _ in stats],
        "hovertext": [_hover(name, run, level, values) for level, values in points],
        "hoverinfo": "text",
        "line": {"color": shade, "width": 2, "dash": dash},
        "marker": {"color": shade, "size": 7, "symbol": SYMBOLS[colour % len(SYMBOLS)]},
    }
    if len(points) == 1:  # a band of one point has no width
        line["error_y"] = {"type": "data", "array": [_percent(std) for _, std in stats], "color": shade}
    return [_band(common, stats, shade), line]


def _band(common: Trace, stats: Sequence[tuple[float, float]], shade: str) -> Trace:
    upper, lower = [mean + std for mean, std in stats], [mean - std for mean, std in stats]
    return {
        **common,
        "type": "scatter",
        "mode": "lines",
        "x": common["x"] + common["x"][::-1],
        "y": [_percent(value) for value in upper + lower[::-1]],
        "fill": "toself",
        "fillcolor": _translucent(shade),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _dense_lines(runs: Sequence[RunView], reading: str) -> list[Trace]:
    """One line per distinct baseline: runs that are compared share theirs."""
    means: dict[float, list[RunView]] = {}
    for run in runs:
        if reading in run.readings:
            means.setdefault(round(mean_std(run.dense[reading])[0], 9), []).append(run)
    names = {
        mean: "dense" if len(means) == 1 else f"dense of {', '.join(r.name for r in owners)}"
        for mean, owners in means.items()
    }
    return [
        _dense_line(f"{names[mean]}, {READINGS[reading]}", owners[0].dense[reading], reading, _right(runs))
        for mean, owners in means.items()
    ]


def _dense_line(name: str, values: list[float], reading: str, right: float) -> Trace:
    mean = _percent(mean_std(values)[0])
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _safe(name),
        "x": [right * step / 20 for step in range(21)],  # points along the line, so that it can be touched
        "y": [mean] * 21,
        "hovertext": _safe(f"{name}: {plus_minus(values)} %"),
        "hoverinfo": "text",
        "line": {"color": NEUTRAL, "width": 2, "dash": "dash" if reading == "test" else "longdashdot"},
        "meta": reading,
    }


def _winner_line(run: RunView, colour: int, low: float, high: float) -> list[Trace]:
    if run.best is None:
        return []
    x = _percent(run.best[run.sparsity])
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [x] * 21,
            "y": [low + (high - low) * step / 20 for step in range(21)],
            "hovertext": _safe(f"{run.name}: sparsest strict winner, level {run.best['level']}"),
            "hoverinfo": "text",
            "line": {"color": PALETTE[colour % len(PALETTE)], "width": 1.5, "dash": "dot"},
            "legendgroup": f"run {colour}",
            "showlegend": False,
            "meta": "always",
        }
    ]


def _bars(run: RunView, phase: str, colour: int) -> Trace:
    seconds = [(int(level["level"]), seconds_of(level).get(phase)) for level in run.levels]
    name, shade = f"{run.name}, {PHASES[phase]}", PALETTE[colour % len(PALETTE)]
    return {
        "type": "bar",
        "name": _safe(name),
        "x": [number for number, _ in seconds],
        "y": [value for _, value in seconds],
        "offsetgroup": f"run {colour}",
        "hovertext": [_safe(f"{name}, level {n}: {0 if s is None else s:.1f} s") for n, s in seconds],
        "hoverinfo": "text",
        "marker": {
            "color": shade,
            "line": {"color": shade, "width": 1},
            "pattern": {"shape": "/" if phase == "retrain" else "", "fillmode": "replace"},
        },
        "textposition": "none",
        "meta": "always",
    }


def _hover(name: str, run: RunView, level: Mapping[str, Any], values: Sequence[float]) -> str:
    where = f"{percent(level[run.sparsity])} of the {SIDES[run.sparsity]} pruned (level {level['level']})"
    return f"{_safe(name)}<br>{plus_minus(values)} %<br>{where}"


def _range(runs: Sequence[RunView]) -> tuple[float, float]:
    stats = [
        mean_std(entry[reading])
        for run in runs
        for reading in READINGS
        for entry in (run.dense, *run.levels)
        if entry.get(reading)
    ]
    ends = [end for mean, std in stats for end in (mean - std, mean + std) if math.isfinite(end)] or [
        0.0,
        1.0,
    ]
    margin = max(0.05 * (max(ends) - min(ends)), 0.002)
    return 100 * (min(ends) - margin), 100 * (max(ends) + margin)


def _right(runs: Sequence[RunView]) -> float:
    furthest = max((level[run.sparsity] for run in runs for level in run.levels), default=0.0)
    return min(100.0 * furthest + 3, 102.0) if furthest else 100.0


def _most_levels(runs: Iterable[RunView]) -> int:
    return max(len(run.levels) for run in runs)


def _translucent(shade: str) -> str:
    red, green, blue = (int(shade[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _percent(value: float) -> float | None:
    return round(100 * value, 6) if math.isfinite(value) else None


def _safe(name: str) -> str:
    """Plotly reads a little HTML in its texts; names are to be shown as they are."""
    return html.escape(name, quote=False)
