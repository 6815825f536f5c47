"""The options of commands: those of a search come from the fields of its settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from aceglt.cli.shell import Command, app, guarded
from aceglt.config import MAX_SEEDS, SETTINGS, TUPLES, hints
from aceglt.errors import ConfigError
from aceglt.sweeps.machines import Machines

_HELP = json.loads(Path(__file__).with_name("help.json").read_bytes())
"""Of every parameter of a command: of several by its name, of one by `command.name`."""
_NAMES = {"list_": ["--list"], "config_file": ["--config"], "json_file": ["--json"], "report.out": ["--out", "-o"]}
_TRIAL = ("reproduce.levels", "reproduce.epochs", "reproduce.hidden", "reproduce.split")
COMMON = {
    "search": ("dataset", "backbone", "method", "axis", "levels", "seeds", "epochs", "preset", "device", "out"),
    "tune": ("dataset", "backbone", "budget", "minutes", "seeds", "split", "metric", "workers", "device", "out"),
}
"""The options that a command's help shows; --help-all has the rest."""
FIELDS = fields(Machines)
_PANELS = {"search.runs_at_once": "Training", **dict.fromkeys(_TRIAL, "To try it out")}


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: positional parameters are arguments, keywords options, and all have their help."""
    if "machines" in signature(function).parameters:
        function = _with_machines(function)
    parameters = signature(function, eval_str=True).parameters
    _declare(function, [_with_help(function.__name__, part) for part in parameters.values()])
    made = _with_settings(function) if "settings" in parameters else function
    wrapped = guarded(made)
    debug = Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=bool)
    _declare(wrapped, [*signature(made).parameters.values(), _with_help(function.__name__, debug)])
    first = (function.__doc__ or "").partition("\n")[0]
    kind = type("Command", (Command,), {"common": COMMON.get(function.__name__, ())})
    app.command(cls=kind, short_help=first)(wrapped)
    return function


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[Command.all_of_it] = True
        typer.echo(context.get_help())
        raise typer.Exit


_HELP_ALL = typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show every option and exit.")


def _with_help(command: str, part: Parameter) -> Parameter:
    if part.name == "settings":
        return part
    place = f"{command}.{part.name}"
    help = _HELP.get(place) or _HELP[part.name]
    if part.kind is not Parameter.KEYWORD_ONLY:
        return part.replace(annotation=Annotated[part.annotation, typer.Argument(help=help, show_default=False)])
    flag = [f"--{part.name.replace('_', '-')}"] if part.annotation is bool else []
    names = _NAMES.get(place) or _NAMES.get(part.name) or flag
    made = typer.Option(*names, help=help, rich_help_panel=_PANELS.get(place))
    return part.replace(annotation=Annotated[part.annotation, made])


def _declare(command: Callable[..., None], parameters: Sequence[Parameter]) -> None:
    """Tell typer these parameters in place of a function's own."""
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {part.name: part.annotation for part in parameters}


def _with_machines(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of `Machines`; its argument `machines` holds them."""
    kinds = {**get_type_hints(Machines), "data_root": Path | None}
    options = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=kinds[f.name]) for f in FIELDS]
    own = [part for part in signature(command, eval_str=True).parameters.values() if part.name != "machines"]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        command(machines={part.name: values.pop(part.name) for part in FIELDS}, **values)

    _declare(wrapper, [*own, *options])
    return wrapper


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every setting of a search; its argument `settings` holds what the user chose."""
    own = [part for part in signature(command).parameters.values() if part.name != "settings"]

    @wraps(command)
    def wrapper(context: typer.Context, **values: Any) -> None:
        sources = {name: context.get_parameter_source(name) for name in SETTINGS}
        chosen = {name: values[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}
        settings = {name: _READERS[name](value) if name in _READERS else value for name, value in chosen.items()}
        del values["help_all"]
        command(settings=settings, **{part.name: values[part.name] for part in own})

    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    whole = Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, _HELP_ALL])
    _declare(wrapper, [context, *map(_parameter, SETTINGS), *own, whole])
    return wrapper


def _parameter(name: str) -> Parameter:
    """The option of a setting; what has a reader of its own is text, or several texts."""
    field, kind = SETTINGS[name], hints()[name]
    about = field.metadata
    flag = kind is bool and about["options"]
    text = {**dict.fromkeys(TUPLES, list[str]), "seeds": str, "method_options": list[str]}
    help = about["help"].format(default=field.default)
    made = typer.Option(*about["options"], help=help, rich_help_panel=about["panel"], show_default=about["shown"])
    default = False if flag else field.default if about["shown"] else None
    wanted = bool if flag else text.get(name, kind) | None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[wanted, made])


def read_seeds(text: str) -> Sequence[int] | int:
    """`3` → that many; `0,4,7` and `5-9` → these."""
    try:
        if text.strip().isdigit():
            return int(text)
        seeds: list[int] = []
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            span = range(int(first), int(last if dash else first) + 1)
            if len(span) > MAX_SEEDS:
                raise ConfigError(f"--seeds names {len(span)} seeds; the most is {MAX_SEEDS}")
            seeds += span
        return seeds
    except ValueError:
        raise ConfigError(
            f"--seeds takes a number, a list such as 0,4,7 or a range such as 5-9; found {text!r}"
        ) from None


def _read_options(pairs: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError(f"--method-option takes NAME=VALUE, found {pair!r}")
        options[name.strip().replace("-", "_")] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "on": True, "off": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "seeds": read_seeds,
    "method_options": _read_options,
    "test": lambda no_test: not no_test,
}
"""How the text of an option becomes the value of a setting, where typer does not know."""
