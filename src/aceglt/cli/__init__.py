"""The command line. Heavy imports happen inside the commands, so that --help answers at once."""

from aceglt.cli import commands  # noqa: F401
from aceglt.cli.options import read_seeds
from aceglt.cli.shell import app, main

__all__ = ["app", "main", "read_seeds"]
