"""Run directories: one writer, one configuration, no half files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from search_samples import environment, files

from aceglt.config import Config
from aceglt.errors import RunError
from aceglt.files import write_atomic, write_checked_json
from aceglt.runs.directory import RunDir, default_name, is_run, read_json, results_of

CONFIG = Config(method="ugs", levels=2)


def _claimed(path: Path) -> Path:
    with RunDir(path) as run:
        run.claim(CONFIG, "fingerprint")
    return path


def test_a_second_opener_in_the_same_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with RunDir(tmp_path / "run"), pytest.raises(RunError, match="another process is working"), RunDir(tmp_path / "run"):  # noqa: E501  # fmt: skip
        pass
    with RunDir(tmp_path / "run") as again:
        again.claim(CONFIG, "fingerprint")


_SECOND = """
import sys
from aceglt.errors import RunError
from aceglt.files import write_atomic
from aceglt.runs.directory import RunDir
try:
    with RunDir(sys.argv[1]):
        print("in")
except RunError as problem:
    print(problem)
"""


def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    def second() -> str:
        command = [sys.executable, "-c", _SECOND, str(tmp_path / "run")]
        return subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout.strip()

    with RunDir(tmp_path / "run"):
        assert second() == f"{tmp_path / 'run'}: another process is working in this directory"
    assert second() == "in"


def test_the_lock_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunDir(tmp_path / "run"):
        raise ZeroDivisionError
    assert _claimed(tmp_path / "run").is_dir()


def test_another_configuration_is_refused_with_the_difference(tmp_path: Path) -> None:
    before = (_claimed(tmp_path / "run") / "config.json").read_bytes()
    with RunDir(tmp_path / "run") as run, pytest.raises(RunError) as caught:
        run.claim(CONFIG.replace(lr=0.5, seeds=(0, 4)), "fingerprint")
    assert "lr: 0.01 → 0.5" in str(caught.value)
    assert "seeds: [0, 1, 2] → [0, 4]" in str(caught.value)
    assert "epochs" not in str(caught.value)
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_other_data_are_refused(tmp_path: Path) -> None:
    _claimed(tmp_path / "run")
    with RunDir(tmp_path / "run") as run, pytest.raises(RunError, match="data: fingerprint → other"):
        run.claim(CONFIG, "other")


def test_changed_stopping_rules_are_accepted_and_recorded(tmp_path: Path) -> None:
    _claimed(tmp_path / "run")
    changed = CONFIG.replace(levels=9, target_model=0.5, patience=3)
    with RunDir(tmp_path / "run") as run:
        run.claim(changed, "fingerprint")
        assert run.read_config() == changed


def test_a_folder_of_someone_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("thesis.tex", ".bashrc", ".config.json.old"):
        (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(RunError, match="not empty and is no run directory"), RunDir(tmp_path / "run"):
        pass
    assert files(tmp_path / "run") == {"thesis.tex", ".bashrc", ".config.json.old"}


def test_an_empty_folder_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert is_run(_claimed(tmp_path / "run"))


def test_a_path_below_a_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "run", tmp_path / "file"):
        with pytest.raises(RunError, match=r"cannot write there .*choose another --out"), RunDir(path):
            pass
    assert files(tmp_path) == {"file"}


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path: Path) -> None:
    run = _claimed(tmp_path / "run")
    kept = {"notes.txt", ".gitignore", "tickets/.hidden"}
    leftovers = {".config.json.abcd1234", ".checkpoint.zzzz_999", "tickets/.level_01_seed_0.safetensors.abcd1234"}
    for name in kept | leftovers:
        (run / name).write_text("half")
    with RunDir(run):
        pass
    assert files(run) == kept | {"config.json", "tickets", ".lock"}


def test_leftovers_are_what_an_unfinished_write_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that are looked for are the names that are written."""
    run = RunDir(_claimed(tmp_path / "run"))
    seen: list[str] = []
    monkeypatch.setattr(os, "replace", lambda temporary, path: seen.append(temporary))
    for path in (run.config, run.environment, run.results, run.checkpoint, run.report, run.ticket(1, 0)):
        write_atomic(path, b"half")
    assert len(seen) == 6
    assert all(map(os.path.exists, seen))
    with run:
        assert not any(map(os.path.exists, seen))


def test_a_first_start_killed_before_the_configuration_was_written_is_continued(tmp_path: Path) -> None:
    (tmp_path / "run" / "tickets").mkdir(parents=True)
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / ".config.json.abcd1234").write_text("{")
    assert files(_claimed(tmp_path / "run")) == {"config.json", "tickets", ".lock"}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "\udcff", "{}", '{"format": 2}', '{"format": 1, "levels": "x"}', "[" * 99_999]
)
def test_a_damaged_configuration_is_refused(content: str, tmp_path: Path) -> None:
    run = _claimed(tmp_path / "run")
    (run / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with RunDir(run) as opened, pytest.raises(RunError, match=r"config\.json"):
        opened.claim(CONFIG, "fingerprint")


def test_events_are_lines_of_json_in_their_order(tmp_path: Path) -> None:
    with RunDir(tmp_path / "run") as run:
        run.log("one", level=1)
        run.log("two", phase="é\n")
        lines = [json.loads(line) for line in run.events.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["one", "two"]
    assert lines[1]["phase"] == "é\n"
    assert all(isinstance(line["time"], float) for line in lines)


def test_results_that_are_not_there_yet_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no results yet"):
        results_of(_claimed(tmp_path / "run"))


@pytest.mark.parametrize("name", ["config.json", "results.json"])
@pytest.mark.parametrize("version", [0, 3, None, "1"])
def test_a_file_of_another_version_is_refused_with_the_way_out(name: str, version: Any, tmp_path: Path) -> None:
    run = _claimed(tmp_path / "run")
    (run / name).write_text(json.dumps({"format": version}))
    read = {"config.json": lambda: RunDir(run).read_config(), "results.json": lambda: results_of(run)}[name]
    with pytest.raises(RunError, match=r"which reads 1( and 2)?; use the aceglt that wrote it, or another --out"):
        read()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 9}'])
def test_damaged_results_are_refused(content: str, tmp_path: Path) -> None:
    run = _claimed(tmp_path / "run")
    (run / "results.json").write_text(content)
    with pytest.raises(RunError, match=r"results\.json"):
        results_of(run)


def test_a_checked_file_is_refused_only_where_its_content_changed(tmp_path: Path) -> None:
    path, value = tmp_path / "file.json", {"b": [1, 0.1, None], "a": {"é": True}}
    write_checked_json(path, value)
    assert read_json(path, "look elsewhere") == value
    checked = json.loads(path.read_text())
    path.write_text(json.dumps(checked, sort_keys=True))
    assert read_json(path, "look elsewhere") == value
    path.write_text(json.dumps({**checked, "b": [1, 0.2, None]}))
    with pytest.raises(RunError, match=r"file\.json: damaged \(the checksum does not match\); look elsewhere"):
        read_json(path, "look elsewhere")
    path.write_text(json.dumps(value))
    assert read_json(path, "look elsewhere") == value


def test_a_file_of_the_run_that_cannot_be_written_is_said_so_and_other_trouble_passes(tmp_path: Path) -> None:
    for name, error in (("run/results.json", RunError), ("elsewhere", FileNotFoundError)):
        with pytest.raises(error, match=name), RunDir(tmp_path / "run"):
            raise FileNotFoundError(2, "No such file or directory", str(tmp_path / name))


def test_reading_a_missing_json_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot read it"):
        read_json(tmp_path / "nothing.json", "look elsewhere")


def test_a_default_name_is_found_again_with_other_stopping_rules_but_not_with_other_settings() -> None:
    name = default_name(CONFIG)
    assert name.startswith("runs/citeseer-gcn-ugs-teacher-model-")
    assert default_name(CONFIG.replace(levels=7, patience=1, seeds=(0, 1, 2, 3))) == name
    assert default_name(CONFIG.replace(lr=0.5)) != name
    assert default_name(CONFIG.replace(dataset="/data/my graph.npz")).startswith("runs/my-graph-gcn-")
