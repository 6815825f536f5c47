"""Files of format 1, as commit 90dee05 wrote them, are still what they were."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from search_samples import graph, search

from aceglt import Config, Ticket
from aceglt.config import METHOD_OPTIONS, SETTINGS, resolve
from aceglt.config.formats import ADDED, FORMAT_1_DEFAULTS, from_format_1, read_config
from aceglt.errors import RunError
from aceglt.runs import checkpoint
from aceglt.runs.directory import RunDir, results_of

FILES = Path(__file__).parents[1] / "data" / "format1"
SETTING: dict[str, Any] = {"method": "ugs", "axis": "joint", "signal": "teacher", "seeds": 2, "epochs": 3, "hidden": 8}
"""Of the run among the files, in the words of format 2; it was searched with method ace, no rounds."""


def read(name: str, tmp_path: Path) -> Config:
    (tmp_path / "config.json").write_bytes((FILES / name).read_bytes())
    return RunDir(tmp_path).read_config()


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FILES / "run", tmp_path / "run"))


@pytest.mark.parametrize("name", ["run/config.json", "no-rounds.json"])
def test_ace_without_rounds_is_read_as_ugs(name: str, tmp_path: Path) -> None:
    config = read(name, tmp_path)
    assert (config.method, config.method_options) == ("ugs", resolve(method="ugs").method_options)
    assert (config.scoring, config.pruning.balance) == (resolve().scoring, 0.75)


LITERAL = {"reading": "default", "rounds": 6, "exchange": 0.05, "temperature": 1.0, "replacement": True, "keep": "last"}
"""What the preset `paper` was: readings had no names."""


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("rounds.json", {"method_options": {"rounds": 2, "exchange": 0.05, "keep": "last"}}),
        ("gebt.json", {"method": "gebt", "method_options": {"window": 2}}),
        ("resgcn.json", {"backbone": "resgcn", "method": "random", "layers": 28}),
        ("own.json", {"method": "mine:Method", "method_options": {"strength": 2}}),
        ("split.json", {"method": "ugs", "split": "random:1", "task": "inductive"}),
        ("link.json", {"task": "link", "method_options": {"rounds": 6, "exchange": 0.05, "keep": "last"}}),
        ("infoclust.json", {"preset": "paper", "task": "link", "dataset": "cora", "method_options": LITERAL}),
    ],
)
def test_a_configuration_of_format_1_is_the_same_in_format_2(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    assert read(name, tmp_path) == resolve(**settings)


def test_defaults_of_format_1_do_not_follow_those_of_today() -> None:
    values = {**resolve().to_dict(), "method_options": {"rounds": 1}}
    read = from_format_1(values)["method_options"]
    assert (read["exchange"], read["keep"]) == (0.05, "last")
    assert FORMAT_1_DEFAULTS.keys() <= METHOD_OPTIONS.keys()


def test_settings_that_are_newer_than_a_file_are_as_they_were_before(tmp_path: Path) -> None:
    values = {"format": 2, "data": "x", **resolve().to_dict()}
    left = {key: value for key, value in values.items() if key not in ADDED}
    (tmp_path / "config.json").write_text(json.dumps(left))
    assert RunDir(tmp_path).read_config() == resolve(**ADDED)


def test_a_file_of_format_2_must_say_every_option(tmp_path: Path) -> None:
    values = {"format": 2, "data": "x", **resolve().to_dict()}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert RunDir(tmp_path).read_config() == resolve()
    for name in SETTINGS.keys() - ADDED.keys():
        left = {key: value for key, value in values.items() if key != name}
        (tmp_path / "config.json").write_text(json.dumps(left))
        with pytest.raises(RunError, match=rf"from an earlier version \(no {name}\); choose another --out"):
            RunDir(tmp_path).read_config()
    values["method_options"].pop("keep")
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match=r"no keep in method_options"):
        RunDir(tmp_path).read_config()


@pytest.mark.parametrize("backbone", ["gcn", "gin", "gat", "resgcn", "mine:Model"])
def test_a_file_from_before_there_were_layers_to_choose_is_of_the_networks_of_then(backbone: str) -> None:
    wanted = resolve(backbone=backbone)
    layers = ["output", "norm", "skip", "jumping", "dropout", "input_dropout", "bias", "heads", "early_stopping"]
    values = {name: value for name, value in wanted.to_dict().items() if name not in layers}
    values["layers"] = 28 if backbone == "resgcn" else None
    assert read_config(values, 2) == wanted


def test_a_ticket_of_format_1_loads_and_prunes() -> None:
    ticket = Ticket.load(FILES / "run" / "tickets" / "level_01_seed_1.safetensors")
    assert (ticket.config.method, ticket.level, ticket.seed) == ("ugs", 1, 1)
    assert ticket.apply(graph()).edge_index.shape[1] == 2 * ticket.masks.alive.edges


def test_a_ticket_of_format_1_is_saved_in_format_2_with_every_option(tmp_path: Path) -> None:
    ticket = Ticket.load(FILES / "run" / "tickets" / "level_01_seed_0.safetensors")
    ticket.save(tmp_path / "ticket")
    assert Ticket.load(tmp_path / "ticket").config == ticket.config


def test_a_checkpoint_of_format_1_loads() -> None:
    ticket = Ticket.load(FILES / "run" / "tickets" / "level_01_seed_0.safetensors")
    state = checkpoint.load(FILES / "run" / "final", ticket.masks.total, runs=2)
    assert state.level == 1
    assert state.masks is not None
    assert state.masks[:1].edges.equal(ticket.masks.edges)


def test_a_run_of_format_1_continues(old_run: Path) -> None:
    first = results_of(old_run)["levels"]
    found = search(out=old_run, **SETTING, levels=2, tickets="all")
    assert [found.results["levels"][0], len(found.results["levels"])] == [*first, 2]
    before, after = (Ticket.load(old_run / "tickets" / f"level_0{level}_seed_0.safetensors") for level in (1, 2))
    assert not (after.masks.edges & ~before.masks.edges).any()
    assert not (after.masks.weights & ~before.masks.weights).any()
    assert json.loads((old_run / "config.json").read_text())["format"] == 2


def test_a_run_of_format_1_is_not_continued_by_what_its_command_means_now(old_run: Path) -> None:
    with pytest.raises(RunError, match=r"method: ugs → ace.*name its settings, --method ugs first, to continue it"):
        search(out=old_run, **{**SETTING, "method": "ace"}, levels=2)
