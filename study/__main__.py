"""The study: `search` searches what results/ lacks of it and keeps each search that ends; `collect` keeps what
`aceglt reproduce` found; `page` makes tables and plots, `levels` a CSV of all levels; `tune` searches with other
settings than the default's, on validation nodes alone, and `equal` does so for the published methods; `exchange` tries
another exchange, on validation nodes that chose nothing; `winning` follows the ranks of Figure 1; `measure` looks at
scores and teachers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aceglt.cli import read_seeds
from aceglt.errors import AcegltError, ConfigError
from aceglt.reproduction.summary import levels_csv
from study import equal, exchanges, measure, page, winning
from study.cells import PARTS, ROOT, SELECTIONS, by_cell, collect, missing, search
from study.keeping import add_options, commit, machines
from study.tune import FOLDS, RECORD, SEEDS, read, tune
from study.workers import side_by_side


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    searched = commands.add_parser("search", help="search a part of the study, or what is still missing of it")
    searched.add_argument("part", choices=SELECTIONS, nargs="+", help="several share the machine")
    searched.add_argument("--cell", action="append", default=[], help="a cell's name, or parts of names; repeatable")
    searched.add_argument("--seeds", help="how many, or which: 0,4,7 or 5-9 [default: the part's]")
    searched.add_argument("--code", help="version of the code [default: the commit here]")
    add_options(searched, "runs/study")
    keep = commands.add_parser("collect", help="keep the finished searches of a reproduction")
    keep.add_argument("folder", type=Path, help="the --out of aceglt reproduce, or of search")
    keep.add_argument("--code", help="version of the code that searched [default: the commit here]")
    commands.add_parser("page", help="write docs/science/study*")
    listed = commands.add_parser("levels", help="print every level of the kept searches of a part as CSV")
    listed.add_argument("part", choices=PARTS)
    tuned = commands.add_parser("tune", help=f"search with other settings than the default's and add to {RECORD}")
    tuned.add_argument("dataset")
    tuned.add_argument("axis", choices=("model", "graph"))
    tuned.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="field of Config, option of ace, or prototype; repeatable",
    )
    tuned.add_argument(
        "--fold", action="append", type=int, help="repeatable; 0 is the split of the data [default: 0 to 3]"
    )
    tuned.add_argument("--seeds", type=int, default=SEEDS, help=f"[default: {SEEDS}]")
    equally = commands.add_parser("equal", help=f"twelve settings for each published method; adds to {equal.RECORD}")
    tried = commands.add_parser("exchange", help=f"try an exchange and add to {exchanges.RECORD}")
    tried.add_argument("dataset")
    tried.add_argument("axis", choices=("model", "graph"))
    tried.add_argument("exchange", choices=exchanges.EXCHANGES)
    tried.add_argument("--fold", action="append", type=int, help="repeatable [default: 0]")
    measured = commands.add_parser("measure", help="write results/score-spread.csv and results/teacher-validation.csv")
    followed = commands.add_parser("winning", help=f"Figure 1 by the winning ticket's ranks: {winning.RECORD}")
    equally.add_argument("--workers", type=int, default=1, help="searches at once, a process each [default: 1]")
    equally.add_argument("--seconds", type=float, help="give up what is not done by then")
    for command in (tuned, tried, equally, followed):
        command.add_argument("--device", default="auto", help="[default: auto]")
    for command in (tuned, tried, equally, followed, measured):
        command.add_argument("--data-root", help="where datasets are looked for first")
    given = parser.parse_args(arguments)
    try:
        _do(given)
    except AcegltError as error:
        sys.exit(f"error: {error}")


def _do(given: argparse.Namespace) -> None:
    if not ROOT.is_dir():
        raise ConfigError(f"no {ROOT} here; run it in the root of the repository")
    if given.command == "collect":
        if not (given.folder / "runs").is_dir():
            raise ConfigError(f"{given.folder} has no runs; it should be the --out of a reproduction")
        code = given.code or commit()
        kept = [(part.name, name) for part in PARTS.values() for name in collect(part, given.folder, code)]
        print("\n".join(" ".join(each) for each in kept) or "nothing new: finished searches of the study's scale count")
    elif given.command == "search":
        seeds = None if given.seeds is None else read_seeds(given.seeds)
        wanted = [each for part in given.part for each in missing(part, given.cell, seeds)]
        if given.list:
            print("\n".join(f"{part.name} {cell.name}" for part, cell, _ in wanted))
            return
        failures = search(wanted, given.out or Path("runs/study"), given.code or commit(), **machines(given))
        if failures:
            sys.exit("\n".join(f"{name}: {why}" for name, why in failures.items()))
    elif given.command == "equal":
        lines = read(equal.RECORD)
        tasks = equal.tasks(lines, given.device, given.data_root)
        for task, found in side_by_side(equal.search, tasks, given.workers, given.seconds):
            if isinstance(found, Exception):
                print(f"{task}: {found!r}", flush=True)
            else:
                lines.append(found)
                equal.write(lines)
    elif given.command == "tune":
        place = {"device": given.device, "data_root": given.data_root}
        for line in tune(given.dataset, given.axis, given.fold or FOLDS, given.set, given.seeds, **place):
            print(f"fold {line['fold']}: dense {line['dense']}, mean {line['mean']}")
    elif given.command == "exchange":
        for fold in given.fold or [0]:
            place = {"device": given.device, "data_root": given.data_root}
            line = exchanges.try_exchange(given.dataset, given.axis, fold, given.exchange, **place)
            exchanges.record([line])
            print(f"fold {fold}: dense {line['dense']}, mean {line['mean']}")
    elif given.command == "levels":
        print(levels_csv(by_cell(PARTS[given.part])), end="")
    elif given.command == "winning":
        winning.write(given.device, given.data_root)
    elif given.command == "measure":
        print("\n".join(map(str, measure.write(data_root=given.data_root))))
    else:
        page.write()


if __name__ == "__main__":
    main()
