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
        progress.on_plan(cells, cells[:1])
        progress.on_levels({second: 1, third: 0})
        progress.on_failure(second, "killed", again=True)
        progress.on_failure(third, "diverged", again=False)
        progress.on_levels({second: 1})
        progress.on_end(second)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_elsewhere_than_on_a_terminal_each_event_is_a_line() -> None:
    lines = _shown(terminal=False).splitlines()
    assert lines[0] == "3 searches, 1 of them finished"
    assert lines[1].startswith("citeseer-gcn-ugs-teacher-model-") and lines[1].endswith(" will be continued: killed")  # noqa: PT018
    assert lines[2].endswith(" given up: diverged")
    assert lines[3].startswith("2/3 citeseer-gcn-ugs-teacher-model-") and lines[3].endswith("finished · 0:00:00 left")  # noqa: PT018


def test_a_terminal_has_a_bar_for_the_whole_sweep_too() -> None:
    assert "1/3 searches · 1 under way · 1 failed" in _shown(terminal=True)
