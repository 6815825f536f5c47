"""The user's own parts of a search: backbone, method, loss and metric, as objects or by name.

A part that is not built in is named `module:attribute`. `load` is the one place where such a name is followed, that is
where code of the user's is run, and it is called only for names that the user gave in this very call or in the grid of
a sweep: never for those that are read from a run or a ticket.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from aceglt.errors import ConfigError, TicketError

PARTS = ("backbone", "method", "loss", "metric")
_OWN = re.compile(r"[^:\s]+:[^:\s]+")
_BUILT_IN = "aceglt.methods."  # modules of methods that have a short name


@dataclass(frozen=True)
class Own:
    """The objects that stand behind the configuration's names; None where a part is built in."""

    backbone: Any = None
    method: Any = None
    loss: Any = None
    metric: Any = None
    prunable: Any = None


NOTHING = Own()
"""Everything is built in."""


def is_own(name: str) -> bool:
    """Whether a name is `module:attribute`."""
    return _OWN.fullmatch(name) is not None


def load(name: str, part: str) -> Any:
    """What `module:attribute` names; the current directory is searched after the installed packages.

    Raises ConfigError where there is no such thing or its module cannot be imported.
    """
    module_name, _, path = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        thing: Any = importlib.import_module(module_name)
    except Exception as problem:
        raise ConfigError(
            f"{part} '{name}': cannot import {module_name} from the installed packages or {os.getcwd()} "
            f"({type(problem).__name__}: {problem})"
        ) from problem
    for attribute in path.split("."):
        if not hasattr(thing, attribute):
            raise ConfigError(f"{part} '{name}': {module_name} has no '{path}'")
        thing = getattr(thing, attribute)
    return thing


def built_in(package: str, names: Iterable[str], attribute: str = "name") -> dict[str, Any]:
    """The classes of a package of aceglt's by name: each is in the module of that name, and has it as `attribute`."""
    found = {}
    for name in names:
        module = importlib.import_module(f"aceglt.{package}.{name}")
        own = [kind for kind in vars(module).values() if getattr(kind, "__module__", None) == module.__name__]
        found[name] = next((kind for kind in own if getattr(kind, attribute, None) == name), None)
        assert found[name] is not None, f"{module.__name__} has no class with {attribute} = {name!r}"
    return found


def name_of(thing: Any) -> str:
    """`module:qualname` of a class or function, of an instance's class, of what a partial calls."""
    if isinstance(thing, functools.partial):
        return name_of(thing.func)
    if not hasattr(thing, "__qualname__"):
        thing = type(thing)
    return f"{thing.__module__}:{thing.__qualname__}"


def take(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Own]:
    """Settings with a name in place of every object, and the objects that own names and given objects stand for."""
    names, own = dict(settings), {}
    for part in PARTS:
        value = settings.get(part)
        if isinstance(value, str):
            own[part] = load(value, part) if is_own(value) else None
        elif value is not None:
            names[part], own[part] = name_of(value), value
    if own.get("method") is not None:
        names.update(_method(own["method"], names))
    if callable(settings.get("prunable")):
        own["prunable"] = names.pop("prunable")
    elif isinstance(settings.get("prunable"), str):
        names["prunable"] = [settings["prunable"]]
    return names, Own(**own)


def again(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> Own:
    """The objects for a configuration that was read from a file: own parts must be given again, and no others."""
    for part, value in given.items():
        if value is not None and not is_own(recorded[part] or ""):
            raise ConfigError(f"the ticket was found with the built-in {part}; {part}= is for one of your own")
    own = take(given)[1]
    for part in given:
        if is_own(recorded[part] or "") and getattr(own, part) is None:
            raise missing(part, recorded[part])
    return own


def missing(part: str, name: str) -> TicketError:
    """The error for an own part of which only the name is known."""
    found = f"the ticket was found with your own {part} {name}; to run that code,"
    if "<" in name:  # a lambda, or a class within a function
        return TicketError(f"{found} give it again from Python, as it was searched with: {part}=…")
    given = f"{part}={name.rpartition(':')[2]} from Python (or the instance or function that was searched with)"
    return TicketError(f"{found} name it again: --{part} {name}, or {given}")


def _method(given: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that say what an own method is: a built-in one's short name, and all options of a dataclass."""
    kind: Any = given if inspect.isclass(given) else type(given)
    built_in = kind.__module__.startswith(_BUILT_IN)
    settings: dict[str, Any] = {"method": kind.name} if built_in else {}
    if not is_dataclass(kind) or (given is kind and built_in):
        return settings
    chosen = dict(names.get("method_options") or {})
    if chosen and given is not kind:
        raise ConfigError("method_options are for a method that is given by name; this one is an instance already")
    values = {f.name: f.default if given is kind else getattr(given, f.name) for f in fields(kind) if f.init}
    options = {name: value for name, value in values.items() if value is not MISSING} | chosen
    for name, value in options.items():
        if not isinstance(value, str | int | float | None):
            raise ConfigError(
                f"method {names['method']}: option {name} must be a number, text or None, so that it can be recorded; "
                f"found {type(value).__name__}"
            )
    return {**settings, "method_options": options}
