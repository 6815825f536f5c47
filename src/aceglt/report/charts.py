"""The figures as plain plotly.js dictionaries; report.js draws them and gives them the page's colours."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aceglt.report.view import PHASES, READINGS, RunView, changes_of, seconds_of, text
from aceglt.searches.sketch import NEUTRAL, PALETTE
from aceglt.searches.statistics import mean_std
from aceglt.searches.wording import SIDE_OF, percent, plus_minus

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")

Figure = dict[str, Any]
Trace = dict[str, Any]


def sparsity_figure(runs: Sequence[RunView], colours: Sequence[int]) -> Figure:
    """Metric against sparsity for runs of one setting; `colours[i]` is the place of run i in the palette."""
    readings = {key: word for key, word in READINGS.items() if any(key in run.readings for run in runs)}
    shown = {key: _range(runs, [key]) for key in readings} | {"Both": _range(runs, list(readings))}
    low, high = shown["Both"]
    traces = [trace for reading in readings for trace in _dense_lines(runs, reading)]
    for run, colour in zip(runs, colours, strict=True):
        for (reading, word), dash in zip(readings.items(), ("solid", "dashdot"), strict=False):
            points = [(level, level[reading]) for level in run.levels if level.get(reading)]
            traces += _curve(run, points, f"{run.name}, {word}", reading, colour, dash)
        if run.best is not None:
            x, text = _percent(run.best[run.sparsity]), f"{run.name}: sparsest strict winner, level {run.best['level']}"
            line = {"color": _shade(colour), "width": 1.5, "dash": "dot"}
            more = {"legendgroup": f"run {colour}", "showlegend": False, "meta": "always"}
            traces.append(_straight([x] * 21, _points(low, high), text, line, **more))
    first = next(iter(readings))
    yaxis = {"title": {"text": f"{_safe(runs[0].metric)} (%)"}, "range": list(shown[first])}
    return {**_against_sparsity(runs, traces, readings, yaxis), "ranges": shown}


def as_plotly(*figures: Figure, titles: Sequence[str]) -> Any:
    """The same for plotly in Python, with what is shown first; several in panels side by side, with their titles."""
    from plotly.graph_objects import Figure as Drawing
    from plotly.subplots import make_subplots

    shown = [[trace for trace in figure["traces"] if trace["visible"]] for figure in figures]
    more = {"hovermode": "closest", "template": "plotly_white"}
    if len(figures) == 1:
        return Drawing(shown[0], {**figures[0]["layout"], **more})
    panels, named = make_subplots(1, len(figures), subplot_titles=list(titles)), set[Any]()
    for column, (figure, traces) in enumerate(zip(figures, shown, strict=True), start=1):
        for trace in traces:
            name = trace.get("name")
            panels.add_trace({**trace, **({"showlegend": False} if name in named else {})}, 1, column)
            named.add(name)
        panels.update_xaxes(figure["layout"]["xaxis"], col=column)
        panels.update_yaxes(figure["layout"]["yaxis"], col=column)
    return panels.update_layout(more)


def fluctuation_figure(runs: Sequence[RunView], colours: Sequence[int]) -> Figure | None:
    """Change of ranks against sparsity, of edges and of weights; `None` when no run recorded it."""
    traces = [
        trace
        for side, dash in (("edges", "solid"), ("weights", "dashdot"))
        for run, colour in zip(runs, colours, strict=True)
        for trace in _curve(run, changes_of(run, side), f"{run.name}, {side}", side, colour, dash)
    ]
    yaxis = {"title": {"text": "change of rank (% of all places)"}}
    sides = {"edges": "edges", "weights": "weights"}
    return _against_sparsity(runs, traces, sides, yaxis) if traces else None


def time_figure(runs: Sequence[RunView], colours: Sequence[int]) -> Figure | None:
    """Seconds per level, one bar per run and in it one part per phase; `None` when no run recorded them."""
    traces = [
        _bars(run, phase, colour)
        for run, colour in zip(runs, colours, strict=True)
        for phase in PHASES
        if any(phase in seconds_of(level) for level in run.levels)
    ]
    every_level = max(len(run.levels) for run in runs) <= 12
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "level"}, "dtick": 1 if every_level else None},
        "yaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
    }
    return {"traces": traces, "readings": [], "layout": layout} if traces else None


def _against_sparsity(
    runs: Sequence[RunView], traces: list[Trace], readings: Mapping[str, str], yaxis: Mapping[str, Any]
) -> Figure:
    """The first of the readings is shown, until another is chosen."""
    first = next(iter(readings))
    xaxis = {"title": {"text": f"{SIDE_OF[runs[0].sparsity]} pruned (%)"}, "range": [0, _right(runs)]}
    if text(runs[0], "axis") == "joint":
        xaxis |= _both_sparsities(runs)
    return {
        "traces": [{**trace, "visible": trace["meta"] in (first, "always")} for trace in traces],
        "readings": [[key, word.capitalize()] for key, word in readings.items()],
        "layout": {"xaxis": xaxis, "yaxis": yaxis},
    }


def _both_sparsities(runs: Sequence[RunView]) -> dict[str, Any]:
    """Ticks at levels of the joint axis, weights above edges, as far apart as their words need."""
    levels = max((run.levels for run in runs), key=len)
    ticks = [(0.0, 0.0)]
    for level in levels:
        here = (100 * level["model_sparsity"], 100 * level["graph_sparsity"])
        if here[0] - ticks[-1][0] >= 0.1 * _right(runs):
            ticks.append(here)
    return {
        "title": {"text": "weights pruned (%)<br>edges pruned (%)", "standoff": 12},
        "automargin": True,
        "tickvals": [weights for weights, _ in ticks],
        "ticktext": [f"{weights:.1f}<br>{edges:.1f}" for weights, edges in ticks],
    }


def _curve(
    run: RunView, points: Sequence[tuple[Any, Sequence[float]]], name: str, meta: str, colour: int, dash: str
) -> list[Trace]:
    """Means over seeds against sparsity, after a band of a standard deviation."""
    if not points:
        return []
    shade, stats = _shade(colour), [mean_std(values) for _, values in points]
    x = [_percent(level[run.sparsity]) for level, _ in points]
    common = {"type": "scatter", "legendgroup": f"run {colour}", "meta": meta}
    upper, lower = [mean + std for mean, std in stats], [mean - std for mean, std in stats]
    outline = {"mode": "lines", "x": x + x[::-1], "y": [_percent(value) for value in upper + lower[::-1]]}
    red, green, blue = (int(shade[i : i + 2], 16) for i in (1, 3, 5))
    area = {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},0.16)", "line": {"width": 0}}
    band = {**common, **outline, **area, "hoverinfo": "skip", "showlegend": False}
    line = {
        **common,
        "mode": "lines+markers",
        "name": _safe(name),
        "x": x,
        "y": [_percent(mean) for mean, _ in stats],
        "hovertext": [_hover(name, run, level, values) for level, values in points],
        "hoverinfo": "text",
        "line": {"color": shade, "width": 2, "dash": dash},
        "marker": {"color": shade, "size": 7, "symbol": SYMBOLS[colour % len(SYMBOLS)]},
    }
    if len(points) == 1:  # a band of one point has no width
        line["error_y"] = {"type": "data", "array": [_percent(std) for _, std in stats], "color": shade}
    return [band, line]


def _dense_lines(runs: Sequence[RunView], reading: str) -> Iterator[Trace]:
    """One line per distinct baseline: runs that are compared share theirs."""
    means: dict[float, list[RunView]] = {}
    for run in runs:
        if reading in run.readings:
            means.setdefault(round(mean_std(run.dense[reading])[0], 9), []).append(run)
    line = {"color": NEUTRAL, "width": 2, "dash": "dash" if reading == "test" else "longdashdot"}
    for owners in means.values():
        values = owners[0].dense[reading]
        of = "" if len(means) == 1 else f" of {', '.join(run.name for run in owners)}"
        name, mean = f"dense{of}, {READINGS[reading]}", _percent(mean_std(values)[0])
        x, text = _points(0, _right(runs)), f"{name}: {plus_minus(values)} %"
        yield _straight(x, [mean] * 21, text, line, name=_safe(name), meta=reading)


def _straight(x: Sequence[Any], y: Sequence[Any], text: str, line: Mapping[str, Any], **more: Any) -> Trace:
    hover = {"hovertext": _safe(text), "hoverinfo": "text"}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, **hover, **more}


def _points(start: float, end: float) -> list[float]:
    """Along a line, so that it can be touched."""
    return [start + (end - start) * step / 20 for step in range(21)]


def _bars(run: RunView, phase: str, colour: int) -> Trace:
    seconds = [(int(level["level"]), seconds_of(level).get(phase)) for level in run.levels]
    name, shade = f"{run.name}, {PHASES[phase]}", _shade(colour)
    return {
        "type": "bar",
        "name": _safe(name),
        "x": [number for number, _ in seconds],
        "y": [value for _, value in seconds],
        "offsetgroup": _safe(run.name),
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
    pruned = " and ".join(f"{percent(level[side])} of the {SIDE_OF[side]}" for side in run.varies)
    where = f"{pruned} pruned (level {level['level']})"
    return f"{_safe(name)}<br>{plus_minus(values)} %<br>{where}"


def _range(runs: Sequence[RunView], readings: Sequence[str]) -> tuple[float, float]:
    """From the lowest to the highest of some readings, deviations included, as far as a metric goes."""
    entries = [
        entry[reading]
        for run in runs
        for entry in (run.dense, *run.levels)
        for reading in readings
        if entry.get(reading)
    ]
    stats = [mean_std(values) for values in entries]
    ends = [end for mean, std in stats for end in (mean - std, mean + std) if math.isfinite(end)] or [0.0, 1.0]
    margin = max(0.05 * (max(ends) - min(ends)), 0.002)
    return 100 * (max(min(ends), 0.0) - margin), 100 * (min(max(ends), 1.0) + margin)


def _right(runs: Sequence[RunView]) -> float:
    furthest = max((level[run.sparsity] for run in runs for level in run.levels), default=0.0)
    return min(100.0 * furthest + 3, 102.0) if furthest else 100.0


def _shade(colour: int) -> str:
    return PALETTE[colour % len(PALETTE)]


def _percent(value: float) -> float | None:
    return round(100 * value, 6) if math.isfinite(value) else None


def _safe(name: str) -> str:
    """Plotly reads a little HTML in its texts; names are to be shown as they are."""
    return html.escape(name, quote=False)
