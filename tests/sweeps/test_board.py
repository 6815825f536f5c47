"""How a sweep shows itself."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from aceglt.sweeps.board import SweepProgress
from aceglt.sweeps.grid import plan


def _shown(terminal: bool) -> str:
    cells = plan({"methods": ["random", "ugs", "ace"], "levels": 1})
    second, third = cells[1].name, cells[2].name
    console = Console(file=StringIO(), force_terminal=terminal, width=120, no_color=True)
    with SweepProgress(console) as progress:
        progress.on_plan(cells, cells[:1], {third: "0 of 1 level"})
        progress.on_levels({second: 1, third: 0})
        progress.on_failure(second, "killed", again=True)
        progress.on_failure(third, "diverged", again=False)
        progress.on_levels({second: 1})
        progress.on_end(second)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_elsewhere_than_on_a_terminal_each_event_is_a_line() -> None:
    lines = _shown(terminal=False).splitlines()
    assert lines[0] == "3 searches: 1 finished, 1 goes on"
    assert lines[1].startswith("citeseer-gcn-ace-teacher-2-rounds-") and lines[1].endswith(" goes on: 0 of 1 level")  # noqa: PT018
    assert lines[2].startswith("citeseer-gcn-ugs-teacher-model-") and lines[2].endswith(" will be continued: killed")  # noqa: PT018
    assert lines[3].endswith(" given up: diverged")
    assert lines[4].startswith("2/3 citeseer-gcn-ugs-teacher-model-") and lines[4].endswith("finished · 0:00:00 left")  # noqa: PT018


def test_a_tuning_counts_trials_of_all_its_rounds_and_none_twice() -> None:
    cells = plan({"methods": ["random", "ugs", "ace"], "levels": 0})
    console = Console(file=StringIO(), width=120, no_color=True)
    with SweepProgress(console, ("trial", "trials"), 5) as progress:
        progress.on_plan(cells[:2], [], {})
        progress.on_end(cells[0].name)
        progress.on_failure(cells[1].name, "diverged", again=False)
        progress.on_plan([cells[0], cells[2]], cells[:1], {})
        progress.on_end(cells[2].name)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert (lines[0], lines[3]) == ("5 trials", "5 trials: 1 finished")
    assert (lines[1][:4], lines[4][:4]) == ("1/5 ", "2/5 ")


def test_no_time_is_estimated_before_a_level_has_ended() -> None:
    cells = plan({"methods": ["random", "ugs"], "levels": 4})
    progress = SweepProgress(Console(file=StringIO(), force_terminal=True, width=120))
    progress.on_plan(cells, [], {cells[1].name: "2 of 4 levels"})
    shown = []
    for first, second in ((0, 3), (1, 3), (2, 3), (2, 4)):
        progress.on_levels({cells[0].name: first, cells[1].name: second})
        task = progress._bar.tasks[0]
        shown.append((task.completed, task.total, bool(task.fields["left"])))
    assert shown == [(0, 6, False), (0, 6, False), (1, 6, True), (2, 6, True)]  # two levels were there before


def test_a_terminal_has_a_bar_for_the_whole_sweep_too() -> None:
    assert "1/3 searches · 1 under way · 1 failed" in _shown(terminal=True)
