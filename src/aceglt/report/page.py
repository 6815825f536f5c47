"""The page: headline, charts, tables, tickets and how to repeat it, put into template.html."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from aceglt.report import excerpt
from aceglt.report.charts import Figure, fluctuation_figure, sparsity_figure, time_figure
from aceglt.report.markup import escape
from aceglt.report.tables import (
    cost_table,
    diagnostics_table,
    fluctuation_table,
    levels_table,
    tickets_table,
    winners_table,
)
from aceglt.report.view import READINGS, RunView, by_setting, macs_saved, place, text
from aceglt.report.wording import counted, percent, plus_minus

NO_SCRIPT = "<noscript><p>The chart needs JavaScript; the tables below hold the same numbers.</p></noscript>"


def render(runs: Sequence[RunView], plotly_js: str) -> str:
    """The whole HTML text."""
    figures: list[Figure] = []
    return Template(_resource("template.html")).substitute(
        title=escape(_title(runs)),
        headline=_headlines(runs),
        metric=escape(_metric(runs)),
        charts=_sparsity_charts(runs, figures),
        winners=winners_table(runs),
        levels="".join(levels_table(run) for run in runs),
        fluctuation=_fluctuation_section(runs, figures),
        excerpts=_excerpt_section(runs),
        diagnostics=_diagnostics_section(runs),
        time=_time_section(runs, figures),
        tickets="".join(_tickets(run) for run in runs),
        repeat="".join(_repeat(run) for run in runs),
        style=_resource("style.css"),
        plotly=_script_safe(plotly_js),
        figures=_json_safe(figures),
        script=_resource("report.js"),
    )


def headline(run: RunView) -> str:
    """What was searched and what came of it, in one sentence."""
    what = f"{text(run, 'method')} on {text(run, 'dataset')} with {text(run, 'backbone')}"
    axis, seeds = text(run, "axis"), len(run.results.get("seeds") or run.dense["val"])
    dense = f"dense reaches {_reading(run, run.dense)}"
    if not run.levels:
        return f"{what} ({axis} axis, {counted(seeds, 'seed')}): {dense}; no levels were searched."
    size = f"{counted(len(run.levels), 'level')}, {counted(seeds, 'seed')}"
    return f"{what} ({axis} axis, {size}): {dense}; {_outcome(run)}."


def _headlines(runs: Sequence[RunView]) -> str:
    if len(runs) == 1:
        return f'<p class="lead">{escape(headline(runs[0]))}</p>'
    items = (f"<li><b>{escape(run.name)}</b> – {escape(headline(run))}</li>" for run in runs)
    return f"<ul>{''.join(items)}</ul>"


def _outcome(run: RunView) -> str:
    if run.best is None:
        return f"no level keeps dense's validation {run.metric}"
    saved = macs_saved(run, run.best)
    macs = "" if saved is None else f", and saves {percent(saved)} of the inference MACs"
    reaches = f"reaches {_reading(run, run.best)}"
    return f"the sparsest ticket that wins on validation ({place(run.best)}) {reaches}{macs}"


def _reading(run: RunView, entry: Any) -> str:
    key = run.readings[0]
    return f"{plus_minus(entry.get(key))} % {READINGS[key]} {run.metric}"


def _title(runs: Sequence[RunView]) -> str:
    if len(runs) > 1:
        return f"Graph lottery tickets: {len(runs)} runs"
    return f"Graph lottery tickets: {text(runs[0], 'dataset')}, {text(runs[0], 'backbone')}"


def _metric(runs: Sequence[RunView]) -> str:
    metrics = {run.metric for run in runs}
    metric = metrics.pop() if len(metrics) == 1 else "quality"
    return metric[:1].upper() + metric[1:]


def _sparsity_charts(runs: Sequence[RunView], figures: list[Figure]) -> str:
    groups = by_setting(runs)
    if not groups:
        return "<p>Only dense was trained: there is no sparsity to draw it against.</p>"
    return "".join(_sparsity_chart([runs[i] for i in group], group, figures) for group in groups)


def _sparsity_chart(runs: Sequence[RunView], colours: Sequence[int], figures: list[Figure]) -> str:
    figures.append(sparsity_figure(runs, colours))
    caption = f"{_setting(runs[0])}: mean {runs[0].metric} against sparsity."
    notes = " Bands: ± one standard deviation over seeds. Dotted: the sparsest level that wins on validation."
    return _chart(len(figures) - 1, caption, notes)


def _setting(run: RunView) -> str:
    dataset, backbone, task, _, axis = run.setting
    return f"{dataset}, {backbone}, {task} task, {axis} axis"


def _chart(index: int, caption: str, notes: str) -> str:
    return (
        f'<figure><figcaption id="caption-{index}"><strong>{escape(caption)}</strong>'
        f"{escape(notes)}</figcaption>"
        f'<div class="switch" data-switch="{index}" role="group" aria-label="Reading"></div>'
        f'<div class="chart" data-figure="{index}" role="img" aria-labelledby="caption-{index}"></div>'
        f"{NO_SCRIPT}</figure>"
    )


def _diagnostics_section(runs: Sequence[RunView]) -> str:
    tables = "".join(diagnostics_table(run) for run in runs)
    if not tables:
        return ""
    note = (
        "Means over seeds. Few distinct scores, many ties at the threshold or a high correlation with the "
        "noise that scores start from mean that chance made the choice."
    )
    return f"<section><h2>How decided the choices were</h2><p>{note}</p>{tables}</section>"


def _time_section(runs: Sequence[RunView], figures: list[Figure]) -> str:
    cost, figure = cost_table(runs), time_figure(runs, range(len(runs)))
    if figure is not None:
        figures.append(figure)
        cost = _chart(len(figures) - 1, "Seconds per level.", " All seeds together; hatched: retraining.") + cost
    return f"<section><h2>Where the time went</h2>{cost}</section>" if cost else ""


def _fluctuation_section(runs: Sequence[RunView], figures: list[Figure]) -> str:
    charts = "".join(_fluctuation_chart([runs[i] for i in group], group, figures) for group in by_setting(runs))
    if not charts:
        return ""
    note = (
        "How far an element moves in the ranking by importance from one level to the next, on average over the "
        "elements alive at both, as a share of all places. 0 %: the order stayed; 33 %: it has nothing to do with "
        "the one before."
    )
    tables = "".join(fluctuation_table(run) for run in runs)
    details = f"<details><summary>The same numbers as tables</summary>{tables}</details>"
    return f"<section><h2>Importance fluctuation</h2><p>{note}</p>{charts}{details}</section>"


def _fluctuation_chart(runs: Sequence[RunView], colours: Sequence[int], figures: list[Figure]) -> str:
    figure = fluctuation_figure(runs, colours)
    if figure is None:
        return ""
    figures.append(figure)
    return _chart(len(figures) - 1, f"{_setting(runs[0])}: change of ranks between levels.", " Bands as above.")


def _excerpt_section(runs: Sequence[RunView]) -> str:
    parts = "".join(_excerpt(run, len(runs)) for run in runs)
    if not parts:
        return ""
    shades = "".join(
        f'<svg viewBox="0 0 24 8" aria-hidden="true"><line class="shade-{i}" x1="0" y1="4" x2="24" y2="4"/></svg>'
        for i in range(excerpt.SHADES)
    )
    note = (
        "A connected part of the graph in the run of one seed. The colour says how important an edge was, among all "
        "edges of the graph, when the level's cut was made; dashed edges are not in the level's ticket, grey ones had "
        "no score."
    )
    key = f'<p class="key graph"><span>less important</span>{shades}<span>more important</span></p>'
    return f'<section><h2>Edges up close</h2><p>{note}</p>{key}<div class="excerpts">{parts}</div></section>'


def _excerpt(run: RunView, runs: int) -> str:
    found = excerpt.scenes(run, runs)
    if not found:
        return ""
    places = excerpt.arrange([edge.ends for edge in found[0].edges])
    slides = "".join(
        f'<figure class="slide">{excerpt.draw(scene, places)}<figcaption>{escape(scene.caption)}</figcaption></figure>'
        for scene in found
    )
    title = f"{run.name}: {text(run, 'dataset')}, seed {run.results['excerpt'].get('seed')}"
    heading = f"<h3>{escape(title)}</h3>"
    return f'<div class="excerpt">{heading}<div class="slides" data-slides="{escape(title)}">{slides}</div></div>'


def _tickets(run: RunView) -> str:
    if not run.tickets:
        return f"<h3>{escape(run.name)}</h3><p>No ticket was saved.</p>"
    return tickets_table(run)


def _repeat(run: RunView) -> str:
    config = json.dumps(run.config, indent=2, ensure_ascii=False, default=str)
    return (
        f"<h3>{escape(run.name)}</h3>"
        f'<pre class="scroll" tabindex="0"><code>{html.escape(run.command)}</code></pre>'
        f"<details><summary>Configuration</summary>"
        f'<pre class="scroll" tabindex="0"><code>{html.escape(config)}</code></pre></details>'
    )


def _json_safe(value: Any) -> str:
    """JSON that no HTML parser can take for markup."""
    dumped = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return dumped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _script_safe(source: str) -> str:
    return re.sub(r"</(?=script)", r"<\\/", source, flags=re.IGNORECASE)


def _resource(name: str) -> str:
    return files("aceglt.report").joinpath(name).read_text(encoding="utf-8")
