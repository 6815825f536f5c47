"""Which searches are done, reused and continued, and how seeds of several runs come together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reproduction_samples import TINY, Reproduce
from samples import tiny_data
from search_samples import Breaks, Stop, files, timeless

from aceglt import datasets, reproduce
from aceglt.config import Config
from aceglt.datasets import GraphData
from aceglt.errors import ConfigError, RunError
from aceglt.files import write_checked_json
from aceglt.reproduction import Cell
from aceglt.runs.directory import RunDir, read_json

ONE = {"cells": "cora/gcn/model/ugs"}


class Recorder:
    """Notes which seeds of which cells are searched, and may break one."""

    def __init__(self, breaks: Breaks | None = None) -> None:
        self.searched: list[tuple[str, tuple[int, ...]]] = []
        self._breaks = breaks

    @contextmanager
    def __call__(self, cell: Cell, config: Config) -> Iterator[Breaks | None]:
        self.searched.append((cell.name, config.seeds))
        yield self._breaks


def essence(results: Any) -> Any:
    """Without what the clock says."""
    return {name: value for name, value in timeless(dict(results)).items() if name != "cost"}


def test_finished_searches_are_reused(tiny: Reproduce) -> None:
    first, second, other = Recorder(), Recorder(), Recorder()
    before = tiny("table1", **ONE, observe=first)
    after = tiny("table1", **ONE, observe=second)
    tiny("tableS8", **ONE, observe=other)  # the same search under another name
    assert first.searched == [("cora/gcn/model/ugs", (0, 1))]
    assert second.searched == other.searched == []
    assert before.table == after.table


def test_seeds_of_several_runs_are_put_together_as_if_searched_at_once(tiny: Reproduce, tmp_path: Path) -> None:
    record = Recorder()
    tiny("table1", **ONE, seeds=[3], observe=record)
    tiny("table1", **ONE, seeds=[0, 1], observe=record)
    apart = tiny("table1", **ONE, seeds=[0, 1, 2], observe=record)
    assert [seeds for _, seeds in record.searched] == [(3,), (0, 1), (2,)]
    at_once = tiny("table1", **ONE, seeds=4, out=tmp_path / "at once")
    assert apart.results["cora/gcn/model/ugs"]["seeds"] == [0, 1, 2, 3]
    assert essence(apart.results["cora/gcn/model/ugs"]) == essence(at_once.results["cora/gcn/model/ugs"])
    assert apart.table == at_once.table


def test_runs_of_another_machine_count_once_they_are_copied(tiny: Reproduce, tmp_path: Path) -> None:
    tiny("table1", **ONE, seeds=[0, 1])
    tiny("table1", **ONE, seeds=[1, 2], out=tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere" / "runs", tmp_path / "out" / "runs", dirs_exist_ok=True)
    record = Recorder()
    result = tiny("table1", **ONE, seeds=[0, 1, 2], observe=record)
    assert record.searched == []
    assert result.results["cora/gcn/model/ugs"]["seeds"] == [0, 1, 2]


@pytest.mark.parametrize("moment", [1, 12])
def test_an_interrupted_reproduction_ends_as_an_undisturbed_one(tiny: Reproduce, tmp_path: Path, moment: int) -> None:
    cells = ["cora/gcn/model/random", "cora/gcn/model/ugs"]
    whole = tiny("table1", cells=cells, out=tmp_path / "whole")
    with pytest.raises(Stop):
        tiny("table1", cells=cells, observe=Recorder(Breaks(moment)))
    resumed = tiny("table1", cells=cells)
    assert {name: essence(r) for name, r in resumed.results.items()} == {
        name: essence(r) for name, r in whole.results.items()
    }
    assert files(tmp_path / "out" / "runs") == files(tmp_path / "whole" / "runs")


def test_an_unfinished_run_is_continued_where_its_seeds_are_wanted(tiny: Reproduce) -> None:
    with pytest.raises(Stop):
        tiny("table1", **ONE, seeds=[0, 1], observe=Recorder(Breaks(9)))
    record = Recorder()
    tiny("table1", **ONE, seeds=[0, 1, 2], observe=record)
    assert [seeds for _, seeds in record.searched] == [(0, 1), (2,)]


def test_more_levels_continue_a_finished_run_and_fewer_read_its_first(tiny: Reproduce) -> None:
    name = "cora/gcn/model/ugs"
    two = tiny("table1", **ONE)
    record = Recorder()
    three = tiny("table1", **ONE, levels=3, observe=record)
    assert record.searched == [(name, (0, 1))]
    again = tiny("table1", **ONE, levels=2, observe=record)
    assert len(record.searched) == 1
    assert [len(r.results[name]["levels"]) for r in (two, three, again)] == [2, 3, 2]
    assert essence(two.results[name])["levels"] == essence(again.results[name])["levels"]
    assert again.table == two.table


def test_a_run_that_was_told_of_more_levels_and_killed_is_not_taken_for_finished(
    tiny: Reproduce, tmp_path: Path
) -> None:
    tiny("table1", **ONE)
    path = next((tmp_path / "out" / "runs").glob("*/*/config.json")).parent
    with RunDir(path) as run:
        run.claim(run.read_config().replace(levels=3), read_json(run.config)["data"], "none")
    assert len(tiny("table1", **ONE, levels=3).results["cora/gcn/model/ugs"]["levels"]) == 3


def test_damaged_results_are_written_anew(tiny: Reproduce, tmp_path: Path) -> None:
    before = tiny("table1", **ONE)
    next((tmp_path / "out" / "runs").glob("*/*/results.json")).write_text("{")
    record = Recorder()
    after = tiny("table1", **ONE, observe=record)
    assert record.searched == [("cora/gcn/model/ugs", (0, 1))]
    assert after.results == before.results


def test_a_run_that_was_planned_for_little_memory_is_found_again(
    tiny: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = GraphData("cora", **vars(tiny_data(nodes=200)))
    monkeypatch.setattr(datasets, "read", lambda name, data_root: larger)
    record, wide = (
        Recorder(),
        {**ONE, "hidden": 64},
    )  # so that training takes more than the evaluation of the whole graph
    with monkeypatch.context() as patch:
        patch.setattr("aceglt.runner.free_memory", lambda device: 1)
        tiny("table1", **wide, observe=record)
    run = RunDir(next((tmp_path / "out" / "runs").glob("*/*/config.json")).parent)
    assert run.read_config().training.partitions > 1
    tiny("table1", **wide, observe=record)
    assert len(record.searched) == 1
    with pytest.raises(ConfigError, match="no finished search"):
        tiny("table1", **wide, partitions=1, search=False)


def test_other_settings_are_other_runs(tiny: Reproduce) -> None:
    record = Recorder()
    for options in ({}, {"hidden": 5}, {"preset": "default"}, {"epochs": 3}):
        tiny("table1", **ONE, observe=record, **options)
    assert len(record.searched) == 4


def test_runs_on_different_data_are_not_put_together(tiny: Reproduce, tmp_path: Path) -> None:
    tiny("table1", **ONE, seeds=[0])
    tiny("table1", **ONE, seeds=[1])
    config = next((tmp_path / "out" / "runs").glob("*/seeds-1/config.json"))
    write_checked_json(config, {**read_json(config), "data": "other"})
    with pytest.raises(RunError, match="are about different data"):
        tiny("table1", **ONE, seeds=[0, 1])


def test_a_table_can_be_made_without_searching(tiny: Reproduce, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no finished search of table1 at this scale"):
        tiny("table1", search=False)
    tiny("table1", **ONE)
    record = Recorder()
    assert list(tiny("table1", search=False, observe=record).results) == ["cora/gcn/model/ugs"]
    assert record.searched == []


def test_what_is_wrong_is_said_before_anything_is_searched(tmp_path: Path) -> None:
    for options, said in (
        ({"hidden": 0}, "hidden must be from 1 to"),
        ({"preset": "papier"}, "unknown preset 'papier'"),
        ({"seeds": [0, 0]}, "seeds must differ"),
        ({"method_options": {"keep": "best"}}, "method random has no option 'keep'"),
        ({"cells": "cora/gcn/gebtt"}, "table1 has no cell"),
        ({"dataset": "pubmed"}, "dataset is not the same in all cells of table1"),
        ({"test": False}, "table1 is about test metrics"),
        ({"widht": 3}, "unknown setting 'widht'"),
    ):
        with pytest.raises(ConfigError, match=said):
            reproduce("table1", out=tmp_path / "out", **{**TINY, **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("figure4", {"fixed_graph": 0.5}, "fixed_graph is not the same in all cells of figure4"),
        ("table2", {"method_options": {"rounds": 1, "resample": True}}, "resample is not the same in all cells"),
    ],
)
def test_what_tells_cells_apart_is_not_given_for_all(
    name: str, settings: dict[str, Any], said: str, tiny: Reproduce, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        tiny(name, **settings)
    assert not (tmp_path / "out").exists()
