"""Tables and plots of the kept results: the tables in docs/science/study.md, and in docs/science/study/ table1.md, one
plot per backbone, the appendix, and NAME.md of further tables and figures of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aceglt.errors import ConfigError
from aceglt.files import write_atomic
from aceglt.report.static import encoded
from aceglt.reproduction.grid import entry_of, fill, quotes
from aceglt.reproduction.layouts import EXHIBITS_FILE, PAPER_AXES, VARIANTS
from aceglt.reproduction.layouts import PAPER_METHODS as PUBLISHED
from aceglt.reproduction.plots import draw as drawn
from aceglt.reproduction.registry import Exhibit, exhibit
from aceglt.reproduction.summary import Found
from aceglt.reproduction.summary import page as reproduced
from aceglt.reproduction.tables import markdown, pipe_table
from aceglt.searches.statistics import CRITERIA, SIGNIFICANCE, TOLERANCE, mean_std, paired_t_test
from study import equal, winning
from study.cells import (
    ALLOWED,
    COMPARED,
    DRAWS,
    EQUAL_COST,
    FURTHER,
    GAT,
    ONE_SHOT,
    OTHERS,
    ROOT,
    SPLITS,
    TABLE1,
    TUNED,
    Part,
    Results,
    by_cell,
    load,
    of_exhibits,
)
from study.compare import DEFAULT, FROM, Group, Pair, groups, method_of, paired, pooled
from study.tune import RECORD, Line, means, read

_NAMES = {
    "random": "random", "ugs": "UGS", "gebt": "GEBT", "ace": "ACE, top-K", "literal": "ACE, literal",
    "code": "ACE, code", "teacher": "UGS, teacher", DEFAULT: "ACE, teacher (default)",
    DRAWS: "best of 3 random draws", ONE_SHOT: "one-shot", "last-epoch": "top-K, scores of the last epoch",
    "small-noise": "top-K, temperature 0.001", "carried": "top-K, scores carried across rounds",
}  # fmt: skip
_NAMES |= {f"{method}/tuned": f"{_NAMES[method]}, tuned" for method in PUBLISHED}
_NONE = "…"  # not searched
HEADLINES = ("cost", "pairs")
"""Tables of docs/science/study.md; the others are in its appendix."""
EXHIBITS = (*(part.name for part in FURTHER), "figure1", "tableS8")
"""Further tables and figures of the paper that have a page each; the last two are of searches of Table 1."""
_COLOURS = dict(
    zip(
        (*PUBLISHED, *VARIANTS),
        ("#bbbbbb", "#4477aa", "#ccbb44", "#cc3311", "#ee99aa", "#aa4466", "#66aa55", "#116622"),
        strict=True,
    )
)

_HEAD = """\
Made by `python -m study page` from the files in [results/table1](../../../results/table1), which hold the commands;
[study.md](../study.md) says what it means. Test accuracy in percent, mean ± standard deviation over seeds.

- *Mean*: over the levels above {model:.0f} % model or {graph:.0f} % graph sparsity, the highest in bold. A star:
  significantly above UGS (paired t-test over seeds, two-sided, p < 0.05).
- `paper`, `strict`, `significant`: level and sparsity of the sparsest ticket that wins by this criterion.
- *Printed*: what the paper's Table 1 has for the method.
- *Epochs*: of choosing 20 levels, per seed."""
_LAYOUT = """\
## In the paper's layout

In percent, mean ± standard deviation over seeds; lines *paper* quote the paper. The best of a block is bold, the second
underlined; \\*: better than the second (paired t-test over seeds, p < 0.05). {won}"""
_WINNING = f"""
## Against the ranks of the winning ticket

As the paper defines it: ranks of the winning ticket's elements at every level, minus those at its own level. Ten seeds
(`python -m study winning`; [{winning.RECORD}](../../../{winning.RECORD})). Hatched: trained scores follow the noise
that they start from (rank correlation above {winning.NOISE}), so changes of rank say nothing about importance.

![Changes of rank]({winning.PLOT.name})
"""
_SOUND = """\
## GAT at a learning rate of 0.005

Table S2's 0.06 gives a poor dense model ([results/gat](../../../results/gat))."""


def write(folder: Path = ROOT, docs: Path = Path("docs/science/study"), record: Path = RECORD) -> None:
    """Everything that is made of the kept results."""
    docs.mkdir(parents=True, exist_ok=True)
    for backbone, found in _by_backbone(groups(list(load(TABLE1, folder)))).items():
        draw(found, docs / f"{backbone}.svg")
    write_atomic(docs / "table1.md", table1_page(folder).encode())
    made = tables(folder, record)
    refresh(docs.with_suffix(".md"), {name: table for name, table in made.items() if name in HEADLINES})
    refresh(docs / "appendix.md", {name: table for name, table in made.items() if name not in HEADLINES})
    if winning.RECORD.exists():
        winning.draw(path=docs / winning.PLOT.name)
    for name, searches in of_exhibits(EXHIBITS, folder).items():
        if searches:
            write_exhibit(docs, exhibit(name), searches)


def write_exhibit(docs: Path, wanted: Exhibit, found: Found) -> None:
    """The page that `aceglt reproduce` makes of a table or figure."""
    plots = []
    for path in drawn(wanted, found, docs / wanted.name) if wanted.plot else []:
        if path.suffix == ".svg":
            plots.append(path.name)
        else:
            path.unlink()  # the same picture, twice as large
    write_atomic(docs / f"{wanted.name}.md", exhibit_page(wanted, found, plots).encode())


def exhibit_page(wanted: Exhibit, found: Found, plots: Sequence[str]) -> str:
    filled = fill(wanted.grid, wanted.title, found)
    kept = wanted.name if wanted.name in {part.name for part in FURTHER} else TABLE1.name
    place = f"[results/{kept}](../../../results/{kept})"
    made = f"Made by `python -m study page` from the files in {place}, with their commands."
    text = reproduced(wanted, filled, found, (*wanted.notes, made), plots)
    return text + (_WINNING if wanted.name == "figure1" and winning.RECORD.exists() else "")


def tables(folder: Path = ROOT, record: Path = RECORD) -> dict[str, str]:
    """The tables of docs/science/study.md and its appendix by name, as far as there is something to show."""
    table1 = list(load(TABLE1, folder))
    found, sound, splits = groups(table1), groups(list(load(GAT, folder))), groups(pooled(list(load(SPLITS, folder))))
    others = [group for group in groups([*table1, *load(OTHERS, folder)]) if group.backbone != "gat"]

    def beside(part: Part, *methods: str) -> list[Group]:
        """The searches of a part beside those of Table 1 of the same cells by these methods."""
        more = list(load(part, folder))
        places = {(result["dataset"], result["backbone"], result["axis"]) for result in more}
        published = [result for result in table1 if method_of(result) in methods]
        return [g for g in groups([*published, *more]) if (g.dataset, g.backbone, g.axis) in places]

    made: Sequence[tuple[str, Callable[[Any], str], Sequence[Any]]] = (
        ("cost", cost, found),
        ("pairs", pairs, paired([*others, *sound])),
        ("accuracy", accuracy, found),
        ("winners", winners, found),
        ("sparsest", sparsest, found),
        ("gat", accuracy, sound),
        ("folds", lambda lines: table(*means(lines)), read(record)),
        ("splits", accuracy, splits),
        ("split winners", winners, splits),
        ("equal cost", accuracy, beside(EQUAL_COST, *COMPARED)),
        ("equal tuning", equal_tuning, read(folder / equal.RECORD.name)),
        ("tuned", accuracy, beside(TUNED, *PUBLISHED)),
        ("allowed", accuracy, beside(ALLOWED, "ugs", "ace")),
    )
    return {name: make(given) for name, make, given in made if given}


def pairs(found: Sequence[Pair]) -> str:
    """A line per pair, and what all of them say."""
    rows = [
        (_title(pair.group), str(len(pair.group.means(DEFAULT))), *(f"{100 * mean:.2f}" for mean in pair.means),
         f"{100 * pair.gain:+.2f}", f"{pair.p:.2g}", f"{pair.p_holm:.2g}")
        for pair in found
    ]  # fmt: skip
    heads = ("", "seeds", "no exchange", "default", "difference", "p", "p (Holm)")
    above = sum(pair.gain > TOLERANCE for pair in found)
    below = [_title(pair.group) for pair in found if pair.gain < 0 and pair.p_holm < SIGNIFICANCE]
    without, default = zip(*(pair.means for pair in found), strict=True)
    p = paired_t_test(default, without)
    words = (
        f"The default is above in {above} of {len(found)} pairs. The mean difference is "
        f"{100 * mean_std([pair.gain for pair in found])[0]:+.2f} points"
        + (f" (p = {p:.2g} over the pairs)" if p is not None else "")
        + f". Significantly below after Holm's correction: {'; '.join(below) or 'none'}."
    )
    return f"{table(heads, rows)}\n\n{words}"


def equal_tuning(lines: Sequence[Line]) -> str:
    """A line per setting that was searched in all places: mean validation accuracy; a method's tuned one in bold."""
    rows = []
    for method in equal.TUNED_METHODS:
        best = equal.tuned(method, lines)
        for name, found in equal.means(lines, method).items():
            title = f"**{_NAMES[method]}: {name}**" if name == best else f"{_NAMES[method]}: {name}"
            numbers = [found[dataset, axis] for dataset, axis, fold in equal.PLACES if fold == 0]
            rows.append((title, *(f"{number:.2f}" for number in (*numbers, mean_std(numbers)[0]))))
    places = [f"{dataset} {axis}" for dataset, axis, fold in equal.PLACES if fold == 0]
    done = Counter(line["method"] for line in lines)
    every = {method: len(equal.PLACES) * len(equal.grid(method)) for method in equal.TUNED_METHODS}
    left = [f"{_NAMES[m]} {done[m]} of {count}" for m, count in every.items() if done[m] < count]
    words = f"\n\nSearched so far: {', '.join(left)}." if left else ""
    return table(("", *places, "mean"), rows) + words


def refresh(path: Path, tables: Mapping[str, str]) -> None:
    """Put tables in the place of those between the comments with their names, if there is such a page."""
    if not path.exists():
        return
    text = path.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise ConfigError(f"{path} has no place for the table of {name}: {begin.strip()} and {end.strip()}")
        before, rest = text.split(begin)
        text = before + begin + table + end + rest.split(end)[1]
    write_atomic(path, text.encode())


def accuracy(found: Sequence[Group]) -> str:
    """A line per cell: the mean of each method over the levels that are compared."""
    methods = _searched(found)
    rows = [(_title(g), _percent(_dense(g)["test"]), *(_mean(g, m) for m in methods)) for g in found]
    return table(("", "dense", *map(_NAMES.__getitem__, methods)), rows)


def cost(found: Sequence[Group]) -> str:
    """A line per method that was searched in most cells: what choosing costs, and what accuracy it gives over dense, on
    average over the cells of each axis that all of them have."""
    methods = [m for m in _searched(found) if 2 * sum(m in g.results for g in found) > len(found)]
    shared = [g for g in found if set(methods) <= set(g.results)]

    def above(axis: str, method: str) -> str:
        cells = [g for g in shared if g.axis == axis]
        gains = [mean_std(g.means(method))[0] - mean_std(_dense(g)["test"])[0] for g in cells]
        return f"{100 * mean_std(gains)[0]:+.2f}" if gains else _NONE

    def epochs(method: str) -> str:
        spent = {_epochs(g.results[method]) for g in found if method in g.results}
        return f"{min(spent):,}" + (f" to {max(spent):,}" if len(spent) > 1 else "")

    rows = [(_NAMES[m], epochs(m), *(above(axis, m) for axis in PAPER_AXES)) for m in methods]
    return table(("", "epochs of choosing", *(f"{axis} axis" for axis in PAPER_AXES)), rows)


def _epochs(result: Results) -> int:
    """That the choice of all levels took per run."""
    return sum(level["epochs"]["select"] for level in result["levels"])


def sparsest(found: Sequence[Group]) -> str:
    """A line per cell: the test metric of the last level."""
    methods = ("ugs", "ace", "teacher", DEFAULT)
    rows = []
    for g in found:
        last = (_percent(g.results[m]["levels"][-1]["test"]) if m in g.results else _NONE for m in methods)
        rows.append((_title(g), _percent(_dense(g)["test"]), *last))
    return table(("", "dense", *map(_NAMES.__getitem__, methods)), rows)


def winners(found: Sequence[Group]) -> str:
    """A line per cell: the sparsest winning level of each method by all criteria, and what the paper prints for ACE."""

    methods = _searched(found)

    def places(group: Group) -> list[str]:
        return [" / ".join(_winner(group, m, c) for c in CRITERIA) if m in group.results else _NONE for m in methods]

    rows = [(_title(group), *places(group), _quoted(group, "ace")) for group in found]
    return table(("", *map(_NAMES.__getitem__, methods), "printed for ACE"), rows)


def _searched(found: Sequence[Group]) -> list[str]:
    """Methods that at least one of the groups has."""
    return [method for method in COMPARED if any(method in group.results for group in found)]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    return pipe_table([heads, ["---"] * len(heads), *rows]).rstrip()


def _title(group: Group) -> str:
    return f"{group.dataset}, {group.backbone}, {group.axis}"


def _dense(group: Group) -> dict[str, list[float]]:
    """The same for all methods."""
    dense: dict[str, list[float]] = next(iter(group.results.values()))["dense"]
    return dense


def _mean(group: Group, method: str) -> str:
    """Over the levels that are compared, with the marks of a table; … where there is no search."""
    if method not in group.results:
        return _NONE
    mean = _percent(group.means(method))
    mean = f"**{mean}**" if len(group.results) > 1 and method == group.best else mean
    return mean + ("★" if "ugs" in group.results and group.star(method) else "")


def table1_page(folder: Path = ROOT) -> str:
    """The generated page."""
    parts = [_LAYOUT.format(won=EXHIBITS_FILE["notes"]["won"]), layout(by_cell(TABLE1, folder))]
    if sound := groups(list(load(GAT, folder))):
        parts += [_SOUND, layout(by_cell(GAT, folder)), *(part for group in sound for part in _section(group))]
    return page(groups(list(load(TABLE1, folder))), parts)


def layout(found: Found) -> str:
    """Table 1 as the paper has it, by the highest winning sparsity of each seed; lines without a search left out."""
    wanted, searched = exhibit("table1"), {f"{cell.backbone}/{cell.variant or cell.method}" for cell in found}
    grid = replace(wanted.grid, rows=tuple(row for row in wanted.grid.rows if row.key in searched))
    return markdown(fill(grid, wanted.title, found)).strip()


def page(found: Sequence[Group], more: Sequence[str] = ()) -> str:
    """Search by search, after what else there is to say."""
    parts = [
        "# Table 1, search by search",
        _HEAD.format(model=100 * FROM["model"], graph=100 * FROM["graph"]),
        *_overview(found),
        *more,
    ]
    for backbone, mine in _by_backbone(found).items():
        parts += [f"## {backbone.upper()}", f"![curves]({backbone}.svg)"]
        parts += [part for group in mine for part in _section(group)]
    return "\n\n".join(parts) + "\n"


def _by_backbone(found: Sequence[Group]) -> dict[str, list[Group]]:
    return {name: [g for g in found if g.backbone == name] for name in dict.fromkeys(g.backbone for g in found)}


def _overview(found: Sequence[Group]) -> list[str]:
    complete = [group for group in found if {*PUBLISHED, DEFAULT} <= set(group.results)]
    if not complete:
        return []
    first = [group.name for group in complete if group.best == DEFAULT]
    others = [f"{group.name} ({_NAMES[group.best]})" for group in complete if group.best != DEFAULT]
    below = [f"{group.name}: {', '.join(places)}" for group in complete if (places := group.below())]
    return [
        f"The default has the highest mean in {len(first)} of the {len(complete)} cells that it and the four published "
        "methods have searched"
        + (f". Another has it in {', '.join(others)}." if others else ".")
        + " Levels where it is significantly below another method (one-sided, paired, Holm-corrected over levels and "
        f"methods of a cell): {'; '.join(below) or 'none'}."
    ]


def _section(group: Group) -> list[str]:
    heads = ("method", "mean", "last level", *(f"`{criterion}`" for criterion in CRITERIA), "printed", "epochs")
    rows = []
    for method, result in group.results.items():
        places = [_winner(group, method, criterion, sparsity=True) for criterion in CRITERIA]
        epochs = f"{_epochs(result):,}"
        last = _percent(result["levels"][-1]["test"])
        rows.append((_NAMES[method], _mean(group, method), last, *places, _quoted(group, method), epochs))
    seeds = len(next(iter(group.results.values()))["seeds"])
    head = f"### {group.name}\n\n{seeds} seeds; dense {_percent(_dense(group)['test'])}."
    return [head, table(heads, rows)]


def _winner(group: Group, method: str, criterion: str, sparsity: bool = False) -> str:
    """The sparsest winning level, and perhaps how sparse it is."""
    best = group.results[method]["highest_winning"][criterion]
    if best is None:
        return "–"
    return f"{best['level']}" + (f": {100 * best[f'{group.axis}_sparsity']:.1f} %" if sparsity else "")


def _quoted(group: Group, method: str) -> str:
    entry = quotes("table1").get((f"{group.backbone}/{method}", f"{group.dataset}/{group.axis}"))
    return entry.text if entry else ""


def _percent(values: Sequence[float]) -> str:
    return entry_of(values, "test").text


def draw(found: Sequence[Group], path: Path) -> None:
    """Test accuracy against sparsity, a panel per dataset and axis; bands are one standard deviation."""
    from matplotlib.figure import Figure

    datasets, axes = (list(dict.fromkeys(getattr(g, part) for g in found)) for part in ("dataset", "axis"))
    figure = Figure(figsize=(3.6 * len(datasets), 2.7 * len(axes)), layout="constrained")
    panels = figure.subplots(len(axes), len(datasets), squeeze=False)
    for group in found:
        _panel(panels[axes.index(group.axis)][datasets.index(group.dataset)], group)
    lines = {
        label: line for panel in panels.flat for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines))
    write_atomic(path, encoded(figure, "svg"))


def _panel(panel: Any, group: Group) -> None:
    for method, result in group.results.items():
        x = [level["level"] for level in result["levels"]]
        means, stds = zip(*(mean_std([100 * v for v in level["test"]]) for level in result["levels"]), strict=True)
        panel.plot(x, means, color=_COLOURS[method], label=_NAMES[method], lw=1.4)
        low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
        panel.fill_between(x, low, high, color=_COLOURS[method], alpha=0.15, lw=0)
    dense = 100 * mean_std(_dense(group)["test"])[0]
    panel.axhline(dense, color="black", ls=":", lw=1, label="dense")
    sparsities = {level["level"]: f"{100 * level[f'{group.axis}_sparsity']:.0f}" for level in result["levels"]}
    shown = [number for number in sparsities if number == 1 or number % 5 == 0]
    panel.set_xticks(shown, [sparsities[number] for number in shown])
    panel.set(
        title=group.dataset,
        xlabel=f"{group.axis} sparsity, % (level by level)",
        ylabel="test accuracy, %",
        ylim=(dense - 14, dense + 4),
    )
