"""The leaderboard: `search` does what is missing of a grid of study/grids and keeps it in results/leaderboard, a file
per search; `page` makes docs/science/leaderboard.md of what is kept.

    python -m study.leaderboard search paper --gpus 0.1
    python -m study.leaderboard page
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aceglt.errors import AcegltError, ConfigError, RunError
from aceglt.files import write_atomic
from aceglt.report.comparison import BEST, Comparison, compare_runs
from aceglt.report.comparison_page import headline, ranking
from aceglt.report.static import encoded
from aceglt.report.view import RunView, by_setting
from aceglt.reproduction.tables import pipe_table
from aceglt.searches.sketch import NEUTRAL, PALETTE, rank_diagram
from aceglt.searches.statistics import SIGNIFICANCE, mean_std
from aceglt.sweeps.compare import read_results, with_baseline
from aceglt.sweeps.grid import GridCell, plan, read_grid
from aceglt.sweeps.merged import SweepDir, write_table
from study.keeping import add_options, commit, machines, search_missing
from study.page import refresh

GRIDS = Path("study/grids")
PARTS = {
    "paper": "GCN-512 of the paper, all methods",
    "tuned": "Tuned GCN, at most 300 epochs",
    "sage": "Tuned GraphSAGE, at most 300 epochs",
}
FIRST = ("tuned", "paper", "sage")
"""The page begins with the picture of the first of these that was searched."""
KEPT = Path("results/leaderboard")
PAGE = Path("docs/science/leaderboard.md")
REASONS = "reasons.json"
"""Beside the kept results: why a search of a name is not there."""
NEAR = 0.005
"""How far the default may be below the best method."""
_STANDING = (
    "How far the default is from the best. It holds where it is the best, or neither significantly nor more than "
    f"{100 * NEAR:.1f} points below:"
)
_LEFT_OUT = ("excerpt", "diagnostics", "fluctuation")  # most of the bytes
_ENVIRONMENT = ("aceglt", "torch", "device", "peak_memory", "started")


def cells(part: str) -> list[GridCell]:
    """The searches of a part."""
    return plan(with_baseline(read_grid(GRIDS / f"{part}.toml")))


def kept(part: str, folder: Path = KEPT) -> dict[str, RunView]:
    """What is kept of a part, by the names of its searches."""
    return {path.stem: read_results(path)[0] for path in sorted((folder / part).glob("*.json"))}


def missing(part: str, *folders: Path) -> list[GridCell]:
    """The searches of which not all seeds and levels are kept in any of the folders."""
    there = [kept(part, folder) for folder in folders]
    return [cell for cell in cells(part) if not any(_has(found.get(cell.name), cell) for found in there)]


def _has(found: RunView | None, cell: GridCell) -> bool:
    if found is None or len(found.levels) < cell.config.stopping.levels:
        return False
    return set(cell.config.seeds) <= set(found.results["seeds"])


def keep(folder: SweepDir, cell: GridCell, to: Path) -> None:
    """Write down a finished search: its results but for the largest parts, its configuration and where it ran."""
    results = folder.finished(cell)
    if results is None:
        raise RunError(f"{folder.run(cell).path}: the search has not finished")
    levels = [{**_without(level), "diagnostics": {}} for level in results["levels"]]
    environment = folder.run(cell).read_environment()
    record = {
        **_without(results), "levels": levels, "config": folder.run(cell).read_config().to_dict(),
        "environment": {name: environment.get(name) for name in _ENVIRONMENT}, "code": commit(),
    }  # fmt: skip
    to.mkdir(parents=True, exist_ok=True)
    write_atomic(to / f"{cell.name}.json", (json.dumps(record) + "\n").encode())


def _without(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _LEFT_OUT}


def search(part: str, out: Path, to: Path = KEPT, only: Sequence[str] = (), **machines: Any) -> dict[str, str]:
    """Search what is kept neither in results/leaderboard nor in `to`, of the searches that have all words of `only` in
    their names; the failures by name."""
    wanted = [cell for cell in missing(part, KEPT, to) if all(word in cell.name for word in only)]
    return search_missing(wanted, out, partial(keep, to=to / part), **machines)


def write(folder: Path = KEPT, page: Path = PAGE) -> None:
    """The page's tables, its pictures beside it, and results/leaderboard/PART.csv."""
    tables: dict[str, str] = {}
    searched = {part: found for part in PARTS if (found := kept(part, folder))}
    first = next((part for part in FIRST if part in searched), None)
    pictures = page.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    for part, found in searched.items():
        graphs = Counter(run.results["dataset"] for run in found.values())
        contestants = [run for run in found.values() if graphs[run.results["dataset"]] > 1]
        title, comparison = PARTS[part], compare_runs(contestants)
        drawn_above = part == first
        tables[part] = section(part, title, comparison, gaps(part, found, folder), pictures.name, drawn_above)
        draw(comparison, pictures / f"{part}.svg")
        if drawn_above:
            tables["picture"] = f"![{title}: quality against sparsity]({pictures.name}/{part}.svg)"
        if comparison.test is not None:
            drawn = rank_diagram(comparison.ranked, comparison.test)
            white = drawn.replace(">", '><rect width="100%" height="100%" fill="white"/>', 1)
            write_atomic(pictures / f"{part}-ranks.svg", white.replace("currentColor", "#222").encode())
        write_table(folder / f"{part}.csv", comparison.records())
    refresh(page, tables)


def section(
    part: str, title: str, comparison: Comparison, gaps: Sequence[str], pictures: str, drawn_above: bool
) -> str:
    """A part of the page in Markdown; its picture may be above already."""
    lines = [headline(comparison), ""]
    lines += [f"![{title}: quality against sparsity]({pictures}/{part}.svg)", ""] if not drawn_above else []
    lines += [_markdown(comparison.means_rows()), ""]
    if comparison.test is not None:
        lines += [ranking(comparison), "", f"![{title}: mean ranks]({pictures}/{part}-ranks.svg)", ""]
    lines += [_STANDING, "", _markdown(standing(comparison)), ""]
    lines += ["The highest sparsity that keeps dense's validation (weights / edges):", ""]
    lines += [_markdown(comparison.winner_rows("strict")), ""]
    lines += ["Cost of a level:", "", _markdown(comparison.cost_rows()), ""]
    lines += [f"- {words}" for words in (*comparison.notes, *gaps)]
    return "\n".join(lines).rstrip("\n")


def standing(comparison: Comparison, default: str = "ace (teacher") -> list[list[str]]:
    """Per setting, the best method and the default's distance to it; it holds where the default is the best, or
    neither significantly nor more than half a point below."""
    rows = [["Graph", "Best", "Default − best", "p (Holm)", "Holds"]]
    for column, contest in zip(comparison.columns(), comparison.contests, strict=True):
        name = next((name for name in contest.runs if name.startswith(default)), None)
        if name is None:
            continue
        pair = contest.pairs.get((name, contest.best)) or contest.pairs.get((contest.best, name))
        below = contest.means[contest.best] - contest.means[name]
        holds = pair is None or (below <= NEAR and pair.p_holm >= SIGNIFICANCE)
        p = "–" if pair is None else f"{pair.p_holm:.3f}"
        rows.append([column, contest.best, f"{0.0 - 100 * below:.2f}", p, "yes" if holds else "no"])
    return rows


def gaps(part: str, found: Mapping[str, RunView], folder: Path) -> list[str]:
    """The searches that are not kept, and why."""
    file = folder / REASONS
    reasons = json.loads(file.read_text()) if file.exists() else {}
    why: dict[tuple[str, str], list[str]] = {}
    for cell in cells(part):
        if not _has(found.get(cell.name), cell):
            reason = reasons.get(cell.name, "not searched yet")
            why.setdefault((cell.config.dataset, reason), []).append(cell.config.label)
    everything = len({cell.config.label for cell in cells(part)})
    return [
        f"{dataset}, {'all methods' if len(labels) == everything else '; '.join(labels)}: {reason}."
        for (dataset, reason), labels in why.items()
    ]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    bold = [[f"**{cell.removesuffix(BEST)}**" if cell.endswith(BEST) else cell for cell in row] for row in body]
    return pipe_table([head, ["---"] * len(head), *bold]).rstrip("\n")


def draw(comparison: Comparison, path: Path) -> None:
    """Quality against level, a panel per setting; bands are one standard deviation, the dotted line is dense."""
    from matplotlib.figure import Figure

    runs = [run for contest in comparison.contests for run in contest.runs.values()]
    colour = {run.name: place for group, places in by_setting(runs) for run, place in zip(group, places, strict=True)}
    columns = min(5, len(comparison.contests))
    rows = -(-len(comparison.contests) // columns)
    figure = Figure(figsize=(max(7.0, 3.1 * columns), 2.6 * rows + 1.0), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel in panels.flat[len(comparison.contests) :]:
        panel.set_axis_off()
    for panel, contest, title in zip(panels.flat, comparison.contests, comparison.columns(), strict=False):
        for name, run in contest.runs.items():
            levels = [level for level in run.levels if level["level"] in contest.levels]
            means, stds = zip(*(mean_std([100 * v for v in level[contest.reading]]) for level in levels), strict=True)
            again, place = divmod(colour[name], len(PALETTE))
            shade, style = PALETTE[place], ("-", "--", "-.")[again % 3]
            x = [level["level"] for level in levels]
            panel.plot(x, means, color=shade, label=name, ls=style, lw=1.4, marker="o", ms=2.5)
            ends = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
            panel.fill_between(x, *ends, color=shade, alpha=0.13, lw=0)
        panel.axhline(100 * mean_std(contest.dense())[0], color=NEUTRAL, ls=":", lw=1.3, label="dense")
        ticks = {
            level["level"]: "\n".join(f"{100 * level[side]:.0f}" for side in run.varies)
            for level in levels
            if level["level"] in (1, levels[len(levels) // 2]["level"], levels[-1]["level"])
        }
        panel.set_xticks(list(ticks), list(ticks.values()))
        panel.set_title(title, fontsize=10)
        panel.tick_params(labelsize=8)
    lines = {
        label: line for panel in panels.flat for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.supxlabel("weights and edges pruned, %", fontsize=9)
    figure.supylabel("test, %", fontsize=9)
    across = 4 if columns > 3 else 3
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=across, fontsize=8, frameon=False)
    write_atomic(path, encoded(figure, "svg"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m study.leaderboard", description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    searched = commands.add_parser("search", help="search what is missing of a part")
    searched.add_argument("part", choices=PARTS)
    searched.add_argument("--only", action="append", default=[], help="a word of the searches' names; repeatable")
    searched.add_argument("--keep", type=Path, default=KEPT, help=f"where results go [default: {KEPT}]")
    add_options(searched, "runs/leaderboard-PART")
    commands.add_parser("page", help=f"write {PAGE}, its pictures and {KEPT}/PART.csv")
    given = parser.parse_args(arguments)
    try:
        if not GRIDS.is_dir():
            raise ConfigError(f"no {GRIDS} here; run it in the root of the repository")
        if given.command == "page":
            write()
        elif given.list:
            print("\n".join(cell.name for cell in missing(given.part, KEPT, given.keep)))
        else:
            out = given.out or Path(f"runs/leaderboard-{given.part}")
            failures = search(given.part, out, given.keep, given.only, **machines(given))
            if failures:
                sys.exit("\n".join(f"{name}: {why}" for name, why in failures.items()))
    except AcegltError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
