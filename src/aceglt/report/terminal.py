"""What the command line prints about runs, tickets and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from aceglt.errors import RunError, printable
from aceglt.report.tables import comparison_rows
from aceglt.report.view import RunView, by_setting, setting_in_words, short_names, warnings
from aceglt.runs.directory import RunDir
from aceglt.searches import statistics
from aceglt.searches.statistics import CRITERIA, MIN_SEEDS, best_level, mean_std, metric_in_words
from aceglt.searches.wording import (
    SIDE_OF,
    UNKNOWN,
    VERDICTS,
    counted,
    duration,
    patience_in_words,
    percent,
    plus_minus,
    quantity,
    teacher_in_words,
)

if TYPE_CHECKING:
    from aceglt.sweeps.compare import CompareResult
    from aceglt.sweeps.merged import SweepResult
    from aceglt.sweeps.tune import Tuned
    from aceglt.tickets.bench import Benchmark
    from aceglt.tickets.evaluation import Evaluation
    from aceglt.tickets.ticket import Ticket

_BARS = "▁▂▃▄▅▆▇█"


def _say(console: Console, *lines: str, soft_wrap: bool = True) -> None:
    """Lines as they are; a name with a line break in it makes no other ones."""
    console.print("\n".join(map(printable, lines)), highlight=False, markup=False, soft_wrap=soft_wrap)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = (), **options: Any) -> Table:
    """Columns of numbers; those on the `left` are words."""
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", **options)
    for row in rows:
        table.add_row(*row)
    return table


def print_run(console: Console, path: Path, results: Mapping[str, Any], levels: bool = False) -> None:
    """The story of a search in ten lines; with `levels`, the table of its levels after the first of them."""
    try:
        heading, story, table = title(results), _story(path, results), _levels_table(results)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise RunError(f"{path / 'results.json'}: damaged ({type(problem).__name__}: {problem})") from None
    _say(console, heading)
    if levels:
        console.print(table)
        console.print("model, graph: sparsity; val, test: mean ± std; wins? by " + ", ".join(CRITERIA), highlight=False)
    _say(console, *(f"{name + ':':<13}{text}" for name, text in story.items()))


def print_sweep(console: Console, sweep: SweepResult, levels: bool = False) -> None:
    """Each search in a line, then those that failed and where things are; with `levels`, levels × methods after it."""
    views = sweep.views
    for heading, head, *rows in sweep_tables(views):
        _say(console, *heading)
        console.print(_table(head, rows, left=head[:1], overflow="fold"))
    _say(console, "winner: sparsest level that keeps dense's validation; mean ± std over seeds", soft_wrap=False)
    for group, _ in by_setting(views) if levels else ():
        console.print()
        _say(console, setting_in_words(group[0]), soft_wrap=False)
        for few in (group[i : i + 3] for i in range(0, len(group), 3)):  # as many as 80 columns hold
            head, *rows = comparison_rows(few)
            console.print(_table(["level", "weights", "edges", *head[3:]], rows, overflow="fold"))
    failed = [f"{cell['name']} failed: {cell['error']} (log: {sweep.path / cell['log']})" for cell in sweep.failed]
    _say(console, *warnings(views), *failed, *(f"note: {note}" for note in sweep.notes), f"sweep: {sweep.path}")


def print_comparison(console: Console, result: CompareResult) -> None:
    """Methods × settings, as many columns at a time as fit, then ranks, notes, what failed and where things are."""
    from aceglt.report.comparison_page import headline, ranking

    failed = [f"{cell['name']} failed: {cell['error']} (log: {result.path / cell['log']})" for cell in result.failed]
    where = result.path
    with suppress(RunError):  # too few searches have ended well, which the notes say
        found = result.comparison
        _say(console, headline(found), soft_wrap=False)
        _print_columns(console, found.means_rows())
        _say(console, "mean over all levels, ± std over seeds; ↑ highest; ≈ not told apart from it", soft_wrap=False)
        _say(console, *filter(None, [ranking(found)]), *(f"note: {note}" for note in found.notes), soft_wrap=False)
        where = result.path / "comparison.html"
    _say(console, *failed, *(f"note: {note}" for note in result.notes), f"comparison: {where}")


def _print_columns(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """A table in pieces of as many columns as the console holds, each with the first one."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], console.width // 2)  # names fold
    start, last = 1, len(widths)
    while start < last:
        end = start + 1
        while end < last and widths[0] + sum(widths[start : end + 1]) - 2 <= console.width:
            end += 1
        head, *body = ([row[0], *row[start:end]] for row in rows)
        console.print(_table(head, body, left=head[:1], overflow="fold"))
        start = end


def print_tuning(console: Console, tuned: Tuned, most: int = 10) -> None:
    """The best trials, of all but the first what is not the same, and how to use what was chosen."""
    best = tuned.trials[0].values
    rows = []
    for trial in tuned.trials[:most]:
        other = {name: value for name, value in trial.values.items() if trial.values is best or value != best[name]}
        found = plus_minus(trial.val) if trial.val else "failed"
        rows.append((found, ", ".join(f"{name} {value}" for name, value in other.items())))
    table = _table((f"validation {metric_in_words(tuned.metric)}", "settings, then what differs from them"), rows)
    table.columns[0].no_wrap, table.columns[1].justify = True, "left"
    console.print(table)
    failed = [f"failed: {trial.error}" for trial in tuned.trials if trial.error]
    use = f"{counted(len(tuned.trials), 'trial')}; use the best with: aceglt search --config {tuned.file}"
    _say(console, *failed[:1], *tuned.notes, use)


def sweep_tables(views: Sequence[RunView]) -> list[list[list[str]]]:
    """A heading, the columns' names and a row for each run: dense, the sparsest winner, and the last level whether it
    wins or not. Runs of one setting share a table, and dense stands in its heading, so that names fit 80 columns; where
    no two runs do, all are in one."""
    groups: dict[Any, list[RunView]] = {}
    for view in views:
        groups.setdefault(view.setting, []).append(view)
    if len(groups) == len(views):
        series = {view.series for view in views}
        short = [view.name.removeprefix(f"{view.series}, ") if len(series) == 1 else view.name for view in views]
        return [_sweep_table(sorted(series) if 1 == len(series) < len(views) else [], short, views)]
    return [_sweep_table([setting_in_words(group[0])], short_names(group), group) for group in groups.values()]


def _sweep_table(heading: list[str], names: Sequence[str], views: Sequence[RunView]) -> list[list[str]]:
    dense = [plus_minus(view.dense[view.readings[0]]) for view in views]
    shared = bool(heading) and len(set(dense)) == 1
    rows = [["search", *([] if shared else ["dense"]), "winner", "pruned", "last level", "pruned"]]
    for name, view, found in zip(names, views, dense, strict=True):
        row = [name, *([] if shared else [found])]
        for level in (view.best, view.levels[-1] if view.levels else None):
            if level is None:
                row += ["none", UNKNOWN]
            else:
                pruned = "/".join(f"{100 * level[key]:.0f}" for key in view.varies)
                row += [plus_minus(level[view.readings[0]]), pruned]
        rows.append(row)
    return [[f"{heading[0]}: dense {dense[0]}"] if shared else heading, *rows]


def title(r: Mapping[str, Any]) -> str:
    """What was searched, in a line."""
    return (
        f"{r['label']} on {r['dataset']}, {r['backbone']}, {r['axis']} axis, {r['task']} task: "
        f"{counted(len(r['levels']), 'level')}, {counted(len(r['seeds']), 'seed')}, {metric_in_words(r['metric'])} in %"
        + ("" if r["finished"] else "  — not finished")
    )


def _story(path: Path, r: Mapping[str, Any]) -> dict[str, str]:
    """Line by line; what there is nothing to say about is left out."""
    dense, levels = r["dense"], r["levels"]
    reading = "val" if dense["test"] is None else "test"
    lines = {
        "Dense": f"test {plus_minus(dense['test'])}, val {plus_minus(dense['val'])}, {quantity(dense['macs'])} MACs"
    }
    if told := teacher_in_words(r):
        lines["Teacher"] = told
    if levels:
        ends = {part: dict.fromkeys(percent(levels[i][key]) for i in (0, -1)) for key, part in SIDE_OF.items()}
        lines["Pruned"] = ", ".join(f"{part} {' to '.join(found)}" for part, found in ends.items())
        lines[reading.capitalize()] = _by_level([mean_std(level[reading])[0] for level in levels])
        lines |= {name.capitalize(): winner(r, name) for name in CRITERIA}
        lines["Rank change"] = _fluctuation(levels)
        lines["Cost"] = "; ".join(filter(None, [_cost(levels), patience_in_words(levels)]))
    if r.get("warnings"):
        lines["Warning"] = "; ".join(r["warnings"])
    lines["Files"] = _files(path, r)
    return lines


def _by_level(means: Sequence[float]) -> str:
    """Lowest, highest and last value, and a bar for each level."""
    low, high = min(means), max(means)
    bars = "".join(_BARS[int((len(_BARS) - 1) * (m - low) / ((high - low) or 1))] for m in means)
    return f"{bars}  {100 * low:.2f} to {100 * high:.2f}, {100 * means[-1]:.2f} at the last level"


def winner(r: Mapping[str, Any], criterion: str) -> str:
    """The sparsest level that wins by a criterion, in a line."""
    level = statistics.sparsest_winner(r["levels"], criterion)
    if level is None:
        few = f" (it takes {MIN_SEEDS} seeds)" if criterion == "significant" and len(r["seeds"]) < MIN_SEEDS else ""
        return f"undetermined{few}" if statistics.undetermined(r["levels"], criterion) else "no level wins"
    pruned = " and ".join(f"{percent(level[key])} of the {part}" for key, part in SIDE_OF.items())
    reading = "val" if level["test"] is None else "test"
    return (
        f"wins at level {level['level']}: {pruned} pruned, {reading} {plus_minus(level[reading])}, "
        f"{r['dense']['macs'] / level['macs']:.1f}× fewer MACs"
    )


def _fluctuation(levels: Sequence[Mapping[str, Any]]) -> str:
    """The mean over levels of how far elements move in the ranking by importance."""
    known = [level["fluctuation"] for level in levels if level.get("fluctuation")]
    if not known:
        return "unknown (it takes two levels with scores)"
    values = {side: [v for found in known for v in found[side] if v is not None] for side in SIDE_OF.values()}
    told = ", ".join(f"{side} {plus_minus(found)} %" for side, found in values.items())
    return f"from level to level {told} of all places"


def _cost(levels: Sequence[Mapping[str, Any]]) -> str:
    """Time as a whole: a method that trains tickets to choose one retrains in the time of choosing."""
    seconds = duration(sum(sum(level["phases"].values()) for level in levels))
    choosing, retraining = (sum(level["epochs"][phase] for level in levels) for phase in ("select", "retrain"))
    return f"{seconds}; per seed {counted(choosing, 'epoch')} of choosing and {retraining:,} of retraining"


def _files(path: Path, results: Mapping[str, Any]) -> str:
    report = path / ("report.html" if (path / "report.html").exists() else "results.json")
    tickets = best_tickets(path, results)
    more = f" (and {len(tickets) - 1} more)" if len(tickets) > 1 else ""
    return f"{report}, {tickets[0]}{more}" if tickets else str(report)


def best_tickets(path: Path, results: Mapping[str, Any]) -> list[Path]:
    """Ticket files, those of the winning level first and there the seed that validates best."""
    found = sorted(RunDir(path).saved_tickets(results["seeds"]), reverse=True)
    level = best_level(results)
    if level is None or not found:
        return found
    by_seed = sorted(zip(level["val"], results["seeds"], strict=True), key=lambda pair: -pair[0])
    names = [f"level_{level['level']:02d}_seed_{seed}.safetensors" for _, seed in by_seed]
    return sorted(found, key=lambda p: names.index(p.name) if p.name in names else len(names))


LEVEL_COLUMNS = ("level", "model", "graph", "val", "test", "MACs", "wins?")


def level_rows(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Dense and every level, in words."""
    dense, verdicts = results["dense"], {True: "yes", False: "no", None: "?"}
    first = {"level": "dense", "model_sparsity": None, "graph_sparsity": None, "winning": {}, **dense}
    return [
        (
            str(level["level"]), percent(level["model_sparsity"]), percent(level["graph_sparsity"]),
            plus_minus(level["val"]), plus_minus(level["test"]), quantity(level["macs"], beside=dense["macs"]),
            "/".join(verdicts[level["winning"][name]] for name in CRITERIA if level is not first),
        )
        for level in (first, *results["levels"])
    ]  # fmt: skip


def _levels_table(results: Mapping[str, Any]) -> Table:
    return _table(LEVEL_COLUMNS, level_rows(results), no_wrap=True)


def print_ticket(console: Console, ticket: Ticket) -> None:
    """What a ticket is."""
    _say(console, *repr(ticket).split("\n"), soft_wrap=False)


def print_evaluation(console: Console, ticket: Ticket, result: Evaluation) -> None:
    """Ticket against dense, and the verdict by each criterion."""
    pruned = f"model sparsity {percent(ticket.model_sparsity)}, graph sparsity {percent(ticket.graph_sparsity)}"
    seeds = counted(len(result.ticket.val), "dropout seed")
    _say(
        console,
        f"Retrained in isolation over {seeds}: level {ticket.level}, {pruned}",
        *repr(result).split("\n"),
        soft_wrap=False,
    )


def print_benchmark(console: Console, result: Benchmark) -> None:
    """The variants side by side, and how much faster the ticket is."""
    _say(console, *repr(result).split("\n"), soft_wrap=False)


def print_datasets(console: Console, data_root: Path | None) -> None:
    """The known datasets and where they are."""
    from aceglt.datasets import available, info

    rows = [
        (
            name,
            *(f"{n:,}" for n in (known.nodes, known.features, known.edges)),
            str(known.classes),
            metric_in_words(known.metric),
            VERDICTS[present],
            where,
        )
        if (known := info(name, data_root)) is not None
        else (name, *5 * ("",), VERDICTS[present], where)
        for name, present, where in available(data_root)
    ]
    columns = ("name", "nodes", "features", "edges", "classes", "metric", "present", "where")
    left = ["name", "metric", "present", "where"]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if sum(widths) + 2 * len(widths) <= console.width:
        console.print(_table(columns, rows, left=left, overflow="fold"))
    else:  # paths are long; folded they would hide the rest
        console.print(_table(columns[:-1], [row[:-1] for row in rows], left=left[:-1], overflow="fold"))
        for name, *_, where in rows:
            console.print(f"{name}: {where}", highlight=False, soft_wrap=True)
    console.print(
        "Any other graph: --dataset FILE.npz with x, edge_index, y and, if you have a split, train_mask, val_mask and "
        "test_mask (docs/guides/own-graph.md).",
        highlight=False,
    )
