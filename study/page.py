"""Tables and plots of the kept results: docs/study/table1.md, one plot per backbone, and results/table1/levels.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aceglt.reproduction.quotes import quote
from aceglt.stats import CRITERIA, Readings, mean_std, sparsest_winner, winning
from study.cells import FOLDER, METHODS, Results, load
from study.compare import FROM, OURS, Group, groups

_NAMES = {"random": "random", "ugs": "UGS", "gebt": "GEBT", "ace": "ACE, as published", OURS: "ours"}
_COLOURS = dict(zip(METHODS, ("#bbbbbb", "#4477aa", "#ccbb44", "#cc3311", "#228833"), strict=True))

_HEAD = """\
Made by `python -m study page` from the files in [results/table1](../../results/table1), which hold the commands;
[study.md](../study.md) says what it means. Test accuracy in percent, mean ± standard deviation over seeds.

- *Mean*: over the levels above {model:.0f} % model or {graph:.0f} % graph sparsity, the highest in bold. A star:
  significantly above UGS (paired t-test over seeds, two-sided, p < 0.05).
- *Sparsest winner*: level and sparsity of the sparsest ticket that wins by the criterion `paper`, `strict` or
  `significant`.
- *Printed*: what the paper's Table 1 has for the method.
- *Epochs*: of choosing 20 levels, per seed."""


def write(folder: Path = FOLDER, docs: Path = Path("docs/study")) -> None:
    """Everything that is made of the kept results."""
    found = groups(list(load(folder)))
    docs.mkdir(parents=True, exist_ok=True)
    backbones = list(dict.fromkeys(group.backbone for group in found))
    for backbone in backbones:
        draw([group for group in found if group.backbone == backbone], docs / f"{backbone}.svg")
    (docs / "table1.md").write_text(page(found, backbones))
    (folder / "levels.csv").write_text(levels_csv(found))


def page(found: Sequence[Group], backbones: Iterable[str]) -> str:
    """The generated page."""
    parts = [
        "# Table 1, search by search",
        _HEAD.format(model=100 * FROM["model"], graph=100 * FROM["graph"]),
        *(_overview(found)),
    ]
    for backbone in backbones:
        parts += [f"## {backbone.upper()}", f"![curves]({backbone}.svg)"]
        parts += [part for group in found if group.backbone == backbone for part in _section(group)]
    return "\n\n".join(parts) + "\n"


def _overview(found: Sequence[Group]) -> list[str]:
    complete = [group for group in found if set(METHODS) <= set(group.results)]
    if not complete:
        return []
    first = [group.name for group in complete if group.best == OURS]
    others = [f"{group.name} ({_NAMES[group.best]})" for group in complete if group.best != OURS]
    below = [f"{group.name}: {', '.join(places)}" for group in complete if (places := group.below())]
    return [
        f"Ours has the highest mean in {len(first)} of the {len(complete)} cells that all five methods have searched"
        + (f"; not in {', '.join(others)}." if others else ".")
        + " Levels where ours is significantly below another method (one-sided, paired, Holm-corrected over levels and "
        f"methods of a cell): {'; '.join(below) or 'none'}."
    ]


def _section(group: Group) -> list[str]:
    dense = next(iter(group.results.values()))["dense"]
    lines = [
        "| method | mean | last level | sparsest winner: `paper` | `strict` | `significant` | printed | epochs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for method, result in group.results.items():
        mean = _percent(group.means(method))
        mean = f"**{mean}**" if method == group.best else mean
        star = "★" if "ugs" in group.results and group.star(method) else ""
        winners = " | ".join(_winner(group, result, criterion) for criterion in CRITERIA)
        last = _percent(result["levels"][-1]["test"])
        epochs = sum(level["epochs"]["select"] for level in result["levels"])
        lines.append(
            f"| {_NAMES[method]} | {mean}{star} | {last} | {winners} | {_quoted(group, method)} | {epochs:,} |"
        )
    seeds = len(next(iter(group.results.values()))["seeds"])
    head = f"### {group.name}\n\n{seeds} seeds; dense {_percent(dense['test'])}."
    return [head, "\n".join(lines)]


def _winner(group: Group, result: Results, criterion: str) -> str:
    dense = Readings(result["dense"]["val"], result["dense"]["test"])
    levels = [{**level, "winning": winning(dense, Readings(level["val"], level["test"]))} for level in result["levels"]]
    best = sparsest_winner(levels, criterion)
    return "–" if best is None else f"{best['level']}: {100 * best[f'{group.axis}_sparsity']:.1f} %"


def _quoted(group: Group, method: str) -> str:
    entry = quote("table1", f"{group.backbone}/{method}", f"{group.dataset}/{group.axis}")
    return entry.text if entry else ""


def _percent(values: Sequence[float]) -> str:
    mean, std = mean_std(values)
    return f"{100 * mean:.2f} ± {100 * std:.2f}"


def levels_csv(found: Sequence[Group]) -> str:
    """Every level of every search."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    names = ("val_mean", "val_std", "test_mean", "test_std")
    table.writerow(
        ("dataset", "backbone", "axis", "method", "seeds", "level", "model_sparsity", "graph_sparsity", *names)
    )
    for group in found:
        for method, result in group.results.items():
            dense = {**result["dense"], "level": 0, "model_sparsity": 0.0, "graph_sparsity": 0.0}
            for level in (dense, *result["levels"]):
                readings = [round(v, 5) for name in ("val", "test") for v in mean_std(level[name])]
                sparsities = [round(level[f"{axis}_sparsity"], 4) for axis in ("model", "graph")]
                table.writerow(
                    (
                        group.dataset,
                        group.backbone,
                        group.axis,
                        method,
                        len(result["seeds"]),
                        level["level"],
                        *sparsities,
                        *readings,
                    )
                )
    return out.getvalue()


def draw(found: Sequence[Group], path: Path) -> None:
    """Test accuracy against sparsity, a panel per dataset and axis; bands are one standard deviation."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "aceglt", "font.size": 8, "savefig.bbox": "tight"})
    import matplotlib.pyplot as plt

    datasets, axes = (list(dict.fromkeys(getattr(g, part) for g in found)) for part in ("dataset", "axis"))
    figure, panels = plt.subplots(
        len(axes), len(datasets), figsize=(3.6 * len(datasets), 2.7 * len(axes)), squeeze=False
    )
    for group in found:
        _panel(panels[axes.index(group.axis)][datasets.index(group.dataset)], group)
    lines = {
        label: line for panel in panels.flat for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncols=len(lines), bbox_to_anchor=(0.5, -0.04))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(panel: Any, group: Group) -> None:
    for method, result in group.results.items():
        x = [100 * level[f"{group.axis}_sparsity"] for level in result["levels"]]
        means, stds = zip(*(mean_std([100 * v for v in level["test"]]) for level in result["levels"]), strict=True)
        panel.plot(x, means, color=_COLOURS[method], label=_NAMES[method], lw=1.4)
        low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
        panel.fill_between(x, low, high, color=_COLOURS[method], alpha=0.15, lw=0)
    dense = 100 * mean_std(next(iter(group.results.values()))["dense"]["test"])[0]
    panel.axhline(dense, color="black", ls=":", lw=1, label="dense")
    panel.set(
        title=group.dataset, xlabel=f"{group.axis} sparsity, %", ylabel="test accuracy, %", ylim=(dense - 14, dense + 4)
    )
