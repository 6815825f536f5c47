"""What all commands share: the application, its consoles, and one clear line for what the user can mend."""

from __future__ import annotations

import gc
import os
import signal
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from aceglt.config.checks import ELSEWHERE
from aceglt.errors import AcegltError, is_shortage, printable

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
            near = ELSEWHERE.get(getattr(unknown, "option_name", "").lstrip("-").replace("-", "_"), "")
            if near in [parameter.name for parameter in self.params]:
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


class Terminal(Console):
    """Shows text as it is: names from outside are neither markup nor emoji, and what a terminal would obey is shown as
    escapes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        if self.width < 1:  # COLUMNS=0: nothing at all would be shown
            self.width = 80

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed comes through here, in tables too."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)


console = Terminal()
errors = Terminal(stderr=True)

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
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large tensors in huge pages; torch reads it when imported
    for stream in (sys.stdout, sys.stderr):  # whatever a terminal cannot show becomes a question mark
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        run()
    except _Terminated:  # before or after a command's own work
        sys.exit(143)


@contextmanager
def importing() -> Iterator[None]:
    """For a command's imports, which leave no garbage: looking for it takes a fifth of their time, torch's included."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # what modules hold is not looked through again
        gc.enable()


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


class _Terminated(BaseException):
    """SIGTERM arrived."""


def guarded(command: F) -> F:
    """Turn what can go wrong into one line and an exit code."""

    @wraps(command)
    def wrapper(*args: Any, debug: bool = False, **kwargs: Any) -> None:
        resumable = command.__name__ in ("search", "sweep", "compare", "tune", "reproduce")
        go_on = "; the same command continues where it stopped" if resumable else ""
        try:
            command(*args, **kwargs)
        except AcegltError as problem:
            _fail(f"error: {problem}", 2)
        except (KeyboardInterrupt, _Terminated) as stop:
            _fail(f"interrupted{go_on}", 143 if isinstance(stop, _Terminated) else 130)
        except BrokenPipeError:
            raise typer.Exit(1) from None
        except OSError as problem:
            _fail(f"error: {problem.filename or 'system'}: {problem.strerror or problem}", 2)
        except (typer.Exit, typer.Abort, SystemExit, GeneratorExit):
            raise
        except BaseException as problem:  # safetensors panics with one that is no Exception
            if debug:
                raise
            if is_shortage(problem):
                less = "; a smaller --hidden, fewer --seeds or --runs-at-once need less" if resumable else ""
                _fail(f"error: not enough memory{less}", 2)
            told = printable(" ".join(f"{type(problem).__name__}: {problem}".split()))[:500]
            if own := _own_frames(problem):
                shown = "".join(traceback.format_list(own))
                _fail(f"{shown}error: your own code failed ({told}){go_on}", 2)
            _fail(f"error: unexpected: {told} (a bug of ours, please report {_kept_traceback()}){go_on}", 2)

    return wrapper  # type: ignore[return-value]


def _own_frames(problem: BaseException) -> list[traceback.FrameSummary]:
    """Where the user's own code failed: what it called, from its first line on; none where only ours and installed
    packages were at work."""
    ours = str(Path(__file__).parents[1]) + os.sep
    paths = sysconfig.get_paths()
    others = tuple(paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    frames = traceback.extract_tb(problem.__traceback__)
    for i, frame in enumerate(frames):
        if os.path.isfile(frame.filename) and not frame.filename.startswith((ours, *others)):
            return list(frames[i:])
    return []


def _kept_traceback() -> str:
    """Write down the traceback of what is being handled; the name of the file."""
    try:
        with tempfile.NamedTemporaryFile(prefix="aceglt-", suffix=".log", delete=False) as file:
            file.write(f"{sys.argv}\n{traceback.format_exc()}".encode(errors="replace"))
        return file.name
    except OSError:
        return "what --debug shows"


def _fail(message: str, code: int) -> NoReturn:
    with suppress(OSError):  # where it is printed to may be what is full
        errors.print(message, soft_wrap=True)
    raise typer.Exit(code) from None


def say(text: str, to: Console = console) -> None:
    """Print a line as it is."""
    to.print(printable(text), soft_wrap=True)
