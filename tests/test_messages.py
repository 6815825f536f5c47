"""What goes wrong at the edges is one line that says what to do."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
import torch
from search_samples import graph, npz, search
from test_own_search import Net
from typer.testing import CliRunner

import aceglt
from aceglt import cli, datasets
from aceglt.config import SETTINGS
from aceglt.config.checks import ELSEWHERE
from aceglt.methods import Level, Random, Selection


def changed(**changes: Any) -> Any:
    data = graph()
    for name, value in changes.items():
        data[name] = value
    return data


def in_one_line(problem: pytest.ExceptionInfo[aceglt.AcegltError]) -> bool:
    return "\n" not in str(problem.value) and len(str(problem.value)) < 300


CLASSES = graph().y
MATRIX = scipy.sparse.csr_matrix(np.eye(24))
GRAPHS = {
    "a scipy matrix": ({"x": MATRIX}, r"torch\.from_numpy\(x\.toarray\(\)\)"),
    "an array": ({"x": np.eye(24)}, r"torch\.as_tensor\(x\)"),
    "labels from 1": ({"y": CLASSES + 1}, r"begin with 1, not 0; subtract 1 from y"),
    "fractions for labels": ({"y": CLASSES.float()}, r"if these are classes, give y\.long\(\)"),
    "labels times ten": ({"y": CLASSES * 10}, r"class 1, 2, 3, 4, 5 … \(9 of 11\).*torch\.unique\(y, return_inverse"),
    "labels times 100": ({"y": CLASSES * 100}, r"without gaps: torch\.unique"),
    "zeros and ones for a mask": (
        {"val_mask": (torch.arange(24) % 2).long()},
        r"of zeros and ones, give mask\.bool\(\)",
    ),
    "indices for a mask": ({"train_mask": torch.arange(8)}, r"a mask, not indices.*index_fill\(0, indices, True\)"),
}


@pytest.mark.parametrize(
    "call",
    [
        lambda data: aceglt.sweep(data, "out"),
        lambda data: aceglt.sweep({"dataset": data}, "out"),
        lambda data: aceglt.compare(data, "out"),
        lambda data: aceglt.compare({"datasets": [data]}, "out"),
        lambda data: aceglt.tune(data),
        lambda data: aceglt.tune("out", dataset=data),
    ],
)
def test_where_searches_are_processes_a_graph_in_memory_is_told_to_be_saved(call: Any) -> None:
    with pytest.raises(aceglt.AcegltError, match=r"save_npz\(.mine\.npz., data\) and give dataset=") as caught:
        call(graph())
    assert in_one_line(caught)


@pytest.mark.parametrize("use", [aceglt.evaluate, aceglt.benchmark])
def test_without_a_ticket_it_says_where_there_is_one(use: Any) -> None:
    with pytest.raises(
        aceglt.AcegltError, match=r"found NoneType; where no level wins, result\.best is None"
    ) as caught:
        use(None, graph())
    assert in_one_line(caught)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_of_another_shape_says_what_to_do(name: str) -> None:
    changes, words = GRAPHS[name]
    with pytest.raises(aceglt.AcegltError, match=words) as caught:
        search(changed(**changes))
    assert in_one_line(caught)


def test_a_one_hot_code_says_how_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    data = changed(y=torch.nn.functional.one_hot(CLASSES).float())
    result = search(data, levels=0)
    assert result.results["metric"] == "roc_auc"
    assert "read as several labels" in caplog.text
    assert "y.argmax(dim=1)" in caplog.text
    caplog.clear()
    search(graph(), levels=0)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_files_of_others_say_what_to_call(tmp_path: Path) -> None:
    torch.save(graph(), tmp_path / "graph.pt")
    np.savez(tmp_path / "other.npz", adjacency=np.eye(3))
    for name in ("graph.pt", "other.npz"):
        with pytest.raises(aceglt.AcegltError, match=r"aceglt\.datasets\.save_npz") as caught:
            aceglt.search(str(tmp_path / name))
        assert "\n" not in str(caught.value)
    assert graph().x.equal(torch.load(tmp_path / "graph.pt", weights_only=False).x)  # what the message says to call


def test_a_file_that_is_not_there_is_no_unknown_name(tmp_path: Path) -> None:
    for name in ("gone.npz", "gone.pt"):
        with pytest.raises(aceglt.AcegltError, match=f"{name}: no such file"):
            aceglt.search(str(tmp_path / name))


def test_swapped_arguments_are_named(tmp_path: Path) -> None:
    swapped: Any = (graph(), tmp_path / "graph.npz")
    with pytest.raises(aceglt.AcegltError, match="takes the path first"):
        datasets.save_npz(*swapped)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(aceglt.AcegltError, match=r"torch sees no GPU; use cpu or auto"):
        aceglt.search("citeseer", device="cuda")


NAMES = {"learning_rate": "lr", "hidden_channels": "hidden", "num_layers": "layers"}


@pytest.mark.parametrize(("given", "meant"), NAMES.items())
def test_names_of_other_libraries_are_answered_with_ours(given: str, meant: str) -> None:
    settings: Any = {given: 1}
    with pytest.raises(aceglt.AcegltError, match=f"did you mean '{meant}'"):
        search(**settings)
    option = f"--{given.replace('_', '-')}"
    result = CliRunner().invoke(cli.app, ["search", option, "1"])
    assert result.exit_code == 2
    assert f"--{meant}" in result.output


def test_every_name_of_other_libraries_stands_for_a_setting() -> None:
    taken = {*SETTINGS, *signature(aceglt.search).parameters}
    assert set(ELSEWHERE.values()) <= taken
    assert not set(ELSEWHERE) & taken


@pytest.mark.parametrize(("given", "meant"), [("verbose", "progress"), ("devic", "device"), ("out_dir", "out")])
def test_a_keyword_beside_settings_is_suggested_too(given: str, meant: str) -> None:
    wrong: Any = {given: "cpu"}
    with pytest.raises(aceglt.AcegltError, match=f"did you mean '{meant}'"):
        aceglt.search(graph(), **wrong)


def test_a_name_without_an_option_is_not_suggested() -> None:
    assert "--progress" not in CliRunner().invoke(cli.app, ["search", "--verbose"]).output


def test_a_wrong_choice_of_a_method_is_said_in_order() -> None:
    with pytest.raises(aceglt.AcegltError, match=r"^ace: unknown reading 'top'; known are default, literal,"):
        search(method="ace", method_options={"reading": "top"})


def test_an_unknown_device_says_which_there_are() -> None:
    with pytest.raises(aceglt.AcegltError, match=r"^device 'gpu' cannot be used here; use cpu, cuda, cuda:N or auto$"):
        aceglt.search(graph(), device="gpu")


def test_an_error_of_a_sparse_tensor_is_cut_to_what_can_be_read() -> None:
    with pytest.raises(aceglt.AcegltError, match=r"data\.x\.to_dense\(\)") as caught:
        search(changed(x=graph().x.to_sparse()), backbone=Net, hidden=None)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_fraction_of_a_seed_is_refused() -> None:
    seeds: Any = 1.5
    with pytest.raises(
        aceglt.AcegltError, match=r"seeds must be a whole number or a list of whole numbers, found 1\.5"
    ):
        search(seeds=seeds)


@dataclass(frozen=True)
class Mine:
    """A method of one's own."""

    name: ClassVar[str] = "my method"
    share: float = 0.5

    def select(self, level: Level) -> Selection:
        return Random().select(level)

    def cost(self, epochs: int) -> int:
        return 0


@pytest.mark.parametrize("given", [{"method": Mine, "method_options": {"share": "half"}}, {"method": Mine("half")}])  # type: ignore[arg-type]
def test_an_option_of_the_wrong_type_is_one_line(given: dict[str, Any]) -> None:
    with pytest.raises(aceglt.AcegltError, match="my method: share must be a number, found 'half'") as caught:
        search(**given)
    assert in_one_line(caught)


def test_an_own_method_is_called_by_its_name(tmp_path: Path) -> None:
    result = search(method=Mine(0.2), out=tmp_path / "run", report=True)
    assert repr(result).startswith("my method on data, gcn")
    assert "my method: levels" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"method": "random"}, "random"),
        ({"method": "random", "signal": "teacher"}, "random"),
        ({"method": "gebt"}, "gebt (labels)"),
        ({"method": "ugs"}, "ugs (teacher)"),
        ({"method": "ace"}, "ace (teacher, 2 rounds)"),
        ({"preset": "quick"}, "ace (teacher, 1 round)"),
        ({"preset": "paper"}, "ace (labels, topk, 6 rounds)"),
    ],
)
def test_a_label_says_what_ran(settings: dict[str, Any], label: str) -> None:
    assert aceglt.resolve(**settings).label == label


# Help and the commands that take a run


def test_help_shows_ten_options_and_examples_and_cuts_nothing_off() -> None:
    text = CliRunner().invoke(cli.app, ["search", "--help"], env={"COLUMNS": "80"}, terminal_width=80).stdout
    assert len(re.findall(r"^  --(?!help)", text.partition("Options:")[2], re.MULTILINE)) == 10
    assert text.count("aceglt search --") >= 3
    assert "--help-all" in text
    whole = CliRunner().invoke(cli.app, ["search", "--help-all"], env={"COLUMNS": "80"}, terminal_width=80).stdout
    for name in ("--teacher-temperature", "--lambda-weights", "--no-decay-scores"):
        assert name in whole
        assert name not in text
    for page in (text, whole, CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "80"}).stdout):
        assert max(map(len, page.splitlines())) <= 80
        assert "…\n" not in page.replace("…,", "")
        assert "..." not in page.replace("[ARGS]...", "")


def test_a_run_stands_for_its_best_ticket(tmp_path: Path) -> None:
    path = npz(tmp_path)
    search(dataset=str(path), out=tmp_path / "run")
    out = tmp_path / "predictions.csv"
    result = CliRunner().invoke(cli.app, ["predict", str(tmp_path / "run"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert len(out.read_text().splitlines()) == 25
    search(dataset=str(path), out=tmp_path / "none", tickets="none")
    refused = CliRunner().invoke(cli.app, ["predict", str(tmp_path / "none"), "--out", str(out)])
    assert "the run keeps no ticket" in refused.stderr
