"""The study: `search` does what is missing of a part of it, as `aceglt reproduce table1` does of Table 1; `collect`
keeps what was found; `page` makes tables and plots of that, `levels` a CSV of every level; `tune` searches with other
settings than the default's, on validation nodes alone, and `equal` does so for the published methods; `exchange` tries
another exchange, on validation nodes that chose nothing; `winning` follows the ranks of Figure 1; `measure` looks at
scores and teachers."""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from aceglt.cli import read_seeds
from aceglt.errors import AcegltError, ConfigError
from aceglt.reproduction.listing import Progress
from aceglt.reproduction.summary import levels_csv
from study import equal, exchanges, measure, page, winning
from study.cells import PARTS, ROOT, by_cell, collect, search_one
from study.tune import FOLDS, RECORD, SEEDS, read, tune
from study.workers import side_by_side


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    searched = commands.add_parser("search", help="search a part of the study, or what is still missing of it")
    searched.add_argument("part", choices=PARTS)
    searched.add_argument("--cell", action="append", default=[], help="a cell's name, or parts of names; repeatable")
    searched.add_argument("--seeds", default="10", help="how many, or which: 0,4,7 or 5-9 [default: 10]")
    searched.add_argument("--out", type=Path, default=Path("reproduction"), help="[default: reproduction]")
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
    for command in (searched, equally):
        command.add_argument("--workers", type=int, default=1, help="searches at once, a process each [default: 1]")
        command.add_argument("--seconds", type=float, help="give up what is not done by then")
    for command in (searched, tuned, tried, equally, followed):
        command.add_argument("--device", default="auto", help="[default: auto]")
    for command in (searched, tuned, tried, equally, followed, measured):
        command.add_argument("--data-root", help="where datasets are looked for first")
    given = parser.parse_args(arguments)
    try:
        _do(given)
    except AcegltError as error:
        sys.exit(f"error: {error}")


def _do(given: argparse.Namespace) -> None:
    if given.command != "search" and not ROOT.is_dir():
        raise ConfigError(f"no {ROOT} here; run it in the root of the repository")
    if given.command == "collect":
        if not (given.folder / "runs").is_dir():
            raise ConfigError(f"{given.folder} has no runs; it should be the --out of a reproduction")
        code = given.code or _commit()
        kept = [(part.name, name) for part in PARTS.values() for name in collect(part, given.folder, code)]
        print("\n".join(" ".join(each) for each in kept) or "nothing new: finished searches of the study's scale count")
    elif given.command == "search":
        place = {"device": given.device, "data_root": given.data_root}
        seeds = read_seeds(given.seeds)
        assert seeds is not None
        part = PARTS[given.part]
        if given.workers == 1:
            part.search(given.out, given.cell, seeds, Progress(Console(stderr=True)), **place)
            return
        wanted = part.searches(given.cell, seeds)
        work = partial(search_one, given.out, place)
        for (cell, _), failure in side_by_side(work, wanted, given.workers, given.seconds):
            print(f"{cell.name}: {failure or 'done'}", flush=True)
    elif given.command == "equal":
        lines = read(equal.RECORD)
        missing = equal.tasks(lines, given.device, given.data_root)
        for task, found in side_by_side(equal.search, missing, given.workers, given.seconds):
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


def _commit() -> str:
    described = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return described.stdout.strip()


if __name__ == "__main__":
    main()
