"""The plots as files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from report_samples import view, with_diagnostics
from test_report import HOSTILE, hostile_view

from aceglt.errors import ConfigError
from aceglt.report.static import write_static

pytest.importorskip("matplotlib")


def test_every_plot_is_written(tmp_path: Path) -> None:
    runs = [with_diagnostics(view()), with_diagnostics(view("ugs", method="ugs", levels=1))]
    written = write_static(runs, tmp_path / "new" / "plots")
    setting = "citeseer-gcn-node-accuracy-model"
    assert [path.name for path in written] == [
        f"sparsity-{setting}-test.svg", f"sparsity-{setting}-val.svg",
        f"fluctuation-{setting}-edges.svg", f"fluctuation-{setting}-weights.svg",
        "time.svg", "excerpt-1-ace.svg", "excerpt-2-ugs.svg",
    ]  # fmt: skip
    assert sorted(written) == sorted((tmp_path / "new" / "plots").iterdir())
    assert all(path.read_text().lstrip().startswith("<?xml") for path in written)


@pytest.mark.parametrize(("format", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_other_formats(format: str, start: bytes, tmp_path: Path) -> None:
    assert all(path.read_bytes().startswith(start) for path in write_static([view(levels=2)], tmp_path, format))


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = [with_diagnostics(view(levels=2))]
    for one, other in zip(write_static(runs, tmp_path / "a"), write_static(runs, tmp_path / "b"), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_names_are_shown_as_they_are_and_stay_in_the_folder(tmp_path: Path) -> None:
    assert "$" in HOSTILE
    for path in write_static([hostile_view()], tmp_path / "plots"):
        assert path.parent == tmp_path / "plots"
        assert "<script" not in path.read_text()


def test_dense_alone_has_no_plots(tmp_path: Path) -> None:
    assert write_static([view(levels=0)], tmp_path) == []


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown format 'gif'; known are svg, png, pdf"):
        write_static([view()], tmp_path, "gif")


def test_missing_matplotlib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'aceglt\[plots\]'"):
        write_static([view()], tmp_path)
    assert list(tmp_path.iterdir()) == []
