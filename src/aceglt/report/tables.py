"""The report's tables: static HTML, so that they need no JavaScript. Every cell is escaped here."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from aceglt.report.view import (
    PARTS,
    PHASES,
    UNIT,
    RunView,
    duration,
    macs_of,
    percent,
    quantity,
    seconds_of,
    spread,
)
from aceglt.stats import CRITERIA

DIAGNOSTICS = {
    "distinct": "distinct scores",
    "ties_at_threshold": "ties at the threshold",
    "noise_correlation": "rank correlation with noise",
}
VERDICTS = {True: "yes", False: "no", None: "undetermined"}


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    """A table in a box that scrolls sideways; the first cell of a row is its heading; `words` wrap."""
    columns = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(caption)}">'
        f'<table class="{kind}">'
        f"<caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{columns}</tr></thead><tbody>{''.join(_row(row) for row in rows)}</tbody></table></div>"
    )


def levels_table(run: RunView) -> str:
    """Every level with its readings, verdicts and cost; dense first."""
    head = [
        "Level",
        "Weights pruned",
        "Edges pruned",
        f"Validation {run.metric}",
        f"Test {run.metric}",
    ]
    head += ["Best seed, test", *(f"Wins: {criterion}" for criterion in CRITERIA), "MACs", "Time"]
    dense = [
        "dense",
        percent(0),
        percent(0),
        *_readings(run.dense),
        "–",
        "–",
        "–",
        quantity(macs_of(run.dense)),
        "–",
    ]
    return table(f"{run.name}: levels", head, [dense, *(_level_row(run, level) for level in run.levels)])


def winners_table(runs: Sequence[RunView]) -> str:
    """The sparsest winning level of each run under each criterion, and per seed as the paper counts it."""
    head = ["Run", *(criterion.capitalize() for criterion in CRITERIA), "Per seed (paper's tables)"]
    rows = [[run.name, *(_winner(run, name) for name in CRITERIA), _per_seed(run)] for run in runs]
    return table("Sparsest winning level", head, rows, kind="words")


def diagnostics_table(run: RunView) -> str:
    """How decided each level's choice was; empty when the run did not record it."""
    rows = [_choice_row(level) for level in run.levels if level.get("diagnostics")]
    head = [f"{part}: {what}" for part in ("Weights", "Edges") for what in DIAGNOSTICS.values()]
    return table(f"{run.name}: how decided the choices were", ["Level", *head], rows) if rows else ""


def cost_table(runs: Sequence[RunView]) -> str:
    """What each run's levels cost in all; empty when no run recorded it."""
    rows = [_cost_row(run) for run in runs if any(seconds_of(level) or level.get("epochs") for level in run.levels)]
    head = ["Run", "Choosing masks", "Retraining tickets", "In all", "Epochs, choosing", "Epochs, retraining"]
    return table("Cost of all levels", head, rows) if rows else ""


def _row(cells: Sequence[str]) -> str:
    first, *rest = (html.escape(cell) for cell in cells)
    return f'<tr><th scope="row">{first}</th>{"".join(_cell(cell) for cell in rest)}</tr>'


def _cell(cell: str) -> str:
    return f'<td class="{cell}">{cell}</td>' if cell in VERDICTS.values() else f"<td>{cell}</td>"


def _level_row(run: RunView, level: Mapping[str, Any]) -> list[str]:
    seconds = seconds_of(level)
    verdicts = [VERDICTS[level.get("winning", {}).get(criterion)] for criterion in CRITERIA]
    return [
        str(level["level"]),
        *(percent(level[key]) for key in PARTS),
        *_readings(level),
        *verdicts,
        quantity(macs_of(level), beside=macs_of(run.dense)),
        duration(sum(seconds.values()) if seconds else None),
    ]


def _readings(entry: Mapping[str, Any]) -> list[str]:
    test = entry.get("test")
    return [spread(entry.get("val")), spread(test), f"{100 * max(test):.2f}" if test else "–"]


def _winner(run: RunView, criterion: str) -> str:
    winner = (run.results.get("highest_winning") or {}).get(criterion)
    if winner:
        pruned = ", ".join(f"{percent(winner[key])} of {part}" for key, part in PARTS.items())
        return f"level {winner['level']}: {pruned}"
    verdicts = [level.get("winning", {}).get(criterion) for level in run.levels]
    return "undetermined" if verdicts and all(verdict is None for verdict in verdicts) else "none"


def _per_seed(run: RunView) -> str:
    sparsities = (run.results.get("highest_winning_per_seed") or {}).get(run.sparsity)
    return f"{spread(sparsities)}{UNIT} of {PARTS[run.sparsity]}" if sparsities else "undetermined"


def _choice_row(level: Mapping[str, Any]) -> list[str]:
    found = [level["diagnostics"].get(part) or {} for part in PARTS.values()]
    return [str(level["level"]), *(_decidedness(key, part.get(key)) for part in found for key in DIAGNOSTICS)]


def _decidedness(key: str, values: Sequence[float | None] | None) -> str:
    mean = _mean(values)
    if mean is None:
        return "–"
    return {"distinct": f"{mean:,.0f}", "ties_at_threshold": percent(mean)}.get(key, f"{mean:.2f}")


def _mean(values: Sequence[float | None] | None) -> float | None:
    known = [value for value in values or [] if value is not None]
    return fmean(known) if known else None


def _cost_row(run: RunView) -> list[str]:
    seconds = {phase: [s[phase] for s in map(seconds_of, run.levels) if phase in s] for phase in PHASES}
    total = sum(map(sum, seconds.values()))
    return [
        run.name,
        *(duration(sum(seconds[phase])) if seconds[phase] else "–" for phase in ("select", "retrain")),
        duration(total) if total else "–",
        *(_epochs(run, phase) for phase in ("select", "retrain")),
    ]


def _epochs(run: RunView, phase: str) -> str:
    known = [(level.get("epochs") or {}).get(phase) for level in run.levels]
    return f"{sum(n for n in known if n is not None):,}" if any(n is not None for n in known) else "–"
