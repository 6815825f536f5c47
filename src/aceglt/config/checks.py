"""What a value of a setting must be, and the words for one that is not."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from aceglt.config.own import is_own
from aceglt.errors import ConfigError, printable
from aceglt.files.schema import LARGEST, shortened

Check = Callable[[str, Any], None]
"""Raises ConfigError about the setting of a name where its value is not as it must be."""


def must_be(expected: str, ok: Callable[[Any], bool]) -> Check:
    """A check that says what was expected."""

    def check(name: str, value: Any) -> None:
        if not ok(value):
            raise ConfigError(f"{name} must be {expected}, found {value}")

    return check


def at_least(least: float) -> Check:
    return must_be(f"{least} or more", lambda value: value >= least)


def from_to(least: float, most: float) -> Check:
    return must_be(f"from {least} to {most}", lambda value: least <= value <= most)


MOST = 1_000_000
"""Of what is counted: epochs, levels, rounds. More is a slip of the hand, and would be found out when memory ends or
never."""


def count(least: int = 1, most: int = MOST) -> Check:
    """A whole number of something that takes time or memory for each."""

    def check(name: str, value: Any) -> None:
        if value < least:
            raise ConfigError(f"{name} must be {least} or more, found {value}")
        if value > most:
            raise ConfigError(f"{name} must be {most} or fewer, found {value}")

    return check


def one_of(*known: str, or_own: bool = False) -> Check:
    def check(name: str, value: Any) -> None:
        if value not in known and not (or_own and is_own(value)):
            more = ", and your own as module:attribute" if or_own else ""
            whose, colon, what = name.rpartition(": ")  # "ace: reading"
            raise ConfigError(f"{whose}{colon}unknown {what} '{value}'; known are {', '.join(known)}{more}")

    return check


POSITIVE = must_be("above 0", lambda value: value > 0)
SHARE = must_be("between 0 and 1", lambda value: 0 < value < 1)
SHARE_OR_NONE = must_be("0 or more and below 1", lambda value: 0 <= value < 1)
SHARE_OR_ALL = must_be("from 0 to 1", lambda value: 0 <= value <= 1)
OWN_FUNCTION = must_be("module:function", is_own)


@cache
def _kinds(hint: Any) -> tuple[Any, ...]:
    """What the values of a field are instances of; numbers may be whole where fractions are meant."""
    kinds = [get_origin(part) or part for part in _parts(hint)]
    return (*kinds, *(wider for kind, wider in ((float, int), (tuple, list)) if kind in kinds))


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of a field's type."""
    kinds = _kinds(hint)
    if Literal in kinds:
        one_of(*get_args(hint))(name, value)
        return
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        words |= {tuple[int, ...]: "a whole number or a list of whole numbers"}
        raise ConfigError(
            f"{name} must be {words.get(hint, getattr(hint, '__name__', hint))}, found {shortened(value)}"
        )
    if isinstance(value, tuple | list):
        for part in value:
            check_type(name, part, next(get_args(p)[0] for p in _parts(hint) if get_origin(p) is tuple))
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, found {value}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ConfigError(f"{name} must be below 2^63, found {shortened(value)}")
    if isinstance(value, str) and printable(value) != value:
        raise ConfigError(f"{name} must be text without control characters, found {shortened(value)}")


ELSEWHERE = {
    "learning_rate": "lr", "step_size": "lr", "wd": "weight_decay", "decay": "weight_decay", "l2": "weight_decay",
    "hidden_channels": "hidden", "hidden_dim": "hidden", "hidden_size": "hidden", "hidden_units": "hidden",
    "num_hidden": "hidden", "width": "hidden", "num_layers": "layers", "n_layers": "layers", "depth": "layers",
    "num_epochs": "epochs", "n_epochs": "epochs", "max_epochs": "epochs", "seed": "seeds", "n_seeds": "seeds",
    "num_seeds": "seeds", "random_state": "seeds", "model": "backbone", "gnn": "backbone", "net": "backbone",
    "data_name": "dataset", "graph": "dataset", "num_levels": "levels", "n_levels": "levels",
    "sparsity": "target_model", "target": "target_model", "target_sparsity": "target_model",
    "verbose": "progress", "gpu": "device", "out_dir": "out", "output_dir": "out", "save_dir": "out", "path": "out",
    "loss_fn": "loss", "criterion": "loss", "pruner": "method", "algorithm": "method",
}  # fmt: skip
"""What other libraries call a setting."""


def suggest(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, or all of them."""
    close = [near] if (near := ELSEWHERE.get(word)) in known else difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(known)}"
