"""No source of ours can run what a file says."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from operator import itemgetter
from pathlib import Path

import pytest
from search_samples import environment

import aceglt

SOURCE = Path(aceglt.__file__).parent
UNPICKLES = {"datasets/unpickle.py": "a reader of six harmless names, behind a checksum"}
IMPORTS_BY_NAME = {"config/own.py": "what the user names in this very call", "__init__.py": "our own modules"}


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """(file, node) of every syntax node in the package."""
    files = [(path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())) for path in SOURCE.rglob("*.py")]
    return [(file, node) for file, tree in sorted(files, key=itemgetter(0)) for node in ast.walk(tree)]


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    return [(file, ast.unparse(node.func), node) for file, node in nodes() if isinstance(node, ast.Call)]


def keyword(call: ast.Call, name: str) -> str | None:
    return next((ast.unparse(given.value) for given in call.keywords if given.arg == name), None)


def test_no_text_is_run() -> None:
    forbidden = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.hub.load", "runpy.run_path"}
    assert [(file, name) for file, name, _ in calls() if name in forbidden] == []
    assert [(file, name) for file, name, call in calls() if keyword(call, "shell") not in (None, "False")] == []


def test_pickles_are_opened_in_one_place() -> None:
    modules = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}
    found = set()
    for file, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if modules & {name.partition(".")[0] for name in names}:
            found.add(file)
    assert found == set(UNPICKLES)


def test_torch_and_numpy_unpickle_nothing() -> None:
    loads = [
        (file, call) for file, name, call in calls() if name in ("torch.load", "load") and "torch" in ast.unparse(call)
    ]
    assert loads
    assert [file for file, call in loads if keyword(call, "weights_only") != "True"] == []
    assert [file for file, _, call in calls() if keyword(call, "allow_pickle") not in (None, "False")] == []


def test_modules_are_imported_by_name_in_one_place() -> None:
    assert {file for file, name, _ in calls() if name.endswith("import_module")} == set(IMPORTS_BY_NAME)


HEAVY = ("torch", "numpy", "scipy", "plotly", "pandas", "safetensors", "torch_geometric", "ogb")


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["search", "--help"], ["show", "."]])
def test_what_computes_nothing_imports_nothing_heavy(command: list[str]) -> None:
    code = (
        "import sys; from aceglt import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, env=environment(), check=True
    )
    assert found.stdout.splitlines()[-1] == "[]"


def test_starting_a_search_and_loading_the_embedded_graph_wait_for_torch_alone() -> None:
    heavy = [name for name in HEAVY if name not in ("torch", "numpy", "safetensors")]
    code = "import sys, aceglt.runner, aceglt.datasets; aceglt.datasets.read('citeseer');"
    code += f"print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("method", ["ugs", "teddy", "adaglt"])  # kernels' Adam, torch's, and one of a method's own
def test_neither_a_search_nor_a_measurement_imports_the_compiler_of_torch(method: str) -> None:
    options = f"method={method!r}, levels=1, seeds=1, epochs=1, hidden=16, device='cpu'"
    code = (
        f"import sys, aceglt; ticket = aceglt.search('citeseer', {options}).tickets[0]\n"
        "aceglt.benchmark(ticket, device='cpu', repeats=1, pyg=False)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert found.stdout.splitlines()[-1] == "False"
