"""What all commands share: the application, its consoles, and one clear line for what the user can mend."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

import typer
from rich.console import Console
from typer.core import TyperCommand

from aceglt.config.checks import ELSEWHERE
from aceglt.errors import AcegltError

app = typer.Typer(
    name="aceglt",
    help="Graph lottery tickets: find a sparse subgraph and a sparse subnetwork that train as well as the dense pair.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # whose tables cut off long names
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Command(TyperCommand):
    """Help in plain lines, in which nothing is cut off; where some options are `common`, those alone unless all are
    asked for."""

    common: ClassVar[Sequence[str]] = ()
    all_of_it = "aceglt.help_all"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """An option by its name in another library is answered with its name here."""
        try:
            return super().parse_args(ctx, args)
        except Exception as problem:
            unknown: Any = problem  # typer's own copy of click's NoSuchOption
            near = ELSEWHERE.get(getattr(unknown, "option_name", "").lstrip("-").replace("-", "_"))
            if near is not None:
                unknown.possibilities = [f"--{near.replace('_', '-')}"]
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        few = self.common and not ctx.meta.get(self.all_of_it)
        parameters = self.get_params(ctx)
        if few:
            order = [*self.common, "help_all", "help"]
            parameters = sorted((p for p in parameters if p.name in order), key=lambda p: order.index(str(p.name)))
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is not None:
                place = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panel = None if few else getattr(parameter, "rich_help_panel", None)
                panels.setdefault(panel or place, []).append(record)
        for name, records in panels.items():
            with formatter.section(name):
                formatter.write_dl(records)


console = Console()
errors = Console(stderr=True)

F = TypeVar("F", bound=Callable[..., None])


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


def main(run: Callable[[], Any] = app) -> None:
    """Entry point: one clear line for what the user can mend, no traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        run()
    except _Terminated:  # before or after a command's own work
        sys.exit(143)


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


class _Terminated(BaseException):
    """SIGTERM arrived."""


def guarded(command: F) -> F:
    """Turn what can go wrong into one line and an exit code."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except AcegltError as problem:
            _fail(f"error: {problem}", 2)
        except (KeyboardInterrupt, _Terminated) as stop:
            resumable = command.__name__ in ("search", "sweep", "tune", "reproduce")
            _fail(
                "interrupted" + ("; the same command continues where it stopped" if resumable else ""),
                143 if isinstance(stop, _Terminated) else 130,
            )
        except BrokenPipeError:
            raise typer.Exit(1) from None
        except OSError as problem:
            _fail(f"error: {problem.filename or 'system'}: {problem.strerror or problem}", 2)
        except (MemoryError, RuntimeError) as problem:
            if not _is_shortage(problem):
                raise
            _fail("error: not enough memory; a smaller --hidden, fewer --seeds or --runs-at-once need less", 2)

    return wrapper  # type: ignore[return-value]


def _is_shortage(problem: Exception) -> bool:
    """Whether memory ran out, also torch's; torch itself may not be imported here."""
    words = ("allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(problem, MemoryError) or any(part in str(problem) for part in words)


def _fail(message: str, code: int) -> NoReturn:
    errors.print(message, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code) from None


def say(text: str) -> None:
    """Print a line as it is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
