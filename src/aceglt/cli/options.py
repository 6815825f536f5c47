"""The options of commands: those of a search come from the fields of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.markup import escape

from aceglt.config import MAX_SEEDS, SETTINGS, hints
from aceglt.errors import ConfigError


def option(help: str, *names: str, panel: str = "Options", shown: bool = False) -> Any:
    return typer.Option(*names, help=escape(help), rich_help_panel=panel, show_default=shown)


Source = Annotated[Optional[str], option("The graph, if it lies elsewhere now: a dataset's name or a .npz file.")]  # noqa: UP045
DataRoot = Annotated[Optional[Path], option("Where datasets are looked for first.")]  # noqa: UP045
TicketFile = Annotated[Path, typer.Argument(help="A ticket file.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")]
Tickets = Annotated[str, typer.Option(help="Tickets to keep: those of the best level, all or none.")]
RunsAtOnce = Annotated[Optional[int], option("How many runs share the GPU [default: as many as fit].")]  # noqa: UP045


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every setting of a search; its argument `settings` holds what the user chose."""
    own = [part for part in signature(command, eval_str=True).parameters.values() if part.name != "settings"]

    @wraps(command)
    def wrapper(context: typer.Context, **values: Any) -> None:
        chosen = {name: values[name] for name in SETTINGS if _is_given(context, name)}
        settings = {name: _READERS[name](value) if name in _READERS else value for name, value in chosen.items()}
        command(settings=settings, **{part.name: values[part.name] for part in own})

    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *map(_parameter, SETTINGS), *(part.replace(kind=Parameter.KEYWORD_ONLY) for part in own)]
    wrapper.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {part.name: part.annotation for part in parameters}
    return wrapper


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _parameter(name: str) -> Parameter:
    """The option of a setting."""
    field = SETTINGS[name]
    about = field.metadata
    flag = hints()[name] is bool and not any("/" in each for each in about["options"])
    help = about["help"].format(default=field.default)
    made = option(help, *about["options"], panel=about["panel"], shown=about["shown"])
    default = False if flag else field.default if about["shown"] else None
    kind = bool if flag else _kind(name)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made])


def _kind(name: str) -> Any:
    """The type of an option; what has a reader of its own is text, or several texts."""
    if name == "seeds":
        return str | None
    if name in ("prunable", "method_options"):
        return list[str] | None
    return hints()[name] | None


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
