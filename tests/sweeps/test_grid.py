"""Grids: what a list means, what is refused, and how searches are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aceglt.config import resolve
from aceglt.errors import ConfigError
from aceglt.runs.directory import default_name
from aceglt.sweeps.grid import plan, read_grid


def _places(grid: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell.varied for cell in plan(grid)]


def test_a_list_means_one_search_per_value_and_lists_multiply() -> None:
    cells = plan({"datasets": ["citeseer", "cora"], "methods": ["ugs", "ace"], "axis": ["model", "graph"], "lr": 0.02})
    assert len(cells) == 8
    assert {(c.config.dataset, c.config.method, c.config.pruning.axis) for c in cells} == {
        (dataset, method, axis)
        for dataset in ("citeseer", "cora") for method in ("ugs", "ace") for axis in ("model", "graph")
    }  # fmt: skip
    assert {c.config.training.lr for c in cells} == {0.02}


def test_any_field_may_be_a_dimension() -> None:
    assert _places({"lr": [0.01, 0.02], "signal": ["labels", "teacher"]}) == [
        {"lr": lr, "signal": signal} for lr in (0.01, 0.02) for signal in ("labels", "teacher")
    ]


def test_a_list_of_seeds_is_one_search_and_a_list_of_lists_several() -> None:
    assert [c.config.seeds for c in plan({"seeds": 2})] == [(0, 1)]
    assert [c.config.seeds for c in plan({"seeds": [4, 7]})] == [(4, 7)]
    assert [c.config.seeds for c in plan({"seeds": [[4, 7], 2]})] == [(4, 7), (0, 1)]


def test_options_are_for_every_method_or_for_one() -> None:
    cells = plan({"methods": ["ugs", "ace"], "method_options": {"ace": {"rounds": [1, 2]}}})
    assert [(c.config.method, c.config.method_options.get("rounds")) for c in cells] == [
        ("ugs", None), ("ace", 1), ("ace", 2),
    ]  # fmt: skip
    assert [c.config.method_options["rounds"] for c in plan({"method_options": {"rounds": 4}})] == [4]


def test_an_empty_grid_is_the_default_search() -> None:
    assert [c.name for c in plan({})] == [Path(default_name(resolve())).name]


def test_a_preset_is_a_field_like_any_other() -> None:
    default, paper = plan({"preset": ["default", "paper"]})
    assert (default.config.scoring.signal, paper.config.scoring.signal) == ("teacher", "labels")
    assert "preset=paper" in paper.name


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"levles": 3}, "unknown key 'levles' in the grid; did you mean 'levels'?"),
        ({"dataset": "cora", "datasets": ["cora"]}, "both 'dataset' and 'datasets'"),
        ({"axes": []}, "axis is an empty list"),
        ({"seeds": []}, "seeds must name at least one seed"),
        ({"seeds": True}, "seeds must be"),
        ({"levels": "ten"}, "levels must be a whole number, found 'ten'"),
        ({"levels": [1, 1.5]}, "levels must be a whole number, found 1.5"),
        ({"methods": [["ugs"]]}, "method must be text"),
        ({"methods": ["ugs", "ase"]}, "ase: unknown method 'ase'; known are random, ugs"),
        ({"methods": ["ugs", "ugs"]}, "the same search more than once: citeseer-gcn-ugs-teacher-model-"),
        ({"seeds": [3, [0, 1, 2]]}, "the same search more than once"),
        ({"axes": ["model", "graph"], "target_model": 0.5}, "graph: target_model never changes on the graph axis"),
        ({"method_options": {"ugs": {"a": 1}}}, "method_options.ugs: the grid has no method 'ugs', only ace"),
        ({"method_options": {"rounds": [[1]]}}, "method_options: rounds must be a number"),
        ({"method_options": 3}, "method_options must be"),
    ],
)
def test_what_is_wrong_is_named(grid: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        plan(grid)


def test_names_are_unique_and_safe_for_files() -> None:
    grid = {"datasets": ["a/g.npz", "b/g h.npz"], "levels": [1, 2], "split": ["given", "random:1"]}
    names = [cell.name for cell in plan({**grid, "seeds": [3, [5, 6], list(range(100, 200))]})]
    assert len(set(names)) == len(names) == 24
    assert all(re.fullmatch(r"[\w.+=-]{1,130}", name) for name in names)


def test_a_name_says_what_is_not_the_default_and_does_not_depend_on_the_rest_of_the_grid() -> None:
    alone = plan({"lr": 0.02, "seeds": 10})[0].name
    assert alone.startswith("citeseer-gcn-ace-teacher-2-rounds-model-lr=0.02-")
    assert alone in {cell.name for cell in plan({"lr": [0.01, 0.02], "seeds": 10, "methods": ["ugs", "ace"]})}


def test_more_levels_are_the_same_search_unless_the_grid_varies_them() -> None:
    assert plan({"levels": 5})[0].name == plan({"levels": 9})[0].name
    assert len({cell.name for cell in plan({"levels": [5, 9]})}) == 2


def test_more_seeds_are_the_same_search_unless_the_grid_varies_them() -> None:
    assert plan({"seeds": 3})[0].name == plan({"seeds": 5})[0].name == plan({})[0].name
    assert len({cell.name for cell in plan({"seeds": [3, [5, 6]]})}) == 2


@pytest.mark.parametrize(
    ("content", "message"), [(b"levels = ", "not a TOML file"), (b"\xff\xfe", "not a TOML file"), (None, "cannot read")]
)
def test_a_file_that_is_no_grid_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_grid(path)


def test_a_grid_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text('methods = ["ugs", "ace"]\nseeds = 2\n[method_options.ace]\nrounds = 4\n')
    assert [cell.config.method_options.get("rounds") for cell in plan(read_grid(path))] == [None, 4]
