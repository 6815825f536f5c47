"""No number alone makes a command allocate or run without end: whatever is counted has a largest value."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import pytest
from search_samples import npz
from ticket_samples import random_ticket
from typer.testing import CliRunner

from aceglt import cli
from aceglt.config import METHOD_OPTIONS, resolve
from aceglt.config.fields import settings_of, type_hints
from aceglt.errors import ConfigError

HUGE = 2**31 - 1
ARGUMENTS = {
    "sweep": ["grid.toml", "--out", "o"], "compare": ["grid.toml", "--out", "o"], "tune": ["--out", "o"],
    "evaluate": ["ticket"], "bench": ["ticket", "--dataset", "tiny.npz"], "reproduce": ["--list"],
}  # fmt: skip
FOR = {
    "heads": ["--backbone", "gat"], "embedding": ["--task", "link"], "round_to": ["--structure", "units"],
    "runs_at_once": ["--dataset", "tiny.npz"], "seeds": [],
}  # fmt: skip
"""What an option is for."""


def _is_whole(hint: Any) -> bool:
    return hint is int or {*get_args(hint)} == {int, NoneType}


COUNTS = [
    (made.callback.__name__, name)
    for made in cli.app.registered_commands
    if made.callback is not None
    for name, part in signature(made.callback).parameters.items()
    if name == "seeds" or _is_whole(get_args(part.annotation)[0] if get_args(part.annotation) else part.annotation)
]


@pytest.mark.parametrize(("command", "name"), [c for c in COUNTS if c != ("reproduce", "runs_at_once")])
def test_a_huge_number_is_refused_in_one_line(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    npz(tmp_path)
    random_ticket().save("ticket")
    Path("grid.toml").write_text('dataset = "tiny.npz"\nmethods = ["ugs", "ace"]\n')
    line = [command, *ARGUMENTS.get(command, []), *FOR.get(name, []), f"--{name.replace('_', '-')}", str(HUGE)]
    result = CliRunner().invoke(cli.app, line)
    assert result.exit_code == 2, result.output
    assert re.fullmatch(rf"error: {name} must be [^\n]*, found {HUGE}\n", result.stderr), result.stderr


def test_every_command_that_counts_is_among_them() -> None:
    assert {("bench", "repeats"), ("tune", "budget"), ("sweep", "workers"), ("search", "epochs")} <= {*COUNTS}
    assert len(COUNTS) > 40


@pytest.mark.parametrize(
    ("method", "name"),
    [(m, n) for m, kind in METHOD_OPTIONS.items() for n in settings_of(kind) if _is_whole(type_hints(kind)[n])],
)
def test_so_is_one_in_an_option_of_a_method(method: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{method}: {name} must be .*, found {HUGE}"):
        resolve(method=method, method_options={name: HUGE})
