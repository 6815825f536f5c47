"""The report's tables: static HTML, so that they need no JavaScript. Every cell is escaped here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from aceglt.report.markup import Link, cell, escape
from aceglt.report.view import PHASES, SIDES, RunView, changes_of, macs_of, seconds_of
from aceglt.report.wording import UNKNOWN, duration, percent, plus_minus, quantity
from aceglt.searches.statistics import CRITERIA, undetermined

DIAGNOSTICS = {
    "distinct": "distinct scores",
    "ties_at_threshold": "ties at the threshold",
    "noise_correlation": "rank correlation with noise",
}
VERDICTS = {True: "yes", False: "no", None: "undetermined"}


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str | Link]], kind: str = "numbers") -> str:
    """A table in a box that scrolls sideways; the first cell of a row is its heading; `words` wrap."""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="{kind}">'
        f"<caption>{escape(caption)}</caption>"
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
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        quantity(macs_of(run.dense)),
        UNKNOWN,
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


def fluctuation_table(run: RunView) -> str:
    """Change of ranks at each level; empty when the run did not record it."""
    changes = {side: {level["level"]: values for level, values in changes_of(run, side)} for side in SIDES.values()}
    rows = [
        [str(level["level"]), *(percent(level[key]) for key in SIDES)]
        + [plus_minus(found.get(level["level"], [])) for found in changes.values()]
        for level in run.levels
        if any(level["level"] in found for found in changes.values())
    ]
    head = ["Level", "Weights pruned", "Edges pruned", *(f"{side.capitalize()}: change, %" for side in changes)]
    return table(f"{run.name}: change of ranks", head, rows) if rows else ""


def cost_table(runs: Sequence[RunView]) -> str:
    """What each run's levels cost in all, beside what came of it; empty when no run recorded it."""
    rows = [_cost_row(run) for run in runs if any(seconds_of(level) or level.get("epochs") for level in run.levels)]
    head = ["Run", "Choosing masks", "Retraining tickets", "In all", "Epochs, choosing", "Epochs, retraining"]
    head += ["Levels", "Strict winner", "Its MACs", "Dense MACs"]
    return table("Cost of all levels", head, rows) if rows else ""


def tickets_table(run: RunView) -> str:
    """The saved tickets with links to their files."""
    head = ["File", "Level", "Seed", "Weights pruned", "Edges pruned", "Validation, %", "Test, %"]
    return table(f"{run.name}: tickets", head, [_ticket_row(run, path) for path in run.tickets])


def _ticket_row(run: RunView, path: str) -> list[str | Link]:
    name = path.rsplit("/", 1)[-1]
    found = re.fullmatch(r"level_(\d+)_seed_(\d+)\.safetensors", name)
    if found is None:
        return [Link(path, name), *[UNKNOWN] * 6]
    number, seed = map(int, found.groups())
    level = next((level for level in run.levels if level["level"] == number), {})
    seeds = run.results.get("seeds") or []
    known = [dict(zip(seeds, level.get(key) or [], strict=False)).get(seed) for key in ("val", "test")]
    sparsities = (percent(level.get(key)) for key in SIDES)
    return [Link(path, name), str(number), str(seed), *sparsities, *(plus_minus([value]) for value in known)]


def _row(cells: Sequence[str | Link]) -> str:
    first, *rest = cells
    return f'<tr><th scope="row">{cell(first)}</th>{"".join(map(_data, rest))}</tr>'


def _data(content: str | Link) -> str:
    verdict = f' class="{content}"' if content in VERDICTS.values() else ""
    return f"<td{verdict}>{cell(content)}</td>"


def _level_row(run: RunView, level: Mapping[str, Any]) -> list[str]:
    seconds = seconds_of(level)
    verdicts = [VERDICTS[level.get("winning", {}).get(criterion)] for criterion in CRITERIA]
    return [
        str(level["level"]),
        *(percent(level[key]) for key in SIDES),
        *_readings(level),
        *verdicts,
        quantity(macs_of(level), beside=macs_of(run.dense)),
        duration(sum(seconds.values()) if seconds else None),
    ]


def _readings(entry: Mapping[str, Any]) -> list[str]:
    test = entry.get("test")
    return [plus_minus(entry.get("val")), plus_minus(test), plus_minus([max(test)]) if test else UNKNOWN]


def _winner(run: RunView, criterion: str) -> str:
    winner = (run.results.get("highest_winning") or {}).get(criterion)
    if winner:
        pruned = ", ".join(f"{percent(winner[key])} of {part}" for key, part in SIDES.items())
        return f"level {winner['level']}: {pruned}"
    return "undetermined" if undetermined(run.levels, criterion) else "none"


def _per_seed(run: RunView) -> str:
    sparsities = (run.results.get("highest_winning_per_seed") or {}).get(run.sparsity)
    return f"{plus_minus(sparsities)} % of {SIDES[run.sparsity]}" if sparsities else "undetermined"


def _choice_row(level: Mapping[str, Any]) -> list[str]:
    found = [level["diagnostics"].get(part) or {} for part in SIDES.values()]
    return [str(level["level"]), *(_decidedness(key, part.get(key)) for part in found for key in DIAGNOSTICS)]


def _decidedness(key: str, values: Sequence[float | None] | None) -> str:
    mean = _mean(values)
    if mean is None:
        return UNKNOWN
    return {"distinct": f"{mean:,.0f}", "ties_at_threshold": percent(mean)}.get(key, f"{round(mean, 2) + 0.0:.2f}")


def _mean(values: Sequence[float | None] | None) -> float | None:
    known = [value for value in values or [] if value is not None]
    return fmean(known) if known else None


def _cost_row(run: RunView) -> list[str]:
    seconds = {phase: [s[phase] for s in map(seconds_of, run.levels) if phase in s] for phase in PHASES}
    total = sum(map(sum, seconds.values()))
    return [
        run.name,
        *(duration(sum(seconds[phase])) if seconds[phase] else UNKNOWN for phase in ("select", "retrain")),
        duration(total) if total else UNKNOWN,
        *(_epochs(run, phase) for phase in ("select", "retrain")),
        str(len(run.levels)),
        "none" if run.best is None else percent(run.best[run.sparsity]),
        UNKNOWN if run.best is None else quantity(macs_of(run.best), beside=macs_of(run.dense)),
        quantity(macs_of(run.dense)),
    ]


def _epochs(run: RunView, phase: str) -> str:
    known = [(level.get("epochs") or {}).get(phase) for level in run.levels]
    return f"{sum(n for n in known if n is not None):,}" if any(n is not None for n in known) else UNKNOWN
