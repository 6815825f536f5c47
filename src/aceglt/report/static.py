"""The report's plots as files, drawn by matplotlib from the same figures."""

from __future__ import annotations

import html
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from aceglt.errors import ConfigError
from aceglt.files import write_atomic
from aceglt.report.charts import Figure, Trace, fluctuation_figure, sparsity_figure, time_figure
from aceglt.report.excerpt import HEIGHT, Scene, arrange, scenes
from aceglt.report.view import RunView, by_setting, colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

FORMATS = ("svg", "png", "pdf")
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdashdot": "-."}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "star": "*", "hexagon": "h"}


def check_static(format: str) -> None:
    """Raises ConfigError if plots cannot be drawn in this format, or not at all because matplotlib is missing."""
    if format not in FORMATS:
        raise ConfigError(f"unknown format '{format}'; known are {', '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("static plots need matplotlib: pip install 'aceglt[plots]'") from None


def write_static(runs: Sequence[RunView], folder: Path, format: str = "svg") -> list[Path]:
    """Every plot of the report as a file of its own in `folder`; returns the files.

    Raises:
        ConfigError: the format is unknown, or matplotlib is not installed.
    """
    check_static(format)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawing in _drawings(runs):
        path = folder / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name).strip('-')}.{format}"
        write_atomic(path, encoded(drawing, format))
        written.append(path)
    return written


def encoded(drawing: Drawing, format: str) -> bytes:
    """The file's content; the same drawing always gives the same."""
    from matplotlib import rc_context

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format)
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "aceglt"}):
        drawing.savefig(content, format=format, metadata=undated, dpi=200)
    return content.getvalue()


def _drawings(runs: Sequence[RunView]) -> Iterator[tuple[str, Drawing]]:
    for group in by_setting(runs):
        for kind, figure in (("sparsity", sparsity_figure(*group)), ("fluctuation", fluctuation_figure(*group))):
            for key, _ in figure["readings"] if figure else ():
                yield " ".join([kind, *group[0][0].setting, key]), _draw(figure, (key, "always"))
    times = time_figure(runs, colours(runs))
    if times is not None:
        yield "time", _draw(times, ("always",))
    for number, run in enumerate(runs, start=1):
        if found := scenes(run):
            yield f"excerpt {number} {run.name}", _excerpt(found)


def _draw(figure: Figure | None, shown: Sequence[str]) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    assert figure is not None
    drawing = Drawing(figsize=(7, 4.2), layout="constrained")
    axes = drawing.subplots()
    traces = [trace for trace in figure["traces"] if trace["meta"] in shown]
    for trace in traces:
        if trace["type"] == "scatter":
            _scatter(axes, trace)
    _bars(axes, [trace for trace in traces if trace["type"] == "bar"])
    axes.grid(color="#d5d9de", linewidth=0.5)
    axes.set_axisbelow(True)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    for name, label, limit in (("xaxis", axes.set_xlabel, axes.set_xlim), ("yaxis", axes.set_ylabel, axes.set_ylim)):
        axis = figure["layout"][name]
        label(_label(axis["title"]["text"]))
        if "tickvals" in axis:
            axes.set_xticks(axis["tickvals"], [_label(words) for words in axis["ticktext"]])
        if "range" in axis:
            limit(*axis["range"])
        elif axis.get("rangemode") == "tozero":
            limit(0)
    drawing.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8)
    return drawing


def _scatter(axes: Axes, trace: Trace) -> None:
    x, y = _numbers(trace["x"]), _numbers(trace["y"])
    if trace.get("fill"):
        red, green, blue, opacity = map(float, re.findall(r"[\d.]+", trace["fillcolor"]))
        axes.fill(x, y, color=(red / 255, green / 255, blue / 255), alpha=opacity, linewidth=0)
        return
    line, marker = trace["line"], trace.get("marker", {})
    axes.errorbar(
        x, y, yerr=_numbers(trace["error_y"]["array"]) if "error_y" in trace else None,
        color=line["color"], linewidth=line["width"], linestyle=_DASHES[line["dash"]],
        marker=_MARKERS.get(marker.get("symbol")), markersize=5,
        label=None if trace.get("showlegend") is False else _label(trace["name"]),
    )  # fmt: skip


def _bars(axes: Axes, traces: Sequence[Trace]) -> None:
    """A bar per run, side by side at each level, its phases on top of each other."""
    groups = list(dict.fromkeys(trace["offsetgroup"] for trace in traces))
    width = 0.8 / max(1, len(groups))
    tops: dict[tuple[str, float], float] = defaultdict(float)
    for trace in traces:
        group, colour = trace["offsetgroup"], trace["marker"]["color"]
        shift = (groups.index(group) - (len(groups) - 1) / 2) * width
        heights = [value or 0.0 for value in trace["y"]]
        hatched = bool(trace["marker"]["pattern"]["shape"])
        axes.bar(
            [x + shift for x in trace["x"]], heights, width, bottom=[tops[group, x] for x in trace["x"]],
            color="white" if hatched else colour, edgecolor=colour, hatch="///" if hatched else None,
            label=_label(trace["name"]),
        )  # fmt: skip
        for x, height in zip(trace["x"], heights, strict=True):
            tops[group, x] += height


def _excerpt(found: Sequence[Scene]) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    columns = min(2, len(found))
    rows = math.ceil(len(found) / columns)
    drawing = Drawing(figsize=(4.8 * columns, 3.8 * rows), layout="constrained")
    places = arrange([edge.ends for edge in found[0].edges])
    for axes, scene in zip_longest(drawing.subplots(rows, columns, squeeze=False).flat, found):
        axes.set_axis_off()
        if scene is not None:
            draw_scene(axes, scene, places)
    return drawing


def draw_scene(axes: Axes, scene: Scene, places: Mapping[int, complex]) -> None:
    """Edges darker the more important they are, dotted where they are pruned; places are those of `arrange`."""
    from matplotlib import colormaps

    shades = colormaps["Blues"]
    for edge in scene.in_order:
        a, b = (places[node] for node in edge.ends)
        colour = "#9aa3ad" if edge.rank is None else shades(0.25 + 0.75 * edge.rank)
        width = 1.0 if edge.rank is None else 1.0 + 1.5 * edge.rank
        axes.plot(
            [a.real, b.real], [HEIGHT - a.imag, HEIGHT - b.imag],
            color=colour, linewidth=width, linestyle="-" if edge.alive else ":", zorder=1,
        )  # fmt: skip
    for node, place in places.items():
        axes.plot(place.real, HEIGHT - place.imag, "o", color="#1b1f24", markersize=3, zorder=2)
        axes.annotate(str(node), (place.real, HEIGHT - place.imag + 5), ha="center", fontsize=6, color="#59636e")
    axes.set_title(scene.caption, fontsize=9)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _label(text: str) -> str:
    """Names are to be shown as they are: neither as HTML nor as formulas."""
    return html.unescape(text.replace("<br>", "\n")).replace("$", r"\$")
