"""The page: headline, charts, tables, tickets and how to repeat it, put into template.html."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote

from aceglt.report.charts import Figure, sparsity_figure, time_figure
from aceglt.report.tables import cost_table, diagnostics_table, levels_table, winners_table
from aceglt.report.view import READINGS, UNIT, RunView, macs_saved, percent, place, spread, text

NO_SCRIPT = "<noscript><p>The chart needs JavaScript; the tables below hold the same numbers.</p></noscript>"


def render(runs: Sequence[RunView], plotly_js: str) -> str:
    """The whole HTML text."""
    figures: list[Figure] = []
    return Template(_resource("template.html")).substitute(
        title=html.escape(_title(runs)),
        headline=_headlines(runs),
        metric=html.escape(_metric(runs)),
        charts=_sparsity_charts(runs, figures),
        winners=winners_table(runs),
        levels="".join(levels_table(run) for run in runs),
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
        return f"{what} ({axis} axis, {_count(seeds, 'seed')}): {dense}; no levels were searched."
    size = f"{_count(len(run.levels), 'level')}, {_count(seeds, 'seed')}"
    return f"{what} ({axis} axis, {size}): {dense}; {_outcome(run)}."


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _headlines(runs: Sequence[RunView]) -> str:
    if len(runs) == 1:
        return f'<p class="lead">{html.escape(headline(runs[0]))}</p>'
    items = (f"<li><b>{html.escape(run.name)}</b> – {html.escape(headline(run))}</li>" for run in runs)
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
    return f"{spread(entry.get(key))}{UNIT} {READINGS[key]} {run.metric}"


def _title(runs: Sequence[RunView]) -> str:
    if len(runs) > 1:
        return f"Graph lottery tickets: {len(runs)} runs"
    return f"Graph lottery tickets: {text(runs[0], 'dataset')}, {text(runs[0], 'backbone')}"


def _metric(runs: Sequence[RunView]) -> str:
    metrics = {run.metric for run in runs}
    metric = metrics.pop() if len(metrics) == 1 else "quality"
    return metric[:1].upper() + metric[1:]


def _sparsity_charts(runs: Sequence[RunView], figures: list[Figure]) -> str:
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, run in enumerate(runs):
        if run.levels:
            groups.setdefault(run.setting, []).append(index)
    if not groups:
        return "<p>Only dense was trained: there is no sparsity to draw it against.</p>"
    return "".join(_sparsity_chart([runs[i] for i in group], group, figures) for group in groups.values())


def _sparsity_chart(runs: Sequence[RunView], colours: Sequence[int], figures: list[Figure]) -> str:
    figures.append(sparsity_figure(runs, colours))
    dataset, backbone, task, _, axis = runs[0].setting
    caption = f"{dataset}, {backbone}, {task} task, {axis} axis: mean {runs[0].metric} against sparsity."
    notes = " Bands: ± one standard deviation over seeds. Dotted: the sparsest level that wins on validation."
    return _chart(len(figures) - 1, caption, notes)


def _chart(index: int, caption: str, notes: str) -> str:
    return (
        f'<figure><figcaption id="caption-{index}"><strong>{html.escape(caption)}</strong>'
        f"{html.escape(notes)}</figcaption>"
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


def _tickets(run: RunView) -> str:
    if not run.tickets:
        return f"<h3>{html.escape(run.name)}</h3><p>No ticket was saved.</p>"
    links = "".join(f'<li><a href="{quote(path)}">{html.escape(path)}</a></li>' for path in run.tickets)
    return f"<h3>{html.escape(run.name)}</h3><ul>{links}</ul>"


def _repeat(run: RunView) -> str:
    config = json.dumps(run.config, indent=2, ensure_ascii=False, default=str)
    return (
        f"<h3>{html.escape(run.name)}</h3>"
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
