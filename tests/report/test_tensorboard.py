"""Scalars for TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from search_samples import Breaks, Stop, search

from aceglt.errors import ConfigError
from aceglt.searches.statistics import mean_std


def _read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    pytest.importorskip("tensorboard")
    return tmp_path / "run"


def _means(levels: list[dict[str, Any]], key: str) -> list[tuple[int, Any]]:
    return [(level["level"], pytest.approx(mean_std(level[key])[0])) for level in levels]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_level_is_a_point(run: Path) -> None:
    results = search(out=run, tensorboard=True).results
    found = _read(run / "tensorboard")
    points = [{"level": 0, **results["dense"]}, *results["levels"]]
    assert found["accuracy/val"] == _means(points, "val")
    assert found["accuracy/test"] == _means(points, "test")
    assert found["graph_sparsity"] == [(e["level"], pytest.approx(e["graph_sparsity"])) for e in results["levels"]]
    assert found["fluctuation/edges"] == [(2, pytest.approx(mean_std(results["levels"][1]["fluctuation"]["edges"])[0]))]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_interrupted_search_has_every_point_once(run: Path) -> None:
    with pytest.raises(Stop):
        search(out=run, tensorboard=True, observer=Breaks(22))
    search(out=run, tensorboard=True)
    assert [step for step, _ in _read(run / "tensorboard")["accuracy/val"]] == [0, 1, 2]


def test_without_asking_nothing_is_written(tmp_path: Path) -> None:
    search(out=tmp_path / "run", levels=0)
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_it_needs_a_run_directory() -> None:
    with pytest.raises(ConfigError, match="needs a run directory"):
        search(tensorboard=True)


def test_missing_tensorboard_is_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'aceglt\[tensorboard\]'"):
        search(out=tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()
