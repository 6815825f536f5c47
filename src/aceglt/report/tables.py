"""The report's tables: static HTML, so that they need no JavaScript. Every cell is escaped here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any
from urllib.parse import quote

from aceglt.report.view import PHASES, READINGS, RunView, changes_of, macs_of, seconds_of, short_names, text
from aceglt.searches.statistics import CRITERIA, undetermined
from aceglt.searches.wording import (
    SIDE_OF,
    UNKNOWN,
    VERDICTS,
    byte_count,
    counted,
    duration,
    escape,
    percent,
    plus_minus,
    quantity,
)

DIAGNOSTICS = {
    "distinct": "distinct scores",
    "ties_at_threshold": "ties at the threshold",
    "noise_correlation": "rank correlation with noise",
}
WINS = " ✓"
"""Behind a figure of a level that wins on validation."""
_PRUNED = ["Weights pruned", "Edges pruned"]
_SAVED = {"file_bytes": "Size on disk", "memory_bytes": "Memory at inference", "full": "Latency, full graph"}
_SAVED |= {"first": "Latency from plain tensors", "node": "Latency, one node"}


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers", links: Sequence[str] = ()
) -> str:
    """A table in a box that scrolls sideways; the first cell of a row is its heading, which may link to a file beside
    the report; `words` wrap. Nothing where there are no rows."""
    if not rows:
        return ""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    headings = [escape(row[0]) for row in rows]
    if links:
        headings = [f'<a href="{quote(path)}">{name}</a>' for path, name in zip(links, headings, strict=True)]
    lines = (
        f'<tr><th scope="row">{heading}</th>{"".join(map(_data, row[1:]))}</tr>'
        for heading, row in zip(headings, rows, strict=True)
    )
    return (
        f'<div class="scrolls"><div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="{kind}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{''.join(lines)}</tbody></table></div></div>"
    )


def _data(content: str) -> str:
    verdict = content if content in VERDICTS.values() else "yes" if content.endswith(WINS) else ""
    kind = f' class="{verdict}"' if verdict else ""
    return f"<td{kind}>{escape(content)}</td>"


def levels_table(run: RunView) -> str:
    """Every level with its readings, verdicts and cost; dense first."""
    head = ["Level", *_PRUNED, f"Validation {run.metric}", f"Test {run.metric}"]
    head += [*(f"Wins: {criterion}" for criterion in CRITERIA), "MACs", "Time"]
    macs = macs_of(run.dense)
    dense = ["dense", percent(0), percent(0), *_readings(run.dense), *[UNKNOWN] * 3, quantity(macs), UNKNOWN]
    rows = [
        [
            *_place(level),
            *_readings(level),
            *(VERDICTS[level.get("winning", {}).get(criterion)] for criterion in CRITERIA),
            quantity(macs_of(level), beside=macs),
            duration(sum(seconds_of(level).values()) if seconds_of(level) else None),
        ]
        for level in run.levels
    ]
    return table(f"{run.name}: levels", head, [dense, *rows])


def comparison_table(runs: Sequence[RunView], setting: str) -> str:
    """Levels × runs of one setting: losing levels and baselines too, those that win on validation marked."""
    rows = comparison_rows(runs)
    reading = READINGS[runs[0].readings[0]]
    caption = f"{setting}: {reading} {runs[0].metric}, %"
    return table(caption, rows[0], rows[1:]) if len(runs) > 1 else ""


def comparison_rows(runs: Sequence[RunView]) -> list[list[str]]:
    """The head, dense and a row for each level, with a column for each run of one setting."""
    reading = runs[0].readings[0]
    by_level = [{level["level"]: level for level in run.levels} for run in runs]
    head = ["Level", *_PRUNED, *short_names(runs)]
    rows = [head, ["dense", percent(0), percent(0), *(plus_minus(run.dense.get(reading)) for run in runs)]]
    for number in sorted({number for levels in by_level for number in levels}):
        here = [levels.get(number) for levels in by_level]
        first = next(level for level in here if level)
        cells = [
            UNKNOWN
            if level is None
            else plus_minus(level.get(reading)) + (WINS if level.get("winning", {}).get("strict") else "")
            for level in here
        ]
        rows.append([*_place(first), *cells])
    return rows


def facts_table(runs: Sequence[RunView]) -> str:
    """The graphs that were searched: sizes and splits; nothing where runs did not record them."""
    rows = {}
    for run in runs:
        if of := run.results.get("graph"):
            thing = "edges" if text(run, "task") == "link" else "nodes"
            split = " / ".join(f"{of['split'][part]:,}" for part in ("train", "val", "test") if part in of["split"])
            sizes = [f"{of[part]:,}" for part in ("nodes", "edges", "features", "outputs")]
            rows[text(run, "dataset"), thing] = [text(run, "dataset"), *sizes, f"{split} {thing}"]
    outputs = "Outputs" if any(text(run, "task") == "link" for run in runs) else "Classes"
    head = ["Graph", "Nodes", "Edges", "Features", outputs, "Train / validation / test"]
    return table("What was searched", head, list(rows.values()))


def machine_table(runs: Sequence[RunView]) -> str:
    """When, where and with which versions it ran; runs that share all but the date share a column."""
    parts = ("aceglt", "torch", "python", "device", "threads", "platform")
    shared: dict[tuple[str, ...], list[RunView]] = {}
    for run in runs:
        if run.environment:
            shared.setdefault(tuple(str(run.environment.get(p, UNKNOWN)) for p in parts), []).append(run)
    columns = []
    for where, group in shared.items():
        dates = sorted(str(run.environment.get("started", UNKNOWN)) for run in group)
        few = 1 < len(shared) and len(group) < 5
        told = "; ".join(run.name for run in group) if few else counted(len(group), "run")
        columns.append([told, " to ".join(dict.fromkeys((dates[0], dates[-1]))), *where])
    names = ("", "Begun", "aceglt", "torch", "Python", "Device", "Threads", "Platform")
    head, *rows = ([name, *values] for name, *values in zip(names, *columns, strict=True))
    return table("Where it ran", head, rows, kind="words facts") if columns else ""


def savings_tables(runs: Sequence[RunView]) -> str:
    """What each run's best ticket saves, as it was measured; of one run, beside dense and PyG's model."""
    known = [run for run in runs if {"ticket", "dense"} <= {row["variant"] for row in run.savings.get("rows", [])}]
    if len(runs) > 1:
        rows = [[run.name, *(_saving(run, key) for key in ("macs", *_SAVED))] for run in known]
        return table("Saved by the best ticket, of dense", ["Run", "MACs", *_SAVED.values()], rows)
    return "".join(map(_savings_table, known))


def _savings_table(run: RunView) -> str:
    variants = [name for name in ("ticket", "dense", "pyg") if _measured(run, name)]
    macs = {name: float(_measured(run, name)["macs"]) for name in variants}
    rows = [["MACs", *(quantity(macs[name], beside=macs["dense"]) for name in variants), _saving(run, "macs")]]
    for key, words in _SAVED.items():
        told = [_quantity(_measured(run, name)[key]) for name in variants]
        rows.append([words, *told, _saving(run, key)])
    where = f"level {run.savings['level']}, seed {run.savings['seed']}, on {run.savings['device']}"
    heads = {"ticket": "Ticket", "dense": "Dense", "pyg": "PyG"}
    return table(f"{run.name}: {where}", ["", *(heads[name] for name in variants), "Saved, of dense"], rows)


def _measured(run: RunView, variant: str) -> dict[str, Any]:
    return next((dict(row) for row in run.savings["rows"] if row["variant"] == variant), {})


def _quantity(value: Any) -> str:
    return f"{value['median']:.2f} ms" if isinstance(value, Mapping) else byte_count(value)


def _saving(run: RunView, key: str) -> str:
    ticket, dense = (_measured(run, variant)[key] for variant in ("ticket", "dense"))
    if isinstance(ticket, Mapping):
        ticket, dense = ticket["median"], dense["median"]
    return percent(1 - ticket / dense, 1)


def winners_table(runs: Sequence[RunView]) -> str:
    """The sparsest winning level of each run under each criterion, and per seed as the paper counts it."""
    head = ["Run", *(criterion.capitalize() for criterion in CRITERIA), "Per seed (paper's tables)"]
    rows = [[run.name, *(_winner(run, name) for name in CRITERIA), _per_seed(run)] for run in runs]
    return table("Sparsest winning level", head, rows, kind="words")


def diagnostics_table(run: RunView) -> str:
    """How decided each level's choice was; empty when the run did not record it."""
    head = [f"{part.capitalize()}: {what}" for part in SIDE_OF.values() for what in DIAGNOSTICS.values()]
    known = [(level, level["diagnostics"]) for level in run.levels if level.get("diagnostics")]
    rows = [
        [str(level["level"])]
        + [_decidedness(key, (found.get(side) or {}).get(key)) for side in SIDE_OF.values() for key in DIAGNOSTICS]
        for level, found in known
    ]
    return table(f"{run.name}: how decided the choices were", ["Level", *head], rows)


def fluctuation_table(run: RunView) -> str:
    """Change of ranks at each level; empty when the run did not record it."""
    changes = {side: {level["level"]: values for level, values in changes_of(run, side)} for side in SIDE_OF.values()}
    rows = [
        [*_place(level), *(plus_minus(found.get(level["level"], [])) for found in changes.values())]
        for level in run.levels
        if any(level["level"] in found for found in changes.values())
    ]
    head = ["Level", *_PRUNED, *(f"{side.capitalize()}: change, %" for side in changes)]
    return table(f"{run.name}: change of ranks", head, rows)


def cost_table(runs: Sequence[RunView]) -> str:
    """What each run's levels cost in all, beside what came of it; empty when no run recorded it."""
    rows = [_cost_row(run) for run in runs if any(seconds_of(level) or level.get("epochs") for level in run.levels)]
    head = ["Run", "Choosing masks", "Retraining tickets", "In all", "Epochs, choosing", "Epochs, retraining"]
    head += ["Levels", "Strict winner", "Its MACs", "Dense MACs"]
    return table("Cost of all levels", head, rows)


def tickets_table(run: RunView) -> str:
    """The saved tickets with links to their files."""
    if not run.tickets:
        return f"<h3>{escape(run.name)}</h3><p>No ticket was saved.</p>"
    head = ["File", "Level", "Seed", *_PRUNED, "Validation, %", "Test, %"]
    return table(f"{run.name}: tickets", head, [_ticket_row(run, path) for path in run.tickets], links=run.tickets)


def _ticket_row(run: RunView, path: str) -> list[str]:
    name = path.rsplit("/", 1)[-1]
    found = re.fullmatch(r"level_(\d+)_seed_(\d+)\.safetensors", name)
    if found is None:
        return [name, *[UNKNOWN] * 6]
    number, seed = map(int, found.groups())
    level = next((level for level in run.levels if level["level"] == number), {})
    seeds = run.results.get("seeds") or []
    known = [dict(zip(seeds, level.get(key) or [], strict=False)).get(seed) for key in ("val", "test")]
    sparsities = (percent(level.get(key)) for key in SIDE_OF)
    return [name, str(number), str(seed), *sparsities, *(plus_minus([value]) for value in known)]


def _place(level: Mapping[str, Any]) -> list[str]:
    return [str(level["level"]), *(percent(level[key]) for key in SIDE_OF)]


def _readings(entry: Mapping[str, Any]) -> list[str]:
    return [plus_minus(entry.get("val")), plus_minus(entry.get("test"))]


def _winner(run: RunView, criterion: str) -> str:
    winner = (run.results.get("highest_winning") or {}).get(criterion)
    if winner:
        pruned = ", ".join(f"{percent(winner[key])} of {part}" for key, part in SIDE_OF.items())
        return f"level {winner['level']}: {pruned}"
    return "undetermined" if undetermined(run.levels, criterion) else "none"


def _per_seed(run: RunView) -> str:
    sparsities = (run.results.get("highest_winning_per_seed") or {}).get(run.sparsity)
    return f"{plus_minus(sparsities)} % of {SIDE_OF[run.sparsity]}" if sparsities else "undetermined"


def _decidedness(key: str, values: Sequence[float | None] | None) -> str:
    known = [value for value in values or [] if value is not None]
    if not known:
        return UNKNOWN
    mean = fmean(known)
    return {"distinct": f"{mean:,.0f}", "ties_at_threshold": percent(mean)}.get(key, f"{round(mean, 2) + 0.0:.2f}")


def _cost_row(run: RunView) -> list[str]:
    seconds = {phase: [s[phase] for s in map(seconds_of, run.levels) if phase in s] for phase in PHASES}
    epochs = {
        phase: [e[phase] for e in (level.get("epochs") or {} for level in run.levels) if e.get(phase) is not None]
        for phase in PHASES
    }
    total, macs = sum(map(sum, seconds.values())), macs_of(run.dense)
    return [
        run.name,
        *(duration(sum(seconds[phase])) if seconds[phase] else UNKNOWN for phase in ("select", "retrain")),
        duration(total) if total else UNKNOWN,
        *(f"{sum(epochs[phase]):,}" if epochs[phase] else UNKNOWN for phase in ("select", "retrain")),
        str(len(run.levels)),
        "none" if run.best is None else percent(run.best[run.sparsity]),
        UNKNOWN if run.best is None else quantity(macs_of(run.best), beside=macs),
        quantity(macs),
    ]
