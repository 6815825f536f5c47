"""The page of a comparison: methods × settings, ranks, curves, winners and cost, put into comparison.html."""

from __future__ import annotations

from collections.abc import Sequence

from aceglt.report.charts import sparsity_figure
from aceglt.report.comparison import Comparison
from aceglt.report.page import chart_box, framed, metric_of
from aceglt.report.tables import facts_table, machine_table, table
from aceglt.report.view import READINGS, by_setting, setting_in_words
from aceglt.searches.sketch import rank_diagram
from aceglt.searches.statistics import CRITERIA
from aceglt.searches.wording import SIDE_OF, counted, escape


def render_comparison(comparison: Comparison, plotly_js: str) -> str:
    """The whole HTML text."""
    runs = [run for contest in comparison.contests for run in contest.runs.values()]
    groups = by_setting(runs)
    bands = " Bands: ± one standard deviation over seeds. Dotted: the sparsest level that wins on validation."
    title = f"{counted(len(comparison.names), 'method')} on {counted(len(comparison.contests), 'setting')}"
    reading = " or ".join(dict.fromkeys(READINGS[contest.reading] for contest in comparison.contests))
    content = {
        "title": f"Graph lottery tickets: {title}",
        "headline": f'<p class="lead">{escape(headline(comparison))}</p>'
        + "".join(f'<p class="note">{escape(note)}.</p>' for note in comparison.notes),
        "metric": escape(f"{reading} {metric_of(runs).lower()}".capitalize()),
        "means": _table("Mean over all levels", comparison.means_rows()),
        "ranking": escape(ranking(comparison)),
        "diagram": "" if comparison.test is None else _diagram(comparison),
        "charts": "".join(
            chart_box(i, f"{setting_in_words(group[0])}: mean {group[0].metric} against sparsity.", bands)
            for i, (group, _) in enumerate(groups)
        ),
        "pairs": _table("Settings above / below", comparison.pair_rows()),
        "sides": escape(f"The sparsest level that wins, in percent of {_sides(comparison)} pruned"),
        "winners": "".join(_table(c.capitalize(), comparison.winner_rows(c)) for c in CRITERIA),
        "cost": _table("Cost of a level", comparison.cost_rows()),
        "about": facts_table(runs) + machine_table(runs),
    }
    return framed("comparison.html", content, [sparsity_figure(*group) for group in groups], plotly_js)


def headline(comparison: Comparison) -> str:
    """Who is in front, in a sentence."""
    ranks = comparison.mean_ranks
    contests = [c for c in comparison.contests if c.runs.keys() >= set(comparison.ranked)] or comparison.contests
    best = [sum(contest.best == name for contest in contests) for name in comparison.names]
    most = comparison.names[best.index(max(best))]
    told = f"{most} has the highest mean in {max(best)} of {counted(len(contests), 'setting')}"
    if not ranks:
        return f"{told}."
    lowest = min(ranks.values())
    leaders = [name for name in comparison.names if ranks.get(name, lowest + 1) - lowest < 1e-9]
    rank = f"the best mean rank, {lowest:.2f} of {len(comparison.ranked)}"
    if leaders == [most]:
        return f"{told}, and {rank}."
    return f"{told}; {' and '.join(leaders)} {'has' if len(leaders) == 1 else 'share'} {rank}."


def ranking(comparison: Comparison) -> str:
    """What the diagram shows and what it rests on."""
    test = comparison.test
    if test is None:
        return ""
    blocks = f"the {test.blocks} {'seeds of all settings' if comparison.by_seed else 'settings'}"
    few = " Seeds of one graph say nothing about other graphs." if comparison.by_seed else ""
    return (
        f"Over {blocks}, best on the left. A bar joins methods that are not told apart: mean ranks less than Nemenyi's "
        f"critical difference of {test.difference:.2f} apart, at 5 %. Friedman's test that no method differs: "
        f"p {'< 0.0001' if test.p < 1e-4 else f'= {test.p:.4f}'}.{few}"
    )


def _diagram(comparison: Comparison) -> str:
    assert comparison.test is not None
    box = '<div class="scroll" tabindex="0" role="region" aria-label="Mean ranks">'
    return f'<div class="scrolls">{box}{rank_diagram(comparison.ranked, comparison.test)}</div></div>'


def _sides(comparison: Comparison) -> str:
    return " / ".join(dict.fromkeys(SIDE_OF[side] for c in comparison.contests for side in c.first.varies))


def _table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    return table(caption, rows[0], rows[1:])
