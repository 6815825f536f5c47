"""What is published: one version everywhere, and an archive that installs."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aceglt
from aceglt import version

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("CITATION.cff", r"^version: (.+)$"), ("CHANGELOG.md", r"^## (\d\S*)")],
)
def test_the_version_is_the_same_everywhere(file: str, pattern: str) -> None:
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == aceglt.__version__


def test_the_package_takes_its_version_from_the_one_place() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text
    assert f'[tool.hatch.version]\npath = "src/aceglt/{Path(version.__file__).name}"' in text


def test_a_release_is_cut_in_all_places_at_once(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "cut_release.py"))
    for name in tool["PLACES"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    tool["cut"]("7.8.9", tmp_path)
    assert runpy.run_path(str(tmp_path / "src/aceglt/version.py"))["__version__"] == "7.8.9"
    assert "\nversion: 7.8.9\n" in (tmp_path / "CITATION.cff").read_text()
    assert re.findall(r"^## (\S+)", (tmp_path / "CHANGELOG.md").read_text(), re.MULTILINE)[:2] == [
        "Unreleased",
        "7.8.9",
    ]


def test_every_python_that_is_promised_is_tested_by_the_workflow() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    workflow = ROOT / ".github" / "workflows" / "ci.yml"
    if not workflow.exists():
        pytest.skip("the workflow is in the repository, not in the archive")
    matrix = re.search(r"python: \[(.+)\]", workflow.read_text())
    assert matrix is not None
    assert [version.strip(' "') for version in matrix[1].split(",")] == promised


@pytest.mark.parametrize("form", ["bug", "idea"])
def test_the_forms_for_issues_have_no_field_that_github_does_not_know(form: str) -> None:
    path = ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml"
    if not path.exists():
        pytest.skip("the forms are in the repository, not in the archive")
    for part in pytest.importorskip("yaml").safe_load(path.read_text())["body"]:
        assert set(part) <= {"type", "id", "attributes", "validations"}
        assert set(part["attributes"]) <= {"label", "description", "render", "options"}


def test_every_dependency_is_bounded_and_justified() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    needed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert needed is not None
    table = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    for line in needed[1].splitlines():
        bounds = re.fullmatch(r'  "(\w+)>=([\d.]+),<([\d.]+)(; .*)?",', line)
        assert bounds is not None, line
        assert f"| {bounds[1]} | ≥ {bounds[2]}, < {bounds[3]} |" in table


def test_types_are_published() -> None:
    assert (Path(aceglt.__file__).parent / "py.typed").is_file()


@pytest.mark.slow
def test_both_archives_install_and_work_in_a_clean_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python, command = tmp_path / "venv/bin/python", tmp_path / "venv/bin/aceglt"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    run(*pip, "hatchling")
    run(python, "-m", "hatchling", "build", "--directory", tmp_path / "dist")
    (wheel,), (sdist,) = (tmp_path / "dist").glob("*.whl"), (tmp_path / "dist").glob("*.tar.gz")
    run(*pip, f"{wheel}[fast]")
    for again in ([], ["--no-deps", "--force-reinstall", sdist]):
        if again:
            run(*pip, *again)
        assert run(command, "--version", cwd=tmp_path).strip() == f"aceglt {aceglt.__version__}"
        assert "search" in run(command, "--help", cwd=tmp_path)
        small = ["--method", "random", "--levels", "1", "--seeds", "1", "--epochs", "1", "--hidden", "2"]
        out = f"run-{len(again)}"
        run(command, "search", *small, "--device", "cpu", "--out", out, cwd=tmp_path)
        assert (tmp_path / out / "report.html").is_file()
    run(command, "search", "--preset", "quick", "--out", "demo", cwd=tmp_path)  # as make demo does
    assert (tmp_path / "demo" / "report.html").is_file()
