"""Tables in the paper's layout, with its numbers beside ours; and how they are written as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
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
    rows = [heads, ["---"] * len(heads)]
    rows += [[*map(_md, line.labels), *(_decorated(e, _md, *_MD) for e in line.entries)] for line in table.lines]
    return pipe_table(rows)


def pipe_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of Markdown, of which the second is the rule."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def latex(table: Table) -> str:
    """A floating table for LaTeX with the packages booktabs and amssymb (for ✓)."""
    width = len(table.heads)
    groups = [(group, len(list(run))) for group, run in groupby(group for group, _ in table.columns)]
    first = [""] * width + [f"\\multicolumn{{{n}}}{{c}}{{{_tex(group)}}}" for group, n in groups]
    second = [_tex(text) for text in (*table.heads, *(name for _, name in table.columns))]
    body: list[str] = []
    for line, before in zip(table.lines, (None, *table.lines), strict=False):
        if before is not None and before.block != line.block:
            body.append("\\midrule")
        cells = [*map(_tex, line.labels), *(_decorated(e, _tex, *_TEX) for e in line.entries)]
        body.append(" & ".join(cells) + " \\\\")
    return "\n".join(
        [
            "% needs \\usepackage{booktabs,amssymb}",
            "\\begin{table*}",
            "\\centering",
            f"\\caption{{{_tex(table.title)}}}",
            f"\\begin{{tabular}}{{{'l' * width}{'c' * len(table.columns)}}}",
            "\\toprule",
            *([" & ".join(first) + " \\\\"] if any(group for group, _ in groups) else []),
            " & ".join(second) + " \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table*}",
            "",
        ]
    )


def comma_separated(table: Table) -> str:
    """The same lines for machines: per column the mean or the text, the deviation, and best, second and star."""
    names = [f"{group} {name}".strip() for group, name in table.columns]
    heads = [*table.heads, *(part for name in names for part in (name, f"{name} ±", f"{name} mark"))]
    rows = [[*line.labels, *(part for entry in line.entries for part in _numbers(entry))] for line in table.lines]
    return csv_rows(heads, rows)


def csv_rows(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Plain comma-separated values, floats with ten digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([f"{cell:.10g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return out.getvalue()


def _numbers(entry: Entry) -> tuple[float | str, float | str, str]:
    mean = entry.text if entry.mean is None else float(entry.mean)
    return mean, "" if entry.std is None else entry.std, entry.mark + "*" * entry.star


_MD = ({"best": "**{}**", "second": "<u>{}</u>", "": "{}"}, "\\*")
_TEX = ({"best": "\\textbf{{{}}}", "second": "\\underline{{{}}}", "": "{}"}, "$^*$")


def _decorated(entry: Entry, escape: Callable[[str], str], marks: dict[str, str], star: str) -> str:
    return marks[entry.mark].format(escape(entry.text) + (star if entry.star else ""))


def _md(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


_TEX_SIGNS = {
    "\\": "\\textbackslash{}", "%": "\\%", "&": "\\&", "_": "\\_", "#": "\\#", "$": "\\$", "{": "\\{", "}": "\\}",
    "±": "$\\pm$", "·": "$\\cdot$", "²": "$^2$", "₁": "$_1$", "₂": "$_2$", "✓": "$\\checkmark$", "×": "$\\times$",
    "β": "$\\beta$", "–": "--", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "→": "$\\rightarrow$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX_SIGNS.get(sign, sign) for sign in text)
