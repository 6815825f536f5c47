"""What Python users see: progress, logging, results in a few lines, tables, plots and pages."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from search_samples import Breaks, Stop, graph, outcome, search, timeless

import aceglt
from aceglt import runner
from aceglt.config import Config
from aceglt.errors import ConfigError, RunError
from aceglt.methods.build import build_method
from aceglt.report.result import sketch
from aceglt.runs.directory import RunDir
from aceglt.searches.progress import SearchProgress


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> aceglt.SearchResult:
    return search(out=tmp_path_factory.mktemp("run") / "run", tickets="all")


def _console(**options: Any) -> Console:
    return Console(file=io.StringIO(), width=100, **options)


def _progress(**options: Any) -> SearchProgress:
    config = Config(method="ugs", epochs=10, score_epochs=10, levels=2, seeds=(0, 1))
    return SearchProgress(_console(**options), config, build_method(config))


# Progress


def _texts(progress: SearchProgress, *epochs: int) -> list[str]:
    """What the bar says after each epoch of one of two runs."""
    said = []
    progress.on_phase(1, "retrain")
    progress.on_training(2, 10)
    for epoch in epochs:
        progress.on_epoch(epoch, 10, 1, lambda: float("nan") if epoch == 1 else 0.5)  # noqa: B023
        said.append(str(progress._bar.tasks[0].description))
    return said


def test_epochs_never_go_backwards_whichever_run_is_trained_first() -> None:
    for order in ([1, 2, 10, 1, 2, 10], [1, 1, 2, 2, 10, 10]):
        shown = [int(re.search(r"epoch (\d+)/10", text)[1]) for text in _texts(_progress(force_terminal=True), *order)]  # type: ignore[index]
        assert shown == sorted(shown) == [0, 1, 1, 2, 2, 3]


def test_a_phase_that_begins_again_is_numbered() -> None:
    progress = _progress(force_terminal=True)
    assert [_texts(progress, 1)[0].split(" · ")[1] for _ in range(3)] == ["retrain", "retrain (2)", "retrain (3)"]
    progress.on_phase(2, "retrain")
    assert progress._where() == "level 2/2 · retrain"


def test_the_longest_text_of_the_bar_fits_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    config = Config(method="ugs", levels=2, seeds=(0, 1))
    bar, words = SearchProgress(console, config, build_method(config))._bar, "level 10/10 · retrain (3) · epoch 200/200"
    bar.update(bar.task_ids[0], description=f"{words} · best val 100.00", left="0:00:01 left")
    with console.capture() as shown:
        console.print(bar)
    assert "best val 100.00" in shown.get()
    assert "…" not in shown.get()


def test_no_metric_is_shown_before_there_is_one() -> None:
    first, *_, last = _texts(_progress(force_terminal=True), 1, 10)
    assert "val" not in first
    assert "best val 50.00" in last


def test_dense_and_each_level_leave_a_line_with_their_result(result: aceglt.SearchResult) -> None:
    for terminal in (True, False):
        progress = _progress(force_terminal=terminal)
        with progress:
            for levels in range(3):
                progress.on_level({**result.results, "levels": result.results["levels"][:levels]})
        lines = [line for line in progress._console.file.getvalue().splitlines() if "val" in line]  # type: ignore[attr-defined]
        assert ["dense" in lines[0], "level 1/2" in lines[1], "level 2/2" in lines[2]] == [True] * 3
        assert all("test" in line for line in lines)
        assert all(re.search("wins|loses", line) for line in lines[1:])


def test_a_line_of_a_level_fits_80_columns() -> None:
    from aceglt.searches.wording import level_in_words

    level = {
        "level": 10,
        "model_sparsity": 0.9,
        "graph_sparsity": 0.4,
        "val": [1.0],
        "test": [1.0],
        "winning": {"strict": True},
    }
    assert len(level_in_words({"levels": [level]}, 10)) <= 80


def test_a_notebook_gets_progress_unless_it_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    consoles: list[Console] = []

    def console(**options: Any) -> Console:
        consoles.append(_console(force_terminal=True))
        return consoles[-1]

    monkeypatch.setattr("aceglt.runner.Console", console)
    search(levels=1)
    assert "level 1/1" in consoles[-1].file.getvalue()  # type: ignore[attr-defined]
    search(levels=1, progress=False)
    assert consoles[-1].file.getvalue() == ""  # type: ignore[attr-defined]


def test_levels_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="aceglt"):
        search(levels=1)
    assert [record.message.split(" · ")[0] for record in caplog.records] == ["dense", "level 1/1"]


def test_an_observer_is_told_what_it_wants_to_know() -> None:
    told: list[Any] = []

    class Watcher(aceglt.Observer):
        def on_level(self, results: Mapping[str, Any]) -> None:
            told.append(len(results["levels"]))

        def on_training(self, runs: int, epochs: int) -> None:
            told.append((runs, epochs))

    search(levels=1, observer=Watcher())
    assert told == [(2, 3), 0, (2, 3), (2, 3), 1]


# Results


def test_a_result_is_a_few_lines(result: aceglt.SearchResult) -> None:
    lines = repr(result).splitlines()
    assert lines[0] == "ugs (labels) on data, gcn, joint axis, node task: 2 levels, 2 seeds, accuracy in %"
    assert [line.split()[0] for line in lines[1:]] == ["dense", "best", "run"]
    assert max(map(len, lines)) < 140


def test_things_are_a_few_lines_and_a_table_with_a_picture(result: aceglt.SearchResult) -> None:
    ticket = result.tickets[0]
    data = graph()
    things = [result, ticket, aceglt.benchmark(ticket, data, device="cpu", repeats=1)]
    things.append(aceglt.evaluate(ticket, data, seeds=2, device="cpu"))
    for thing in things:
        assert 2 <= len(repr(thing).splitlines()) <= 13
        page = thing._repr_html_()
        assert "<svg" in page
        assert "nan" not in page.lower().replace("anan", "")
        assert ("<table" in page) or ("<pre" in page)
    assert "kB" in repr(things[2])
    assert "p = " in repr(things[3])


def test_a_data_frame_has_a_row_for_each_level_and_seed(result: aceglt.SearchResult) -> None:
    frame = result.to_dataframe()
    assert len(frame) == 3 * 2
    level = result.results["levels"][1]
    row = frame[(frame.level == 2) & (frame.seed == 1)].iloc[0]
    assert (row.test, row.model_sparsity) == (level["test"][1], level["model_sparsity"])


def test_without_pandas_it_says_what_to_install(result: aceglt.SearchResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        result.to_dataframe()


def test_a_plot_has_a_line_for_each_search(result: aceglt.SearchResult) -> None:
    other = search(method="random")
    names = [trace.name for trace in result.plot(other).data if trace.name]
    assert names == ["dense, test", "ugs (labels), test", "random, test"]
    panels = result.plot(search(axis="graph"))
    assert {trace.xaxis for trace in panels.data} == {"x", "x2"}
    assert [note.text for note in panels.layout.annotations] == [
        "data gcn node accuracy joint",
        "data gcn node accuracy graph",
    ]
    shown = [trace.name for trace in panels.data if trace.showlegend is not False and trace.name]
    assert len(shown) == len(set(shown))


def test_a_picture_has_a_panel_for_each_setting(result: aceglt.SearchResult) -> None:
    one, two = sketch([result.view]), sketch([result.view, search(axis="graph").view])
    assert (one.count("<svg"), one.count("<p>")) == (1, 0)
    assert (two.count("<svg"), two.count("<p>")) == (2, 2)


def test_a_report_is_written_where_it_is_told(result: aceglt.SearchResult, tmp_path: Path) -> None:
    path = search(method="random").report(tmp_path / "page.html", result)
    assert "random" in path.read_text()


def test_a_run_is_opened_again(result: aceglt.SearchResult) -> None:
    assert result.path is not None
    again = aceglt.load_run(result.path)
    assert timeless(again.results) == timeless({**result.results})
    assert again.config == result.config
    assert [t.level for t in again.tickets] == [t.level for t in result.tickets]
    assert again.environment["aceglt"] == aceglt.__version__
    assert repr(again) == repr(result)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a run directory"):
        aceglt.load_run(tmp_path)
    with pytest.raises(ConfigError, match="not the folder of a sweep"):
        aceglt.load_sweep(tmp_path)


def test_a_sweep_for_a_run_and_a_run_for_a_sweep_are_told(result: aceglt.SearchResult, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").touch()
    with pytest.raises(ConfigError, match=r"aceglt\.load_sweep opens it"):
        aceglt.load_run(tmp_path)
    assert result.path is not None
    with pytest.raises(ConfigError, match=r"aceglt\.load_run opens it"):
        aceglt.load_sweep(result.path)


# Seeds


@pytest.mark.parametrize("method", ["ugs", "random"])
def test_seeds_are_added_to_a_finished_run_as_if_they_had_been_there(method: str, tmp_path: Path) -> None:
    search(out=tmp_path / "run", seeds=[0, 2], tickets="all", method=method)
    more = search(out=tmp_path / "run", seeds=[0, 1, 2, 3], tickets="all", method=method, levels=3)
    search(out=tmp_path / "once", seeds=[0, 1, 2, 3], tickets="all", method=method, levels=3)
    results, tickets = outcome(tmp_path / "run")
    wanted, other = outcome(tmp_path / "once")
    assert results == wanted
    assert tickets.keys() == other.keys()
    assert tickets["level_03_seed_1.safetensors"] == other["level_03_seed_1.safetensors"]
    assert more.notes == []
    assert not (tmp_path / "run" / "more_seeds").exists()


@pytest.mark.parametrize("after", [3, 14, 20])
def test_stopped_while_seeds_are_added_it_goes_on(after: int, tmp_path: Path) -> None:
    search(out=tmp_path / "run", seeds=1)
    with pytest.raises(Stop):
        search(out=tmp_path / "run", seeds=2, observer=Breaks(after))
    assert len(aceglt.load_run(tmp_path / "run").results["seeds"]) == 1
    search(out=tmp_path / "run", seeds=2)
    search(out=tmp_path / "once", seeds=2)
    assert outcome(tmp_path / "run")[0] == outcome(tmp_path / "once")[0]


def test_other_seeds_than_those_being_added_are_refused_with_a_way_out(tmp_path: Path) -> None:
    search(out=tmp_path / "run", seeds=1)
    with pytest.raises(Stop):
        search(out=tmp_path / "run", seeds=3, observer=Breaks(14))
    with pytest.raises(RunError, match=r"seeds are being added; finish them with --seeds 0,1,2, or delete .*seeds"):
        search(out=tmp_path / "run", seeds=2)
    assert len(search(out=tmp_path / "run", seeds=[0, 1, 2]).results["seeds"]) == 3


def _killed(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: Path, run: Path, **settings: Any) -> None:
    """Add a seed, and stop where a function is called about this path."""
    real = getattr(owner, name)

    def stop(first: Any, *rest: Any) -> None:
        if getattr(first, "path", first) == at and (run / "more_seeds" / "final").exists():
            raise Stop
        real(first, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(Stop):
            search(out=run, **settings)


def test_killed_as_seeds_are_joined_the_finished_run_stays_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    before = search(out=run, seeds=1).results
    _killed(monkeypatch, RunDir, "change", run, run, seeds=2)
    for _ in range(2):
        assert timeless(search(out=run, seeds=1).results) == timeless(before)
    assert len(search(out=run, seeds=2).results["seeds"]) == 2


def test_killed_after_seeds_were_joined_more_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    search(out=run, seeds=1)
    _killed(monkeypatch, runner.shutil, "rmtree", run / "more_seeds", run, seeds=2)
    search(out=run, seeds=2)
    assert len(search(out=run, seeds=3).results["seeds"]) == 3
    assert not (run / "more_seeds").exists()


def test_added_seeds_are_trained_in_the_parts_that_the_others_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = graph(nodes=260)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "free_memory", lambda device: 1)
        search(data, out=tmp_path / "run", seeds=1, levels=1)
        search(data, out=tmp_path / "once", seeds=2, levels=1)
    more = search(data, out=tmp_path / "run", seeds=2, levels=1)
    assert more.config.training.partitions > 1
    assert outcome(tmp_path / "run")[0] == outcome(tmp_path / "once")[0]


def test_fewer_seeds_than_a_run_has_are_there_already(tmp_path: Path) -> None:
    search(out=tmp_path / "run", seeds=2)
    assert search(out=tmp_path / "run", seeds=1).results["seeds"] == [0, 1]


def test_other_seeds_are_another_configuration(tmp_path: Path) -> None:
    search(out=tmp_path / "run", seeds=[0, 1], levels=0)
    with pytest.raises(RunError, match="seeds"):
        search(out=tmp_path / "run", seeds=[1, 2], levels=0)


def test_a_dataset_may_be_named_in_its_place() -> None:
    quick: Any = {"method": "random", "levels": 0, "epochs": 1, "seeds": 1, "hidden": 4, "device": "cpu"}
    assert aceglt.search("citeseer", **quick).results["dataset"] == "citeseer"
    with pytest.raises(ConfigError, match="both name a graph"):
        aceglt.search("citeseer", dataset="cora", **quick)


def test_data_is_not_recorded_as_another_file(tmp_path: Path) -> None:
    data, quick = graph(), {"method": "random", "levels": 0, "epochs": 1, "seeds": 1, "hidden": 4, "device": "cpu"}
    with pytest.raises(ConfigError, match=r"data and dataset='other\.npz' are two graphs"):
        aceglt.search(data, dataset="other.npz", **quick)  # type: ignore[arg-type]
