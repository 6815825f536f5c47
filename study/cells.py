"""The searches of the study as results/ keeps them: per part a folder, per dataset, backbone and axis a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from aceglt.config import Config
from aceglt.config.formats import FORMAT, read_config
from aceglt.files import write_atomic
from aceglt.reproduction import Cell, Scale, exhibit
from aceglt.reproduction.layouts import PAPER_AXES, SMALL, VARIANTS
from aceglt.reproduction.layouts import PAPER_METHODS as PUBLISHED
from aceglt.reproduction.registry import pick
from aceglt.reproduction.runs import collect as collect_runs
from aceglt.reproduction.runs import find
from aceglt.reproduction.runs import missing as unfinished
from aceglt.reproduction.summary import FIRED
from aceglt.runs.directory import read_json
from aceglt.sweeps.grid import GridCell
from aceglt.sweeps.merged import SweepDir
from study import equal
from study.keeping import search_missing

ROOT = Path("results")
DRAWS, ONE_SHOT = "draws", "one-shot"
COMPARED = (
    *(name for method in PUBLISHED for name in (method, f"{method}/tuned")), *VARIANTS, DRAWS, ONE_SHOT,
    "last-epoch", "small-noise", "carried",
)  # fmt: skip
"""Methods by the last part of a cell's name."""
Results = dict[str, Any]
"""A results.json with the search's name and where it comes from."""

_GIVEN = "given"  # the split that comes with the data
_LEFT_OUT = ("excerpt", "diagnostics")  # most of the bytes
_ENVIRONMENT = ("aceglt", "torch", "device")


@dataclass(frozen=True)
class Part:
    """Searches of the study that belong together: of every cell at every scale."""

    name: str
    cells: Sequence[Cell]
    scales: Sequence[Scale] = (Scale(),)
    exhibit: str | None = None
    """The table or figure of the paper whose cells they are."""
    seeds: int = 10

    @classmethod
    def of(cls, name: str) -> Part:
        """The searches of a table or figure of the paper."""
        return cls(name, exhibit(name).cells, exhibit=name)

    def command(self, cell: Cell, scale: Scale, seeds: Sequence[int]) -> str:
        """What searches a cell of it."""
        search = f"aceglt reproduce {self.exhibit}" if self.exhibit else f"python -m study search {self.name}"
        split = f" --split {scale.settings['split']}" if "split" in scale.settings else ""
        return f"{search} --cell {cell.name} --seeds {','.join(map(str, seeds))}{split}"


Search = tuple[Part, Cell, Scale]


def _equal_cost() -> list[Cell]:
    """With three times the 200 epochs of a training per level, as the paper's ACE has, 560."""
    ways: dict[tuple[str, str], dict[str, Any]] = {
        ("random", DRAWS): {"method": "study.methods:RandomDraws", "method_options": {"draws": 3}},
        ("ugs", ONE_SHOT): {"method": "study.methods:OneShot", "method_options": {"trainings": 3}},
    }
    return [
        Cell(dataset, "gcn", axis, method, variant=variant, settings=settings)
        for dataset, axis, ((method, variant), settings) in product(SMALL, PAPER_AXES, ways.items())
    ]


def _gcn() -> list[Cell]:
    return [cell for cell in exhibit("table1").cells if cell.backbone == "gcn"]


def _also_allowed() -> list[Cell]:
    """What else the paper's text allows of the top-K reading, on one cell of each axis."""
    ways: dict[str, dict[str, Any]] = {
        "last-epoch": {"score_epoch": "last", "method_options": {"reading": "topk"}},
        "small-noise": {"method_options": {"reading": "topk", "temperature": 0.001}},
        "carried": {"method": "study.methods:Carried"},
    }
    return [
        Cell(dataset, "gcn", axis, "ace", variant=variant, settings=settings)
        for (dataset, axis), (variant, settings) in product((("citeseer", "model"), ("cora", "graph")), ways.items())
    ]


def _tuned() -> list[Cell]:
    """Each method of the paper with the best of its twelve settings."""
    found = {method: equal.tuned(method) for method in equal.TUNED_METHODS}
    settings = {method: equal.grid(method)[name] for method, name in found.items() if name is not None}
    return [
        Cell(dataset, "gcn", axis, method, variant="tuned", settings=settings[method])
        for dataset, axis, method in product(SMALL, PAPER_AXES, settings)
    ]


def _gat() -> list[Cell]:
    """GAT of Table 1 at a learning rate that gives a sound dense model."""
    wanted = {"", "teacher", "default"}
    cells = [c for c in exhibit("table1").cells if c.backbone == "gat" and c.method in ("ugs", "ace")]
    return [replace(c, settings={**c.settings, "lr": 0.005}) for c in cells if c.variant in wanted]


def _graphs() -> list[Cell]:
    """The default and the same scores without exchange, on graphs beside the paper's."""
    return [
        Cell(dataset, "gcn", axis, method, variant=variant, settings=_SPLITS.get(dataset, {}))
        for dataset, axis, (method, variant) in product(GRAPHS, PAPER_AXES, (("ugs", "teacher"), ("ace", "default")))
    ]


GRAPHS = (
    "amazon-computers", "amazon-photo", "coauthor-cs", "minesweeper", "squirrel-filtered", "tolokers", "wordnet",
)  # fmt: skip
_SPLITS = {"squirrel-filtered": {"split": "0"}}
TABLE1 = Part.of("table1")
SPLITS = Part(
    "splits", _gcn(), [Scale(settings={"split": f"random:{seed}"}) for seed in range(1, 6)], "table1", seeds=2
)
EQUAL_COST = Part("equal-cost", _equal_cost())
ALLOWED = Part("allowed", _also_allowed())
TUNED = Part("tuned", _tuned())
GAT = Part("gat", _gat(), seeds=5)
OTHERS = Part("graphs", _graphs(), (Scale("default", levels=20),), seeds=5)
FURTHER = tuple(replace(Part.of(name), seeds=3) for name in ("table2", "figure4", "tableS3", "tableS4", "tableS6"))
"""Further tables and figures of the paper, on as many seeds as its trials."""
PARTS = {part.name: part for part in (TABLE1, SPLITS, EQUAL_COST, ALLOWED, TUNED, GAT, OTHERS, *FURTHER)}
PAIRED = ("teacher", "default")
SELECTIONS: Mapping[str, Sequence[tuple[Part, Sequence[str]]]] = {
    **{name: ((part, ()),) for name, part in PARTS.items()},
    "pairs": ((TABLE1, [f"{b}/{m}" for b in ("gcn", "gin") for m in PAIRED]), (OTHERS, ()), (GAT, PAIRED)),
    "readings": ((TABLE1, [f"{b}/{m}" for b in ("gcn", "gin") for m in ("ugs", "ace")]),),
}
"""What can be searched: parts, the 32 pairs of the default with the same scores without exchange, and Table 1's
readings of ACE."""


def missing(
    selection: str, names: Sequence[str] = (), seeds: Sequence[int] | int | None = None, folder: Path = ROOT
) -> list[Search]:
    """The searches of which not all seeds are kept, of the cells that have these names, or parts of names."""
    found = [
        (part, cell, replace(scale, seeds=part.seeds if seeds is None else seeds))
        for part, some in SELECTIONS[selection]
        for cell, scale in product(pick(part.name, part.cells, some), part.scales)
    ]
    chosen = pick(selection, [cell for _, cell, _ in found], names)
    kept = {
        part.name: {_identity(result): result for result in load(part, folder)} for part, _ in SELECTIONS[selection]
    }

    def has(result: Results | None, config: Config) -> bool:
        if result is None or result["config"] != _settings(config):
            return False
        return set(config.seeds) <= set(result["seeds"])

    return [
        (part, cell, scale)
        for part, cell, scale in found
        if cell in chosen and not has(kept[part.name].get(_key(cell, scale)), cell.config(scale))
    ]


def search(searches: Sequence[Search], out: Path, code: str, folder: Path = ROOT, **machines: Any) -> dict[str, str]:
    """Search them and keep each that ends; the failures by name."""
    jobs, parts = list[GridCell](), dict[str, Part]()
    for part in {part.name: part for part, _, _ in searches}.values():
        collect(part, out, code, folder)  # a kill may have come between a search's end and keeping it
    for part, cell, scale in searches:
        for path, seeds in unfinished(out / "runs", cell, scale):
            mine = replace(scale, seeds=seeds)
            settings = {**cell.choices(mine), "preset": scale.preset}
            job = GridCell(str(path.relative_to(out / "runs")), settings, cell.config(mine), {})
            if job.name not in parts:  # selections overlap
                jobs.append(job)
                parts[job.name] = part

    def keep(_: SweepDir, job: GridCell) -> None:
        collect(parts[job.name], out, code, folder)

    failures = search_missing(jobs, out, keep, **machines)
    for part in {part.name: part for part, _, _ in searches}.values():
        collect(part, out, code, folder)  # a search may be of several parts
    return failures


def collect(part: Part, root: Path, code: str, folder: Path = ROOT) -> list[str]:
    """Add the finished searches of a reproduction's folder to the kept ones; the names of those that changed.

    `code` is the version of the code that searched. What is kept stays unless there are more seeds of it now, or it was
    searched with other settings.
    """
    kept = {_identity(result): result for result in load(part, folder)}
    changed = []
    for cell, scale in product(part.cells, part.scales):
        found = collect_runs(root / "runs", cell, scale)
        if found is None:
            continue
        new = {"cell": cell.name, **_origin(part, root, cell, scale, found, code), **_slim(found)}
        old = kept.get(_identity(new))
        if old is None or old["config"] != new["config"] or set(old["seeds"]) < set(new["seeds"]):
            kept[_identity(new)] = new
            changed.append(cell.name)
    for path, group in _files(part, folder, kept).items():
        if any(result["cell"] in changed for result in group):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, ("[\n" + ",\n".join(map(json.dumps, group)) + "\n]\n").encode())
    return changed


def load(part: Part, folder: Path = ROOT) -> Iterator[Results]:
    """All kept results of a part."""
    for path in sorted((folder / part.name).glob("*.json")):
        yield from map(_in_todays_words, json.loads(path.read_text()))


def _in_todays_words(result: Results) -> Results:
    """Its configuration with every option there is by now."""
    config = read_config({**result["config"], "seeds": result["seeds"]}, result["config_format"]).to_dict()
    return {**result, "config": {name: value for name, value in config.items() if name != "seeds"}}


def by_cell(part: Part, folder: Path = ROOT) -> dict[Cell, Results]:
    """All kept results of a part; another split than the given one is part of the cell's name."""
    kept = _kept(part, {_identity(result): result for result in load(part, folder)})
    return {cell if split == _GIVEN else _on(cell, split): result for cell, split, result in kept}


def of_exhibits(names: Sequence[str], folder: Path = ROOT) -> dict[str, dict[Cell, Results]]:
    """What is kept of the searches of tables and figures of the paper, whichever part they belong to."""
    kept = {_identity(result): result for part in (TABLE1, *FURTHER) for result in load(part, folder)}
    return {
        name: {cell: kept[key] for cell in exhibit(name).cells if (key := (cell.name, _GIVEN)) in kept}
        for name in names
    }


def _on(cell: Cell, split: str) -> Cell:
    return replace(cell, variant="/".join(filter(None, (cell.variant, split))))


def _kept(part: Part, results: dict[tuple[str, str], Results]) -> Iterator[tuple[Cell, str, Results]]:
    """Of results by name and split, those of a part with their cells and splits, in the part's order."""
    for cell, scale in product(part.cells, part.scales):
        if (key := _key(cell, scale)) in results:
            yield cell, scale.settings.get("split", _GIVEN), results[key]


def _identity(result: Results) -> tuple[str, str]:
    return result["cell"], result["config"]["split"] or _GIVEN  # link prediction has no split of nodes


def _key(cell: Cell, scale: Scale) -> tuple[str, str]:
    return cell.name, cell.choices(scale).get("split", _GIVEN)


def _settings(config: Config) -> Results:
    """As JSON has them, but for the seeds."""
    settings: Results = json.loads(json.dumps(config.to_dict()))
    return {name: value for name, value in settings.items() if name != "seeds"}


def _origin(part: Part, root: Path, cell: Cell, scale: Scale, results: Results, code: str) -> Results:
    runs = [run for run in find(root / "runs", cell, scale) if run.has(len(results["levels"]))]
    places = [read_json(run.path / "environment.json") for run in runs]
    config = {**runs[0].config.to_dict(), "levels": len(results["levels"])}  # a longer search serves too
    return {
        "command": part.command(cell, scale, results["seeds"]),
        "code": code,
        "environments": [{name: place.get(name) for name in _ENVIRONMENT} for place in places],
        "config_format": FORMAT,
        "config": {name: value for name, value in config.items() if name != "seeds"},
    }


def _slim(results: Results) -> Results:
    levels = [{**_without(level), "diagnostics": _fired(level["diagnostics"])} for level in results["levels"]]
    return {**_without(results), "levels": levels}


def _fired(diagnostics: Results) -> Results:
    """How often the switches of ACE acted; nothing of other methods."""
    sides = diagnostics.get("ace", {}).items()
    return {"ace": {side: {name: of[name] for name in FIRED} for side, of in sides}} if sides else {}


def _without(values: Results) -> Results:
    return {name: value for name, value in values.items() if name not in _LEFT_OUT}


def _files(part: Part, folder: Path, kept: dict[tuple[str, str], Results]) -> dict[Path, list[Results]]:
    files: dict[Path, list[Results]] = {}
    for cell, _, result in _kept(part, kept):
        path = folder / part.name / f"{cell.dataset}-{cell.backbone}-{cell.axis}.json"
        files.setdefault(path, []).append(result)
    return files
