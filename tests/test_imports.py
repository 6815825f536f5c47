"""Imports go one way: a module imports only what stands before it in the order of the house."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import aceglt

ORDER = (
    "version", "errors", "files", "config", "numerics", "backbones", "backends", "datasets", "problems", "training",
    "pruning", "methods", "searches", "tickets", "runs", "report", "runner", "estimator", "sweeps", "reproduction",
    "cli", "__main__",
)  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One import of a module of the package by another."""

    importer: str
    imported: str
    line: int
    for_types: bool

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}: imports {self.imported}"


def sources(folder: Path) -> dict[str, str]:
    """The text of every module by its name; that of a folder is its `__init__`."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join((folder.name, *(p for p in parts if p != "__init__")))] = path.read_text(encoding="utf-8")
    return found


def imports(module: str, modules: Mapping[str, str]) -> Iterator[Import]:
    """What a module imports of the package, at any depth; a name that is itself a module counts as that module."""
    package = module.partition(".")[0]

    def walk(node: ast.AST, for_types: bool) -> Iterator[Import]:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}, line {node.lineno}: a relative import"
            found = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module or "" for name in found]
        for name in dict.fromkeys(n for n in names if n.partition(".")[0] == package):
            yield Import(module, name, node.lineno, for_types)  # type: ignore[attr-defined]
        for field, value in ast.iter_fields(node):
            types = for_types or (isinstance(node, ast.If) and field == "body" and _asks_for_types(node.test))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, types)

    yield from walk(ast.parse(modules[module]), False)


def _asks_for_types(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def against_the_order(found: Import) -> bool:
    """Whether an import leads to a folder further down; the top of the package, with its public names, is the end."""
    _, _, importer = found.importer.partition(".")
    _, _, imported = found.imported.partition(".")
    return not found.for_types and bool(importer) and _place(imported) > _place(importer)


def _place(name: str) -> int:
    return ORDER.index(name.partition(".")[0]) if name else len(ORDER)


def cycle(found: list[Import]) -> list[Import]:
    """Some imports that lead back to where they began, or none."""
    ahead: dict[str, list[Import]] = {}
    for one in found:
        if not one.for_types:
            ahead.setdefault(one.importer, []).append(one)
    done: set[str] = set()

    def follow(module: str, path: list[Import]) -> list[Import]:
        on_path = [one.importer for one in path]
        if module in on_path:
            return path[on_path.index(module) :]
        if module not in done:
            for one in ahead.get(module, ()):
                if back := follow(one.imported, [*path, one]):
                    return back
            done.add(module)
        return []

    return next((back for module in ahead if (back := follow(module, []))), [])


MODULES = sources(Path(aceglt.__file__).parent)


def test_every_folder_has_its_place() -> None:
    assert {name.split(".")[1] for name in MODULES if "." in name} == set(ORDER)


def test_the_map_shows_the_folders_in_this_order() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = text.split("```")[1].splitlines()[2:]
    names = [name.strip("/") for line in drawn for name in line.split("  ")[1].split(", ")]
    assert tuple(names) == ORDER


@pytest.mark.parametrize("folder", ORDER)
def test_a_module_imports_only_what_stands_before_it(folder: str) -> None:
    own = [name for name in MODULES if name.split(".")[1:2] == [folder]]
    wrong = [one for name in own for one in imports(name, MODULES) if against_the_order(one)]
    assert [str(one) for one in wrong] == []


def test_no_import_leads_back_to_where_it_began() -> None:
    found = [one for name in MODULES for one in imports(name, MODULES)]
    assert [str(one) for one in cycle(found)] == []


def found_in(**texts: str) -> list[Import]:
    """The imports of modules that are made up for a test; `_` stands for a dot in their names."""
    made = {f"house.{name.replace('_', '.')}": text for name, text in texts.items()}
    return [one for name in made for one in imports(name, made)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("from house import runner", True),
        ("import house.runner", True),
        ("from house.runner import search", True),
        ("def late():\n    from house.runner import search", True),
        ("if True:\n    import house.runner as r", True),
        ("class A:\n    def b(self):\n        try:\n            import house.runner\n        except E: ...", True),
        ("if not TYPE_CHECKING:\n    import house.runner", True),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import house.runner", True),
        ("from house import search", True),
        ("if TYPE_CHECKING:\n    from house.runner import search", False),
        ("from house.errors import AcegltError", False),
        ("import runner", False),
    ],
)
def test_the_walk_sees_imports_wherever_they_stand(text: str, wrong: bool) -> None:
    found = found_in(numerics_graph=text, runner="", errors="")
    assert [against_the_order(one) for one in found] == ([wrong] if "house" in text else [])


def test_the_walk_names_the_line_and_finds_a_cycle_that_a_late_import_hides() -> None:
    first = "x = 1\ndef late():\n    from house.numerics.b import f"
    found = found_in(numerics_a=first, numerics_b="from house.numerics import c", numerics_c="import house.numerics.a")
    assert sorted(map(str, cycle(found))) == [
        "house.numerics.a, line 3: imports house.numerics.b",
        "house.numerics.b, line 1: imports house.numerics.c",
        "house.numerics.c, line 1: imports house.numerics.a",
    ]
    assert cycle(found[1:]) == []
