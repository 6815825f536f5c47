"""Best, second and star, and the three forms of a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import pytest

from aceglt.reproduction.cells import Cell
from aceglt.reproduction.grid import BOLD, STAR, UNDERLINE, Column, Grid, Row, fill
from aceglt.reproduction.measures import Quantity
from aceglt.reproduction.tables import Table, comma_separated, latex, markdown

MARKS = frozenset({BOLD, UNDERLINE, STAR})


def cell(method: str) -> Cell:
    return Cell("cora", "gcn", "model", method)


def found(**samples: list[float]) -> dict[Cell, Mapping[str, Any]]:
    """Searches whose highest winning sparsities are given."""
    return {
        cell(method): {
            "seeds": list(range(len(values))),
            "levels": [{}],
            "highest_winning_per_seed": {"model_sparsity": values},
        }
        for method, values in samples.items()
    }


def table(marks: frozenset[str] = MARKS, **samples: list[float]) -> Table:
    methods = ("random", "ugs", "ace")
    places = {(f"gcn/{m}", "cora/model"): Quantity("winner", (cell(m),)) for m in methods}
    rows = tuple(Row(f"gcn/{m}", ("GCN", m.upper()), "gcn") for m in methods)
    columns = (Column("cora/model", "Model Sparsity", "Cora"),)
    grid = Grid(("Backbone", "Method"), rows, columns, dict(places), marks, "table1")
    return fill(grid, "A title with 5 % & more", found(**samples))


def ours(result: Table) -> dict[str, tuple[str, str, bool]]:
    return {
        line.labels[1].lower(): (line.entries[0].text, line.entries[0].mark, line.entries[0].star)
        for line in result.lines
        if line.labels[-1] == "here"
    }


def test_the_best_is_bold_the_second_underlined_and_a_significant_best_has_a_star() -> None:
    entries = ours(table(random=[0.0, 0.0, 0.0], ugs=[0.2, 0.36, 0.2], ace=[0.6, 0.7, 0.6]))
    assert entries == {
        "random": ("-", "", False),
        "ugs": ("25.33 ± 9.24", "second", False),
        "ace": ("63.33 ± 5.77", "best", True),
    }


def test_no_star_without_significance_with_too_few_seeds_or_against_nothing_found() -> None:
    assert ours(table(ugs=[0.2, 0.6, 0.3], ace=[0.6, 0.2, 0.5]))["ace"] == ("43.33 ± 20.82", "best", False)
    assert ours(table(ugs=[0.2, 0.2], ace=[0.6, 0.6]))["ace"][1:] == ("best", False)
    assert ours(table(random=[0.0] * 3, ace=[0.2] * 3))["ace"][1:] == ("best", False)


def test_what_stands_alone_is_not_the_best() -> None:
    assert ours(table(ace=[0.2] * 3))["ace"][1:] == ("", False)


def test_rows_that_tie_share_their_place() -> None:
    entries = ours(table(random=[0.2, 0.2, 0.2], ugs=[0.6, 0.6, 0.6], ace=[0.6, 0.6, 0.6]))
    assert [mark for _, mark, _ in entries.values()] == ["", "best", "best"]


def test_only_what_the_papers_table_marks_is_marked() -> None:
    entries = ours(table(frozenset({BOLD}), random=[0.1] * 3, ugs=[0.2] * 3, ace=[0.6] * 3))
    assert [entry[1:] for entry in entries.values()] == [("", False), ("", False), ("best", False)]
    assert {mark for _, mark, _ in ours(table(frozenset(), ugs=[0.2] * 3, ace=[0.6] * 3)).values()} == {""}


def test_seeds_that_one_method_lacks_do_not_enter_the_test() -> None:
    assert ours(table(ugs=[0.2, 0.3, 0.2, 0.9], ace=[0.6, 0.7, 0.65]))["ace"][1:] == ("best", True)


def test_the_papers_line_stands_under_ours_and_what_was_not_searched_is_empty() -> None:
    result = table(ace=[0.6, 0.7, 0.6])
    assert [line.labels[-1] for line in result.lines] == ["here", "paper"] * 3
    shown = [line.entries[0].text for line in result.lines]
    assert shown == ["", "-", "", "67.23 ± 0.23", "63.33 ± 5.77", "89.64 ± 0.45"]


def test_markdown_has_one_line_per_row_and_escapes_the_star() -> None:
    lines = markdown(table(ugs=[0.2, 0.36, 0.2], ace=[0.6, 0.7, 0.6])).splitlines()
    assert lines[0] == "| Backbone | Method | Source | Model Sparsity: Cora |"
    assert "| GCN | UGS | here | <u>25.33 ± 9.24</u> |" in lines
    assert "| GCN | ACE | here | **63.33 ± 5.77\\*** |" in lines
    assert {line.count("|") for line in lines} == {5}


def test_latex_is_balanced_escaped_and_has_the_papers_marks() -> None:
    text = latex(table(ugs=[0.2, 0.36, 0.2], ace=[0.6, 0.7, 0.6]))
    assert "\\caption{A title with 5 \\% \\& more}" in text
    assert "GCN & ACE & here & \\textbf{63.33 $\\pm$ 5.77$^*$} \\\\" in text
    assert "\\underline{67.23 $\\pm$ 0.23}" in text
    assert text.count("{") == text.count("}")
    assert text.count("$") % 2 == 0
    body = text.split("\\midrule\n", 1)[1].split("\\bottomrule")[0]
    assert {line.count(" & ") for line in body.splitlines()} == {3}
    assert text.isascii()


def test_latex_has_no_sign_that_means_something_else_there() -> None:
    text = latex(Table("a^b~c_d", ("x",), (("", "✓"),), ()))
    assert "\\caption{a\\textasciicircum{}b\\textasciitilde{}c\\_d}" in text
    assert text.startswith("% needs \\usepackage{booktabs,amssymb}")
    assert "x & $\\checkmark$" in text


def test_csv_has_numbers_in_columns_of_their_own() -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated(table(ace=[0.6, 0.7, 0.6], ugs=[0.2, 0.36, 0.2])))))
    ace = next(row for row in rows if (row["Method"], row["Source"]) == ("ACE", "here"))
    assert float(ace["Model Sparsity Cora"]) == pytest.approx(100 * 1.9 / 3)
    assert float(ace["Model Sparsity Cora ±"]) == pytest.approx(5.7735, abs=1e-4)
    assert ace["Model Sparsity Cora mark"] == "best*"
    assert rows[-1]["Model Sparsity Cora"] == "89.64"
