"""The page: headline, charts, tables, tickets and how to repeat it, put into template.html."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from aceglt.report import excerpt, tables
from aceglt.report.charts import Figure, fluctuation_figure, sparsity_figure, time_figure
from aceglt.report.view import READINGS, RunView, by_setting, colours, macs_of, setting_in_words, text, warnings
from aceglt.searches.wording import SIDE_OF, counted, escape, patience_in_words, percent, plus_minus, teacher_in_words


def render(runs: Sequence[RunView], plotly_js: str) -> str:
    """The whole HTML text."""
    figures: list[Figure] = []

    def chart(figure: Figure | None, caption: str, notes: str) -> str:
        if figure is None:
            return ""
        figures.append(figure)
        return chart_box(len(figures) - 1, caption, notes)

    def each(part: Any) -> str:
        return "".join(part(run) for run in runs)

    bands = " Bands: ± one standard deviation over seeds. Dotted: the sparsest level that wins on validation."
    groups = [(setting_in_words(group[0]), group, places) for group, places in by_setting(runs)]
    content = {
        "title": escape(_title(runs)),
        "headline": _headlines(runs),
        "metric": escape(metric_of(runs)),
        "charts": "".join(
            chart(sparsity_figure(group, places), f"{setting}: mean {group[0].metric} against sparsity.", bands)
            for setting, group, places in groups
        )
        + _late(runs)
        if groups
        else "<p>Only dense was trained: there is no sparsity to draw it against.</p>",
        "about": tables.facts_table(runs) + each(_teacher) + tables.machine_table(runs),
        "savings": tables.savings_tables(runs),
        "comparison": "".join(tables.comparison_table(group, setting) for setting, group, _ in groups),
        "winners": tables.winners_table(runs) + each(_sooner),
        "levels": each(tables.levels_table),
        "fluctuation": "".join(
            chart(fluctuation_figure(group, places), f"{setting}: change of ranks between levels.", " Bands as above.")
            for setting, group, places in groups
        ),
        "changes": each(tables.fluctuation_table),
        "excerpts": each(lambda run: _excerpt(run, len(runs))),
        "diagnostics": each(tables.diagnostics_table),
        "time": chart(
            time_figure(runs, colours(runs)), "Seconds per level.", " All seeds together; hatched: retraining."
        )
        + tables.cost_table(runs),
        "tickets": each(tables.tickets_table),
        "repeat": each(_repeat),
    }
    return framed("template.html", content, figures, plotly_js)


def framed(template: str, content: dict[str, str], figures: Sequence[Figure], plotly_js: str) -> str:
    """The whole HTML text of a template, without the sections that there is nothing to put into."""
    empty = [f"${name}\n" for name, part in content.items() if not part]
    sections = re.compile(r"<section>.*?</section>\n", re.DOTALL)
    filled = sections.sub(lambda s: "" if any(name in s[0] for name in empty) else s[0], _resource(template))
    return Template(_resource("frame.html")).substitute(
        title=content["title"],
        style=_resource("style.css"),
        body=Template(filled).substitute(content),
        plotly=re.sub(r"</(?=script)", r"<\\/", plotly_js, flags=re.IGNORECASE),
        figures=_json_safe(figures),
        script=_resource("report.js"),
    )


def headline(run: RunView) -> str:
    """What was searched and what came of it, in one sentence."""
    what = f"{run.results.get('label') or text(run, 'method')} on {text(run, 'dataset')} with {text(run, 'backbone')}"
    levels = f"{counted(len(run.levels), 'level')}, " if run.levels else ""
    seeds = counted(len(run.results.get("seeds") or run.dense["val"]), "seed")
    return f"{what} ({text(run, 'axis')} axis, {levels}{seeds}): {_found(run)}."


def _late(runs: Sequence[RunView]) -> str:
    """A note where trainings were at their best close to the end."""
    late = [f"{run.name} ({', '.join(run.near_the_end)} of {len(run.levels)})" for run in runs if run.near_the_end]
    told = "The best epoch is among the last 5 %, and longer training may find better ones, at levels of "
    return _note(told + "; ".join(late)) if late else ""


def _sooner(run: RunView) -> str:
    """A note where a search could have ended sooner with the same winner."""
    told = patience_in_words([{"winning": {}, **level} for level in run.levels])
    return _note(f"{run.name}: {told}") if told else ""


def _teacher(run: RunView) -> str:
    """A note where teachers were not changed as the settings say."""
    told = teacher_in_words(run.results)
    return _note(f"{run.name}: the teacher is {told}") if told else ""


def _note(words: str) -> str:
    return f'<p class="note">{escape(words)}.</p>'


def _headlines(runs: Sequence[RunView]) -> str:
    if len(runs) == 1:
        told = f'<p class="lead">{escape(headline(runs[0]))}</p>'
    else:
        items = (f"<li><b>{escape(run.name)}</b>: {escape(_found(run))}.</li>" for run in runs)
        told = f"<ul>{''.join(items)}</ul>"
    return told + "".join(map(_note, warnings(runs)))


def _found(run: RunView) -> str:
    return f"dense reaches {_reading(run, run.dense)}; {_outcome(run)}"


def _outcome(run: RunView) -> str:
    if not run.levels:
        return "no levels were searched"
    if run.best is None:
        return f"no level keeps dense's validation {run.metric}"
    macs, dense = macs_of(run.best), macs_of(run.dense)
    saves = f", and saves {percent(1 - macs / dense)} of the inference MACs" if dense and macs is not None else ""
    pruned = " and ".join(f"{percent(run.best[key])} of the {part}" for key, part in SIDE_OF.items())
    place, reaches = f"level {run.best['level']}, {pruned} pruned", f"reaches {_reading(run, run.best)}"
    return f"the sparsest ticket that wins on validation ({place}) {reaches}{saves}"


def _reading(run: RunView, entry: Any) -> str:
    key = run.readings[0]
    return f"{plus_minus(entry.get(key))} % {READINGS[key]} {run.metric}"


def _title(runs: Sequence[RunView]) -> str:
    shared = [found.pop() for key in ("dataset", "backbone") if len(found := {text(run, key) for run in runs}) == 1]
    return f"Graph lottery tickets: {', '.join(shared + ([f'{len(runs)} runs'] if len(runs) > 1 else []))}"


def metric_of(runs: Sequence[RunView]) -> str:
    """The metric that all have, in words."""
    metrics = {run.metric for run in runs}
    metric = metrics.pop() if len(metrics) == 1 else "quality"
    return metric[:1].upper() + metric[1:]


def chart_box(index: int, caption: str, notes: str) -> str:
    """The place of a figure."""
    return (
        f'<figure><figcaption id="caption-{index}"><strong>{escape(caption)}</strong>{escape(notes)}</figcaption>'
        f'<div class="switch" data-switch="{index}" role="group" aria-label="Reading"></div>'
        f'<div class="chart" data-figure="{index}" role="img" aria-labelledby="caption-{index}"></div>'
        "<noscript><p>The chart needs JavaScript; the tables below hold the same numbers.</p></noscript></figure>"
    )


def _excerpt(run: RunView, runs: int) -> str:
    found = excerpt.scenes(run, runs)
    if not found:
        return ""
    places = excerpt.arrange([edge.ends for edge in found[0].edges])
    slides = "".join(
        f'<figure class="slide">{excerpt.draw(scene, places)}<figcaption>{escape(scene.caption)}</figcaption></figure>'
        for scene in found
    )
    title = escape(f"{run.name}: {text(run, 'dataset')}, seed {run.results['excerpt'].get('seed')}")
    return f'<div class="excerpt"><h3>{title}</h3><div class="slides" data-slides="{title}">{slides}</div></div>'


def _repeat(run: RunView) -> str:
    config = json.dumps(run.config, indent=2, ensure_ascii=False, default=str)
    command, config = (
        f'<pre class="scroll" tabindex="0"><code>{html.escape(words)}</code></pre>' for words in (run.command, config)
    )
    return f"<h3>{escape(run.name)}</h3>{command}<details><summary>Configuration</summary>{config}</details>"


def _json_safe(value: Any) -> str:
    """JSON that no HTML parser can take for markup."""
    dumped = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return dumped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _resource(name: str) -> str:
    return files("aceglt.report").joinpath(name).read_text(encoding="utf-8")
