"""What stands beside a reproduced table: the page, the searches behind it with what they cost, and every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aceglt.reproduction.cells import Cell
from aceglt.reproduction.grid import BOLD, STAR, UNDERLINE, entry_of
from aceglt.reproduction.registry import Exhibit
from aceglt.reproduction.tables import Entry, Line, Table, csv_rows, markdown
from aceglt.searches.statistics import CRITERIA, mean_std, metric_in_words, undetermined

Found = Mapping[Cell, Mapping[str, Any]]

FIRED = ("halved", "resampled")
"""What ACE records of its two switches."""

PAPER = "Wang et al., “Adversarial Erasing with Pruned Elements: Towards Better Graph Lottery Tickets”, ECAI 2023"

_SIGNS = {
    BOLD: "the best is bold",
    UNDERLINE: "the second underlined",
    STAR: "and \\* says that the best is better than the second at p < 0.05 in a paired t-test over seeds",
}
_COSTS = (
    "Winners: sparsity of the sparsest winning level on the mean over seeds, by each criterion: `paper` by test, "
    "`strict` by validation, `significant` by a paired t-test on test (“?”: undetermined below five seeds). Fired: "
    "how often ACE halved K and went back to re-sample, per seed. Epochs and seconds: of the whole search, per seed. "
    "MACs: of one forward pass, dense and of the `paper` winner."
)


def page(exhibit: Exhibit, table: Table, found: Found, notes: Sequence[str], plots: Sequence[str]) -> str:
    """The whole as Markdown."""
    first = next(iter(found.values()))
    counts = sorted({len(results["seeds"]) for results in found.values()})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    about = [
        f"{len(found)} of {len(exhibit.cells)} searches, {seeds} seed(s), preset `{first['preset']}`, "
        f"{first['epochs']} epochs. Mean ± standard deviation over seeds, in percent unless a unit is named.",
        f"Lines *paper* quote {PAPER}; ACE is its “Ours”. Empty: not searched, or not printed there.",
    ]
    if exhibit.grid.marks:
        about.append("Of a block's column, " + ", ".join(_SIGNS[m] for m in _SIGNS if m in exhibit.grid.marks) + ".")
    parts = [
        f"# {exhibit.name}: {exhibit.title}", markdown(table),
        *(f"![{exhibit.title}]({name})" for name in plots[:1]),
        "\n".join(f"- {note}" for note in (*about, *notes)),
        "## Searches behind it, and what they cost", markdown(runs_table(found)), _COSTS,
    ]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts) + "\n"


def runs_table(found: Found) -> Table:
    """One line per search: readings, winners by each criterion, and cost."""
    runs = {cell: _run(cell, results) for cell, results in found.items()}
    lines = tuple(Line((cell.name,), tuple(run.values()), cell.dataset) for cell, run in runs.items())
    return Table("Searches and their cost", ("search",), tuple(next(iter(runs.values()))), lines)


def _run(cell: Cell, results: Mapping[str, Any]) -> dict[tuple[str, str], Entry]:
    """By group and name of the column."""
    winner = results["highest_winning"]["paper"]
    macs = next((level["macs"] for level in results["levels"] if winner and level["level"] == winner["level"]), None)
    return {
        ("", "seeds"): entry_of([len(results["seeds"])], "count"),
        ("", "metric"): Entry(metric_in_words(results["metric"])),
        ("", "dense test"): entry_of(results["dense"]["test"], "test"),
        **{("winner", criterion): _winner(cell, results, criterion) for criterion in CRITERIA},
        **{("fired", name): _fired(results, name) for name in FIRED},
        ("", "epochs"): entry_of([mean_std(results["cost"]["epochs"])[0]], "count"),
        ("", "seconds"): entry_of([mean_std(results["cost"]["seconds"])[0]], "seconds"),
        ("MACs", "dense"): entry_of([results["dense"]["macs"]], "macs"),
        ("MACs", "ticket"): Entry("-") if macs is None else entry_of([macs], "macs"),
    }


def _winner(cell: Cell, results: Mapping[str, Any], criterion: str) -> Entry:
    winner = results["highest_winning"][criterion]
    if winner is not None:
        return entry_of([winner[cell.sparsity]], "winner")
    return Entry("?" if undetermined(results["levels"], criterion) else "-")


def _fired(results: Mapping[str, Any], name: str) -> Entry:
    """How often a switch of ACE acted in the whole search, per seed; never, and its ablation shows nothing."""
    sides = [side for level in results["levels"] for side in level["diagnostics"].get("ace", {}).values()]
    total = sum(sum(side[name]) for side in sides)
    return Entry(f"{total / len(results['seeds']):.1f}", total / len(results["seeds"])) if sides else Entry()


def levels_csv(found: Found) -> str:
    """Every level of every search, dense as level 0; what the figures draw."""
    rows: list[dict[str, Any]] = []
    for cell, results in found.items():
        dense = {"level": 0, "model_sparsity": 0.0, "graph_sparsity": 0.0, "winning": dict.fromkeys(CRITERIA)}
        for level in ({**results["dense"], **dense, "epochs": {"train": results["epochs"]}}, *results["levels"]):
            row = {"search": cell.name, **{name: level[name] for name in ("level", "model_sparsity", "graph_sparsity")}}
            row["seeds"] = len(level["val"])
            for part in ("val", "test"):
                row[part], row[f"{part}_std"] = mean_std(level[part])
            row["macs"], row["seconds"] = level["macs"], level["seconds"] / len(level["val"])
            row["epochs"] = sum(level["epochs"].values())
            row |= {f"wins_{name}": "" if (won := level["winning"][name]) is None else int(won) for name in CRITERIA}
            for name, side in (("weight", "weights"), ("edge", "edges")):
                changes = (level.get("fluctuation") or {}).get(side) or []
                known = [value for value in changes if value is not None]
                row[f"{name}_fluctuation"] = mean_std(known)[0] if known else ""
            rows.append(row)
    return csv_rows(list(rows[0]), [list(row.values()) for row in rows])
