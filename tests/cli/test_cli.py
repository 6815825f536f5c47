"""The command line: what it prints, what it refuses, and how."""

from __future__ import annotations

import gc
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search_samples import TENSORS, TINY, command, environment, events, files, graph, npz, outcome, search
from typer.testing import CliRunner

import aceglt
from aceglt import cli
from aceglt.cli.shell import importing
from aceglt.config import SETTINGS, Config
from aceglt.datasets import KNOWN
from aceglt.errors import ConfigError
from aceglt.runs.directory import results_of
from aceglt.searches.statistics import mean_std
from aceglt.searches.wording import percent, plus_minus

FAST = (
    "--method", "ugs", "--axis", "joint", "--signal", "labels", "--levels", "2", "--seeds", "2", "--epochs", "3",
    "--hidden", "8", "--device", "cpu",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's data or writes to the checkout."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("ACEGLT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def _ok(*arguments: str | Path) -> str:
    result = _run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def _refused(*arguments: str | Path) -> str:
    """One clear line on stderr, exit code 2, nothing else."""
    result = _run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", result.stderr), result.stderr
    return result.stderr.removeprefix("error: ").strip()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and beside it its graph, tiny.npz; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    _ok("search", "--dataset", npz(folder), *FAST, "--tickets", "all", "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


# Bad input: issue 2's list


def _arrays(**changes: Any) -> dict[str, Any]:
    data = graph()
    return {**{name: getattr(data, name).numpy() for name in TENSORS}, **changes}


def _nan() -> Any:
    x = graph().x.numpy()
    x[2, 1] = np.nan
    return x


_NODES = len(graph().x)
_BAD_GRAPHS = {
    "NaN features": ({"x": _nan()}, "NaN"),
    "infinite features": ({"x": _nan() * np.inf}, "NaN"),
    "edge index out of range": ({"edge_index": np.array([[0, 1], [1, _NODES]])}, f"{_NODES}"),
    "negative edge index": ({"edge_index": np.array([[0, -1], [1, 2]])}, "-1"),
    "no training node": ({"train_mask": np.zeros(_NODES, dtype=bool)}, "no training node"),
    "no validation node": ({"val_mask": np.zeros(_NODES, dtype=bool)}, "no validation node"),
    "class without training node": ({"y": np.arange(_NODES) % 2 + 2 * (np.arange(_NODES) == 2)}, "class 2"),
    "one class": ({"y": np.zeros(_NODES, dtype=np.int64)}, "class"),
    "no edge": ({"edge_index": np.zeros((2, 0), dtype=np.int64)}, "nothing to prune"),
    "only self-loops": ({"edge_index": np.array([[0, 1], [0, 1]])}, "nothing to prune"),
    "no node": (
        {"x": np.zeros((0, 3)), "edge_index": np.zeros((2, 0), dtype=np.int64), "y": np.zeros(0, dtype=np.int64),
         **{f"{name}_mask": np.zeros(0, dtype=bool) for name in ("train", "val", "test")}},
        "at least one node",
    ),
    "overlapping masks": ({"val_mask": graph().train_mask.numpy()}, "share"),
    "fractional labels": ({"y": np.full(_NODES, 0.5)}, "y"),
    "objects": ({"x": np.array([{"a": 1}] * _NODES, dtype=object)}, "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", _BAD_GRAPHS)
def test_an_unusable_graph_is_refused_in_one_line_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    changes, word = _BAD_GRAPHS[name]
    np.savez(tmp_path / "bad.npz", **_arrays(**changes))
    before = files(tmp_path)
    message = _refused("search", "--dataset", tmp_path / "bad.npz", *FAST, "--out", tmp_path / "run")
    assert "bad" in message
    assert word in message
    assert files(tmp_path) == before


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive", b"PK\x03\x04" + b"\0" * 60])
def test_a_corrupt_file_is_refused_in_one_line_and_leaves_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    before = files(tmp_path)
    assert "bad.npz" in _refused("search", "--dataset", tmp_path / "bad.npz", *FAST)
    assert files(tmp_path) == before


def test_a_truncated_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = npz(tmp_path)
    content = path.read_bytes()
    for length in (len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert "tiny.npz" in _refused("search", "--dataset", path, *FAST)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dataset", "citeser"], "unknown dataset 'citeser'; did you mean citeseer?"),
        (["--dataset", "nowhere/graph.npz"], "nowhere/graph.npz: no such file"),
        (["--dataset", "."], "is a folder"),
        (["--backbone", "gnn"], "unknown backbone 'gnn'; known are gcn"),
        (["--method", "magic"], "unknown method 'magic'; known are random, ugs, gebt, ace"),
        (["--axis", "z"], "unknown axis 'z'"),
        (["--task", "graph"], "unknown task 'graph'"),
        (["--preset", "fast"], "unknown preset 'fast'"),
        (["--signal", "noise"], "unknown signal 'noise'"),
        (["--tickets", "some"], "unknown choice of tickets 'some'"),
        (["--device", "abacus"], "device 'abacus' cannot be used here"),
        (["--device", "cuda:99"], "device 'cuda:99' cannot be used here"),
        (["--lr", "0"], "lr must be above 0, found 0.0"),
        (["--lr", "nan"], "lr must be finite, found nan"),
        (["--epochs", "0"], "epochs must be 1 or more"),
        (["--hidden", "-1"], "hidden must be from 1 to"),
        (["--levels", "-1"], "levels must be 0 or more"),
        (["--prune-model", "1"], "prune_model must be between 0 and 1"),
        (["--target-model", "1.5"], "target_model must be between 0 and 1"),
        (["--axis", "model", "--target-graph", "0.5"], "target_graph never changes on the model axis"),
        (["--patience", "0"], "patience must be 1 or more"),
        (["--seeds", "0"], "seeds must be"),
        (["--seeds", "x"], "--seeds takes a number, a list such as 0,4,7 or a range such as 5-9; found 'x'"),
        (["--seeds", "1,1"], "seeds must differ"),
        (["--seeds", "0-99999999999"], "--seeds names 100000000000 seeds"),
        (["--seeds", "99999999999"], "seeds must be 1000 or fewer"),
        (["-m", "rounds"], "--method-option takes NAME=VALUE, found 'rounds'"),
        (["-m", "rounds=2"], "method ugs has no option 'rounds'"),
        (["--method", "ace", "-m", "rounds=2.5"], "rounds must be a whole number"),
        (["--method", "ace", "-m", "temperature=nan"], "temperature must be"),
        (["--method", "ace", "-m", "temperature=inf"], "temperature must be finite"),
        (["--method", "ace", "-m", "replacement=on"], "need a temperature above 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_wrong_option_is_refused_in_one_line_and_leaves_nothing(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    given = ["search", "--dataset", str(npz(tmp_path)), *FAST, *arguments]
    before = files(tmp_path)
    assert words in _refused(*given)
    assert files(tmp_path) == before


def test_an_output_that_cannot_be_written_is_refused_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    graph_file = npz(tmp_path)
    (tmp_path / "file").write_text("mine")
    before = files(tmp_path)
    message = _refused("search", "--dataset", graph_file, *FAST, "--out", tmp_path / "file" / "run")
    assert message == f"{tmp_path}/file/run: cannot write there (Not a directory); choose another --out"
    assert files(tmp_path) == before


def test_a_folder_of_someone_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".profile").write_text("mine")
    message = _refused("search", "--dataset", npz(tmp_path), *FAST, "--out", tmp_path / "home")
    assert "is not empty and is no run directory" in message
    assert files(tmp_path / "home") == {".profile"}


def test_a_run_of_another_configuration_is_refused_with_the_difference(finished: Path) -> None:
    data = finished.with_name("tiny.npz")
    message = _refused("search", "--dataset", data, *FAST, "--out", finished, "--lr", "0.5")
    assert "lr: 0.01 → 0.5" in message


def test_a_refusal_of_the_real_program_has_no_traceback(tmp_path: Path) -> None:
    found = subprocess.run(
        command("search", "--dataset", "nowhere.npz"), capture_output=True, text=True, env=environment(), cwd=tmp_path
    )
    assert (found.returncode, found.stdout, found.stderr) == (2, "", "error: nowhere.npz: no such file\n")


def test_a_failing_system_call_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "results.json")

    monkeypatch.setattr("aceglt.runner.write_checked_json", full)
    message = _refused("search", "--dataset", npz(tmp_path), *FAST, "--out", tmp_path / "run")
    assert message == "results.json: No space left on device"


def test_a_failure_without_a_number_says_what_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def odd(*_: Any) -> None:
        raise OSError("could not get source code")

    monkeypatch.setattr("aceglt.runner.write_checked_json", odd)
    message = _refused("search", "--dataset", npz(tmp_path), *FAST, "--out", tmp_path / "run")
    assert message == "system: could not get source code"


def test_a_termination_outside_of_a_command_is_an_exit_code() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught:
            cli.main(lambda: signal.raise_signal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == 143


def test_divergence_is_one_line(tmp_path: Path) -> None:
    result = _run("search", "--dataset", npz(tmp_path), *FAST, "--lr", "1e30", "--epochs", "20")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: level 0, dense: the loss became NaN or infinite at epoch")
    assert result.stderr.count("\n") == 1


# search


def test_a_search_ends_with_a_table_and_where_things_are(tmp_path: Path) -> None:
    printed = _ok("search", "--dataset", npz(tmp_path), *FAST, "--out", tmp_path / "run")
    lines = printed.splitlines()
    assert lines[0].startswith("ugs (labels) on ")
    assert lines[1].split() == ["level", "model", "graph", "val", "test", "MACs", "wins?"]
    assert re.fullmatch(r"dense +– +– +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+ +[\d.]+ k *", lines[2])
    assert re.fullmatch(r" +1 +20\.\d\d % +4\.\d\d % +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+ +[\d.]+ k +(yes|no)/(yes|no)/\?", lines[3])  # noqa: E501  # fmt: skip
    assert lines[4].split()[0] == "2"
    assert "…" not in printed
    assert lines[-1].startswith(f"Files:       {tmp_path}/run/report.html, {tmp_path}/run/tickets/level_")


def test_the_table_is_whole_on_a_narrow_page_with_its_widest_values() -> None:
    from rich.console import Console

    from aceglt.report.terminal import _levels_table

    readings = {"val": [1.0, 1.0], "test": [1.0, 1.0], "macs": 6_325_000_000}
    wins = dict.fromkeys(("paper", "strict", "significant"), True)
    level = {"level": 10, "model_sparsity": 0.9999, "graph_sparsity": 0.4999, "winning": wins, **readings}
    console = Console(width=80)
    with console.capture() as capture:
        console.print(_levels_table({"dense": readings, "levels": [level]}))
    assert "99.99 %  49.99 %  100.00 ± 0.00  100.00 ± 0.00  6.325 G  yes/yes/yes" in capture.get()


def test_a_search_logs_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    for options in ([], ["--no-test"]):
        result = _run("search", "--dataset", npz(tmp_path), *FAST, "--out", tmp_path / f"run{len(options)}", *options)
        lines = result.stderr.splitlines()
        assert [line.split(" · ")[0] for line in lines] == ["dense", "level 1/2", "level 2/2"]
        read = r"val \d+\.\d\d" + ("" if options else r" · test \d+\.\d\d")
        assert all(re.search(rf"{read}( · (wins|loses))?( · \d+:\d\d:\d\d left)?$", line) for line in lines)
        assert [line.endswith(" left") for line in lines] == [False, True, True], "no estimate before a level has ended"
        assert "\x1b" not in result.output


def test_the_lines_of_a_search_show_the_mean_over_seeds(tmp_path: Path) -> None:
    result = _run("search", "--dataset", npz(tmp_path), *FAST, "--out", tmp_path / "run", "--levels", "0")
    dense = search(levels=0).results["dense"]
    val, test = (100 * sum(dense[key]) / 2 for key in ("val", "test"))
    assert result.stderr.startswith(f"dense · val {val:.2f} · test {test:.2f}")


def test_tuning_says_that_test_was_not_read(tmp_path: Path) -> None:
    printed = _ok("search", "--dataset", npz(tmp_path), *FAST, "--no-test", "--out", tmp_path / "run")
    assert printed.count("not read") == 4  # three rows of the table and a line of the story
    assert events(tmp_path / "run", "test read") == []


def test_without_out_a_run_is_found_again_under_runs(tmp_path: Path) -> None:
    given = ["search", "--dataset", str(npz(tmp_path)), *FAST]
    _ok(*given)
    runs = list(Path("runs").iterdir())
    assert len(runs) == 1
    assert runs[0].name.startswith("tiny-gcn-ugs-labels-joint-")
    _ok(*given, "--levels", "3")
    assert list(Path("runs").iterdir()) == runs
    assert [e["level"] for e in events(runs[0], "resume")] == [2]
    _ok(*given, "--epochs", "4")
    assert len(list(Path("runs").iterdir())) == 2


def test_options_reach_the_configuration(tmp_path: Path) -> None:
    _ok(
        "search", "--dataset", npz(tmp_path), "--method", "ace", "--axis", "graph", "--signal", "teacher", "--levels",
        "1", "--seeds", "4,7", "--epochs", "2", "--hidden", "9", "--lr", "0.02", "--weight-decay", "0.001",
        "--lambda-edges", "0.002", "--lambda-weights", "0.003", "--beta", "0.5", "--score-epoch", "last",
        "--score-epochs", "1", "--teacher-temperature", "0.7",
        "--teacher-smoothing", "0.6", "--balance", "0.3", "--degree-bonus", "0.4",
        "--no-decay-scores", "--clamp-scores", "--prune-model", "0.3", "--prune-graph", "0.1", "--fixed-model", "0.25",
        "--fixed-graph", "0.06", "--patience", "2", "--target-graph", "0.5", "--no-test", "-m", "rounds=1",
        "--method-option", "refine-epochs=1", "-m", "temperature=0.5", "-m", "keep=best", "-m", "resample=off",
        "--tickets", "none", "--device", "cpu", "--out", tmp_path / "run",
    )  # fmt: skip
    from aceglt.runs.directory import RunDir

    assert RunDir(tmp_path / "run").read_config() == Config(
        dataset=str(tmp_path / "tiny.npz"), method="ace", axis="graph", signal="teacher", levels=1, seeds=(4, 7),
        epochs=2, hidden=9, lr=0.02, weight_decay=0.001, lambda_edges=0.002, lambda_weights=0.003, beta=0.5,
        score_epochs=1, teacher_temperature=0.7, teacher_smoothing=0.6, balance=0.3, degree_bonus=0.4,
        score_epoch="last", decay_scores=False, clamp_scores=True, prune_model=0.3, prune_graph=0.1, fixed_model=0.25,
        fixed_graph=0.06, patience=2, target_graph=0.5, test=False,
        method_options={"rounds": 1, "refine_epochs": 1, "temperature": 0.5, "keep": "best", "resample": False},
    )  # fmt: skip
    assert list((tmp_path / "run" / "tickets").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", 3), ("0,4,7", [0, 4, 7]), ("5-9", [5, 6, 7, 8, 9]), ("1, 3-4", [1, 3, 4])]
)
def test_seeds_are_a_number_a_list_or_a_range(text: str, seeds: Any) -> None:
    assert cli.read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "-1", "5-", "1,,2", "a-b", "²", "1.5", "0x3", "7,"])
def test_other_forms_of_seeds_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds takes"):
        cli.read_seeds(text)


def test_the_command_line_gives_what_python_gives(finished: Path, tmp_path: Path) -> None:
    data = str(finished.with_name("tiny.npz"))
    aceglt.search(dataset=data, out=tmp_path / "python", tickets="all", device="cpu", report=False, **TINY)
    assert outcome(finished) == outcome(tmp_path / "python")


def test_without_plotly_a_search_says_how_to_get_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    printed = _ok("search", "--dataset", npz(tmp_path), *FAST, "--out", tmp_path / "run")
    assert "note: the report needs plotly: pip install plotly" in printed
    assert "report.html" not in printed


# show, evaluate, datasets


def test_show_of_a_run_with_levels_repeats_what_the_search_ended_with(finished: Path, run: Path) -> None:
    again = _ok("search", "--dataset", finished.with_name("tiny.npz"), *FAST, "--tickets", "all", "--out", run)
    assert _ok("show", run, "--levels") == again


def test_show_of_a_run_tells_its_story_in_ten_lines(run: Path) -> None:
    lines = _ok("show", run).splitlines()
    assert len(lines) == 10
    results = json.loads((run / "results.json").read_text())
    first, last = results["levels"]
    story = {name: text.strip() for name, _, text in (line.partition(":") for line in lines[1:])}
    assert lines[0].startswith("ugs (labels) on ")
    assert "2 levels, 2 seeds" in lines[0]
    assert f"test {plus_minus(results['dense']['test'])}, val {plus_minus(results['dense']['val'])}" in story["Dense"]
    assert f"edges {percent(first['graph_sparsity'])} to {percent(last['graph_sparsity'])}" in story["Pruned"]
    assert story["Test"].endswith(f"{plus_minus([mean_std(last['test'])[0]])} at the last level")
    assert story["Significant"] == "undetermined (it takes 5 seeds)"
    for criterion in ("paper", "strict"):
        winner = results["highest_winning"][criterion]
        expected = "no level wins" if winner is None else f"wins at level {winner['level']}: "
        assert story[criterion.capitalize()].startswith(expected)
    assert plus_minus(last["fluctuation"]["edges"]) in story["Rank change"]
    assert story["Cost"].endswith("; per seed 6 epochs of choosing and 6 of retraining")
    assert str(run / "report.html") in story["Files"]


def test_show_of_dense_alone_tells_what_there_is(tmp_path: Path) -> None:
    search(out=tmp_path / "dense", levels=0)
    names = [line.partition(":")[0] for line in _ok("show", tmp_path / "dense").splitlines()[1:]]
    assert names == ["Dense", "Files"]


def test_show_of_an_unfinished_run_says_so(run: Path) -> None:
    results = {**results_of(run), "finished": False}
    (run / "results.json").write_text(json.dumps(results))
    assert "not finished" in _ok("show", run)


def test_show_of_a_ticket_says_what_it_is(run: Path) -> None:
    printed = _ok("show", run / "tickets" / "level_02_seed_1.safetensors")
    for words in (
        "ugs (labels)",
        "level 2 of the joint axis, seed 1",
        "weights  41 of 64 (35.94 % sparse)",
        "24 nodes",
    ):
        assert words in printed


def test_a_folder_that_holds_a_ticket_is_shown_and_predicts_as_its_file_does(run: Path, tmp_path: Path) -> None:
    file = run / "tickets" / "level_02_seed_1.safetensors"
    (tmp_path / "shared").mkdir()
    shutil.copy(file, tmp_path / "shared" / "ticket.safetensors")
    assert _ok("show", tmp_path / "shared") == _ok("show", file)
    for name, ticket in (("a.csv", file), ("b.csv", tmp_path / "shared")):
        _ok("predict", ticket, "--out", tmp_path / name)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 1}', '{"format": 1, "levels": 3}'])
def test_show_of_a_damaged_run_is_refused_in_one_line(content: str, run: Path) -> None:
    (run / "results.json").write_text(content)
    assert "results.json" in _refused("show", run)


def test_show_of_something_else_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "no such file" in _refused("show", tmp_path / "nothing")
    assert "is neither a run directory" in _refused("show", tmp_path)
    assert "is a graph; aceglt search --dataset" in _refused("show", npz(tmp_path))
    assert "no such file" in _refused("show", "nothing.npz")


# report


def test_report_of_one_run_goes_into_its_directory(run: Path) -> None:
    (run / "report.html").unlink()
    assert _ok("report", run) == f"{run / 'report.html'}\n"
    assert "ugs (labels)" in (run / "report.html").read_text()


def test_report_of_several_runs_goes_where_it_is_told(run: Path, tmp_path: Path) -> None:
    search(out=tmp_path / "random", method="random")
    page = tmp_path / "new" / "both.html"
    assert _ok("report", run, tmp_path / "random", "-o", page) == f"{page}\n"
    assert "random, data: levels" in page.read_text()
    assert "ugs (labels), tiny.npz: levels" in page.read_text()
    assert _ok("report", run, tmp_path / "random") == "report.html\n"
    assert Path("report.html").is_file()


def test_report_draws_static_plots(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed = _ok("report", run, "--static", tmp_path / "plots", "--format", "png").splitlines()
    assert set(map(Path, printed[1:])) == set((tmp_path / "plots").iterdir())
    assert any(line.endswith("time.png") for line in printed)


def test_report_refuses_in_one_line_and_writes_nothing(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert "unknown format 'gif'" in _refused("report", run, "-o", page, "--static", tmp_path / "x", "--format", "gif")
    assert "is not a run directory" in _refused("report", run, tmp_path, "-o", page)
    assert "given twice" in _refused("report", run, run, "-o", page)
    assert "is a folder" in _refused("report", run, "-o", tmp_path)
    (run / "results.json").write_text('{"format": 1}')
    assert "results.json: damaged" in _refused("report", run, "-o", page)
    assert not page.exists()
    assert not (tmp_path / "x").exists()


def test_evaluate_compares_a_ticket_with_dense(run: Path) -> None:
    ticket = run / "tickets" / "level_01_seed_0.safetensors"
    lines = _ok("evaluate", ticket, "--seeds", "2", "--device", "cpu").splitlines()
    assert lines[0].startswith("Retrained in isolation over 2 dropout seeds: level 1, model sparsity 20.31 %")
    readings = r" +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+ *"
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("initial weights")) + 1 :]
    for line, names in zip(table[:4], ("the ticket's +dense", " +ticket", "fresh +dense", " +ticket"), strict=True):
        assert re.fullmatch(names + readings, line)
    text = " ".join(lines)
    for name in ("Winning", "Winning from fresh weights"):
        assert re.search(rf"{name}\? paper (yes|no), strict (yes|no), significant undetermined", text)
    assert "Do the ticket's own initial weights help? undetermined" in text


def test_evaluate_on_another_graph_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    data = graph(seed=1)
    np.savez(tmp_path / "other.npz", **{name: getattr(data, name).numpy() for name in TENSORS})
    ticket = run / "tickets" / "level_01_seed_0.safetensors"
    assert "was found on a graph" in _refused("evaluate", ticket, "--dataset", tmp_path / "other.npz")
    assert "seeds must be from 1 to 1000" in _refused("evaluate", ticket, "--seeds", "0")


def test_evaluate_of_a_damaged_ticket_is_refused_in_one_line(run: Path) -> None:
    ticket = run / "tickets" / "level_01_seed_0.safetensors"
    ticket.write_bytes(ticket.read_bytes()[:-1])
    assert "not a readable ticket file" in _refused("evaluate", ticket)


def test_datasets_prints_paths_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aceglt.datasets.available", lambda root: [("cora", True, "[bold]/[/]data")])
    assert "[bold]/[/]data" in _ok("datasets")


def test_datasets_lists_what_is_known_and_what_is_present() -> None:
    shown = _ok("datasets")
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert rows["citeseer"][-1] == "yes"
    assert "citeseer: embedded\n" in shown
    assert rows["cora"][1:7] == ["2,708", "1,433", "5,278", "7", "accuracy", "no"]
    assert "pubmed" in rows


def test_datasets_cuts_no_name_at_80_columns() -> None:
    shown = CliRunner().invoke(cli.app, ["datasets"], env={"COLUMNS": "80"}).stdout
    for name, info in KNOWN.items():
        row = next(line.split() for line in shown.splitlines() if line.startswith(f"{name} "))
        assert row[1:4] == [f"{n:,}" for n in (info.nodes, info.features, info.edges)]


def test_a_folder_that_is_no_run_is_not_called_missing(tmp_path: Path) -> None:
    for name in ("bench", "evaluate"):
        assert "neither a ticket file nor a run directory" in _refused(name, tmp_path)


def test_a_graph_in_place_of_a_ticket_is_called_one(tmp_path: Path) -> None:
    assert "is a graph; name a ticket or a run, and the graph with --dataset" in _refused("bench", npz(tmp_path))
    archive = shutil.copy(npz(tmp_path), tmp_path / "ticket.safetensors")
    assert "it is a zip archive, such as an .npz file" in _refused("bench", archive)


def test_a_ticket_of_a_run_without_a_winner_is_used_with_a_note(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    for wins, noted in ((True, False), (False, True)):
        for level in results["levels"]:
            level["winning"]["strict"] = wins
        (run / "results.json").write_text(json.dumps(results))
        arguments = "--dataset", run.parent / "tiny.npz", "--repeats", "1", "--device", "cpu"
        npz(run.parent)
        assert ("note: no level wins" in _run("bench", run, *arguments).stderr) == noted


def test_a_grid_in_place_of_settings_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('methods = ["ugs"]')
    message = _refused("search", "--config", tmp_path / "grid.toml")
    assert "a grid, which aceglt sweep and aceglt compare take; --config takes a tuned.json" in message


# help and version


def test_the_help_of_tune_shows_what_it_takes() -> None:
    few = _ok("tune", "--help")
    assert all(option in few for option in ("--budget", "--minutes", "--out", "Examples:"))
    assert not any(option in few for option in ("--levels", "--method", "--axis"))


def test_the_version_is_the_packages() -> None:
    assert _ok("--version") == f"aceglt {aceglt.__version__}\n"


def test_help_names_every_command_and_every_setting() -> None:
    assert all(name in _ok("--help") for name in ("search", "evaluate", "show", "report", "datasets"))
    assert "--dataset" in _ok("search", "--help")
    help_text = CliRunner().invoke(cli.app, ["search", "--help-all"], env={"COLUMNS": "300"}, terminal_width=300).stdout
    for name in SETTINGS:
        if name not in ("test", "method_options"):
            assert f"--{name.replace('_', '-')}" in help_text, name
    assert "--no-test" in help_text
    assert "[default: 0.03]" in help_text
    assert "--method-option" in help_text


def test_no_argument_shows_the_help() -> None:
    assert "Usage" in _run().output


def test_an_unknown_option_or_command_is_refused() -> None:
    for arguments in (["search", "--unheard"], ["serach"], ["search", "--levels", "three"], ["evaluate"]):
        result = _run(*arguments)
        assert result.exit_code == 2
        assert "Traceback" not in result.output


def test_garbage_is_collected_again_once_a_command_is_imported() -> None:
    with importing():
        during = gc.isenabled()
    gc.unfreeze()
    assert (during, gc.isenabled()) == (False, True)
