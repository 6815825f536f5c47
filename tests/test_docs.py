"""Every code block of README.md, docs/ and zoo/ runs, with small networks and short trainings."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from engine_samples import without_processes
from search_samples import npz
from typer.testing import CliRunner

import aceglt
from aceglt.cli import app
from aceglt.runner import search
from aceglt.sweeps.grid import plan, read_grid

ROOT = Path(__file__).parents[1]
DOCS_SITE = runpy.run_path(str(ROOT / "tools" / "docs_site.py"))
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "zoo/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

NOT_RUN = {
    "make demo": "makes a virtual environment from the network",
    "make test": "is this test suite",
    "pip install '.[fast]'": "changes the environment; test_package.py installs the archives",
    "make bench": "takes minutes; test_benchmarks.py runs its parts on small graphs",
    "make campaign": "takes most of an hour",
    "make campaign-gpu": "needs a GPU",
    "torchrun --nproc-per-node 2 -m -- aceglt search --dataset synthetic-arxiv --partitions 8 --parts-per-step 2": (
        "starts processes; test_processes.py does"
    ),
    "python -m benchmarks.scaling --json scaling.json": "takes minutes",
    "python -m benchmarks.dense amazon-photo --device cuda": "needs a GPU",
    "python -m benchmarks epoch --device cuda --backbones gcn --runs 10": "needs a GPU",
    "python -m benchmarks.deep --device cuda --dataset amazon-computers --seeds 5": "needs a GPU",
    "aceglt search --backbone my_module:MyModel": "needs the user's own file; test_own_search.py runs such a command",
    "aceglt evaluate TICKET --backbone my_module:MyModel": "likewise",
    "aceglt predict RUN --backbone my_module:MyModel --out predictions.csv": "tests/tickets/test_own.py runs it",
    "aceglt export TICKET served --backbone my_module:MyModel": "likewise",
    "ray start --head --port 6379": "would leave a cluster behind; tests/sweeps/test_cluster.py makes one",
    "ray start --address HEAD:6379": "likewise",
    "python -m study.leaderboard search tuned": "takes hours; tests/test_study_leaderboard.py searches a small one",
    "python -m study.leaderboard page": "likewise",
    "aceglt compare grid.toml --out compared": "takes two methods; tests/sweeps/test_compare.py runs such a grid",
    "aceglt compare compared more/runs/* results/*.json --out page": "likewise",
    "aceglt sweep grid.toml --out /shared/sweep --engine ray --address auto": "needs that cluster",
}
"""Commands that cannot run here, and why."""

SHORT = {"epochs": 2, "hidden": 8, "levels": 1, "seeds": 1}
"""What every search on a page is cut down to."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, code) of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def with_blocks(language: str) -> list[Any]:
    having = [page for page in PAGES if any(kind == language for kind, _ in blocks(page))]
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in having]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder to work in, with a small graph, where searches are short."""

    def short_search(*args: Any, **settings: Any) -> aceglt.SearchResult:
        rounds = {"rounds": 1, "refine_epochs": 1} if settings.get("method", "ace") == "ace" else {}
        return search(*args, **{**settings, **SHORT, "method_options": rounds, "device": "cpu"})

    monkeypatch.setattr(aceglt, "search", short_search, raising=False)
    without_processes(monkeypatch)  # whose own tests are in tests/sweeps/test_local.py
    monkeypatch.chdir(tmp_path)
    npz(tmp_path).rename("my_graph.npz")
    (tmp_path / "zoo").symlink_to(ROOT / "zoo")
    (tmp_path / "grid.toml").write_text(
        'dataset = "my_graph.npz"\nmethod = "random"\n' + "".join(f"{k} = {v}\n" for k, v in SHORT.items())
    )
    return tmp_path


def test_there_are_no_blocks_of_unknown_languages() -> None:
    kinds = {(page.name, kind) for page in PAGES for kind, _ in blocks(page)}
    assert {kind for _, kind in kinds} <= {"python", "sh", "toml"}, kinds


@pytest.mark.parametrize("page", with_blocks("toml"))
def test_the_grids_of_a_page_can_be_planned(page: Path, tmp_path: Path) -> None:
    for kind, code in blocks(page):
        if kind == "toml":
            (tmp_path / "grid.toml").write_text(code)
            assert len(plan(read_grid(tmp_path / "grid.toml"))) > 1


@pytest.mark.parametrize("page", with_blocks("python"))
@pytest.mark.usefixtures("short")
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path) -> None:
    names: dict[str, Any] = {}
    for kind, code in blocks(page):
        if kind == "python":
            exec(compile(code, page.name, "exec"), names)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that pages call RUN."""
    folder = tmp_path_factory.mktemp("finished")
    search(dataset=str(npz(folder)), method="random", out=folder / "RUN", device="cpu", **SHORT)
    return folder / "RUN"


@pytest.mark.parametrize("page", with_blocks("sh"))
def test_the_commands_of_a_page_run(page: Path, short: Path, finished: Path) -> None:
    ticket = next((shutil.copytree(finished, short / "RUN") / "tickets").iterdir())
    before = {line for other in PAGES[: PAGES.index(page)] for line in commands(other)}
    for line in commands(page):
        if line in NOT_RUN or ("TICKET" in line and line in before):  # which leaves nothing that others read
            continue
        words = shlex.split(line)
        assert words[0] == "aceglt", f"neither an aceglt command nor in NOT_RUN: {line}"
        arguments = shortened(["RUN" if w == "RUN" else str(ticket) if w == "TICKET" else w for w in words[1:]])
        outcome = CliRunner().invoke(app, arguments)
        assert outcome.exit_code == 0, f"{line}\n{outcome.output}"


def test_what_is_not_run_is_on_a_page() -> None:
    found = {line for page in PAGES for line in commands(page)}
    assert set(NOT_RUN) <= found


def commands(page: Path) -> list[str]:
    code = "".join(text for kind, text in blocks(page) if kind == "sh")
    lines = (line.split(" #")[0].strip() for line in code.splitlines())
    return [line for line in lines if line]


def shortened(words: list[str]) -> list[str]:
    """The command on the small graph, with a short training; of options given twice the last counts."""
    graph = ["--dataset", "my_graph.npz"]
    if words[0] == "search":
        ace = ["-m", "rounds=1", "-m", "refine_epochs=1"] if "--method" not in words else []
        few = ["--levels", "1"] if "longer" not in " ".join(words) else []
        few += ["--layers", "2"] if "resgcn" in words else []  # of 28
        return [*words, *graph, "--epochs", "2", "--hidden", "8", "--seeds", "1", "--device", "cpu", *few, *ace]
    if words[0] == "reproduce":
        cell = "model/graph-10" if "figure4" in words else "citeseer/gcn/model/random"
        words = [cell if before == "--cell" else word for before, word in zip(["", *words], words, strict=False)]
        words += [] if "--cell" in words else ["--cell", cell]
        return [*words, "--epochs", "2", "--hidden", "4", "--levels", "1", "--seeds", "1", "--device", "cpu"]
    extra = {
        "sweep": ["--device", "cpu"],
        "tune": [*graph, "--epochs", "2", "--hidden", "8", "--seeds", "1", "--device", "cpu", "--budget", "1"],
        "evaluate": [*graph, "--seeds", "1"],
        "bench": [*graph, "--repeats", "1"],
        "predict": graph,
    }
    return [*words, *extra.get(words[0], [])]


def test_every_command_is_in_the_reference_with_its_options() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert names == set(re.findall(r"^## (\w+)$", text, re.MULTILINE))
    assert names == set(re.findall(r"^<!-- options of (\w+) -->$", text, re.MULTILINE))
    for name in names:
        shown = CliRunner().invoke(app, [name, "--help-all" if name in ("search", "tune") else "--help"]).output
        table = DOCS_SITE["options"](name)
        assert [word for word in re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE) if word not in table] == []


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert [name for name in aceglt.__all__ if name != "__version__" and f"::: aceglt.{name}\n" not in text] == []


def test_links_out_of_the_documentation_lead_to_the_repository_or_become_paths() -> None:
    text, outside = "[the record](../../results/a.csv), [Files](../reference/files.md)", DOCS_SITE["outside"]
    assert outside(text, "science/study.md", None).startswith("the record (`results/a.csv`), [Files](")
    assert "](https://x/blob/main/results/a.csv)," in outside(text, "science/study.md", "https://x/")


def test_the_readme_is_short_and_its_table_is_made_of_what_is_kept() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 120
    if not (ROOT / "results").exists():
        pytest.skip("results are in the repository, not in the archive")
    tool = runpy.run_path(str(ROOT / "tools" / "write_readme.py"))
    assert tool["BEGIN"] + tool["savings"]() + tool["END"] in text


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
