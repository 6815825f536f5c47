"""Tuning: what was given stays, the best on validation is chosen, the test set is not read. Workers are calls here."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from search_samples import graph, npz
from typer.testing import CliRunner

import aceglt
from aceglt import cli, runner
from aceglt.config import BACKBONE_OPTIONS, Training
from aceglt.config.fields import check_value, settings_of, type_hints
from aceglt.errors import ConfigError
from aceglt.runs.directory import read_json
from aceglt.sweeps import run as sweeping
from aceglt.sweeps.engines import Ended, Need
from aceglt.sweeps.worker import Job, work


class Here:
    """Runs a job as soon as it is asked what ended; the learning rates of `broken` diverge."""

    device = "cpu"
    started: list[str] = []  # noqa: RUF012
    broken: tuple[float, ...] = ()

    def __init__(self, need: Need, workers: int | None = None) -> None:
        self.jobs: list[Job] = []

    def close(self) -> None:
        pass

    def has_room(self) -> bool:
        return not self.jobs

    def start(self, job: Job) -> None:
        self.jobs.append(job)
        self.started.append(job.name)

    def wait(self, seconds: float) -> list[Ended]:
        job = self.jobs.pop()
        if job.settings.get("lr") in self.broken:
            return [Ended(job, "the loss became NaN", hopeless=True)]
        return [Ended(job, work(job))]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Here]:
    Here.started, Here.broken = [], ()
    monkeypatch.setattr(sweeping, "LocalEngine", Here)
    monkeypatch.setattr(runner, "write_report", lambda runs, path: path.write_text("report"))
    monkeypatch.chdir(tmp_path)
    return Here


SETTABLE = {  # by backbone, the group and the field of each setting of training
    name: {part: (group, field) for group in (Training, kind) for part, field in settings_of(group).items()}
    for name, kind in BACKBONE_OPTIONS.items()
}
LOWEST = {name: values[0] for name, values in BACKBONE_OPTIONS["gcn"].space.items() if name in SETTABLE["gcn"]}


def tiny(folder: Path, **changes: Any) -> dict[str, Any]:
    return {"dataset": str(npz(folder)), "hidden": 4, "epochs": 3, "seeds": 2, **changes}


def test_the_best_on_validation_is_chosen_and_the_test_set_is_not_read(tmp_path: Path, engine: type[Here]) -> None:
    tuned = aceglt.tune(tmp_path / "out", budget=6, **tiny(tmp_path))
    assert len(engine.started) == len(tuned.trials) == 6
    assert repr(tuned).startswith("6 trials, best validation accuracy ")
    assert len(repr(tuned).splitlines()) == 3
    scores = [trial.score for trial in tuned.trials]
    assert scores == sorted(scores, reverse=True)
    runs = sorted((tmp_path / "out/runs").iterdir())
    results = [read_json(run / "results.json") for run in runs]
    assert max(sum(r["dense"]["val"]) / 2 for r in results) == pytest.approx(scores[0])
    assert all(r["dense"]["test"] is None and not r["levels"] for r in results)
    assert all(trial.values["lr"] > 0 and "hidden" not in trial.values for trial in tuned.trials)
    assert len({tuple(trial.values.values()) for trial in tuned.trials}) == 6


def test_what_was_given_comes_first_and_stays(tmp_path: Path, engine: type[Here]) -> None:
    tuned = aceglt.tune(tmp_path / "out", budget=1, **tiny(tmp_path, lr=0.02, method="ugs"))
    only = aceglt.search(preset="tuned", **tiny(tmp_path, lr=0.02, levels=0, test=False))
    assert tuned.trials[0].val == only.results["dense"]["val"]
    assert "lr" not in tuned.trials[0].values
    assert {name: tuned.settings[name] for name in ("lr", "hidden", "epochs", "method")} == {
        "lr": 0.02, "hidden": 4, "epochs": 3, "method": "ugs",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="nothing to tune"):
        aceglt.tune(tmp_path / "none", **tiny(tmp_path, **LOWEST))


@pytest.mark.parametrize("backbone", BACKBONE_OPTIONS)
def test_every_backbone_has_a_space_of_values_that_it_takes(backbone: str) -> None:
    space = BACKBONE_OPTIONS[backbone].space
    assert {"lr", "weight_decay", "hidden"} <= space.keys() & SETTABLE[backbone].keys()
    for name, values in space.items():
        if name in SETTABLE[backbone]:
            kind, part = SETTABLE[backbone][name]
            for value in values:
                check_value(name, value, type_hints(kind)[name], part)
            assert isinstance(values[0], str) or list(values) == sorted(values)


def test_the_same_call_continues_and_finished_trials_are_not_repeated(tmp_path: Path, engine: type[Here]) -> None:
    first = aceglt.tune(tmp_path / "out", budget=3, **tiny(tmp_path))
    assert len(engine.started) == 3
    again = aceglt.tune(tmp_path / "out", budget=3, **tiny(tmp_path))
    assert len(engine.started) == 3
    assert again.settings == first.settings


def test_a_trial_that_fails_is_left_out(tmp_path: Path, engine: type[Here]) -> None:
    engine.broken = (0.03, 0.003)
    tuned = aceglt.tune(tmp_path / "out", budget=12, **tiny(tmp_path))
    failed = [trial for trial in tuned.trials if trial.error]
    assert failed
    assert all(trial.values["lr"] in engine.broken for trial in failed)
    assert tuned.trials[-1].error == "the loss became NaN"
    assert tuned.settings["lr"] not in engine.broken
    rows = list(csv.DictReader((tmp_path / "out/trials.csv").read_text().splitlines()))
    assert sum(row["error"] != "" for row in rows) == len(failed)


def test_no_trial_is_started_after_the_minutes_are_over(tmp_path: Path, engine: type[Here]) -> None:
    with pytest.raises(ConfigError, match="no trial was finished in time"):
        aceglt.tune(tmp_path / "out", minutes=1e-12, **tiny(tmp_path))
    assert not engine.started


def test_all_is_tried_where_the_space_is_small(tmp_path: Path) -> None:
    given = {name: value for name, value in LOWEST.items() if name != "lr"}
    tuned = aceglt.tune(tmp_path / "out", minutes=10, **tiny(tmp_path, **given))
    assert {trial.values["lr"] for trial in tuned.trials} == set(BACKBONE_OPTIONS["gcn"].space["lr"])


def test_a_late_best_epoch_is_said(tmp_path: Path) -> None:
    tuned = aceglt.tune(tmp_path / "out", budget=1, **tiny(tmp_path, epochs=1))
    with pytest.raises(ConfigError, match=r"a tuning's: see trials.csv, or use it with aceglt search --config .*\.js"):
        aceglt.load_sweep(tmp_path / "out")
    assert len(tuned.notes) == 2
    assert tuned.notes[1].endswith("tuned.json --epochs 1000")
    assert tuned.notes[0].endswith("its best epoch is among the last of 1 with 2 of 2 seeds (more --epochs)")


def test_a_graph_beside_the_folder_is_answered_with_what_to_do(tmp_path: Path) -> None:
    tune: Any = aceglt.tune
    with pytest.raises(ConfigError, match=r"save it with aceglt.datasets.save_npz"):
        tune(graph(), tmp_path / "out")
    with pytest.raises(ConfigError, match=r'tune\("tuned", dataset="mine.npz"\)'):
        tune("mine.npz", tmp_path / "out")


def test_a_comparison_of_trials_is_refused(tmp_path: Path) -> None:
    aceglt.tune(tmp_path / "out", budget=2, **tiny(tmp_path))
    with pytest.raises(ConfigError, match="a tuning, whose trials have no levels to compare"):
        aceglt.compare([tmp_path / "out"], tmp_path / "compared")
    assert not (tmp_path / "compared").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"budget": 0}, "budget must be 1 or more"),
        ({"minutes": -1.0}, "minutes must be above 0"),
        ({"workers": 0}, "workers must be 1 or more"),
        ({"backbone": object()}, "backbone must be named as module:attribute"),
        ({"lr": -1.0}, "lr must be above 0"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_trained(
    arguments: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=reason):
        aceglt.tune(tmp_path / "out", **{**tiny(tmp_path), **arguments})
    assert not (tmp_path / "out").exists()


def test_search_takes_the_file(tmp_path: Path) -> None:
    call = CliRunner().invoke
    options = [f"--{name}={value}" for name, value in tiny(tmp_path).items()]
    result = call(cli.app, ["tune", *options, "--budget", "3", "--out", "out"])
    assert result.exit_code == 0, result.output
    assert "aceglt search --config" in result.output
    chosen = json.loads(Path("out/tuned.json").read_text())
    result = call(cli.app, ["search", "--config", "out/tuned.json", "--levels=0", "--epochs=2", "--out", "run"])
    assert result.exit_code == 0, result.output
    config = read_json(Path("run/config.json"))
    assert {name: config[name] for name in chosen if name not in ("epochs", "seeds")} == {
        name: value for name, value in chosen.items() if name not in ("epochs", "seeds")
    }
    assert (config["epochs"], config["levels"], len(config["seeds"])) == (2, 0, 2)


def test_a_file_that_names_code_is_refused_unless_it_is_named_again(tmp_path: Path) -> None:
    Path("mine.json").write_text(json.dumps({"backbone": "os:abort"}))
    result = CliRunner().invoke(cli.app, ["search", "--config", "mine.json"])
    assert result.exit_code == 2
    assert "mine.json: names code, backbone os:abort; to run it, name it again: --backbone" in result.output
