"""The command line. Heavy imports happen inside the commands, so that --help answers at once."""

from __future__ import annotations

from typing import Annotated

import typer

from aceglt.cli import pages, searches, tickets  # noqa: F401  commands, in the order of the help
from aceglt.cli.options import read_seeds
from aceglt.cli.shell import app, console, main

__all__ = ["app", "main", "read_seeds"]


def _version(wanted: bool) -> None:
    if wanted:
        from aceglt.version import __version__

        console.print(f"aceglt {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
