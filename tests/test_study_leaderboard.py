"""The leaderboard: searches that are missing are run and kept, and the page is made of what is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from engine_samples import without_processes
from search_samples import npz

from aceglt.sweeps.grid import plan, read_grid
from study import leaderboard

ROOT = Path(__file__).parents[1]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the repository's, with a small grid."""
    monkeypatch.chdir(tmp_path)
    without_processes(monkeypatch)
    (tmp_path / "study" / "grids").mkdir(parents=True)
    (tmp_path / "docs" / "science").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "science" / "leaderboard.md", tmp_path / "docs" / "science")
    settings = 'signal = "labels"\nepochs = 2\nhidden = 4\nlevels = 2\nseeds = 2\naxis = "joint"\n'
    grid = f'datasets = ["{npz(tmp_path)}"]\nmethods = ["ugs"]\n{settings}'
    (tmp_path / "study" / "grids" / "tuned.toml").write_text(grid)
    return tmp_path


def test_what_is_missing_is_searched_and_kept_once(small: Path) -> None:
    arguments = ["search", "tuned", "--device", "cpu", "--keep", "elsewhere"]
    leaderboard.main([*arguments, "--only", "random"])
    assert [cell.config.method for cell in leaderboard.missing("tuned", Path("elsewhere"))] == ["ugs"]
    leaderboard.main(arguments)
    files = {path: path.stat().st_mtime_ns for path in sorted((small / "elsewhere" / "tuned").iterdir())}
    assert len(files) == 2
    record = json.loads(next(iter(files)).read_text())
    assert record["environment"]["peak_memory"] > 0
    assert "excerpt" not in record
    leaderboard.main(arguments)
    assert files == {path: path.stat().st_mtime_ns for path in files}


def test_the_page_has_the_picture_first_and_says_what_is_missing(small: Path) -> None:
    leaderboard.main(["search", "tuned", "--device", "cpu"])
    grid = small / "study" / "grids" / "tuned.toml"
    grid.write_text(grid.read_text().replace('["ugs"]', '["ugs", "gebt"]'))
    leaderboard.main(["page"])
    page = small / "docs" / "science" / "leaderboard.md"
    text = page.read_text()
    assert text.index("leaderboard/tuned.svg") < text.index("Every method")
    assert "| ugs (labels) |" in text
    assert "| random |" in text
    assert "gebt (labels): not searched yet." in text
    assert (page.parent / "leaderboard" / "tuned.svg").read_text().startswith("<?xml")
    assert "mean rank" in text.lower()
    leaderboard.main(["page"])
    assert page.read_text() == text


@pytest.mark.parametrize("part", leaderboard.PARTS)
def test_the_grids_are_those_of_the_leaderboard(part: str) -> None:
    cells = plan(read_grid(ROOT / "study" / "grids" / f"{part}.toml"))
    assert {cell.config.pruning.axis for cell in cells} == {"joint"}
    assert {len(cell.config.seeds) for cell in cells} == {5}
    assert {"random", "ace", "ugs", "magnitude", "teddy", "dspar"} <= {cell.config.method for cell in cells}
    baselines = {
        (cell.config.dataset, repr(cell.config.training), repr(cell.config.backbone_options)) for cell in cells
    }
    assert len(baselines) == len({cell.config.dataset for cell in cells})
