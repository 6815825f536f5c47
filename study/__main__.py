"""`python -m study collect FOLDER` keeps the searches of `aceglt reproduce table1 --out FOLDER`; `python -m study page`
makes tables and plots of what is kept."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from study.cells import collect
from study.page import write


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    keep = commands.add_parser("collect", help="keep the finished searches of a reproduction")
    keep.add_argument("folder", type=Path, help="the --out of aceglt reproduce table1")
    keep.add_argument("--code", help="version of the code that searched [default: the commit here]")
    commands.add_parser("page", help="write docs/study and results/table1/levels.csv")
    given = parser.parse_args(arguments)
    if given.command == "collect":
        for name in collect(given.folder, given.code or _commit()):
            print(name)
    else:
        write()


def _commit() -> str:
    described = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return described.stdout.strip()


if __name__ == "__main__":
    main()
