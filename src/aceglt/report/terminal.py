"""What the command line prints about runs, tickets and datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aceglt.errors import RunError
from aceglt.report.view import SIDES
from aceglt.report.wording import UNKNOWN, VERDICTS, counted, duration, percent, plus_minus, quantity
from aceglt.searches import statistics
from aceglt.searches.statistics import CRITERIA, best_level, mean_std, metric_in_words

if TYPE_CHECKING:
    from aceglt.sweeps.merged import SweepResult
    from aceglt.sweeps.tune import Tuned
    from aceglt.tickets.bench import Benchmark, Latency
    from aceglt.tickets.evaluation import Evaluation
    from aceglt.tickets.ticket import Ticket

_BARS = "▁▂▃▄▅▆▇█"


def _say(console: Console, *lines: str, soft_wrap: bool = True) -> None:
    """Lines as they are."""
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=soft_wrap)


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
        title, story, table = _title(results), _story(path, results), _levels_table(results)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise RunError(f"{path / 'results.json'}: damaged ({type(problem).__name__}: {problem})") from None
    _say(console, title)
    if levels:
        console.print(table)
        console.print("model, graph: sparsity; val, test: mean ± std; wins? by " + ", ".join(CRITERIA), highlight=False)
    _say(console, *(f"{name + ':':<13}{text}" for name, text in story.items()))


def print_sweep(console: Console, sweep: SweepResult) -> None:
    """Each search in a line, then those that failed and where things are."""
    rows = [
        (cell["name"], *(_sweep_row(cell["results"]) if cell["results"] else ("failed", "", "", "")))
        for cell in sweep.cells
    ]
    table = _table(("search", "dense", "model", "graph", "best"), rows, left=["search"], no_wrap=True)
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    console.print(table)
    console.print("model, graph, best: the sparsest level that wins by strict", highlight=False)
    failed = [f"{cell['name']} failed: {cell['error']} (log: {sweep.path / cell['log']})" for cell in sweep.failed]
    _say(console, *failed, *(f"no report: {note}" for note in sweep.notes), f"sweep: {sweep.path}")


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


def _sweep_row(results: Mapping[str, Any]) -> tuple[str, str, str, str]:
    dense, best = results["dense"], best_level(results)
    shown = "test" if dense["test"] else "val"
    if best is None:
        return plus_minus(dense[shown]), UNKNOWN, UNKNOWN, UNKNOWN
    sparsities = percent(best["model_sparsity"]), percent(best["graph_sparsity"])
    return plus_minus(dense[shown]), *sparsities, plus_minus(best[shown])


def _title(r: Mapping[str, Any]) -> str:
    return (
        f"{r['method']} ({r['signal']}) on {r['dataset']}, {r['backbone']}, {r['axis']} axis, {r['task']} task: "
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
    if levels:
        ends = {part: dict.fromkeys(percent(levels[i][key]) for i in (0, -1)) for key, part in SIDES.items()}
        lines["Pruned"] = ", ".join(f"{part} {' to '.join(found)}" for part, found in ends.items())
        lines[reading.capitalize()] = _by_level([mean_std(level[reading])[0] for level in levels])
        lines |= {name.capitalize(): _winner(r, name) for name in CRITERIA}
        lines["Rank change"] = _fluctuation(levels)
        lines["Cost"] = _cost(levels)
    if r.get("warnings"):
        lines["Warning"] = "; ".join(r["warnings"])
    lines["Files"] = _files(path, r)
    return lines


def _by_level(means: Sequence[float]) -> str:
    """Lowest, highest and last value, and a bar for each level."""
    low, high = min(means), max(means)
    bars = "".join(_BARS[int((len(_BARS) - 1) * (m - low) / ((high - low) or 1))] for m in means)
    return f"{bars}  {100 * low:.2f} to {100 * high:.2f}, {100 * means[-1]:.2f} at the last level"


def _winner(r: Mapping[str, Any], criterion: str) -> str:
    level = statistics.sparsest_winner(r["levels"], criterion)
    if level is None:
        return "undetermined" if statistics.undetermined(r["levels"], criterion) else "no level wins"
    places = ", ".join(f"{percent(level[key])} of the {part}" for key, part in SIDES.items())
    reading = "val" if level["test"] is None else "test"
    return (
        f"wins at level {level['level']}: {places}, {reading} {plus_minus(level[reading])}, "
        f"{r['dense']['macs'] / level['macs']:.1f}× fewer MACs"
    )


def _fluctuation(levels: Sequence[Mapping[str, Any]]) -> str:
    """The mean over levels of how far elements move in the ranking by importance."""
    known = [level["fluctuation"] for level in levels if level.get("fluctuation")]
    if not known:
        return "unknown (it takes two levels with scores)"
    values = {side: [v for found in known for v in found[side] if v is not None] for side in SIDES.values()}
    told = ", ".join(f"{side} {plus_minus(found)} %" for side, found in values.items())
    return f"from level to level {told} of all places"


def _cost(levels: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{word} {duration(sum(level['phases'][phase] for level in levels))} "
        f"({counted(sum(level['epochs'][phase] for level in levels), 'epoch')} per seed)"
        for word, phase in (("choosing", "select"), ("retraining", "retrain"))
    )


def _files(path: Path, results: Mapping[str, Any]) -> str:
    report = path / ("report.html" if (path / "report.html").exists() else "results.json")
    tickets = _best_tickets(path, results)
    more = f" (and {len(tickets) - 1} more)" if len(tickets) > 1 else ""
    return f"{report}, {tickets[0]}{more}" if tickets else str(report)


def _best_tickets(path: Path, results: Mapping[str, Any]) -> list[Path]:
    """Ticket files, those of the winning level first and there the seed that validates best."""
    found = sorted((path / "tickets").glob("level_*.safetensors"), reverse=True)
    level = best_level(results)
    if level is None or not found:
        return found
    by_seed = sorted(zip(level["val"], results["seeds"], strict=True), key=lambda pair: -pair[0])
    names = [f"level_{level['level']:02d}_seed_{seed}.safetensors" for _, seed in by_seed]
    return sorted(found, key=lambda p: names.index(p.name) if p.name in names else len(names))


def _levels_table(results: Mapping[str, Any]) -> Table:
    dense, verdicts = results["dense"], {True: "yes", False: "no", None: "?"}
    first = {"level": "dense", "model_sparsity": None, "graph_sparsity": None, "winning": {}, **dense}
    rows = [
        (
            str(level["level"]), percent(level["model_sparsity"]), percent(level["graph_sparsity"]),
            plus_minus(level["val"]), plus_minus(level["test"]), quantity(level["macs"], beside=dense["macs"]),
            "/".join(verdicts[level["winning"][name]] for name in CRITERIA if level is not first),
        )
        for level in (first, *results["levels"])
    ]  # fmt: skip
    return _table(("level", "model", "graph", "val", "test", "MACs", "wins?"), rows, no_wrap=True)


def print_ticket(console: Console, ticket: Ticket) -> None:
    """What a ticket is."""
    c, m, alive, total = ticket.config, ticket.metrics, ticket.masks.alive, ticket.masks.total
    macs, dense_macs = ticket.sizes["macs"], ticket.sizes["dense_macs"]
    shown = {name: plus_minus(None if value is None else [value]) for name, value in m.items()}
    _say(
        console,
        f"Ticket of {c.method} ({c.scoring.signal}), {c.backbone} with {c.backbone_options.hidden} hidden units "
        f"on {c.dataset}, {c.task} task",
        f"level {ticket.level} of the {c.pruning.axis} axis, seed {ticket.seed}, preset {c.preset}, "
        f"{c.training.epochs} epochs",
        f"weights  {alive.weights:,} of {total.weights:,} ({percent(ticket.model_sparsity)} sparse)",
        f"edges    {alive.edges:,} of {total.edges:,} ({percent(ticket.graph_sparsity)} sparse)",
        f"MACs     {quantity(macs)} of {quantity(dense_macs)} ({dense_macs / macs:.1f}× fewer)",
        f"val      {shown['val']} (dense {shown['dense_val']})",
        f"test     {shown['test']} (dense {shown['dense_test']})",
        f"graph    {ticket.graph.num_nodes:,} nodes, fingerprint {ticket.fingerprint}",
        soft_wrap=False,
    )


def print_evaluation(console: Console, ticket: Ticket, result: Evaluation) -> None:
    """Ticket against dense, and the verdict by each criterion."""
    columns = ("initial weights", metric_in_words(result.metric), "val", "test")
    rows = [
        (name, kind, plus_minus(found.val), plus_minus(found.test))
        for weights, pair in (("the ticket's", result), ("fresh", result.fresh))
        for name, kind, found in ((weights, "dense", pair.dense), ("", "ticket", pair.ticket))
    ]
    console.print(
        f"Retrained in isolation over {len(result.ticket.val)} dropout seeds: level {ticket.level}, "
        f"model sparsity {percent(ticket.model_sparsity)}, graph sparsity {percent(ticket.graph_sparsity)}",
        highlight=False,
    )  # fmt: skip
    console.print(_table(columns, rows, left=["initial weights"]))
    for name, pair in (("Winning", result), ("Winning from fresh weights", result.fresh)):
        verdict = ", ".join(f"{name} {VERDICTS[value]}" for name, value in pair.winning.items())
        console.print(f"{name}? {verdict}{_p_value(pair.p_worse)}", highlight=False)
    p, enough = result.p_weights, len(result.ticket.val) >= statistics.MIN_SEEDS
    helps = VERDICTS[p < statistics.SIGNIFICANCE if p is not None and enough else None]
    console.print(f"Do the ticket's own initial weights help? {helps}{_p_value(p)}", highlight=False)


def _p_value(p: float | None) -> str:
    return "" if p is None else f" (one-sided paired t-test: p = {p:.3f})"


def print_benchmark(console: Console, result: Benchmark) -> None:
    """The variants side by side, and how much faster the ticket is."""
    rows = result.rows
    quantities = {
        "MACs": [quantity(row.macs) for row in rows],
        "weights": [f"{row.parameters:,}" for row in rows],
        "edges": [f"{row.edges:,}" for row in rows],
        "file": [_bytes(row.file_bytes) for row in rows],
        "memory": [_bytes(row.memory_bytes) for row in rows],
        "full graph, ms": [_latency(row.full) for row in rows],
        "from plain tensors, ms": [_latency(row.first) for row in rows],
        "one node, ms": [_latency(row.node) for row in rows],
    }
    console.print(_table(["", *(row.variant for row in rows)], [(n, *v) for n, v in quantities.items()], left=[""]))
    console.print(
        f"ms: median (95 %) of {result.repeats} on {result.device}, {result.threads} thread(s).\n"
        f"The ticket is {result.speedup('pyg'):.1f}× as fast as PyG and {result.speedup('dense'):.1f}× as fast as "
        f"dense (MACs: {result['dense'].macs / result['ticket'].macs:.1f}×).",
        highlight=False,
    )


def _latency(latency: Latency) -> str:
    return f"{latency.median:.2f} ({latency.p95:.2f})"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def print_datasets(console: Console, data_root: Path | None) -> None:
    """The known datasets and where they are."""
    from aceglt.datasets import KNOWN, available

    rows = [
        (
            escape(name),
            *(f"{n:,}" for n in (info.nodes, info.features, info.edges)),
            str(info.classes),
            metric_in_words(info.metric),
            VERDICTS[present],
            escape(where),
        )
        if (info := KNOWN.get(name)) is not None
        else (escape(name), *5 * ("",), VERDICTS[present], escape(where))
        for name, present, where in available(data_root)
    ]
    columns = ("name", "nodes", "features", "edges", "classes", "metric", "present", "where")
    console.print(_table(columns, rows, left=["name", "metric", "present", "where"], overflow="fold"))
    console.print(
        "Any other graph: --dataset FILE.npz with x, edge_index, y and, if you have a split, train_mask, val_mask and "
        "test_mask (docs/files.md).",
        highlight=False,
    )
