"""A grid and its cells: every combination of its values is the configuration of one search."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from aceglt.config import SETTINGS, STEERING, TUPLES, Config, check_type, hints, resolve, suggest, with_options
from aceglt.config.own import take
from aceglt.errors import AcegltError, ConfigError
from aceglt.files import read_regular, short_digest
from aceglt.files.schema import shortened

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLURALS = {"datasets": "dataset", "backbones": "backbone", "methods": "method", "axes": "axis"}
NAMED = tuple(PLURALS.values())
_LISTS = (list, tuple)
_LONGEST = 120  # characters of a folder's name, before the digest
MAX_CELLS = 10_000
Settings = dict[str, Any]


@dataclass(frozen=True)
class GridCell:
    """One search of a sweep."""

    name: str
    """Its folder: what it is, and a digest of its configuration, which does not depend on the rest of the grid."""
    settings: Settings
    """What `search` is given, the preset included."""
    config: Config
    varied: Settings
    """Its place: the values of the fields of which the grid has several."""


def refuse_graph(*given: Any) -> None:
    """Refuse a graph in memory where a name is meant."""
    if any(hasattr(value, "edge_index") for value in given):
        raise ConfigError(
            "searches run in processes of their own, which read the graph by its name: save it with "
            'aceglt.datasets.save_npz("mine.npz", data) and give dataset="mine.npz"'
        )


def read_grid(path: Path) -> Settings:
    """A TOML file as plain values; ConfigError where it cannot be read."""
    try:
        grid: Settings = tomllib.loads(read_regular(path).decode())
    except OSError as problem:
        raise ConfigError(f"{path}: cannot read the grid ({problem.strerror})") from None
    except (ValueError, RecursionError) as problem:  # not TOML, or not even text
        raise ConfigError(f"{path}: not a TOML file ({problem})") from None
    return grid


def plan(grid: Mapping[str, Any]) -> list[GridCell]:
    """The cells of a grid, each with its configuration; ConfigError where one is wrong or is there twice.

    A list means one cell per value; for `seeds` and `prunable`, whose value is a list itself, a list of lists does. A
    method may be a table with its name, and settings and options of its own.
    """
    choices: list[Settings] = []
    for choice in _combinations(_dimensions(grid)):
        for own in _of_its_own(choice):
            choices += _with_options(own)
            _check_count(len(choices))
    return cells_of(choices)


def cells_of(choices: Sequence[Settings]) -> list[GridCell]:
    """The cells of these settings; ConfigError where one is wrong or is there twice."""
    seen: dict[str, set[str]] = {}  # values of fields, and of options of methods
    for choice in choices:
        for name, value in with_options(choice).items():
            seen.setdefault(name, set()).add(repr(value))
    several = {name for name, values in seen.items() if len(values) > 1}
    cells = [_cell(settings, several) for settings in choices]
    for name, times in Counter(cell.name for cell in cells).items():
        if times > 1:
            raise ConfigError(f"the grid has the same search more than once: {name}")
    return cells


def _dimensions(grid: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of every field that the grid names."""
    known, types = [*PLURALS, *SETTINGS], hints()
    dimensions: dict[str, list[Any]] = {}
    for key, value in grid.items():
        if key not in known:
            raise ConfigError(f"unknown key '{key}' in the grid{suggest(key, known)}")
        name = PLURALS.get(key, key)
        if name in dimensions:
            raise ConfigError(f"the grid has both '{name}' and '{key}'; give one of them")
        dimensions[name] = [str(one) if name == "split" and type(one) is int else one for one in _values(name, value)]
        refuse_graph(*dimensions[name])
        for one in dimensions[name]:
            if not (name == "seeds" and type(one) is int) and not (name == "method" and isinstance(one, Mapping)):
                check_type(name, one, types[name])
    methods = [method_of(one) for one in dimensions.get("method", [Config.method])]
    for name, value in (option for table in dimensions.get("method_options", []) for option in table.items()):
        if isinstance(value, Mapping) and name not in methods:  # else it would be lost without a word
            raise ConfigError(f"method_options.{name}: the grid has no method '{name}', only {', '.join(methods)}")
    return dimensions


def method_of(entry: Any) -> str:
    """The name of a method of the grid, which may be a table; ConfigError for one without a name."""
    name = entry.get("method") if isinstance(entry, Mapping) else entry
    if not isinstance(name, str):
        raise ConfigError(f"a method of the grid is its name, or a table with method = NAME, found {shortened(entry)}")
    return name


def _of_its_own(choice: Settings) -> list[Settings]:
    """The choice with the settings and options of a method that is a table; what it has wins over what all have."""
    entry = choice.get("method")
    if not isinstance(entry, Mapping):
        return [choice]
    options = {name: value for name, value in entry.items() if name not in SETTINGS}
    options |= entry.get("method_options", {})
    table = choice.get("method_options", {})
    mine = {**table, method_of(entry): {**table.get(method_of(entry), {}), **options}}
    own = _dimensions({name: v for name, v in entry.items() if name in SETTINGS and name != "method_options"})
    return [{**choice, **settings, "method_options": mine} for settings in _combinations(own)]


def _values(name: str, value: Any) -> list[Any]:
    """The values that stand for cells of their own; a list of lists where the field's value is a list."""
    if not isinstance(value, _LISTS) or (name in TUPLES and not any(isinstance(one, _LISTS) for one in value)):
        return [value]
    if not value:
        raise ConfigError(f"{name} is an empty list in the grid; give at least one value, or leave it out")
    return list(value)


def _combinations(dimensions: Mapping[str, Sequence[Any]]) -> list[Settings]:
    _check_count(math.prod(map(len, dimensions.values())))
    return [dict(zip(dimensions, values, strict=True)) for values in product(*dimensions.values())]


def _check_count(count: int) -> None:
    if count > MAX_CELLS:
        raise ConfigError(f"the grid has {count} searches or more, and {MAX_CELLS} are the most; cut it into several")


def _with_options(choice: Settings) -> list[Settings]:
    """The choice with the options of its method: those for every method, and those in a table of the method's name."""
    table = choice.get("method_options", {})
    for_all = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    mine = table.get(choice.get("method", Config.method), {})
    options = {name: _values(name, value) for name, value in {**for_all, **mine}.items()}
    for name, values in options.items():
        if not all(isinstance(value, str | int | float) for value in values):
            raise ConfigError(f"method_options: {name} must be a number, text, true or false, found {values}")
    return [{**choice, "method_options": chosen} for chosen in _combinations(options)]


def _cell(settings: Settings, several: set[str]) -> GridCell:
    what = ", ".join(str(settings[name]) for name in NAMED if name in settings) or "the grid"
    try:
        names, _ = take(settings)
        config = resolve(names.pop("preset", "default"), **names)
    except AcegltError as problem:
        raise ConfigError(f"{what}: {problem}") from None
    varied = {name: value for name, value in with_options(settings).items() if name in several}
    return GridCell(_name(config, varied), settings, config, varied)


def _name(config: Config, varied: Settings) -> str:
    """Where the search lies: what was searched, what is not the default, and a digest that tells all apart.

    When to stop, and the seeds, are no part of it unless the grid varies them, so that a search with more levels or
    seeds goes on.
    """
    stops = {name: value for name, value in varied.items() if name in STEERING}
    stops |= {"seeds": list(config.seeds)} if "seeds" in varied else {}
    what = {name: value for name, value in config.flat().items() if name in (*NAMED, "task")}
    usual = with_options(resolve(config.preset, **what).identity())
    mine = with_options(config.identity())
    given = {name: v for name, v in mine.items() if name != "seeds" and (name not in usual or v != usual[name])}
    extra = {name: value for name in ("task", "preset") if (value := getattr(config, name)) != getattr(Config, name)}
    words = [Path(config.dataset).stem, config.backbone, config.label, config.pruning.axis]
    words += [f"{name}={_text(value)}" for name, value in {**extra, **given, **stops}.items()]
    digest = short_digest(json.dumps({**config.identity(), "seeds": None, **stops}, sort_keys=True))
    return f"{re.sub(r'[^a-zA-Z0-9_.+=-]+', '-', ' '.join(words)).strip('-')[:_LONGEST]}-{digest}"


def _text(value: Any) -> str:
    """As short as the grid has it: seeds from 0 are known by their number."""
    if not isinstance(value, _LISTS):
        return str(value)
    return str(len(value)) if list(value) == list(range(len(value))) else "+".join(map(str, value))
