"""Tables in the paper's layout, with its numbers beside ours; and how they are written as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

HERE, PAPER = "here", "paper"


@dataclass(frozen=True)
class Entry:
    """What one place shows."""

    text: str = ""
    mean: float | None = None
    """In the unit that the text has; None where the text is no number."""
    std: float | None = None
    mark: str = ""
    """best, second or nothing."""
    star: bool = False


@dataclass(frozen=True)
class Line:
    """One line; those of one block are compared with each other."""

    labels: tuple[str, ...]
    entries: tuple[Entry, ...]
    block: str = ""


@dataclass(frozen=True)
class Table:
    """Lines under two rows of headings: a group's name over the names of its columns."""

    title: str
    heads: tuple[str, ...]
    """Of the columns of labels."""
    columns: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]


def markdown(table: Table) -> str:
    """A pipe table; bold is best, underlined second."""
    heads = [*table.heads, *(f"{group}: {name}" if group else name for group, name in table.columns)]
    return pipe_table([heads, ["---"] * len(heads), *(_cells(line, *_MARKDOWN) for line in table.lines)])


def pipe_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of Markdown, of which the second is the rule."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def latex(table: Table) -> str:
    """A floating table for LaTeX with the packages booktabs and amssymb (for ✓)."""
    width, signs = len(table.heads), _LATEX[0]
    groups = [(group.translate(signs), len(list(run))) for group, run in groupby(group for group, _ in table.columns)]
    above = [""] * width + [f"\\multicolumn{{{n}}}{{c}}{{{group}}}" for group, n in groups]
    heads = [text.translate(signs) for text in (*table.heads, *(name for _, name in table.columns))]
    blocks = [[_cells(line, *_LATEX) for line in lines] for _, lines in groupby(table.lines, lambda line: line.block)]
    blocks = [[above, heads] if any(group for group, _ in groups) else [heads], *(blocks or [[]])]
    body = "\\midrule\n".join("".join(f"{' & '.join(row)} \\\\\n" for row in block) for block in blocks)
    return "\n".join(
        [
            "% needs \\usepackage{booktabs,amssymb}",
            "\\begin{table*}",
            "\\centering",
            f"\\caption{{{table.title.translate(signs)}}}",
            f"\\begin{{tabular}}{{{'l' * width}{'c' * len(table.columns)}}}",
            "\\toprule",
            f"{body}\\bottomrule",
            "\\end{tabular}",
            "\\end{table*}\n",
        ]
    )


def comma_separated(table: Table) -> str:
    """The same lines for machines: per column the mean or the text, the deviation, and best, second and star."""
    names = [f"{group} {name}".strip() for group, name in table.columns]
    heads = [*table.heads, *(part for name in names for part in (name, f"{name} ±", f"{name} mark"))]
    rows: list[list[object]] = []
    for line in table.lines:
        rows.append([*line.labels])
        for entry in line.entries:
            mean = entry.text if entry.mean is None else float(entry.mean)
            rows[-1] += [mean, "" if entry.std is None else entry.std, entry.mark + "*" * entry.star]
    return csv_rows(heads, rows)


def csv_rows(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Plain comma-separated values, floats with ten digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([f"{cell:.10g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return out.getvalue()


# What signs are written as, how best and second look, and the star.
_MARKDOWN = (
    str.maketrans({"|": "\\|", "*": "\\*"}), {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}, "\\*"
)  # fmt: skip
_LATEX = (
    str.maketrans({
        "\\": "\\textbackslash{}", "%": "\\%", "&": "\\&", "_": "\\_", "#": "\\#", "$": "\\$", "{": "\\{", "}": "\\}",
        "±": "$\\pm$", "·": "$\\cdot$", "²": "$^2$", "₁": "$_1$", "₂": "$_2$", "✓": "$\\checkmark$", "×": "$\\times$",
        "β": "$\\beta$", "–": "--", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "→": "$\\rightarrow$",
    }), {"best": "\\textbf{{{}}}", "second": "\\underline{{{}}}", "": "{}"}, "$^*$",
)  # fmt: skip


def _cells(line: Line, signs: dict[int, str], marks: dict[str, str], star: str) -> list[str]:
    entries = (marks[entry.mark].format(entry.text.translate(signs) + star * entry.star) for entry in line.entries)
    return [*(label.translate(signs) for label in line.labels), *entries]
